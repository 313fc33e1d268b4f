"""Every interleaving of two members with two partitions, within a bound: what seeds reach by luck is walked here."""

from __future__ import annotations

import pytest

from kip848_client.testing.coordinator.modern import current_assignment
from tests.simulation.exhaustive import explore, main


def test_no_interleaving_without_faults_breaks_an_invariant() -> None:
    """A second member joins one that has everything, in every order of messages, polls and listener calls."""
    found = explore(depth=14, faults=0)
    assert found.violation is None, (found.violation, found.path)
    assert found.complete
    assert found.depth == 14
    assert found.states > 400


@pytest.mark.slow
def test_no_interleaving_with_two_faults_breaks_an_invariant() -> None:
    """Lost messages, listeners that raise, sessions that end, closes, restarts; deeper by the command line."""
    found = explore(depth=5, faults=2)
    assert found.violation is None, (found.violation, found.path)
    assert found.complete
    assert found.states > 400


def test_a_missing_acknowledgement_is_found_in_the_fewest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breadth first: the path is the shortest story of the bug."""
    monkeypatch.setattr(current_assignment, "_owns_any", lambda owned, partitions: False)
    found = explore(depth=8, faults=0)
    assert found.violation is not None
    assert found.violation.invariant == "C1"
    assert len(found.path) == 3


def test_the_command_tells_what_was_walked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the steps that lead to a broken invariant, and an exit status."""
    assert main(["--depth", "4", "--faults", "1"]) == 0
    assert "every path of 4 steps; every invariant held" in capsys.readouterr().out
    monkeypatch.setattr(current_assignment, "_owns_any", lambda owned, partitions: False)
    assert main(["--depth", "6", "--faults", "0"]) == 1
    assert "3. request arrives" in capsys.readouterr().out
