"""Committed offsets, and those of open transactions, changed by replay alone.

Whether a commit is allowed is decided in `offset_commit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.common.model import ZERO_UUID
from kip848_client.wire.messages.group_records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)


class StoredOffset(msgspec.Struct, frozen=True):
    """One committed offset.

    Args:
        commit_timestamp_ms: ms since 1970.
        expire_timestamp_ms: when it expires, if the client said so (OffsetCommit v2 to v4); else -1.
        topic_id: of the topic when it was committed; zero if not known.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: UUID = ZERO_UUID


class PendingOffset(msgspec.Struct, frozen=True):
    """An offset that becomes the committed one if its transaction commits.

    Args:
        is_superseded: a commit outside of transactions came later, and stays.
    """

    committed: StoredOffset
    producer_epoch: int
    is_superseded: bool = False


class OffsetExpiry(msgspec.Struct, frozen=True):
    """When the offsets of a group expire.

    Args:
        may_expire: False: all of them stay, for what its members read is not known, or not yet.
        since_ms: the retention counts from then, in ms since 1970; None: from each commit.
        ends_group: the group goes with its last offset.
    """

    may_expire: bool = True
    since_ms: int | None = None
    ends_group: bool = False


_NONE: Final[Mapping[str, Mapping[int, StoredOffset]]] = {}


class OffsetStore:
    """Group id -> topic name -> partition -> offset. A group or topic without offsets is left out."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, dict[int, StoredOffset]]] = {}
        # Group id -> topic and partition -> producer id. A group or partition without any is left out.
        self._pending: dict[str, dict[tuple[str, int], dict[int, PendingOffset]]] = {}
        self._of_producers: dict[int, dict[PendingOffsetKey, None]] = {}

    def has_group(self, group_id: str) -> bool:
        """Whether the group has any offset, committed or pending."""
        return group_id in self._offsets or group_id in self._pending

    @property
    def group_count_max(self) -> int:
        """At least the number of groups that have offsets; one with committed and pending ones counts twice."""
        return len(self._offsets) + len(self._pending)

    def group_ids(self) -> AbstractSet[str]:
        """Groups that have offsets."""
        return self._offsets.keys() | self._pending.keys()

    def has_pending(self, group_id: str, *, topic: str | None = None, partition: int = -1) -> bool:
        """Whether an open transaction commits an offset of the group, or of one partition of it."""
        pending = self._pending.get(group_id)
        return pending is not None and (topic is None or (topic, partition) in pending)

    def pending_of_group(self, group_id: str) -> tuple[PendingOffsetKey, ...]:
        """Offsets that open transactions commit to the group, topics and partitions ascending."""
        return tuple(
            PendingOffsetKey(producer_id=producer_id, group=group_id, topic=topic, partition=partition)
            for (topic, partition), by_producer in sorted(self._pending.get(group_id, {}).items())
            for producer_id in sorted(by_producer)
        )

    def pending_of_producer(self, producer_id: int) -> tuple[tuple[PendingOffsetKey, PendingOffset], ...]:
        """Offsets that the producer's open transaction commits, in the order in which they were sent."""
        return tuple(
            (key, self._pending[key.group][key.topic, key.partition][producer_id])
            for key in self._of_producers.get(producer_id, ())
        )

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, StoredOffset]]:
        """Topic name -> partition -> offset."""
        return self._offsets.get(group_id, _NONE)

    def get(self, group_id: str, *, topic: str, partition: int) -> StoredOffset | None:
        """One offset, or None."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Set or remove one offset."""
        if value is not None:
            self._offsets.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = StoredOffset(
                offset=value.offset,
                leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                commit_timestamp_ms=value.commit_timestamp,
                expire_timestamp_ms=value.expire_timestamp,
                topic_id=value.topic_id,
            )
            pending = self._pending.get(key.group)
            for producer_id, offset in (pending or {}).get((key.topic, key.partition), {}).items():
                assert pending is not None
                pending[key.topic, key.partition][producer_id] = replace(offset, is_superseded=True)
            return
        topics = self._offsets.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._offsets.pop(key.group, None)

    def replay_pending(self, key: PendingOffsetKey, value: PendingOffsetValue | None) -> None:
        """Set or remove one offset of an open transaction."""
        place = (key.topic, key.partition)
        if value is not None:
            committed = StoredOffset(
                offset=value.offset,
                leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                commit_timestamp_ms=value.commit_timestamp,
                topic_id=value.topic_id,
            )
            by_producer = self._pending.setdefault(key.group, {}).setdefault(place, {})
            by_producer[key.producer_id] = PendingOffset(committed, value.producer_epoch)
            self._of_producers.setdefault(key.producer_id, {})[key] = None
            return
        keys = self._of_producers.get(key.producer_id, {})
        keys.pop(key, None)
        if not keys:
            self._of_producers.pop(key.producer_id, None)
        places = self._pending.get(key.group, {})
        by_producer = places.get(place, {})
        by_producer.pop(key.producer_id, None)
        if not by_producer:
            places.pop(place, None)
        if not places:
            self._pending.pop(key.group, None)


def offset_record(group_id: str, *, topic: str, partition: int, committed: StoredOffset) -> GroupRecord:
    """Type 1: a committed offset."""
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp_ms,
            expire_timestamp=committed.expire_timestamp_ms,
            topic_id=committed.topic_id,
        ),
    )


def pending_record(
    group_id: str, *, topic: str, partition: int, committed: StoredOffset, producer_id: int, producer_epoch: int
) -> GroupRecord:
    """Type 30848: an offset of an open transaction."""
    return GroupRecord(
        PendingOffsetKey(producer_id=producer_id, group=group_id, topic=topic, partition=partition),
        PendingOffsetValue(
            producer_epoch=producer_epoch,
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp_ms,
            topic_id=committed.topic_id,
        ),
    )


def pending_tombstone(key: PendingOffsetKey) -> GroupRecord:
    """Type 30848: the transaction has ended, or the offset was deleted."""
    return GroupRecord(key, None)


def offset_tombstone(group_id: str, *, topic: str, partition: int) -> GroupRecord:
    """Type 1: no offset any more."""
    return GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
