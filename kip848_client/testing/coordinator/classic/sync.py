"""SyncGroup in a classic group: the leader sends the assignment, and every member gets its part.

Source: Kafka's ``GroupMetadataManager.classicGroupSync``; KIP-559 (protocol names).
"""

from __future__ import annotations

from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState, Parked
from kip848_client.testing.coordinator.classic.classic_lookup import check_generation, existing_group, find_member
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_REQUIRED_VERSION: Final = 5
"""From this version on, a SyncGroup must name the type and name of its protocol."""


def handle_sync(
    state: CoordinatorState, request: ApiRequest, message: SyncGroupRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one SyncGroup, or park it until the leader's SyncGroup arrives."""
    try:
        return _sync(state, request, message, now_ms=now_ms)
    except Refused as refused:
        return CoordinatorResult(replies=(Reply(request.request_id, SyncGroupResponse(error_code=refused.code)),))


def _sync(state: CoordinatorState, request: ApiRequest, message: SyncGroupRequest, *, now_ms: int) -> CoordinatorResult:
    if request.api_version >= _PROTOCOL_REQUIRED_VERSION and (
        message.protocol_type is None or message.protocol_name is None
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup names no protocol.")
    if not message.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "SyncGroup names no group.")
    other = state.part(Kinds).classic_side(message.group_id)
    if other is not None:
        return other.sync(request, message, now_ms=now_ms)
    group = existing_group(state, message.group_id)
    member = find_member(group, member_id=message.member_id, instance_id=message.group_instance_id)
    check_generation(group, message.generation_id)
    _check_protocol(message.protocol_type, group.protocol_type, what="type")
    _check_protocol(message.protocol_name, group.protocol, what="name")
    if group.state is ClassicState.PREPARING:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, f"Group {group.group_id} rebalances; join again.")
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=request.wall_ms)
    member_id = member.member_id
    if member_id in group.pending_syncs:
        outcome.change(pending_syncs=group.pending_syncs - {member_id})
        if not outcome.group.pending_syncs:
            outcome.cancel_sync_timer()
    if group.state is ClassicState.COMPLETING and member_id != group.leader:
        outcome.park_sync(member_id, Parked(request.request_id, request.api_version))
        return outcome.result()
    if group.state is ClassicState.COMPLETING:
        outcome.synced({given.member_id: bytes(given.assignment) for given in message.assignments})
    outcome.reply(request.request_id, outcome.sync_response(member_id))
    outcome.arm_session(member_id, member.session_timeout_ms)
    return outcome.result()


def _check_protocol(sent: str | None, selected: str | None, *, what: str) -> None:
    if sent is not None and sent != selected:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The protocol's {what} is {selected}, and {sent} was sent."
        )
