"""Deletes groups and offsets: DeleteGroups, OffsetDelete, offsets of deleted topics, expired offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kip848_client.coordinator.classic.classic_group import ClassicState
from kip848_client.coordinator.connect import connect_records
from kip848_client.coordinator.consumer import consumer_records
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.core.offset_store import CommittedOffset, offset_tombstone, pending_tombstone
from kip848_client.coordinator.core.requests import ApiRequest
from kip848_client.coordinator.core.result import CoordinatorRecord, CoordinatorResult, Reply
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_protocol import CONSUMER_PROTOCOL
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
    group_id = message.group_id
    group, classic = state.groups.get(group_id), state.classic.get(group_id)
    code = ErrorCode.NONE
    if not group_id or (group is None and not state.is_classic(group_id)):
        code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
    elif classic is not None and classic.members and classic.protocol_type != CONSUMER_PROTOCOL:
        code = ErrorCode.NON_EMPTY_GROUP  # which topics its members need is known to them alone
    if code:
        return CoordinatorResult(replies=(Reply(request.request_id, OffsetDeleteResponse(error_code=code)),))
    batch = Batch(group_id)
    answered = tuple(
        _delete_offsets(state, batch, topic, is_subscribed=_is_subscribed(state, group_id, topic.name))
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

    The time counts from the commit; in a classic group that is empty, from when its last member went. A group that has
    no members and loses its last offset is removed too.

    Source:
        Kafka's ``OffsetMetadataManager.cleanupExpiredOffsets``, ``ClassicGroup.offsetExpirationCondition``; KIP-211.
    """
    batch = Batch("")
    for group_id in sorted(state.offsets.group_ids() | state.groups.keys() | state.classic.keys()):
        group, classic = state.groups.get(group_id), state.classic.get(group_id)
        since_ms = None
        if classic is not None and classic.protocol_type is not None:
            if classic.state is ClassicState.EMPTY:
                since_ms = None if classic.state_timestamp_ms == -1 else classic.state_timestamp_ms
            elif classic.state is not ClassicState.STABLE or classic.protocol_type != CONSUMER_PROTOCOL:
                continue  # what its members read is not known, or not yet
        offsets = state.offsets.of_group(group_id)
        expired = [
            offset_tombstone(group_id, topic=topic, partition=partition)
            for topic, partitions in sorted(offsets.items())
            if not _is_subscribed(state, group_id, topic)
            for partition, committed in sorted(partitions.items())
            if _is_expired(state, committed, since_ms=since_ms, wall_ms=wall_ms)
        ]
        batch.records += expired
        if len(expired) < sum(map(len, offsets.values())) or state.offsets.has_pending(group_id):
            continue
        if group is not None and not group.members:
            batch.records += group_tombstones(group)
        if classic is not None and not classic.size:
            batch.records.append(consumer_records.classic_group_tombstone(group_id))
    return batch.result()


def _is_subscribed(state: CoordinatorState, group_id: str, topic: str) -> bool:
    """Whether members of a group read *topic*."""
    group, classic = state.groups.get(group_id), state.classic.get(group_id)
    if classic is not None:
        return bool(classic.members) and classic.is_subscribed_to(topic)
    return group is not None and topic in group.subscribed_topics


def _is_expired(state: CoordinatorState, committed: CommittedOffset, *, since_ms: int | None, wall_ms: int) -> bool:
    if committed.expire_timestamp_ms != -1:
        return wall_ms >= committed.expire_timestamp_ms
    base_ms = committed.commit_timestamp_ms if since_ms is None else since_ms
    return wall_ms - base_ms >= state.config.offsets_retention_ms


def _delete_group(state: CoordinatorState, batch: Batch, group_id: str) -> ErrorCode:
    group, classic = state.groups.get(group_id) or state.connect.get(group_id), state.classic.get(group_id)
    if group is None and not state.is_classic(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if (group is not None and group.members) or (classic is not None and classic.state is not ClassicState.EMPTY):
        return ErrorCode.NON_EMPTY_GROUP
    batch.records += [
        offset_tombstone(group_id, topic=topic, partition=partition)
        for topic, partitions in sorted(state.offsets.of_group(group_id).items())
        for partition in sorted(partitions)
    ]
    batch.records += [pending_tombstone(key) for key in state.offsets.pending_of_group(group_id)]
    if group is None:
        batch.records.append(consumer_records.classic_group_tombstone(group_id))
    else:
        batch.records += tombstones_of(state, group_id)
    return ErrorCode.NONE


def tombstones_of(state: CoordinatorState, group_id: str) -> Iterator[CoordinatorRecord]:
    """Tombstones for all records of a group of the new protocol but its offsets, in the order that replay demands."""
    connect = state.connect.get(group_id)
    return group_tombstones(state.groups[group_id]) if connect is None else connect_records.group_tombstones(connect)


def group_tombstones(group: ConsumerGroup) -> Iterator[CoordinatorRecord]:
    """Tombstones for all records of a consumer group but its offsets, in the order that replay demands."""
    group_id = group.group_id
    for member_id in group.sorted_member_ids:
        yield consumer_records.current_tombstone(group_id, member_id=member_id)
        yield consumer_records.target_tombstone(group_id, member_id=member_id)
        yield consumer_records.member_metadata_tombstone(group_id, member_id=member_id)
    for member_id in sorted(group.target.keys() - group.members.keys()):
        yield consumer_records.target_tombstone(group_id, member_id=member_id)
    yield consumer_records.target_epoch_tombstone(group_id)
    for regex in sorted(group.resolved_regexes):
        yield consumer_records.regex_tombstone(group_id, regex=regex)
    yield consumer_records.partition_metadata_tombstone(group_id)
    yield consumer_records.group_epoch_tombstone(group_id)


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
