"""LeaveGroup for a classic group: a member leaves, or an administrator removes static members.

Source: Kafka's ``GroupMetadataManager.classicGroupLeaveToClassicGroup``; KIP-345 (several members in one request).
"""

from __future__ import annotations

from kip848_client.coordinator.classic.classic_group import ClassicGroup
from kip848_client.coordinator.classic.classic_lookup import find_member
from kip848_client.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.coordinator.core.refusal import Refused
from kip848_client.coordinator.core.requests import ApiRequest
from kip848_client.coordinator.core.result import CoordinatorResult
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.modern.departure import leave_response, leaving_members
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
)


def handle_leave(
    state: CoordinatorState, request: ApiRequest, message: LeaveGroupRequest, group: ClassicGroup, *, now_ms: int
) -> CoordinatorResult:
    """Answer one LeaveGroup: each member has its own code, and the group rebalances once for all of them."""
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=request.wall_ms)
    leaving = leaving_members(message, api_version=request.api_version)
    codes = [_leave(outcome, identity) for identity in leaving]
    if ErrorCode.NONE in codes:
        outcome.after_removal()
    outcome.reply(request.request_id, leave_response(leaving, codes, api_version=request.api_version))
    return outcome.result()


def _leave(outcome: ClassicOutcome, identity: MemberIdentity) -> ErrorCode:
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
