"""The fixture `kip848_simulation`, as a user's project has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kip848_client.testing.simulation import CHURN, Report
from tests.simulation.test_command import break_the_member


def test_a_run_is_returned(kip848_simulation: Callable[..., Report]) -> None:
    """Its counts are there to be looked at."""
    report = kip848_simulation(replace(CHURN, duration_ms=5_000), seed=2)
    assert report.counts["member_joined"] >= 3


def test_a_broken_invariant_fails_the_test_with_the_way_back(
    kip848_simulation: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is all that a build server shows."""
    break_the_member(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)C\d: .*kip848 simulate --scenario churn --seed 2"):
        kip848_simulation("churn", seed=2)
