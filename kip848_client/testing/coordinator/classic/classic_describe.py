"""DescribeGroups, which knows classic groups only. Reads only."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.list_and_delete import ALL_OPERATIONS
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_GROUP_ID_NOT_FOUND_VERSION: Final = 6
"""From this version on DescribeGroups answers GROUP_ID_NOT_FOUND instead of the state Dead (KIP-1043)."""


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
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS) for group in groups
        )
    return CoordinatorResult(replies=(Reply(request.request_id, DescribeGroupsResponse(groups=groups)),))


def _describe_classic(state: CoordinatorState, group_id: str, *, api_version: int) -> DescribedGroup:
    group = state.known_group(group_id)
    if isinstance(group, ClassicGroup):
        return _described(group)
    if api_version < _GROUP_ID_NOT_FOUND_VERSION:
        return DescribedGroup(group_id=group_id, group_state=str(ClassicState.DEAD))
    what = "not found" if group is None else "is not a classic group"
    return DescribedGroup(
        group_id=group_id,
        group_state=str(ClassicState.DEAD),
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {what}.",
    )


def _described(group: ClassicGroup) -> DescribedGroup:
    """The protocol of the group is shown only if it is stable; the assignments of members, always."""
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
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
