"""What is done and in no transaction yet, for ``process(transactional=...)``. Pure.

A handler's records wait here from the moment that it has returned, with the work that they belong to. A *slice* is what
one transaction holds: works, and the offsets that call exactly these works done. A transaction that was aborted is
written again from here; handlers are not called again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.processing.marks import Ranges, encode_marks
from kip848_client.member.processing.progress import PartitionProgress
from kip848_client.member.processing.work import Work


class Slice(msgspec.Struct, frozen=True):
    """What one transaction holds."""

    works: Sequence[Work]
    offsets: dict[NamedPartition, OffsetAndMetadata]


class Outbox:
    """Works that are done, in the order in which they were.

    Args:
        records: how many make a transaction due at once.
        wait_ms: how long the first of them waits for others.
    """

    def __init__(self, records: int, wait_ms: int) -> None:
        self._records = records
        self._wait_ms = wait_ms
        self._waiting: list[Work] = []
        self._held_back: list[Work] = []
        """Works that did not fit into the marks of the last slice."""
        self._sending: list[Work] = []
        self.writing: bool = False
        """A transaction is being written: there is one at a time."""
        self._count = 0
        self._due_ms: int | None = None
        self._not_before_ms = 0

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should start."""
        return self._count >= self._records

    @property
    def empty(self) -> bool:
        """Whether all that is done is in transactions that were committed."""
        return not (self._waiting or self._held_back or self._sending)

    def holds(self, name: NamedPartition) -> bool:
        """Whether works of this partition are here."""
        return any(work.partition == name for part in self._parts for work in part)

    @property
    def due_ms(self) -> int | None:
        """When the next transaction is due; None while one is being written, or nothing waits."""
        if self.writing or self._due_ms is None:
            return None
        return max(self._not_before_ms, 0 if self.full else self._due_ms)

    def add(self, work: Work, now_ms: int) -> None:
        """A work is done."""
        self._waiting.append(work)
        self._count += len(work.items)
        if self._due_ms is None:
            self._due_ms = now_ms + self._wait_ms

    def hurry(self) -> None:
        """A transaction is due at once, if only to commit offsets."""
        self._due_ms = 0

    def take(self) -> Sequence[Work]:
        """All that waits. `send` says what of it a transaction holds."""
        works = self._held_back + self._waiting
        self._held_back, self._waiting, self._count, self._due_ms = [], [], 0, None
        return works

    def send(self, works: Sequence[Work], *, held_back: Collection[Work]) -> None:
        """A transaction with these works, which may be none, is to be written."""
        self._sending, self._held_back = list(works), list(held_back)
        self.writing = True

    def committed(self) -> None:
        """It was committed."""
        self._sending, self.writing = [], False

    def aborted(self, *, again_ms: int) -> None:
        """It was aborted: it is due again at *again_ms*."""
        self.writing = False
        self._waiting[:0], self._sending = self._sending, []
        self._count = sum(len(work.items) for work in self._waiting)
        self._due_ms = self._not_before_ms = again_ms

    def forget(self, names: Collection[NamedPartition]) -> None:
        """Partitions were given away: what was done of them is not written any more."""
        for part in self._parts:
            part[:] = [work for work in part if work.partition not in names]
        self._count = sum(len(work.items) for work in self._waiting)
        if not self._waiting:
            self._due_ms = None

    @property
    def _parts(self) -> Iterable[list[Work]]:
        return self._waiting, self._held_back, self._sending


def cover(
    progress: PartitionProgress, works: Sequence[Work], *, bytes_max: int
) -> tuple[OffsetAndMetadata | None, list[Work]]:
    """The commit that calls as many as possible of one partition's new works done, the lowest offsets first.

    What an earlier commit has called done stays so: a record whose output was committed is never handled again.

    Returns:
        The commit, None if the last one stays as it is; and the works that do not fit into its marks.
    """
    ordered = sorted(works, key=lambda work: work.items[0].offset)
    count = len(ordered)
    while True:
        low, done = _without(progress, ordered[count:])
        marks, whole = encode_marks(low, done, bytes_max=bytes_max)
        if whole:
            return OffsetAndMetadata(low, metadata=marks), ordered[count:]
        if not count:
            return None, ordered
        count //= 2


def _without(progress: PartitionProgress, works: Sequence[Work]) -> tuple[int, Ranges]:
    """The low mark and what is done beyond it, as if *works* were not done."""
    low, done = progress.low_mark, progress.done_beyond
    undone = sorted(item.offset for work in works for item in work.items)
    if not undone:
        return low, done
    start = min(low, undone[0])
    ranges = []
    for first, end in [(start, low), *done]:
        for offset in undone:
            if first <= offset < end:
                if first < offset:
                    ranges.append((first, offset))
                first = offset + 1
        if first < end:
            ranges.append((first, end))
    return start, ranges
