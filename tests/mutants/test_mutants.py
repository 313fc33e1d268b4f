"""The runner of `make mutants` works: it changes what it says, finds what can be found, and says so."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import result
from tests.mutants.equivalent import REASONS, reason_to_leave_out
from tests.mutants.generated import Mutation, every_mutation, mutate, mutations, sample
from tests.mutants.sources import ROOT, path_of
from tests.mutants.trial import Outcome, put

pytestmark = pytest.mark.slow

HEARTBEAT = "kip848_client.member.heartbeat"


@pytest.fixture(scope="module")
def everything() -> list[Mutation]:
    return every_mutation()


def test_every_change_has_a_name_of_its_own(everything: list[Mutation]) -> None:
    """Otherwise a missed one in the result could not be looked up, nor an equivalent one be left out."""
    names = Counter(mutation.name for mutation in everything)
    assert len(everything) > 2_000
    assert [name for name, count in names.items() if count > 1] == []


def test_a_change_changes_what_its_name_says() -> None:
    """The result would blame the wrong line."""
    module = "kip848_client.member.backoff"
    tree = ast.parse(path_of(module).read_bytes())
    before = ast.unparse(tree)
    after = ast.unparse(mutate(module, tree, "member/backoff Backoff.failed: self.failures += 1 => nothing"))
    assert before.count("self.failures += 1") == 1
    assert after == before.replace("self.failures += 1", "pass")


def test_every_change_of_a_module_makes_code_that_compiles() -> None:
    """A change that cannot be compiled would count as caught."""
    module = "kip848_client.member.backoff"
    source = path_of(module).read_bytes()
    for mutation in mutations(module):
        changed = mutate(module, ast.parse(source), mutation.name)
        compile(ast.fix_missing_locations(changed), "backoff.py", "exec")  # raises if it cannot


def test_one_seed_draws_one_sample_and_another_seed_another(everything: list[Mutation]) -> None:
    """A missed mutant is tried again with the seed of its sample; a new sample shows changes that were never tried."""
    chosen = sample(everything, count=50, seed=3)
    assert sample(everything, count=50, seed=3) == chosen
    assert len(set(sample(everything, count=50, seed=4)) & set(chosen)) < 10


def test_what_is_left_out_is_there(everything: list[Mutation]) -> None:
    """A reason for a change that the code no longer has explains nothing; and what has one is not drawn."""
    left_out = [mutation for mutation in everything if reason_to_leave_out(mutation) is not None]
    there = {mutation.name for mutation in left_out}
    assert [name for name in REASONS if ": " in name and name not in there] == []
    assert any(mutation.module == "kip848_client.member.statistics" for mutation in left_out)


DELETED = "member/heartbeat Heartbeats.ended: self._in_flight = None => nothing"
SHORT_CUT = "member/leave_steps LeaveSteps.advance: return => nothing"


def noticed_by(tmp_path: Path, name: str, *options: str) -> str:
    """Try a change by the command line. Returns what noticed it."""
    kept = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.mutants", f"--only={name}", f"--result={kept}", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert kept.exists(), done.stderr
    found: str = json.loads(kept.read_text())["mutants"][name]
    return found


def test_a_unit_test_that_reaches_the_change_notices_it(tmp_path: Path) -> None:
    """A member whose heartbeat never ends sends no other."""
    found = noticed_by(tmp_path, DELETED, "--tests=tests/member/test_membership.py", "--plays=0")
    assert found.startswith("tests/member/test_membership.py::")


def test_a_change_that_decides_nothing_is_not_noticed(tmp_path: Path) -> None:
    """Otherwise the tests fail in a trial for another reason than the change, and every mutant looks caught."""
    found = noticed_by(tmp_path, SHORT_CUT, "--left-out", "--tests=tests/member/test_membership.py", "--plays=5")
    assert found == ""


def test_a_play_notices_what_no_test_was_asked_about(tmp_path: Path) -> None:
    """Simulation and unit tests judge together; the changed code must be what the simulation runs, too."""
    found = noticed_by(tmp_path, DELETED, "--tests=tests/member/test_states.py", "--plays=5")
    assert found
    assert not found.startswith("tests/")


def test_a_mutant_that_cannot_be_put_in_counts_as_missed() -> None:
    """A mistake of the harness would otherwise look like a hundred caught mutants."""
    with pytest.raises(KeyError):
        put(Mutation(HEARTBEAT, "no such change", 1, 1), {})


def test_the_result_has_the_seed_and_names_what_was_missed() -> None:
    """A developer tries a missed mutant again by its name, or the sample by its seed."""
    found = json.loads(result([Outcome(name="one", caught_by="C4"), Outcome(name="other")], seed=5, seconds=1))
    assert (found["seed"], found["tried"], found["caught"], found["caught_by_simulation"]) == (5, 2, 1, 1)
    assert found["missed"] == ["other"]
