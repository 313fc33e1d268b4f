"""Every checker finds the bugs that it is there for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import pytest

from kip848_client.testing.simulation import scenario_of
from tests.simulation.known_bugs import KNOWN_BUGS, KnownBug
from tests.simulation.probes import play

SEEDS: Final = 20
"""Seeds that a bug may need at most, from the one it names on."""
RUN_CPU_S: Final = 20.0
"""Processor time after which a run counts as hanging."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_a_bug_that_is_put_back_is_found(bug: KnownBug, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not, thousands of green seeds say nothing about that bug."""
    bug.put(monkeypatch)
    changes = ("probes=1",) if bug.probes else ()  # asked in few runs otherwise
    for seed in range(bug.seed, bug.seed + SEEDS):
        found = judge(bug.scenario, seed, changes)
        if found is not None:
            assert found[0] in bug.found_by, found
            return
    pytest.fail(f"{SEEDS} seeds, and nothing noticed")


def test_every_invariant_has_a_bug_that_trips_it() -> None:
    """The list of bugs may not shrink unnoticed."""
    covered = frozenset().union(*(bug.found_by for bug in KNOWN_BUGS))
    numbers = {
        "S": range(1, 13),
        "C": range(1, 10),
        "L": (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13),
        "K": (2, 3, 5, 6, 8, 9, 11),  # the coordinator asserts K1 itself, and K12 is L1
        "P": range(1, 9),
        "U": (1, 2, 3),
        "X": range(1, 8),
    }
    assert covered >= {f"{letter}{number}" for letter, of_letter in numbers.items() for number in of_letter}


class Hang(BaseException):
    """A run took too long."""


def judge(scenario: str, seed: int, changes: tuple[str, ...]) -> tuple[str, str] | None:
    """What noticed something, and what it said: an invariant, "assertion", "exception" or "hang"."""
    try:
        with _limit(RUN_CPU_S):
            chosen = scenario_of(scenario, seed=seed, changes=changes)
            violation = play(chosen, seed=seed, keep_history=False).violation
    except Hang:
        return "hang", f"no end within {RUN_CPU_S:.0f} s of processor time"
    except BaseException as error:
        return "exception", repr(error)
    return None if violation is None else (violation.invariant, violation.message)


@contextmanager
def _limit(cpu_s: float) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, 0.5)  # again, in case the first is caught
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
