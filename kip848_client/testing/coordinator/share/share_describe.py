"""ShareGroupDescribe. Reads only."""

from __future__ import annotations

from msgspec.structs import replace

from kip848_client.assignors.server.simple import SIMPLE
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.list_and_delete import ALL_OPERATIONS
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.share.share_group import ShareGroup, ShareGroupMember
from kip848_client.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def handle_describe(
    state: CoordinatorState, request: ApiRequest, message: ShareGroupDescribeRequest
) -> CoordinatorResult:
    """Answer one ShareGroupDescribe; each group has its own error. One that is named twice is described once."""
    groups = tuple(_describe(state, group_id) for group_id in dict.fromkeys(message.group_ids))
    if message.include_authorized_operations:
        groups = tuple(
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS) for group in groups
        )
    return CoordinatorResult(replies=(Reply(request.request_id, ShareGroupDescribeResponse(groups=groups)),))


def _describe(state: CoordinatorState, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = state.existing(ShareGroup, group_id)
    except Refused as refused:
        return DescribedGroup(group_id=group_id, error_code=refused.code, error_message=refused.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=str(group.state),
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=SIMPLE,
        members=tuple(_member(state, member) for _, member in sorted(group.members.items())),
    )


def _member(state: CoordinatorState, member: ShareGroupMember) -> Member:
    by_id = state.image.by_id
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=numbers)
                for topic_id, numbers in sorted(member.assigned.items())
                if topic_id in by_id
            )
        ),
    )
