"""Heartbeats of a classic group's members, which restart the member's session.

Source: Kafka's ``GroupMetadataManager.classicGroupHeartbeat``.
"""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicMember, ClassicState
from kip848_client.testing.coordinator.classic.classic_lookup import check_generation, existing_group, find_member
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: HeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one Heartbeat: NONE, or REBALANCE_IN_PROGRESS if the member has to join again."""
    try:
        if not message.group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "Heartbeat names no group.")
        other = state.part(Kinds).classic_side(message.group_id)
        if other is not None:
            code, timers = other.beat(message, now_ms=now_ms)
            return CoordinatorResult(
                replies=(Reply(request.request_id, HeartbeatResponse(error_code=code)),), soft=tuple(timers)
            )
        group = existing_group(state, message.group_id)
        member = find_member(group, member_id=message.member_id, instance_id=message.group_instance_id)
        check_generation(group, message.generation_id)
    except Refused as refused:
        return CoordinatorResult(replies=(Reply(request.request_id, HeartbeatResponse(error_code=refused.code)),))
    is_preparing = group.state is ClassicState.PREPARING
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE)
    return CoordinatorResult(
        replies=(Reply(request.request_id, response),), soft=(session_restart(group, member, now_ms=now_ms),)
    )


def session_restart(group: ClassicGroup, member: ClassicMember, *, now_ms: int) -> ArmTimer:
    """The timer that restarts the member's session."""
    return ArmTimer(
        TimerKey(TimerKind.CLASSIC_SESSION, group.group_id, member.member_id),
        deadline_ms=now_ms + member.session_timeout_ms,
        member_epoch=group.generation,
    )
