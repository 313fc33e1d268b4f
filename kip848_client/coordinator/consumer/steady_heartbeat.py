"""The shortcut for most heartbeats: the member reports no change, and there is no change for it.

It decides nothing: `consumer_heartbeat` comes to the same result in four times the time, and handles all other
heartbeats. The tests with random groups compare the two for every heartbeat that takes the shortcut.
"""

from __future__ import annotations

from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.coordinator.core.inputs import ApiRequest
from kip848_client.coordinator.core.result import ArmTimer, CoordinatorResult, Reply
from kip848_client.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.coordinator.modern.member_record import JOIN_EPOCH, ConsumerMember, ReconciliationState
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def steady_member(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """The member if neither it nor the group has changes; else None."""
    group = state.find(ConsumerGroup, message.group_id)
    member = None if group is None else group.members.get(message.member_id)
    if group is None or member is None:
        return None
    epoch, current, metadata = message.member_epoch, member.current, member.metadata
    is_up_to_date = (
        epoch == current.member_epoch == group.target_epoch == group.group_epoch
        and current.state is ReconciliationState.STABLE
        and not group.regex_subscribers
        and message.group_id not in state.part(Subscriptions).metadata_check_due
    )
    says_nothing_new = (
        message.topic_partitions is None
        and message.subscribed_topic_names is None
        and message.subscribed_topic_regex is None
        and message.server_assignor is None
        and message.client_assignors is None
        and message.rack_id is None
        and message.rebalance_timeout_ms == -1
        and message.instance_id in (None, metadata.instance_id)
        and metadata.classic is None
        and request.client_id == metadata.client_id
        and request.client_host == metadata.client_host
    )
    return member if is_up_to_date and says_nothing_new and epoch > JOIN_EPOCH else None


def answer_steady(
    state: CoordinatorState, request: ApiRequest, member: ConsumerMember, *, now_ms: int
) -> CoordinatorResult:
    """Answer with the member's epoch and interval, and restart its session."""
    assert isinstance(request.message, ConsumerGroupHeartbeatRequest)
    group_id, epoch = request.message.group_id, member.current.member_epoch
    config = state.group_config(group_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=epoch, heartbeat_interval_ms=config.heartbeat_interval_ms
    )
    session = ArmTimer(
        TimerKey(TimerKind.SESSION, group_id, member.member_id),
        deadline_ms=now_ms + config.session_timeout_ms,
        member_epoch=epoch,
    )
    return CoordinatorResult(replies=(Reply(request.request_id, response),), soft=(session,))
