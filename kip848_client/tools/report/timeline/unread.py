"""Bounds of the time that a partition was unread, from the commits around a change of its owner.

A coordinator counts a member that died as the owner until its session ends, and does not write down when the members of
a classic group stop reading. A member may also take long before it gives partitions up, or until it reads new ones.
The members of a classic group may also stop reading partitions that they keep.
There the time without a counted owner is only a lower bound. Commits give an upper bound, and it rests on what a commit
proves about reading:

* A commit says that the records below its offset had been read, and not when. They may have been read long before: a
  member may commit at the end of a slow revocation, or all of its positions whenever it has read one partition.
* What a commit adds to the one before was read after that one was made, if a client commits all that it has read. So
  the owner still read the partition after the commit before the last one that moved the offset, and after it was
  counted as the owner.
* The next owner had begun to read when it first moved the offset. Its first commit may have only what was committed
  before.

If no records came, nothing waited for a reader, and the offset moves more slowly than before. Then a commit that does
not move it, too, is made by a member that reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.tools.report.timeline.lives import SESSION_MS_MAX, CommitTimes, Rhythm

_SHARE: Final = 0.25
"""Records came all the time if the offset moved at this share of its usual speed, or faster."""
_CATCHING_UP_MS: Final = 5_000.0
_FIRST_COMMIT_MS: Final = 15_000.0
"""An owner that finds records commits within this time, or within the usual one: librdkafka and Java do every 5 s."""
_SLOW_START_MS: Final = 60_000.0
"""... or within this one, after a long time, if it commits nothing before."""


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
        rested: that did not move the offset.
        read_ms: it was still read after that; None if no commit says so.
        usual: None if there were too few commits.
        first_ms: the next owner's first commit; None if there was none.
        moved_ms: the next owner's first commit that moved the offset; None if there was none.
        had_records: whether records came while it was unread.
        kept: the owner kept it in a rebalance in which members may stop reading; `left_ms` is the end of that.
        offset: the last one that was committed before; None if the log has none.
        moved_offset: the one of the commit at `moved_ms`.
        later_ms, later_offset: the last one that moved it while what had waited was read; None if there was none.
    """

    partition: str
    left_ms: float
    seen: bool
    last_ms: float | None
    rested: bool
    read_ms: float | None
    usual: Usual | None
    first_ms: float | None = None
    moved_ms: float | None = None
    had_records: bool = False
    kept: bool = False
    offset: int | None = None
    moved_offset: int | None = None
    later_ms: float | None = None
    later_offset: int | None = None

    @property
    def shows_a_gap(self) -> bool:
        """Whether offsets show that records waited for an unusual time."""
        if self.usual is None or self.moved_ms is None or not self.had_records:
            return False
        return self.moved_ms - self.usual.at_ms > self.usual.unusual_ms

    @property
    def idle_ms(self) -> float | None:
        """How long its owner had it without moving the offset, if that is unusual and records waited."""
        if self.usual is None or not self.had_records:
            return None
        idle_ms = self.left_ms - self.usual.at_ms
        return idle_ms if idle_ms > self.usual.unusual_ms else None

    @property
    def since_ms(self) -> float | None:
        """A time after which the owner still read it; None if no commit says so."""
        return self.last_ms if self.last_ms is None or (self.rested and not self.had_records) else self.read_ms

    @property
    def until_ms(self) -> float | None:
        """When it was read again, at the latest; None if that, or that there was something to read, is not known."""
        if self.had_records or self.first_ms is None:
            return self.moved_ms
        if self.usual is None:
            return self.first_ms if self.first_ms == self.moved_ms else None
        return self.first_ms if self.first_ms - self.usual.at_ms <= SESSION_MS_MAX else None

    def waited(self, got_ms: float, *, unread_ms: float) -> int:
        """How many records waited, at least, for an owner that is counted since *got_ms*; 0 if no commit says so.

        Its first commit that moves the offset tells, if it comes soon; else it may be of records that came later. If it
        is of a part of what waited, later ones tell more. What comes until such a commit is left out.

        Args:
            unread_ms: how long the partition had no counted owner before.
        """
        if self.offset is None or self.moved_offset is None or self.moved_ms is None:
            return 0
        soon_ms = max(_FIRST_COMMIT_MS, 0.0 if self.usual is None else self.usual.unusual_ms)
        if self.first_ms == self.moved_ms:
            soon_ms = max(soon_ms, min(unread_ms, _SLOW_START_MS))
        after_ms = self.moved_ms - got_ms
        if after_ms > soon_ms:
            return 0
        per_ms = 0.0 if self.usual is None else self.usual.per_ms
        waited = self.moved_offset - self.offset - per_ms * max(0.0, after_ms)
        if self.later_ms is not None and self.later_offset is not None:
            added = self.later_offset - self.offset
            per_ms = max(per_ms, added / (self.later_ms - self.left_ms))
            waited = max(waited, added - per_ms * (self.later_ms - got_ms))
        return max(0, round(waited))

    def catches_up(self, offset: int, at_ms: float) -> bool:
        """The next owner moved the offset again; whether that tells of records that waited."""
        assert self.moved_ms is not None
        if at_ms - self.moved_ms > max(_FIRST_COMMIT_MS, _SHARE * (self.moved_ms - self.left_ms)):
            return False
        self.later_ms, self.later_offset = at_ms, offset
        return True

    def moved(self, offset: int, at_ms: float) -> bool:
        """The next owner moved the offset; whether this bound is complete."""
        if self.moved_ms is None:
            self.moved_ms, self.moved_offset = at_ms, offset
        if self.usual is None:
            return True
        lasted_ms = at_ms - self.usual.at_ms
        self.had_records = offset - self.usual.offset >= _SHARE * self.usual.per_ms * lasted_ms
        waited_ms = self.moved_ms - self.usual.at_ms
        return self.had_records or at_ms - self.moved_ms > max(_CATCHING_UP_MS, _SHARE * waited_ms)


class _Place:
    """The commits of one partition; `last_ms` and `advances` are of its owner.

    Attributes:
        at_ms: of the last one.
        moved_ms: of the last one that moved the offset.
        before_ms: of the one before that.
    """

    __slots__ = (
        *("advances", "at_ms", "before_ms", "first_offset", "is_sampled", "last_ms", "moved_ms", "offset", "usual"),
    )

    def __init__(self) -> None:
        self.offset: int | None = None
        self.first_offset = 0
        self.last_ms: float | None = None
        self.at_ms: float | None = None
        self.moved_ms: float | None = None
        self.before_ms: float | None = None
        self.advances: CommitTimes | None = None
        self.usual: Usual | None = None
        self.is_sampled = False

    def advance(self, offset: int, at_ms: float, rhythm: Rhythm | None) -> None:
        """The offset moved."""
        if self.advances is None:
            self.advances, self.first_offset = CommitTimes(at_ms), offset
        self.offset = offset
        self.before_ms, self.moved_ms = self.at_ms, at_ms
        self.advances.add(at_ms)
        self.note(rhythm)

    def note(self, rhythm: Rhythm | None) -> None:
        """Keep what is known of commits that the log does not have."""
        if rhythm is not None and self.advances is not None:
            self.advances.rhythm = rhythm.with_earlier(self.advances.rhythm)

    def bound(self, partition: str, at_ms: float, *, seen: bool, owned_ms: float | None, kept: bool = False) -> Bound:
        """The bound of an owner that is counted since *owned_ms*, and loses it."""
        read_ms = self.before_ms
        if owned_ms is not None and self.moved_ms is not None and self.moved_ms >= owned_ms:
            read_ms = owned_ms if read_ms is None else max(read_ms, owned_ms)
        rested = self.at_ms != self.moved_ms
        usual, offset = self.end(), self.offset
        if seen and self.is_sampled:
            usual = offset = None  # the last commit before it is not in the log
        return Bound(partition, at_ms, seen, self.last_ms, rested, read_ms, usual, kept=kept, offset=offset)

    def end(self) -> Usual | None:
        """Forget the owner's commits; return how often and how fast the partition's offset usually moves."""
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
        self._catching_up: dict[str, Bound] = {}

    def committed(
        self, offsets: Mapping[str, object], at_ms: float, *, rhythm: Rhythm | None = None, is_last: bool = False
    ) -> None:
        """A member of the group committed *offsets*, by partition.

        Args:
            rhythm: if others beside it are not in the log, what is known of them.
            is_last: there was no other one before the change in the group that follows.
        """
        for partition, offset in offsets.items():
            place = self._places.get(partition)
            if place is None:
                place = self._places[partition] = _Place()
            bound = self._waiting.get(partition)
            if bound is not None and bound.first_ms is None:
                bound.first_ms = at_ms
            if isinstance(offset, int) and offset != place.offset:
                place.advance(offset, at_ms, rhythm)
                behind = self._catching_up.get(partition)
                if behind is None and bound is not None and bound.moved_ms is None and bound.offset is not None:
                    self._catching_up[partition] = bound
                elif behind is not None and not behind.catches_up(offset, at_ms):
                    del self._catching_up[partition]
                if bound is not None and bound.moved(offset, at_ms):
                    del self._waiting[partition]
                    if bound.kept and bound.shows_a_gap:
                        self.bounds.append(bound)
            else:
                place.note(rhythm)  # it is told once more, with what is known of those before
            place.at_ms = place.last_ms = at_ms
            place.is_sampled = rhythm is not None and not is_last

    def reset(self, offsets: Mapping[str, object]) -> None:
        """Somebody who is no member committed *offsets*: what was skipped did not wait."""
        for partition, offset in offsets.items():
            place = self._places.get(partition)
            if place is None or not isinstance(offset, int):
                continue
            place.offset = offset
            bound = self._waiting.get(partition)
            if bound is not None and bound.moved_ms is None:
                bound.offset = offset
                if bound.usual is not None:
                    bound.usual = msgspec.structs.replace(bound.usual, offset=offset)

    def kept(self, partition: str, at_ms: float, *, owned_ms: float | None) -> None:
        """A rebalance of a classic group ended, in which a partition kept its owner."""
        place = self._places.get(partition)
        if place is not None and place.advances is not None:
            self._waiting[partition] = place.bound(partition, at_ms, seen=True, owned_ms=owned_ms, kept=True)

    def left(self, partition: str, at_ms: float, *, seen: bool, owned_ms: float | None) -> None:
        """A partition has no counted owner any more.

        Args:
            seen: its owner said so.
            owned_ms: since when it was counted; None if the log began later.
        """
        place = self._places.get(partition) or _Place()
        has_read = place.advances is not None
        self._catching_up.pop(partition, None)
        bound = place.bound(partition, at_ms, seen=seen, owned_ms=owned_ms)
        self.bounds.append(bound)
        place.last_ms = None
        if has_read or partition not in self._waiting:
            self._waiting[partition] = bound  # else it is unread for longer than this owner had it
