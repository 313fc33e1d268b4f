"""What a mutant is played with: scenarios with seeds, the same for every mutant, and how a play is judged."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NamedTuple

PLAYS: Final = 40
"""A bug that these do not find is for the unit tests."""
PLAY_CPU_S: Final = 20.0
"""Processor time after which a play counts as hanging."""

_NAMED: Final = ("assignors", "static", "topics", "storm")
_ASSIGNORS: Final = ("assignors=0.97", "behaviour.misbehaves=0.2", "behaviour.reweighs=0.1", "deletions=0.3")
_ROUGH_ASSIGNORS: Final = (
    "assignors=0.8",
    "behaviour.misbehaves=0.6",
    "behaviour.reweighs=0.3",
    "joins=2",
    "leaves=1.5",
    "behaviour.hang=0.2",
    "refusals=2",
)
_SELDOM: Final = ("no_reset=0.5", "trials=0", "statics=0.5", "held_instances=0.6")
"""Applications without a reset policy, and coordinators that refuse a member its
own instance id."""
_GROUPS: Final = ("classic", "migration")
_ONLY: Final = {
    "kip848_client.worker.": "workers",
    "kip848_client.coordinator.connect.": "workers",
    "kip848_client.transactions.": "transactions",
    "kip848_client.partition_log": "transactions",
    "kip848_client.producer_batches": "transactions",
    "kip848_client.broker.": "",
}
"""Beginning of a module's name -> the only scenario that runs its code; empty if none does."""
_OF_TEN: Final[dict[int, tuple[str, ...]]] = {
    2: _SELDOM,
    4: _ASSIGNORS,
    6: ("behaviour.hang=0.5",),
    7: _ROUGH_ASSIGNORS,
}


class Play(NamedTuple):
    """One run of the simulation.

    Args:
        changes: numbers of the scenario that are changed, as ``kip848 simulate --set`` takes them.
    """

    scenario: str
    seed: int
    changes: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What plays it from a shell."""
        changes = "".join(f" --set {change}" for change in self.changes)
        watch = "--watch tests.simulation.probes:probes"
        return f"kip848 simulate --scenario {self.scenario} --seed {self.seed} {watch}{changes}"


def plays(module: str, count: int = PLAYS) -> list[Play]:
    """*count* plays for a module: of the one scenario that runs its code, or one in five of classic groups."""
    for beginning, scenario in _ONLY.items():
        if module.startswith(beginning):
            return [Play(scenario, number) for number in range(count if scenario else 0)]
    return [_play(number) for number in range(count)]


def _play(number: int) -> Play:
    tens, digit = divmod(number, 10)
    if digit in (3, 8):
        return Play(_GROUPS[digit == 8], tens)
    if digit == 9:
        return Play(_NAMED[tens % len(_NAMED)], tens, ("probes=1",))
    return Play("mixed", number, ("probes=1", *_OF_TEN.get(digit, ())))


class Hang(BaseException):
    """A play took too long."""


def judge(play: Play) -> tuple[str, str] | None:
    """Play it. Returns what noticed something, and what it said: an invariant, "assertion", "exception" or "hang"."""
    from kip848_client.simulation import scenario_of  # what is imported here may be a mutant
    from tests.simulation.probes import play as run

    try:
        with _limit(PLAY_CPU_S):
            scenario = scenario_of(play.scenario, seed=play.seed, changes=play.changes)
            violation = run(scenario, seed=play.seed, keep_history=False).violation
    except Hang:
        return "hang", f"no end within {PLAY_CPU_S:.0f} s of processor time"
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
