"""Which partitions a share group has begun: from the first subscription, over the state of each, to its deletion.

The state itself (start offset, what was delivered) is kept by share partitions. The coordinator asks for it to be made
or deleted (`CoordinatorResult.share_state`), and hears of it as `ShareStateInitialized`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest, ShareStateInitialized
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import (
    CoordinatorResult,
    DeleteShareState,
    InitializeShareState,
    Reply,
)
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.share.share_group import (
    BegunTopic,
    ShareGroup,
    StatePartitions,
    partitions_record,
)
from kip848_client.wire.messages import alter_share_group_offsets as alter
from kip848_client.wire.messages import delete_share_group_offsets as delete

_NOT_THERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NOT_THERE_MESSAGE = "This server does not host this topic-partition."
_UNINITIALIZED = -1


def begin_partitions(
    state: CoordinatorState, group: ShareGroup, batch: Batch, *, topics: Collection[str], group_epoch: int
) -> None:
    """Ask for the state of subscribed partitions that have none.

    A new topic begins where ``share.auto.offset.reset`` says; new partitions of a known one at their first record.
    """
    begun = group.partitions
    starts: dict[tuple[UUID, int], int] = {}
    missing: dict[UUID, BegunTopic] = {}
    for name in sorted(topics):
        topic = state.image.by_name.get(name)
        if topic is None:
            continue
        done = begun.initialized.get(topic.topic_id)
        left = frozenset(range(topic.partition_count)) - (frozenset() if done is None else done.partitions)
        if left:
            missing[topic.topic_id] = BegunTopic(name, left)
            is_known = topic.topic_id in begun.initialized or topic.topic_id in begun.initializing
            starts.update({(topic.topic_id, number): 0 if is_known else _UNINITIALIZED for number in sorted(left)})
    if missing:
        batch.records.append(partitions_record(group.group_id, _with_initializing(begun, missing)))
        batch.share_state.append(InitializeShareState(group.group_id, state_epoch=group_epoch, starts=starts))


def initialized(state: CoordinatorState, event: ShareStateInitialized) -> CoordinatorResult:
    """The state of partitions is there now."""
    group = state.find(ShareGroup, event.group_id)
    if group is None:
        return CoordinatorResult()
    begun = group.partitions
    done = dict(begun.initialized)
    left = dict(begun.initializing)
    for topic_id, numbers in _by_topic(event.partitions).items():
        topic = left.get(topic_id) or done.get(topic_id)
        if topic is None:
            continue  # the topic was deleted meanwhile
        before = frozenset[int]() if topic_id not in done else done[topic_id].partitions
        done[topic_id] = BegunTopic(topic.name, before | numbers)
        if topic_id in left:
            rest = left[topic_id].partitions - numbers
            left[topic_id] = BegunTopic(topic.name, rest)
            if not rest:
                del left[topic_id]
    after = replace(begun, initializing=left, initialized=done)
    return CoordinatorResult(records=(partitions_record(event.group_id, after),))


def topics_gone(state: CoordinatorState, topic_ids: frozenset[UUID]) -> CoordinatorResult:
    """Forget the partitions of topics that were deleted."""
    batch = Batch("")
    for group in state.all_of(ShareGroup):
        begun = group.partitions
        known = begun.initializing.keys() | begun.initialized.keys() | begun.deleting.keys()
        if known.isdisjoint(topic_ids):
            continue
        after = StatePartitions(
            initializing={each: topic for each, topic in begun.initializing.items() if each not in topic_ids},
            initialized={each: topic for each, topic in begun.initialized.items() if each not in topic_ids},
            deleting={each: name for each, name in begun.deleting.items() if each not in topic_ids},
        )
        batch.records.append(partitions_record(group.group_id, after))
        batch.share_state.append(DeleteShareState(group.group_id, partitions_with_state(group, only=topic_ids)))
    return batch.result()


def partitions_with_state(group: ShareGroup, *, only: Collection[UUID] | None = None) -> tuple[tuple[UUID, int], ...]:
    """(topic id, partition) of all that the group has begun, or is about to, ascending."""
    begun = group.partitions
    return tuple(
        sorted(
            {
                (topic_id, number)
                for topics in (begun.initialized, begun.initializing)
                for topic_id, topic in topics.items()
                if only is None or topic_id in only
                for number in topic.partitions
            }
        )
    )


def handle_alter_offsets(
    state: CoordinatorState, request: ApiRequest, message: alter.AlterShareGroupOffsetsRequest
) -> CoordinatorResult:
    """Answer one AlterShareGroupOffsets. A group that is not there yet is made: so it may begin where one wants.

    Source:
        Kafka's ``GroupMetadataManager.alterShareGroupOffsets``.
    """
    batch = Batch(message.group_id)
    try:
        group = _empty_group(state, message.group_id, may_be_new=True)
    except Refused as refused:
        response = alter.AlterShareGroupOffsetsResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, response))
    starts: dict[tuple[UUID, int], int] = {}
    moved: dict[UUID, BegunTopic] = {}
    responses = []
    for asked in message.topics:
        topic = state.image.by_name.get(asked.topic_name)
        count = 0 if topic is None else topic.partition_count
        found = {each.partition_index: each.start_offset for each in asked.partitions if each.partition_index < count}
        responses.append(
            alter.ResponseTopic(
                topic_name=asked.topic_name,
                **({} if topic is None else {"topic_id": topic.topic_id}),
                partitions=tuple(
                    alter.ResponsePartition(partition_index=each.partition_index)
                    if each.partition_index in found
                    else alter.ResponsePartition(each.partition_index, _NOT_THERE, _NOT_THERE_MESSAGE)
                    for each in asked.partitions
                ),
            )
        )
        if topic is not None and found:
            moved[topic.topic_id] = BegunTopic(asked.topic_name, frozenset(found))
            starts.update({(topic.topic_id, number): offset for number, offset in found.items()})
    if moved:
        batch.records.append(partitions_record(group.group_id, _with_initializing(group.partitions, moved)))
        batch.share_state.append(InitializeShareState(group.group_id, state_epoch=group.group_epoch, starts=starts))
    answer = alter.AlterShareGroupOffsetsResponse(responses=tuple(responses))
    return batch.result(Reply(request.request_id, answer))


def handle_delete_offsets(
    state: CoordinatorState, request: ApiRequest, message: delete.DeleteShareGroupOffsetsRequest
) -> CoordinatorResult:
    """Answer one DeleteShareGroupOffsets: the group forgets topics, and begins them again when members subscribe."""
    batch = Batch(message.group_id)
    try:
        group = _empty_group(state, message.group_id, may_be_new=False)
    except Refused as refused:
        response = delete.DeleteShareGroupOffsetsResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, response))
    begun = group.partitions
    forgotten: list[UUID] = []
    done: list[delete.ResponseTopic] = []
    refused_topics: list[delete.ResponseTopic] = []
    for asked in message.topics:
        topic = state.image.by_name.get(asked.topic_name)
        if topic is None:
            refused_topics.append(
                delete.ResponseTopic(
                    topic_name=asked.topic_name, error_code=_NOT_THERE, error_message=_NOT_THERE_MESSAGE
                )
            )
        elif topic.topic_id not in begun.initialized or topic.topic_id in forgotten:
            refused_topics.append(
                delete.ResponseTopic(
                    topic_name=asked.topic_name,
                    error_code=_NOT_THERE,
                    error_message="There is no offset information to delete.",
                )
            )
        else:
            forgotten.append(topic.topic_id)
            done.append(delete.ResponseTopic(topic_name=asked.topic_name, topic_id=topic.topic_id))
    if forgotten:
        left = {topic_id: topic for topic_id, topic in begun.initialized.items() if topic_id not in forgotten}
        batch.records.append(partitions_record(group.group_id, replace(begun, initialized=left)))
        batch.share_state.append(DeleteShareState(group.group_id, partitions_with_state(group, only=forgotten)))
    answer = delete.DeleteShareGroupOffsetsResponse(responses=(*done, *refused_topics))
    return batch.result(Reply(request.request_id, answer))


def _empty_group(state: CoordinatorState, group_id: str, *, may_be_new: bool) -> ShareGroup:
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    if may_be_new and state.known_group(group_id) is None:
        if not state.has_room_for_group(group_id):
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"This broker has {state.config.groups_max} groups, which is its limit (kip848.groups.max).",
            )
        return ShareGroup(group_id)
    group = state.existing(ShareGroup, group_id)
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


def _with_initializing(begun: StatePartitions, topics: Mapping[UUID, BegunTopic]) -> StatePartitions:
    making = dict(begun.initializing)
    for topic_id, topic in topics.items():
        before = making.get(topic_id)
        making[topic_id] = BegunTopic(topic.name, topic.partitions | (before.partitions if before else frozenset()))
    deleting = {topic_id: name for topic_id, name in begun.deleting.items() if topic_id not in topics}
    return replace(begun, initializing=making, deleting=deleting)


def _by_topic(partitions: Iterable[tuple[UUID, int]]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
