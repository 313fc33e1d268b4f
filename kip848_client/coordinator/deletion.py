"""Removing what groups keep: DeleteGroups, OffsetDelete, offsets of deleted topics and offsets that have expired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kip848_client.coordinator import records
from kip848_client.coordinator.batch import Batch
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.offset_store import CommittedOffset, offset_tombstone
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import CoordinatorRecord, CoordinatorResult, Reply
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle_delete_groups(
    state: CoordinatorState, request: ApiRequest, message: DeleteGroupsRequest
) -> CoordinatorResult:
    """Answer one DeleteGroups: groups without members go with their offsets; each group has its own error."""
    batch = Batch("")
    results: dict[str, ErrorCode] = {}
    for group_id in message.groups_names:
        if group_id not in results:
            results[group_id] = _delete_group(state, batch, group_id)
    answered = tuple(DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in results.items())
    return batch.result(Reply(request.request_id, DeleteGroupsResponse(results=answered)))


def handle_offset_delete(
    state: CoordinatorState, request: ApiRequest, message: OffsetDeleteRequest
) -> CoordinatorResult:
    """Answer one OffsetDelete. Offsets of a topic that a member still subscribes to stay."""
    group = state.groups.get(message.group_id)
    if not message.group_id or (group is None and not state.offsets.has_group(message.group_id)):
        code = ErrorCode.GROUP_ID_NOT_FOUND if message.group_id else ErrorCode.INVALID_GROUP_ID
        refused = OffsetDeleteResponse(error_code=code)
        return CoordinatorResult(replies=(Reply(request.request_id, refused),))
    batch = Batch(message.group_id)
    answered = tuple(
        _delete_offsets(state, batch, topic, is_subscribed=group is not None and topic.name in group.subscribed_topics)
        for topic in message.topics
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
    ]


def expire_offsets(state: CoordinatorState, *, wall_ms: int) -> CoordinatorResult:
    """Remove offsets older than ``offsets.retention.minutes`` of topics that the group no longer subscribes to.

    A group that has no members and loses its last offset is removed too.

    Source:
        Kafka's ``OffsetMetadataManager.cleanupExpiredOffsets``; KIP-211.
    """
    batch = Batch("")
    for group_id in sorted(set(state.offsets.group_ids()) | state.groups.keys()):
        group = state.groups.get(group_id)
        subscribed = frozenset() if group is None else group.subscribed_topics
        left = 0
        for topic, partitions in sorted(state.offsets.of_group(group_id).items()):
            for partition, committed in sorted(partitions.items()):
                if topic not in subscribed and _is_expired(state, committed, wall_ms=wall_ms):
                    batch.records.append(offset_tombstone(group_id, topic=topic, partition=partition))
                else:
                    left += 1
        if group is not None and not left and not group.members:
            batch.records += _group_tombstones(group)
    return batch.result()


def _is_expired(state: CoordinatorState, committed: CommittedOffset, *, wall_ms: int) -> bool:
    if committed.expire_timestamp_ms >= 0:
        return wall_ms >= committed.expire_timestamp_ms
    return wall_ms - committed.commit_timestamp_ms >= state.config.offsets_retention_ms


def _delete_group(state: CoordinatorState, batch: Batch, group_id: str) -> ErrorCode:
    group = state.groups.get(group_id)
    if group is None and not state.offsets.has_group(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group is not None and group.members:
        return ErrorCode.NON_EMPTY_GROUP
    batch.records += [
        offset_tombstone(group_id, topic=topic, partition=partition)
        for topic, partitions in sorted(state.offsets.of_group(group_id).items())
        for partition in sorted(partitions)
    ]
    if group is None:
        batch.records.append(records.classic_group_tombstone(group_id))
    else:
        batch.records += _group_tombstones(group)
    return ErrorCode.NONE


def _group_tombstones(group: ConsumerGroup) -> Iterator[CoordinatorRecord]:
    """Everything that is left of a group without members, in the order that replay demands."""
    group_id = group.group_id
    assert not group.members
    for member_id in sorted(group.target):
        yield records.target_tombstone(group_id, member_id=member_id)
    yield records.target_epoch_tombstone(group_id)
    for regex in sorted(group.resolved_regexes):
        yield records.regex_tombstone(group_id, regex=regex)
    yield records.partition_metadata_tombstone(group_id)
    yield records.group_epoch_tombstone(group_id)


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
        answered.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(answered))
