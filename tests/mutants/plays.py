"""What a mutant is played with: a list of scenarios with seeds, the same for every mutant, of which it gets the first.

Most are of the scenario that draws its own numbers; one in ten is one of the scenarios with names, which take ten times
as long, one in five lets members compute the assignment, and one in five has more of what is seldom.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_PLAYS: Final = 600

_NAMED: Final = (
    "assignors",
    "static",
    "churn",
    "topics",
    "failover",
    "patterns",
    "zombies",
    "refusals",
    "storm",
    "quiet",
)
_ASSIGNORS: Final = (
    "assignors=0.97",
    "behaviour.misbehaves=0.2",
    "behaviour.reweighs=0.1",
    "deletions=0.3",
)
_ROUGH_ASSIGNORS: Final = (
    "assignors=0.8",
    "behaviour.misbehaves=0.6",
    "behaviour.reweighs=0.3",
    "joins=2",
    "leaves=1.5",
    "behaviour.hang=0.2",
    "refusals=2",
)
_PROBES: Final = "probes=1"
"""In every play: what costs time and changes nothing is worth it here."""
_SELDOM: Final = ("behaviour.asks=0.3", "no_reset=0.5", "trials=0", "statics=0.5", "held_instances=0.6")
"""Applications that ask for committed offsets, some without a reset policy (those may start late), and coordinators
that refuse a member its own instance id."""
_HANGS: Final = "behaviour.hang=0.5"
"""Listeners that hang: the world goes on meanwhile."""


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
        return f"kip848 simulate --scenario {self.scenario} --seed {self.seed}{changes}"


def plays(count: int) -> list[Play]:
    """The first *count* plays of the list."""
    return [_play(number) for number in range(count)]


def _play(number: int) -> Play:
    tens, digit = divmod(number, 10)
    if digit == 9:
        return Play(_NAMED[tens % len(_NAMED)], tens, (_PROBES,))
    if digit == 7:
        return Play("mixed", number, (_PROBES, *_ROUGH_ASSIGNORS))
    if digit == 4:
        return Play("mixed", number, (_PROBES, *_ASSIGNORS))
    if digit == 6:
        return Play("mixed", number, (_PROBES, _HANGS))
    if digit == 2:
        return Play("mixed", number, (_PROBES, *_SELDOM))
    return Play("mixed", number, (_PROBES,))
