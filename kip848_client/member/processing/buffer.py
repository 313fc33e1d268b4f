"""`Buffer`: how many records are in hand, and which partitions are paused because of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.partition import AssignedPartition


class Buffer:
    """The records of all partitions.

    A full buffer alone pauses nothing: while all slots are taken, nothing is read (`may_read`), and librdkafka would
    drop what it has fetched of a paused partition. If slots are free and nothing can start, records wait for earlier
    ones: the partitions that fill the buffer are paused, so that the others are read. The bytes are a hard limit, so
    that of these a partition may take no more than it leaves to others.

    Args:
        records_max, bytes_max: in hand, above which partitions are paused.
    """

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self.records_max: int = records_max
        self.bytes_max: int = bytes_max
        self.held: int = 0
        self.held_bytes: int = 0
        self.paused: Final[set[NamedPartition]] = set()
        self._full = self._full_bytes = False

    def pauses(
        self,
        partitions: Mapping[NamedPartition, AssignedPartition],
        *,
        starved: bool,
        priority: Callable[[NamedPartition], int] | None,
    ) -> tuple[set[NamedPartition], set[NamedPartition]]:
        """Partitions to pause and to resume now; they count as paused and resumed from this call on.

        Args:
            starved: more could start, if it were read.
            priority: of a partition; None if all have the same.
        """
        share, share_bytes = self._share(partitions), max(1, self.bytes_max // max(1, len(partitions)))
        most_bytes = max(share_bytes, self.bytes_max - self.held_bytes)
        crowded = self._is_full()
        lower, crowding, thin = self._lower(partitions, priority)
        pause, resume = set(), set()
        for name, partition in partitions.items():
            if name in self.paused:
                if partition in lower:
                    fits = thin
                else:
                    fits = partition.held * 2 <= share and partition.held_bytes * 2 <= most_bytes
                if fits:
                    resume.add(name)
            elif (partition in lower and crowding) or (
                starved
                and ((crowded and partition.held >= share) or (partition.waits and partition.held_bytes > most_bytes))
            ):
                pause.add(name)
        if len(self.paused) + len(pause) - len(resume) >= len(partitions):
            pause = set()  # nothing would be read anyway
        self.paused.update(pause)
        self.paused.difference_update(resume)
        return pause, resume

    def _lower(
        self,
        partitions: Mapping[NamedPartition, AssignedPartition],
        priority: Callable[[NamedPartition], int] | None,
    ) -> tuple[Collection[AssignedPartition], bool, bool]:
        """Partitions that others come before; whether they fill half of the buffer; whether less than a quarter."""
        if priority is None or not partitions:
            return (), False, False
        best = max(map(priority, partitions))
        lower = {partition for name, partition in partitions.items() if priority(name) < best}
        held = max(
            sum(partition.held for partition in lower) / self.records_max,
            sum(partition.held_bytes for partition in lower) / self.bytes_max,
        )
        return lower, held >= 0.5, held < 0.25

    def _share(self, partitions: Collection[object]) -> int:
        return max(1, self.records_max // max(1, len(partitions)))

    def _is_full(self) -> bool:
        """Whether there are so many records in hand that only partitions with few may add to them."""
        self._full = self.held * 4 > self.records_max * 3 if self._full else self.held >= self.records_max
        return self._full

    def may_read(self, partitions: Mapping[NamedPartition, AssignedPartition], *, starved: bool) -> bool:
        """Whether records should be read: there is room; or slots are free, and only partitions that have not had their
        share are not paused.
        """
        self._full_bytes = self.held_bytes * 4 > self.bytes_max * (3 if self._full_bytes else 4) - 1
        if self._full_bytes:
            return False
        if not self._is_full():
            return True
        held = [each.held for name, each in partitions.items() if name not in self.paused]
        return starved and bool(held) and max(held) < self._share(partitions)

    @property
    def room(self) -> int:
        """How many more records fit."""
        return self.records_max - self.held

    @property
    def room_bytes(self) -> int:
        """How many bytes of records may be read; what comes last may be more."""
        return max(1, self.bytes_max - self.held_bytes)
