"""Bounds of the time that a partition was unread, from the commits around a change of its owner.

A coordinator counts a member that died as the owner until its session ends, and does not write down when the members of
a classic group stop reading. A member may also take long before it gives partitions up, or until it reads new ones.
The members of a classic group may also stop reading partitions that they keep.
There the time without a counted owner is only a lower bound. The last commit of the owner before and the first one of
the next owner give an upper bound: one of the two read the partition outside of it.

Two things make this bound wrong, and offsets tell them. Clients commit the positions of all their partitions, also of
those that they have not read yet: if records waited, the partition is read again with the first commit that moves its
offset. And if no records came, nothing waited for a reader: then the offset moves more slowly than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.report.lives import SESSION_MS_MAX, CommitTimes, Rhythm

_SHARE: Final = 0.25
"""Records came all the time if the offset moved at this share of its usual speed, or faster."""
_CATCHING_UP_MS: Final = 5_000.0


class Usual(msgspec.Struct, frozen=True):
    """How the offset of a partition moved before it lost its owner.

    Attributes:
        offset, at_ms: the last commit that moved it.
        per_ms: its speed.
        unusual_ms: a longer time without such a commit is unusual.
    """

    offset: int
    at_ms: float
    per_ms: float
    unusual_ms: float


class Bound(msgspec.Struct):
    """Commits around the moment when a partition lost its owner.

    Attributes:
        left_ms: when the coordinator no longer counted the owner.
        seen: the owner said itself that it gave the partition up.
        last_ms: the owner's last commit; None if it made none.
        usual: None if there were too few commits.
        first_ms: the next owner's first commit; None if there was none.
        read_ms: the next owner's first commit that moved the offset; None if there was none.
        had_records: whether records came while it was unread.
        kept: the owner kept it in a rebalance in which members may stop reading; `left_ms` is the end of that.
    """

    partition: str
    left_ms: float
    seen: bool
    last_ms: float | None
    usual: Usual | None
    first_ms: float | None = None
    read_ms: float | None = None
    had_records: bool = False
    kept: bool = False

    @property
    def shows_a_gap(self) -> bool:
        """Whether offsets show that records waited for an unusual time."""
        if self.usual is None or self.read_ms is None or not self.had_records:
            return False
        return self.read_ms - self.usual.at_ms > self.usual.unusual_ms

    @property
    def until_ms(self) -> float | None:
        """When it was read again, at the latest; None if that, or that there was something to read, is not known."""
        if self.shows_a_gap:
            return self.read_ms
        if self.usual is None or self.first_ms is None or self.had_records:
            return self.first_ms
        return self.first_ms if self.first_ms - self.usual.at_ms <= SESSION_MS_MAX else None

    def moved(self, offset: int, at_ms: float) -> bool:
        """The next owner moved the offset; whether this bound is complete."""
        if self.read_ms is None:
            self.read_ms = at_ms
        if self.usual is None:
            return True
        lasted_ms = at_ms - self.usual.at_ms
        self.had_records = offset - self.usual.offset >= _SHARE * self.usual.per_ms * lasted_ms
        waited_ms = self.read_ms - self.usual.at_ms
        return self.had_records or at_ms - self.read_ms > max(_CATCHING_UP_MS, _SHARE * waited_ms)


class _Place:
    """The commits of one partition; all but `usual` are of its owner."""

    __slots__ = ("advances", "first_offset", "is_sampled", "last_ms", "offset", "usual")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.first_offset = 0
        self.last_ms: float | None = None
        self.advances: CommitTimes | None = None
        self.usual: Usual | None = None
        self.is_sampled = False

    def advance(self, offset: int, at_ms: float, rhythm: Rhythm | None) -> None:
        """The offset moved."""
        if self.advances is None:
            self.advances, self.first_offset = CommitTimes(at_ms), offset
        self.offset = offset
        self.advances.add(at_ms)
        self.advances.rhythm = rhythm or self.advances.rhythm
        self.is_sampled = rhythm is not None

    def end(self) -> Usual | None:
        """It loses its owner."""
        times, self.advances = self.advances, None
        if times is not None and self.offset is not None:
            unusual_ms = times.summary().unusual_ms
            if unusual_ms is not None and times.last_ms > times.first_ms:
                per_ms = (self.offset - self.first_offset) / (times.last_ms - times.first_ms)
                self.usual = Usual(self.offset, times.last_ms, per_ms, unusual_ms)
            elif self.usual is not None:
                self.usual = msgspec.structs.replace(self.usual, offset=self.offset, at_ms=times.last_ms)
        return self.usual


class CommitTracker:
    """Finds the bounds of one group. Its methods are called in order of time."""

    def __init__(self) -> None:
        self.bounds: Final[list[Bound]] = []
        self._places: dict[str, _Place] = {}
        self._waiting: dict[str, Bound] = {}

    def committed(self, offsets: Mapping[str, object], at_ms: float, *, rhythm: Rhythm | None = None) -> None:
        """A member of the group committed *offsets*, by partition.

        Args:
            rhythm: if others beside it are not in the log, what is known of them.
        """
        for partition, offset in offsets.items():
            place = self._places.get(partition)
            if place is None:
                place = self._places[partition] = _Place()
            place.last_ms = at_ms
            bound = self._waiting.get(partition)
            if bound is not None and bound.first_ms is None:
                bound.first_ms = at_ms
            if isinstance(offset, int) and offset != place.offset:
                place.advance(offset, at_ms, rhythm)
                if bound is not None and bound.moved(offset, at_ms):
                    del self._waiting[partition]
                    if bound.kept and bound.shows_a_gap:
                        self.bounds.append(bound)

    def kept(self, partition: str, at_ms: float) -> None:
        """A rebalance of a classic group ended, in which a partition kept its owner."""
        place = self._places.get(partition)
        if place is not None and place.advances is not None:
            self._waiting[partition] = Bound(partition, at_ms, True, place.last_ms, place.end(), kept=True)

    def left(self, partition: str, at_ms: float, *, seen: bool) -> None:
        """A partition has no counted owner any more.

        Args:
            seen: its owner said so.
        """
        place = self._places.get(partition) or _Place()
        has_read = place.advances is not None
        usual = place.end()
        if seen and place.is_sampled:
            usual = None  # the last commit before it is not in the log
        bound = Bound(partition, at_ms, seen, place.last_ms, usual)
        self.bounds.append(bound)
        place.last_ms = None
        if has_read or partition not in self._waiting:
            self._waiting[partition] = bound  # else it is unread for longer than this owner had it
