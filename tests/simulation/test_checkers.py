"""Every checker finds the bugs that it is there for."""

from __future__ import annotations

from typing import Final

import pytest

from tests.mutants.known import MUTANTS, Mutant
from tests.mutants.plays import Play, judge

SEEDS: Final = 20
"""Seeds that a bug may need at most, from the one it names on."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_that_is_put_back_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not, thousands of green seeds say nothing about that bug."""
    mutant.put(monkeypatch)
    changes = ("probes=1",) if mutant.probes else ()  # asked in few runs otherwise
    for seed in range(mutant.seed, mutant.seed + SEEDS):
        found = judge(Play(mutant.scenario, seed, changes))
        if found is not None:
            assert found[0] in mutant.killed_by, found
            return
    pytest.fail(f"{SEEDS} seeds, and nothing noticed")


def test_every_invariant_has_a_bug_that_trips_it() -> None:
    """The list of bugs may not shrink unnoticed."""
    covered = frozenset().union(*(mutant.killed_by for mutant in MUTANTS))
    numbers = {
        "S": range(1, 13),
        "C": range(1, 10),
        "L": (1, 2, 3, 4, 5, 6, 7, 8, 10),
        "K": (2, 3, 5, 6, 8, 9, 11),  # the coordinator asserts K1 itself, and K12 is L1
        "U": (1, 2, 3),
        "X": range(1, 8),
    }
    assert covered >= {f"{letter}{number}" for letter, of_letter in numbers.items() for number in of_letter}
