"""Describes and lists groups: ConsumerGroupDescribe, ListGroups and DescribeGroups. Reads only.

A *simple* group has offsets and no members: consumers that assign partitions themselves commit to it. To these APIs it
is a classic group that is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from kip848_client.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup, GroupState
from kip848_client.coordinator.consumer.target_assignment import choose_assignor
from kip848_client.coordinator.core.requests import ApiRequest
from kip848_client.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.modern.client_assignment import client_assignor
from kip848_client.coordinator.modern.member_record import GroupMember
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages import consumer_group_describe, describe_groups
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kip848_client.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_MEMBER_TYPE_CLASSIC: Final = 0
_MEMBER_TYPE_CONSUMER: Final = 1
_ALL_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""All operations on a group (read, delete, describe, describe and alter configs), since there are no ACLs."""
_GROUP_ID_NOT_FOUND_VERSION: Final = 6
"""From this version on DescribeGroups answers GROUP_ID_NOT_FOUND instead of the state Dead (KIP-1043)."""


def handle_consumer_group_describe(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupDescribeRequest
) -> CoordinatorResult:
    """Answer one ConsumerGroupDescribe; each group has its own error. One that is named twice is described once."""
    groups = tuple(_describe(state, group_id) for group_id in dict.fromkeys(message.group_ids))
    if message.include_authorized_operations:
        groups = tuple(
            group if group.error_code else replace(group, authorized_operations=_ALL_OPERATIONS) for group in groups
        )
    return CoordinatorResult(replies=(Reply(request.request_id, ConsumerGroupDescribeResponse(groups=groups)),))


def handle_list_groups(state: CoordinatorState, request: ApiRequest, message: ListGroupsRequest) -> CoordinatorResult:
    """Answer one ListGroups. Filters ignore case, and a group must pass both; what they do not know matches nothing."""
    states = {text.strip().lower() for text in message.states_filter}
    types = {text.lower() for text in message.types_filter}  # not stripped: Kafka does not
    groups = tuple(
        group
        for group in _listed(state)
        if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    )
    return CoordinatorResult(replies=(Reply(request.request_id, ListGroupsResponse(groups=groups)),))


def handle_describe_groups(
    state: CoordinatorState, request: ApiRequest, message: DescribeGroupsRequest
) -> CoordinatorResult:
    """Answer one DescribeGroups, which knows classic groups only."""
    groups = tuple(
        _describe_classic(state, group_id, api_version=request.api_version)
        for group_id in dict.fromkeys(message.groups)
    )
    if message.include_authorized_operations:
        groups = tuple(
            group if group.error_code else replace(group, authorized_operations=_ALL_OPERATIONS) for group in groups
        )
    return CoordinatorResult(replies=(Reply(request.request_id, DescribeGroupsResponse(groups=groups)),))


def _listed(state: CoordinatorState) -> Iterator[ListedGroup]:
    for group_id in sorted({*state.offsets.group_ids(), *state.groups, *state.classic, *state.connect}):
        if group_id in state.connect:
            yield ListedGroup(
                group_id=group_id,
                protocol_type="connect",
                group_state=str(state.connect[group_id].state),
                group_type="connect",
            )
        elif group_id not in state.groups:
            group = state.classic.get(group_id, ClassicGroup(group_id))
            yield ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=str(group.state),
                group_type="classic",
            )
        else:
            yield ListedGroup(
                group_id=group_id,
                protocol_type="consumer",
                group_state=str(state.groups[group_id].state),
                group_type="consumer",
            )


def _describe(state: CoordinatorState, group_id: str) -> consumer_group_describe.DescribedGroup:
    if not group_id:
        return consumer_group_describe.DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    group = state.groups.get(group_id)
    if group is None:
        is_other = state.is_classic(group_id) or group_id in state.connect
        what = "is not a consumer group" if is_other else "not found"
        return consumer_group_describe.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
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


def _member(state: CoordinatorState, group: ConsumerGroup, member: GroupMember) -> consumer_group_describe.Member:
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


def _held(member: GroupMember) -> Mapping[UUID, Iterable[int]]:
    """Partitions that a member may still use: its assignment, and those that it has not confirmed to revoke.

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


def _describe_classic(state: CoordinatorState, group_id: str, *, api_version: int) -> describe_groups.DescribedGroup:
    if state.is_classic(group_id):
        return _classic_group(state.classic.get(group_id, ClassicGroup(group_id)))
    if api_version < _GROUP_ID_NOT_FOUND_VERSION:
        return describe_groups.DescribedGroup(group_id=group_id, group_state=str(GroupState.DEAD))
    what = "is not a classic group" if group_id in state.groups or group_id in state.connect else "not found"
    return describe_groups.DescribedGroup(
        group_id=group_id,
        group_state=str(GroupState.DEAD),
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )


def _classic_group(group: ClassicGroup) -> describe_groups.DescribedGroup:
    """Which protocol members use is shown of a stable group only; what they were given, always."""
    is_stable = group.state is ClassicState.STABLE
    return describe_groups.DescribedGroup(
        group_id=group.group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            describe_groups.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
