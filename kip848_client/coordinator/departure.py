"""How a member ceases to be one: it leaves, or one of its timers fires. Removing is the same for both."""

from __future__ import annotations

from msgspec.structs import replace

from kip848_client.coordinator import client_assignment, records, subscriptions
from kip848_client.coordinator.batch import Batch
from kip848_client.coordinator.consumer_group import ConsumerGroup, derive_state
from kip848_client.coordinator.group_member import (
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    CurrentAssignment,
    GroupMember,
    PartitionEpochs,
)
from kip848_client.coordinator.membership import static_member, unknown_member
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import CancelTimer, CoordinatorResult, Reply
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.coordinator.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def leave(state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1 (gone for good) or -2 (a static member that will be back).

    The member's epoch is not checked otherwise: whoever leaves is believed.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; nothing changed.
    """
    group = state.existing_group(message.group_id)
    member = _leaving_member(group, message)
    batch = Batch(group.group_id)
    if message.member_epoch == STATIC_LEAVE_EPOCH:
        _leave_for_a_while(state, group, batch, member=member)
    else:
        remove_member(state, group, batch, member=member, reason="leave", wall_ms=request.wall_ms)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=message.member_epoch)
    return batch.result(Reply(request.request_id, response))


def _leaving_member(group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest) -> GroupMember:
    if message.instance_id is not None:
        return static_member(group, instance_id=message.instance_id, member_id=message.member_id)
    member = group.members.get(message.member_id)
    if member is None:
        raise unknown_member(group, member_id=message.member_id)
    return member


def _leave_for_a_while(state: CoordinatorState, group: ConsumerGroup, batch: Batch, *, member: GroupMember) -> None:
    """Keep a static member's partitions for its return; its session timer runs on from its last heartbeat.

    Every assignment epoch becomes 0, so that the process that takes its place may commit with any epoch (KIP-1251).
    """
    away = CurrentAssignment(
        member_epoch=STATIC_LEAVE_EPOCH,
        previous_member_epoch=member.current.previous_member_epoch,
        state=member.current.state,
        assigned=_epochs_zeroed(member.current.assigned),
        pending_revocation=NO_PARTITIONS,
        metadata=member.current.metadata,
    )
    batch.records.append(records.current_record(group.group_id, member_id=member.member_id, current=away))
    batch.soft.append(CancelTimer(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id)))
    client_assignment.member_away(state, group, batch, member_id=member.member_id)
    gone = replace(member, current=away)
    batch.happened("member_left", member=gone, group_epoch=group.group_epoch, fields={"reason": "static_leave"})
    batch.state_changed(
        old=group.state,
        new=group.state_after(gone, group_epoch=group.group_epoch, target_epoch=group.target_epoch),
        group_epoch=group.group_epoch,
    )


def _epochs_zeroed(partitions: PartitionEpochs) -> PartitionEpochs:
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in partitions.items()}


def remove_member(
    state: CoordinatorState, group: ConsumerGroup, batch: Batch, *, member: GroupMember, reason: str, wall_ms: int
) -> None:
    """Take a member out of the group and bump the group epoch.

    No target is computed: the next heartbeat of another member does it. If nobody is left, the target is current by
    definition and its epoch follows at once.
    """
    group_id, member_id = group.group_id, member.member_id
    batch.records += [
        records.current_tombstone(group_id, member_id=member_id),
        records.target_tombstone(group_id, member_id=member_id),
        records.member_metadata_tombstone(group_id, member_id=member_id),
    ]
    regex = subscriptions.forgotten_regex(group, old=member.metadata, new=None)
    if regex is not None:
        batch.records.append(records.regex_tombstone(group_id, regex=regex))
    epoch = group.group_epoch + 1
    topics = group.subscribed_topics_after(old=member.metadata, new=None)
    batch.records.append(records.group_epoch_record(group_id, epoch=epoch, metadata_hash=state.metadata_hash(topics)))
    is_empty = len(group.members) == 1
    if is_empty:
        batch.records.append(records.target_epoch_record(group_id, epoch=epoch, timestamp_ms=wall_ms))
    batch.cancel_timers(member_id)
    client_assignment.member_gone(state, group, batch, member_id=member_id, group_epoch=epoch)
    batch.happened("member_left", member=member, group_epoch=group.group_epoch, fields={"reason": reason})
    batch.happened("group_epoch_bumped", group_epoch=epoch, fields={"reason": f"member_left ({reason})"})
    batch.state_changed(
        old=group.state,
        new=derive_state(
            member_count=len(group.members) - 1,
            reconciled_count=0,
            group_epoch=epoch,
            target_epoch=epoch if is_empty else group.target_epoch,
        ),
        group_epoch=epoch,
    )


def time_is_up(state: CoordinatorState, key: TimerKey, timer: ArmedTimer, *, wall_ms: int) -> CoordinatorResult:
    """What a timer that fired leads to. A timer of a member that is gone, or has moved on, leads to nothing."""
    batch = Batch(key.group_id)
    group = state.groups.get(key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is not None and member is not None:
        match key.kind:
            case TimerKind.SESSION:
                remove_member(state, group, batch, member=member, reason="session_timeout", wall_ms=wall_ms)
            case TimerKind.REBALANCE if member.current.member_epoch == timer.member_epoch:
                remove_member(state, group, batch, member=member, reason="rebalance_timeout", wall_ms=wall_ms)
            case TimerKind.REBALANCE:
                pass
            case TimerKind.CLIENT_ASSIGNMENT:
                client_assignment.member_failed(state, group, batch, member_id=key.member_id, reason="timeout")
    if not batch.records:
        batch.soft.append(CancelTimer(key))
    return batch.result()
