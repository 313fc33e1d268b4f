"""Bounds of the time that a partition was unread, from the commits around a change of its owner.

A coordinator counts a member that died as the owner until its session ends, and does not write down when the members of
a classic group stop reading. There the time without a counted owner is only a lower bound. The last commit of the owner
before and the first one of the next owner give an upper bound: one of the two read the partition outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec


class Bound(msgspec.Struct):
    """Commits around the moment when a partition lost an owner that may have stopped reading before.

    Attributes:
        left_ms: when the coordinator no longer counted the owner.
        last_ms: the owner's last commit; None if it made none.
        first_ms: the next owner's first commit; None if there was none.
    """

    partition: str
    left_ms: float
    last_ms: float | None
    first_ms: float | None = None


class CommitTracker:
    """Finds the bounds of one group. Its methods are called in order of time."""

    def __init__(self) -> None:
        self.bounds: Final[list[Bound]] = []
        self._last: dict[str, float] = {}
        self._waiting: dict[str, Bound] = {}

    def committed(self, partitions: Iterable[str], at_ms: float) -> None:
        """A member of the group committed offsets of *partitions*."""
        for partition in partitions:
            self._last[partition] = at_ms
            bound = self._waiting.pop(partition, None)
            if bound is not None:
                bound.first_ms = at_ms

    def left(self, partition: str, at_ms: float, *, seen: bool) -> None:
        """A partition has no counted owner any more.

        Args:
            seen: its owner read until then.
        """
        last_ms = self._last.pop(partition, None)
        if seen:
            return
        bound = self._waiting[partition] = Bound(partition, at_ms, last_ms)
        self.bounds.append(bound)
