"""The state between membership and batches: partitions that may be planned, are being read, or may be revoked. Pure.

A revocation waits for the batch that reads the partition, and a finished batch is committed before its partitions are
revoked. `membership` calls this under its lock, from the query's thread and from the member's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kip848_client.common.model import NamedPartition, OffsetRange


class Gate:
    """The partitions that one query owns, is reading and has read.

    At any time ``readable = owned - revoking``, and partitions in flight were readable when they were planned.
    """

    def __init__(self) -> None:
        self._positions: dict[NamedPartition, int] = {}
        """Next offset of every partition that was ever read or assigned here."""
        self._owned: set[NamedPartition] = set()
        self._revoking: set[NamedPartition] = set()
        self._in_flight: dict[NamedPartition, OffsetRange] = {}
        self._lost_in_flight: set[NamedPartition] = set()
        """Partitions lost while a batch reads them: the batch goes on, but must not commit them."""
        self._read: set[NamedPartition] = set()
        """Partitions that this query, or an earlier run of it, read, or whose starting offset it settled."""
        self._uncommitted: dict[NamedPartition, int] = {}

    # --- state

    @property
    def owned(self) -> frozenset[NamedPartition]:
        """Partitions assigned by the group, including the ones that are being revoked."""
        return frozenset(self._owned)

    @property
    def readable(self) -> dict[NamedPartition, int]:
        """Next offset of every partition that a new batch may read."""
        return {
            partition: self._positions[partition]
            for partition in self._owned
            if partition not in self._revoking and partition not in self._in_flight
        }

    @property
    def in_flight(self) -> tuple[OffsetRange, ...]:
        """Ranges of the batch in flight, sorted."""
        return tuple(self._in_flight[partition] for partition in sorted(self._in_flight))

    @property
    def may_revoke(self) -> bool:
        """Whether no batch reads a partition that is being revoked."""
        return not (self._revoking & self._in_flight.keys())

    @property
    def progress(self) -> dict[NamedPartition, int]:
        """Next offset of every partition that was read or settled, as if the batch in flight were finished."""
        return {
            partition: self._in_flight[partition].end if partition in self._in_flight else self._positions[partition]
            for partition in self._read | self._in_flight.keys()
        }

    def floor(self, partition: NamedPartition) -> int | None:
        """The offset up to which this query has read *partition*; it never reads below that again."""
        return self._positions[partition] if partition in self._read else None

    # --- batches

    def restore(self, positions: Mapping[NamedPartition, int]) -> None:
        """Restore positions from a checkpoint. Positions only move forward."""
        for partition, position in positions.items():
            self._advance(partition, position)

    def plan(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Begin a batch with those of *ranges* that may still be read.

        Returns:
            The accepted ranges; the others were revoked or lost since their positions were read.
        """
        assert not self._in_flight, "the batch before has not ended"
        accepted = [
            each
            for each in ranges
            if each.partition in self._owned
            and each.partition not in self._revoking
            and self._positions[each.partition] <= each.start
        ]
        self._in_flight = {each.partition: each for each in accepted}
        return tuple(accepted)

    def finish(self) -> None:
        """The batch is complete: advance the positions, and mark partitions that are still ours for commit."""
        for partition, each in self._in_flight.items():
            self._advance(partition, each.end)
            if partition in self._owned and partition not in self._lost_in_flight:
                self._uncommitted[partition] = each.end
        self._in_flight.clear()
        self._lost_in_flight.clear()

    def abandon(self) -> None:
        """Drop the batch, which was not run or whose end will not be reported. Its ranges are planned again."""
        self._in_flight.clear()
        self._lost_in_flight.clear()

    # --- ownership

    def assign(self, positions: Mapping[NamedPartition, int]) -> None:
        """Add assigned partitions at these offsets, but never below records that were read already."""
        for partition, position in positions.items():
            self._owned.add(partition)
            self._revoking.discard(partition)
            floor = self.floor(partition)
            self._positions[partition] = position if floor is None else max(position, floor)

    def settle(self, partitions: Iterable[NamedPartition]) -> None:
        """The query chose these starting offsets: a later run must start there too, even if nothing was read yet."""
        self._read |= set(partitions) & self._owned

    def owe(self, offsets: Mapping[NamedPartition, int]) -> None:
        """An earlier run of this query finished beyond the committed offsets: commit these once they are ours."""
        self._uncommitted.update(offsets)

    def begin_revocation(self, partitions: Iterable[NamedPartition]) -> None:
        """Begin a revocation: plan no new ranges of these partitions."""
        self._revoking.update(set(partitions) & self._owned)

    def end_revocation(self, partitions: Iterable[NamedPartition]) -> None:
        """End a revocation: these partitions are no longer ours."""
        self._remove(set(partitions))

    def lose(self, partitions: Iterable[NamedPartition]) -> None:
        """Remove lost partitions, which may have another owner already: commit nothing of them."""
        gone = set(partitions)
        self._lost_in_flight |= gone & self._in_flight.keys()
        self._remove(gone)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget topics that were deleted, or created again under their old name."""
        names = set(topics)
        self._read = {partition for partition in self._read if partition.topic not in names}

    def rewind(self, positions: Mapping[NamedPartition, int]) -> None:
        """Move positions after records were lost, where that is allowed."""
        for partition, position in positions.items():
            self._positions[partition] = position

    # --- commits

    @property
    def uncommitted(self) -> dict[NamedPartition, int]:
        """Offsets of owned partitions that are finished and not committed."""
        return {partition: offset for partition, offset in self._uncommitted.items() if partition in self._owned}

    def committed(self, offsets: Mapping[NamedPartition, int]) -> None:
        """These offsets were committed."""
        for partition, offset in offsets.items():
            if self._uncommitted.get(partition) == offset:
                del self._uncommitted[partition]

    def _advance(self, partition: NamedPartition, position: int) -> None:
        self._read.add(partition)
        self._positions[partition] = max(position, self._positions.get(partition, position))

    def _remove(self, partitions: set[NamedPartition]) -> None:
        self._owned -= partitions
        self._revoking -= partitions
        for partition in partitions:
            self._uncommitted.pop(partition, None)
