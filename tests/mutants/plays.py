"""What a mutant is played with: a list of scenarios with seeds, the same for every mutant, of which it gets the first.

Most are of the scenario that draws its own numbers; one in ten is one of the scenarios with names, which take ten times
as long, and one in five lets members compute the assignment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_PLAYS: Final = 2_000

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
)
_PROBES: Final = "probes=1"
"""In every play: what costs time and changes nothing is worth it here."""


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
    if digit in {4, 7}:
        return Play("mixed", number, (_PROBES, *_ASSIGNORS))
    return Play("mixed", number, (_PROBES,))
