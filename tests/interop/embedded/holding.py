"""Which partitions a member may read, and when. No expectations here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, Protocol

import msgspec

Partition = tuple[str, int]


class Span(msgspec.Struct, order=True):
    """A time during which a member held a partition, in seconds of `time.monotonic`; no end: it still does."""

    begin_s: float
    end_s: float = float("inf")


class Holding:
    """What one member holds, told by its rebalance callbacks.

    A callback runs on the thread that polls, so the member reads nothing of a partition before it is gained, and
    nothing after it is given up.
    """

    def __init__(self) -> None:
        self.owned: frozenset[Partition] = frozenset()
        self.spans: Final[dict[Partition, list[Span]]] = {}

    def gain(self, partitions: Iterable[Partition]) -> None:
        """The member was assigned more."""
        new = frozenset(partitions) - self.owned
        for partition in new:
            self.spans.setdefault(partition, []).append(Span(time.monotonic()))
        self.owned |= new

    def give_up(self, partitions: Iterable[Partition] | None = None) -> None:
        """The member reads no more of these; None means of all."""
        gone = self.owned if partitions is None else self.owned & frozenset(partitions)
        for partition in gone:
            self.spans[partition][-1].end_s = time.monotonic()
        self.owned -= gone


class Held(Protocol):
    """What `overlaps` needs of a member."""

    @property
    def spans(self) -> Mapping[Partition, list[Span]]:
        """When it held which partition."""


def overlaps(members: Iterable[Held]) -> dict[Partition, float]:
    """Partition -> how many seconds two of *members* held it at a time, where there were any."""
    spans: dict[Partition, list[Span]] = {}
    for member in members:
        for partition, held in member.spans.items():
            spans.setdefault(partition, []).extend(held)
    found: dict[Partition, float] = {}
    for partition, held in spans.items():
        both_s = [before.end_s - after.begin_s for before, after in pairwise(sorted(held))]
        if worst_s := max([0.0, *both_s]):
            found[partition] = worst_s
    return found
