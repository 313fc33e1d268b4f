"""The runner of `make mutants` works: it changes what it says, finds what can be found, and says so."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from tests.mutants.__main__ import result
from tests.mutants.generated import Mutation, every_mutation, mutate, mutations, sample
from tests.mutants.known import MUTANTS
from tests.mutants.runner import Outcome, targets, try_one
from tests.mutants.sources import path_of

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


def test_changes_that_change_no_decision_are_not_drawn(everything: list[Mutation]) -> None:
    """They would count as missed, and no test can notice them."""
    drawn = targets(everything, count=len(everything), seed=1)
    assert drawn.left_out > 100
    assert len(drawn.chosen) == drawn.every - drawn.left_out
    assert not any(mutation.module == "kip848_client.member.statistics" for mutation in drawn.chosen)


def test_bugs_of_the_list_have_names_of_their_own() -> None:
    """They are looked up by them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_a_deleted_statement_is_noticed_by_the_simulation() -> None:
    """A member for which an answer never ends its heartbeat sends no other: its session ends, and the group tells."""
    mutation = next(one for one in mutations(HEARTBEAT) if " Heartbeats.ended: " in one.name)
    outcome = try_one(mutation, play_count=5)
    assert outcome.caught
    assert outcome.by_simulation, outcome


@pytest.mark.slow
def test_a_change_that_plays_do_not_notice_is_noticed_by_the_unit_tests() -> None:
    """Without any play only they are left, and the changed module must be the one that they import."""
    mutation = next(one for one in mutations(HEARTBEAT) if " Heartbeats.ended: " in one.name)
    outcome = try_one(mutation, play_count=0)
    assert outcome.caught_by.startswith("tests/"), outcome
    assert not outcome.by_simulation


def test_the_result_has_the_seed_and_names_what_was_missed(everything: list[Mutation]) -> None:
    """A developer tries a missed mutant again by its name, or the sample by its seed."""
    names = [mutation.name for mutation in everything[:2]]
    tried = [
        Outcome(name=names[0], kind="comparison", caught_by="C4", message="two at once", play=7, cpu_s=0.1),
        Outcome(name=names[1], kind="comparison", caught_by="", message="", play=0, cpu_s=0.1),
    ]
    found = json.loads(result(tried, targets(everything, count=2, seed=5), seed=5, seconds=1.0))
    assert (found["seed"], found["tried"], found["caught"], found["caught_by_simulation"]) == (5, 2, 1, 1)
    assert found["missed"] == [names[1]]
