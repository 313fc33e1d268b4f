"""LeaveGroup: members leave, or an administrator removes them, from a group of any kind.

Source: Kafka's ``GroupMetadataManager.classicGroupLeaveToClassicGroup``; KIP-345 (several members in one request).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup
from kip848_client.testing.coordinator.classic.classic_lookup import find_member
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_SEVERAL_VERSION: Final = 3
"""From this version of LeaveGroup on, a request names several members, and each gets its own code."""


def handle_leave(
    state: CoordinatorState, request: ApiRequest, message: LeaveGroupRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one LeaveGroup: each member has its own code."""
    if not message.group_id:
        refused = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return CoordinatorResult(replies=(Reply(request.request_id, refused),))
    leaving = _leaving_members(message, api_version=request.api_version)
    group = state.groups.get(message.group_id)
    codes: Sequence[ErrorCode] = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    result = CoordinatorResult()
    if group is not None:
        kind = state.part(Kinds).of(group)
        codes, result = kind.remove_members(group, leaving, now_ms=now_ms, wall_ms=request.wall_ms)
    reply = Reply(request.request_id, _response(leaving, codes, api_version=request.api_version))
    return replace(result, replies=(*result.replies, reply))


def remove_members(
    state: CoordinatorState, group: ClassicGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
    """Remove members of a classic group, which rebalances once for all of them."""
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=wall_ms)
    codes = [_remove(outcome, identity) for identity in leaving]
    if ErrorCode.NONE in codes:
        outcome.after_removal()
    return codes, outcome.result()


def _remove(outcome: ClassicOutcome, identity: MemberIdentity) -> ErrorCode:
    group, member_id = outcome.group, identity.member_id
    if not member_id:
        # An administrator removes a static member without knowing its id.
        member_id = group.static_members.get(identity.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_joins:
        outcome.forget_pending(member_id)
        return ErrorCode.NONE
    try:
        find_member(group, member_id=member_id, instance_id=identity.group_instance_id)
    except Refused as refused:
        return refused.code
    outcome.remove([member_id], reason="leave")
    return ErrorCode.NONE


def _leaving_members(message: LeaveGroupRequest, *, api_version: int) -> Sequence[MemberIdentity]:
    """The members that leave; before version 3 a request names one, in a field of its own."""
    return message.members if api_version >= _SEVERAL_VERSION else (MemberIdentity(member_id=message.member_id),)


def _response(leaving: Sequence[MemberIdentity], codes: Sequence[ErrorCode], *, api_version: int) -> LeaveGroupResponse:
    """The code of each member, in the order of the request; before version 3 the code of the only one."""
    if api_version < _SEVERAL_VERSION:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            for identity, code in zip(leaving, codes, strict=True)
        )
    )
