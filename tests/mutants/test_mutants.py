"""The runner of `make mutants` works: it changes what it says, finds what can be found, and says so."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants import document
from tests.mutants.equivalent import EQUIVALENT, SURVIVORS, TELLING
from tests.mutants.generated import Mutation, every_mutation, mutate, mutations, sample
from tests.mutants.known import MUTANTS
from tests.mutants.plays import plays
from tests.mutants.reach import reach
from tests.mutants.runner import Mutant, Outcome, Targets, generated_mutants, try_one
from tests.mutants.sources import path_of, short
from tests.mutants.worker import Verdict

HEARTBEAT = "kip848_client.member.heartbeat"


@pytest.fixture(scope="module")
def everything() -> list[Mutation]:
    return every_mutation()


def test_every_change_has_a_name_of_its_own(everything: list[Mutation]) -> None:
    """Otherwise a survivor in the report could not be looked up, nor an equivalent one be left out."""
    names = Counter(mutation.name for mutation in everything)
    assert len(everything) > 2_000
    assert [name for name, count in names.items() if count > 1] == []


def test_a_change_changes_what_its_name_says() -> None:
    """The report would blame the wrong line."""
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


def test_the_sample_stays_when_lines_move(everything: list[Mutation]) -> None:
    """A run after a small change to the code can be compared with the one before."""
    chosen = sample(everything, count=50, seed=3)
    without_one = [mutation for mutation in everything if mutation is not chosen[0]]
    assert len(set(sample(without_one, count=50, seed=3)) & set(chosen)) == 49


def test_what_is_left_out_is_still_there(everything: list[Mutation]) -> None:
    """The lists of equivalent mutants and of explained survivors follow the code."""
    names = {mutation.name for mutation in everything}
    assert sorted((EQUIVALENT.keys() | SURVIVORS.keys()) - names) == []
    places = {mutation.name.split(": ", 1)[0] for mutation in everything}
    assert sorted(TELLING.keys() - places - {short(mutation.module) for mutation in everything}) == []


def test_bugs_of_the_list_have_names_of_their_own() -> None:
    """They are looked up by them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_a_deleted_statement_is_noticed_by_the_simulation() -> None:
    """A member for which an answer never ends its heartbeat sends no other: its session ends, and the group tells."""
    mutation = next(one for one in mutations(HEARTBEAT) if " Heartbeats.ended: " in one.name)
    outcome = try_one(Mutant(mutation.name, HEARTBEAT, mutation.kind, range(5)), plays(5))
    assert outcome.caught, outcome.verdict
    assert outcome.verdict.command.startswith("kip848 simulate --scenario mixed --seed ")


@pytest.mark.slow
def test_a_change_that_changes_nothing_survives() -> None:
    """What counts rebalances for metrics decides nothing; a runner that calls it caught would call anything caught."""
    module = "kip848_client.member.statistics"
    mutation = next(
        one for one in mutations(module) if one.name.startswith("member/statistics Statistics.moved: self.")
    )
    outcome = try_one(Mutant(mutation.name, module, mutation.kind, range(3)), plays(3))
    assert not outcome.caught, outcome.verdict
    assert outcome.verdict.played == 3


@pytest.mark.slow
def test_a_bug_of_the_list_is_put_in_by_its_name() -> None:
    """Such as the rebalance timeout that is never sent."""
    known = next(mutant for mutant in MUTANTS if "Dekaf" in mutant.name)
    outcome = try_one(Mutant(known.name, "", "known", range(3), known.killed_by), plays(3))
    assert outcome.as_expected, outcome.verdict


@pytest.mark.slow
def test_targets_are_statements_that_plays_execute(everything: list[Mutation]) -> None:
    """A mutant in what no play reaches would survive and say nothing about the checkers."""
    found = reach(1, keep=False)
    targets = generated_mutants(everything, found, play_count=1, count=10, seed=1)
    assert len(targets.chosen) == 10
    assert all(mutant.plays for mutant in targets.chosen)
    assert targets.reachable < targets.all
    describing = [mutation for mutation in everything if short(mutation.module) == "coordinator/describe"]
    assert describing
    assert not any(found.plays_of(mutation) for mutation in describing)


def test_the_document_names_survivors_and_counts() -> None:
    """It is what a reader of docs/mutants.md goes by."""
    caught = Mutant("member/a f: x < y => x <= y", "m", "comparison", [0])
    alive = Mutant("member/b g: h() => nothing", "m", "deleted statement", [0])
    known = Mutant("somebody forgets", "", "known", [0], frozenset({"S1"}))
    verdicts = [Verdict("C4", "two at once", 6, "", 7, 0.1), Verdict("", "", 9, "", 10, 0.1)]
    generated = [Outcome(one, verdict) for one, verdict in zip((caught, alive), verdicts, strict=True)]
    listed = [Outcome(known, Verdict("S1", "", 0, "", 1, 0.1))]
    text = document.render(
        listed, generated, Targets(9, 5, {"left": "says nothing"}, [caught, alive]), seed=1, plays=10
    )
    assert "1 of 1 bugs of the list, 1 of 2 generated mutants (50.0 %)" in text
    assert "| somebody forgets | S1 | 1 |" in text
    assert "| `member/a f: x < y => x <= y` | C4 | 7 |" in text
    assert "- `member/b g: h() => nothing`: not explained yet" in text
    assert "- `left`: says nothing" in text
