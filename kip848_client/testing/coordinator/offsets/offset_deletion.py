"""Offsets that go: OffsetDelete, offsets of deleted topics, expired offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds, timeless
from kip848_client.testing.coordinator.core.offset_store import StoredOffset, offset_tombstone, pending_tombstone
from kip848_client.testing.coordinator.core.result import CoordinatorRecord, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle_offset_delete(
    state: CoordinatorState, request: ApiRequest, message: OffsetDeleteRequest
) -> CoordinatorResult:
    """Answer one OffsetDelete. Offsets of a topic that a member still subscribes to stay."""
    group_id = message.group_id
    group = state.known_group(group_id)
    code = ErrorCode.NONE
    if not group_id:
        code = ErrorCode.INVALID_GROUP_ID
    elif group is None or not state.part(Kinds).of(group).HAS_OFFSETS:
        code = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.has_private_topics:
        code = ErrorCode.NON_EMPTY_GROUP
    if code or group is None:
        return CoordinatorResult(replies=(Reply(request.request_id, OffsetDeleteResponse(error_code=code)),))
    batch = Batch(group_id)
    answered = tuple(
        _delete_offsets(state, batch, topic, is_subscribed=group.reads(topic.name))
        for topic in message.topics
        if topic.partitions
    )
    return batch.result(Reply(request.request_id, OffsetDeleteResponse(topics=answered)))


def offsets_of_topics(state: CoordinatorState, names: Iterable[str]) -> list[CoordinatorRecord]:
    """Tombstones of every group's offsets of topics that are gone."""
    gone = sorted(names)
    return [
        offset_tombstone(group_id, topic=name, partition=partition)
        for group_id in sorted(state.offsets.group_ids())
        for name in gone
        for partition in sorted(state.offsets.of_group(group_id).get(name, ()))
    ] + [
        pending_tombstone(key)
        for group_id in sorted(state.offsets.group_ids())
        for key in state.offsets.pending_of_group(group_id)
        if key.topic in gone
    ]


def expire_offsets(state: CoordinatorState, *, wall_ms: int) -> CoordinatorResult:
    """Remove offsets older than ``offsets.retention.minutes`` of topics that the group no longer subscribes to.

    From when the time counts is the group's to say (`offset_expiry`). A group that has no members and loses its last
    offset may be removed too.

    Source:
        Kafka's ``OffsetMetadataManager.cleanupExpiredOffsets``; KIP-211.
    """
    batch = Batch("")
    for group_id in sorted(state.offsets.group_ids() | state.groups.keys()):
        group = state.known_group(group_id)
        assert group is not None
        expiry = group.offset_expiry
        if not expiry.may_expire:
            continue
        offsets = state.offsets.of_group(group_id)
        expired = [
            offset_tombstone(group_id, topic=topic, partition=partition)
            for topic, partitions in sorted(offsets.items())
            if not group.reads(topic)
            for partition, committed in sorted(partitions.items())
            if _is_expired(state, committed, since_ms=expiry.since_ms, wall_ms=wall_ms)
        ]
        batch.records += expired
        if len(expired) < sum(map(len, offsets.values())) or state.offsets.has_pending(group_id):
            continue
        if expiry.ends_group and group_id in state.groups:
            batch.records += group.tombstones()
    return batch.result()


def _is_expired(state: CoordinatorState, committed: StoredOffset, *, since_ms: int | None, wall_ms: int) -> bool:
    if committed.expire_timestamp_ms != -1:
        return wall_ms >= committed.expire_timestamp_ms
    base_ms = committed.commit_timestamp_ms if since_ms is None else since_ms
    return wall_ms - base_ms >= state.config.offsets_retention_ms


def _delete_offsets(
    state: CoordinatorState, batch: Batch, topic: OffsetDeleteRequestTopic, *, is_subscribed: bool
) -> OffsetDeleteResponseTopic:
    found = state.image.by_name.get(topic.name)
    partition_count = 0 if found is None else found.partition_count
    answered = []
    for index in (partition.partition_index for partition in topic.partitions):
        if not 0 <= index < partition_count:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_subscribed:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            code = ErrorCode.NONE
            if state.offsets.get(batch.group_id, topic=topic.name, partition=index) is not None:
                batch.records.append(offset_tombstone(batch.group_id, topic=topic.name, partition=index))
            batch.records += [
                pending_tombstone(key)
                for key in state.offsets.pending_of_group(batch.group_id)
                if (key.topic, key.partition) == (topic.name, index)
            ]
        answered.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(answered))


ROUTES: Final = (timeless(OffsetDeleteRequest, handle_offset_delete),)
