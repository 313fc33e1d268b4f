"""Committed offsets, changed by replay alone. Whether a commit is allowed is decided in `offset_commit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.model import ZERO_UUID
from kip848_client.wire.messages.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue


class CommittedOffset(msgspec.Struct, frozen=True):
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


_NONE: Final[Mapping[str, Mapping[int, CommittedOffset]]] = {}


class OffsetStore:
    """Group id -> topic name -> partition -> offset. A group or topic without offsets is left out."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def has_group(self, group_id: str) -> bool:
        """Whether the group has any offset."""
        return group_id in self._offsets

    @property
    def group_count(self) -> int:
        """Number of groups that have offsets."""
        return len(self._offsets)

    def group_ids(self) -> Iterator[str]:
        """Groups that have offsets, in no order."""
        return iter(self._offsets)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Topic name -> partition -> offset."""
        return self._offsets.get(group_id, _NONE)

    def get(self, group_id: str, *, topic: str, partition: int) -> CommittedOffset | None:
        """One offset, or None."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Set or remove one offset."""
        if value is not None:
            self._offsets.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = CommittedOffset(
                offset=value.offset,
                leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                commit_timestamp_ms=value.commit_timestamp,
                expire_timestamp_ms=value.expire_timestamp,
                topic_id=value.topic_id,
            )
            return
        topics = self._offsets.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._offsets.pop(key.group, None)


def offset_record(group_id: str, *, topic: str, partition: int, committed: CommittedOffset) -> GroupRecord:
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


def offset_tombstone(group_id: str, *, topic: str, partition: int) -> GroupRecord:
    """Type 1: no offset any more."""
    return GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
