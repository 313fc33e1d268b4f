"""What is kept of the partitions of share groups, so that it survives the node: the share coordinator. Pure.

`ShareStates` decides which record a change becomes, and changes only by `ShareStates.replay` of a record that was
kept. Acquired records are not kept: after a crash they are available again.

Source:
    apache/kafka ``ShareCoordinatorShard``, ``PersisterStateBatchCombiner``; KIP-932.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.share_partitions.share_partition import RecordState, StateBatch
from kip848_client.wire.messages import share_state_records as wire_records
from kip848_client.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateKey,
    ShareStateValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

UNINITIALIZED: Final = -1
"""Start offset of a partition from which no member has read yet."""


class ShareKey(NamedTuple):
    """One partition in one share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int


ShareRecord: TypeAlias = tuple[ShareStateKey, ShareStateValue | None]


class ShareState(msgspec.Struct, frozen=True):
    """What is kept of one partition.

    Attributes:
        state_epoch: grows whenever an operator sets or deletes the start offset.
        start_offset: the SPSO; -1 if no member has read from it yet.
        delivery_complete_count: records from there on that are done with; -1 if that is not known.
        created_ms: of the last snapshot, in milliseconds since 1970.
        updates: records since the last snapshot.
    """

    state_epoch: int
    start_offset: int
    snapshot_epoch: int = 0
    leader_epoch: int = 0
    delivery_complete_count: int = -1
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    updates: int = 0


class ShareStates:
    """The kept state of all partitions of all share groups.

    Args:
        updates_per_snapshot: how many updates there are before the next snapshot
            (``share.coordinator.snapshot.update.records.per.snapshot``).
    """

    def __init__(self, *, updates_per_snapshot: int = 500) -> None:
        self._updates_per_snapshot: Final = updates_per_snapshot
        self._states: Final[dict[ShareKey, ShareState]] = {}

    def get(self, key: ShareKey) -> ShareState | None:
        """The state of a partition; None if it was never initialized, or deleted."""
        return self._states.get(key)

    def __iter__(self) -> Iterator[ShareKey]:
        return iter(tuple(self._states))

    # --- decisions

    def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int, wall_ms: int) -> ShareRecord:
        """Begin at an offset, or with -1 where the group's reset says.

        Kafka refuses an epoch below the one that is kept (FENCED_STATE_EPOCH). Here only a deleted group can have left
        such a state: its deletion was not kept.
        """
        before = self._states.get(key)
        return _snapshot(
            key,
            ShareState(
                state_epoch,
                start_offset,
                delivery_complete_count=-1 if start_offset == -1 else 0,
                snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
                created_ms=wall_ms,
            ),
        )

    def read(self, key: ShareKey, *, leader_epoch: int, wall_ms: int) -> tuple[ShareState, ShareRecord | None]:
        """The state for a node that begins to lead the partition, and the record that fences the one before.

        Raises:
            BrokerError: UNKNOWN_SERVER_ERROR, as in Kafka: it was never initialized; FENCED_LEADER_EPOCH: another node
                leads it by now.
        """
        state = self._states.get(key)
        if state is None:
            raise BrokerError(
                f"group {key.group_id!r} has no state for partition {key.partition} of topic {key.topic_id}: no member "
                "has joined the group to read it",
                code=ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        _check_leader(key, sent=leader_epoch, current=state.leader_epoch)
        if state.leader_epoch == leader_epoch:
            return state, None
        moved = msgspec.structs.replace(state, leader_epoch=leader_epoch)
        return state, self._record(key, moved, (), wall_ms=wall_ms)

    def write(
        self,
        key: ShareKey,
        batches: Iterable[StateBatch],
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        wall_ms: int,
    ) -> ShareRecord:
        """Keep a change of records.

        Raises:
            BrokerError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH: another node leads the partition by now, or an
                operator has set another start; INVALID_REQUEST: the state was deleted.
        """
        state = self._states.get(key)
        if state is None:
            raise BrokerError(
                f"the state of partition {key.partition} of topic {key.topic_id} in group {key.group_id!r} was deleted",
                code=ErrorCode.INVALID_REQUEST,
            )
        _check_leader(key, sent=leader_epoch, current=state.leader_epoch)
        if state.state_epoch > state_epoch:
            raise _fenced(key, sent=state_epoch, current=state.state_epoch)
        if start_offset == state.start_offset:
            delivery_complete_count = max(delivery_complete_count, state.delivery_complete_count)
        elif start_offset < state.start_offset:
            delivery_complete_count = state.delivery_complete_count
        changed = msgspec.structs.replace(
            state,
            start_offset=max(start_offset, state.start_offset),
            delivery_complete_count=delivery_complete_count,
        )
        return self._record(key, changed, batches, wall_ms=wall_ms)

    def delete(self, key: ShareKey) -> ShareRecord | None:
        """Forget a partition; None if there is nothing to forget."""
        return (ShareSnapshotKey(*key), None) if key in self._states else None

    # --- changes

    def replay(self, record: ShareRecord) -> None:
        """Apply a record that was kept."""
        key, value = record
        of = ShareKey(key.group_id, key.topic_id, key.partition)
        match value:
            case None:
                self._states.pop(of, None)
            case ShareSnapshotValue():
                self._states[of] = ShareState(
                    state_epoch=value.state_epoch,
                    start_offset=value.start_offset,
                    snapshot_epoch=value.snapshot_epoch,
                    leader_epoch=value.leader_epoch,
                    delivery_complete_count=value.delivery_complete_count,
                    batches=_from_wire(value.state_batches),
                    created_ms=value.create_timestamp,
                )
            case ShareUpdateValue():
                state = self._states.get(of, ShareState(0, value.start_offset))
                start = state.start_offset if value.start_offset == UNINITIALIZED else value.start_offset
                self._states[of] = msgspec.structs.replace(
                    state,
                    start_offset=start,
                    leader_epoch=state.leader_epoch if value.leader_epoch == -1 else value.leader_epoch,
                    delivery_complete_count=value.delivery_complete_count,
                    batches=combine((*state.batches, *_from_wire(value.state_batches)), start_offset=start),
                    updates=state.updates + 1,
                )

    def snapshot(self, key: ShareKey) -> ShareRecord:
        """The whole state of a partition as one record, in place of all that was kept of it."""
        return _snapshot(key, self._states[key])

    def _record(self, key: ShareKey, state: ShareState, batches: Iterable[StateBatch], *, wall_ms: int) -> ShareRecord:
        if state.updates >= self._updates_per_snapshot:
            whole = msgspec.structs.replace(
                state,
                snapshot_epoch=state.snapshot_epoch + 1,
                batches=combine((*state.batches, *batches), start_offset=state.start_offset),
                created_ms=wall_ms,
            )
            return _snapshot(key, whole)
        return ShareUpdateKey(*key), ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=_to_wire(combine(batches, start_offset=state.start_offset)),
        )


def combine(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Let every offset from the start on have one state: that of the most deliveries, and of these the furthest.

    Example:
        offsets 0 to 9 available after one delivery and 3 to 5 accepted after one become 0 to 2 available, 3 to 5
        accepted, and 6 to 9 available
    """
    kept = [batch for batch in batches if batch.last_offset >= start_offset]
    borders = sorted({*(max(b.first_offset, start_offset) for b in kept), *(b.last_offset + 1 for b in kept)})
    beginning = sorted(kept, key=lambda batch: batch.first_offset)
    combined: list[StateBatch] = []
    active: list[StateBatch] = []
    position = 0
    for first, end in itertools.pairwise(borders):
        while position < len(beginning) and beginning[position].first_offset <= first:
            active.append(beginning[position])
            position += 1
        active = [batch for batch in active if batch.last_offset >= first]
        if not active:
            continue
        _, _, state, count = max(active, key=lambda batch: (batch.delivery_count, batch.state))
        before = combined[-1] if combined else None
        if before is not None and before.last_offset == first - 1 and before[2:] == (state, count):
            combined[-1] = before._replace(last_offset=end - 1)
        else:
            combined.append(StateBatch(first, end - 1, state, count))
    return tuple(combined)


def _snapshot(key: ShareKey, state: ShareState) -> ShareRecord:
    return ShareSnapshotKey(*key), ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.created_ms,
        state_batches=_to_wire(state.batches),
    )


def _to_wire(batches: Iterable[StateBatch]) -> tuple[wire_records.StateBatch, ...]:
    return tuple([wire_records.StateBatch(*batch) for batch in batches])


def _from_wire(batches: Iterable[wire_records.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        [StateBatch(b.first_offset, b.last_offset, RecordState(b.delivery_state), b.delivery_count) for b in batches]
    )


def _check_leader(key: ShareKey, *, sent: int, current: int) -> None:
    if sent < current:
        raise BrokerError(
            f"partition {key.partition} of topic {key.topic_id} has leader epoch {current}, the sender {sent}",
            code=ErrorCode.FENCED_LEADER_EPOCH,
        )


def _fenced(key: ShareKey, *, sent: int, current: int) -> BrokerError:
    return BrokerError(
        f"the state of partition {key.partition} of topic {key.topic_id} in group {key.group_id!r} has epoch "
        f"{current}, the sender {sent}",
        code=ErrorCode.FENCED_STATE_EPOCH,
    )
