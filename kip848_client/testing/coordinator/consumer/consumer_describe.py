"""ConsumerGroupDescribe. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember
from kip848_client.testing.coordinator.consumer.target_assignment import choose_assignor
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.list_and_delete import ALL_OPERATIONS
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.modern.client_assignment import client_assignor
from kip848_client.wire.messages import consumer_group_describe
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

_MEMBER_TYPE_CLASSIC: Final = 0
_MEMBER_TYPE_CONSUMER: Final = 1


def handle_consumer_group_describe(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupDescribeRequest
) -> CoordinatorResult:
    """Answer one ConsumerGroupDescribe; each group has its own error. One that is named twice is described once."""
    groups = tuple(_describe(state, group_id) for group_id in dict.fromkeys(message.group_ids))
    if message.include_authorized_operations:
        groups = tuple(
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS) for group in groups
        )
    return CoordinatorResult(replies=(Reply(request.request_id, ConsumerGroupDescribeResponse(groups=groups)),))


def _describe(state: CoordinatorState, group_id: str) -> consumer_group_describe.DescribedGroup:
    if not group_id:
        return consumer_group_describe.DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = state.existing(ConsumerGroup, group_id)
    except Refused as refused:
        return consumer_group_describe.DescribedGroup(
            group_id=group_id, error_code=refused.code, error_message=refused.message
        )
    return consumer_group_describe.DescribedGroup(
        group_id=group_id,
        group_state=str(group.state),
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=_assignor_name(state, group),
        members=tuple(_member(state, group, group.members[member_id]) for member_id in group.sorted_member_ids),
    )


def _assignor_name(state: CoordinatorState, group: ConsumerGroup) -> str:
    choice = client_assignor(state, group)
    return choose_assignor(group, assignors=state.assignors).name if choice is None else choice.assignor_name


def _member(state: CoordinatorState, group: ConsumerGroup, member: ConsumerMember) -> consumer_group_describe.Member:
    metadata = member.metadata
    return consumer_group_describe.Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex or "",
        assignment=_assignment(state, _held(member)),
        target_assignment=_assignment(state, group.target_of(member.member_id)),
        member_type=_MEMBER_TYPE_CONSUMER if metadata.classic is None else _MEMBER_TYPE_CLASSIC,
    )


def _held(member: ConsumerMember) -> Mapping[UUID, Iterable[int]]:
    """Partitions that a member may still use: its assignment, and partitions that it has not confirmed to revoke.

    Source:
        Kafka since 4.3; before, the second part was left out.
    """
    current = member.current
    if not current.pending_revocation:
        return current.assigned
    held: dict[UUID, list[int]] = {}
    for partitions in (current.assigned, current.pending_revocation):
        for topic_id, epochs in partitions.items():
            held.setdefault(topic_id, []).extend(epochs)
    return held


def _assignment(
    state: CoordinatorState, partitions: Mapping[UUID, Iterable[int]]
) -> consumer_group_describe.Assignment:
    by_id = state.image.by_id
    return consumer_group_describe.Assignment(
        topic_partitions=tuple(
            consumer_group_describe.TopicPartitions(
                topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=tuple(sorted(partitions[topic_id]))
            )
            for topic_id in sorted(partitions)
            if topic_id in by_id
        )
    )
