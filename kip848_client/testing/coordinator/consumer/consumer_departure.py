"""How a member of a consumer group ceases to be one: it leaves, is removed, or one of its timers fires."""

from __future__ import annotations

from collections.abc import Sequence

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer import consumer_records, subscriptions
from kip848_client.testing.coordinator.consumer.consumer_conversion import downgrade
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey
from kip848_client.testing.coordinator.migration.conversion import can_downgrade
from kip848_client.testing.coordinator.modern.departure import (
    leave_for_a_while,
    leaving_member,
    member_late,
    note_leaving,
    note_removed,
    remove_named,
)
from kip848_client.testing.coordinator.modern.member_lookup import away
from kip848_client.testing.coordinator.modern.member_record import STATIC_LEAVE_EPOCH
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.leave_group import MemberIdentity


def leave(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1 (gone for good) or -2 (a static member that will be back).

    Unlike other heartbeats, a leave carries no epoch that could be checked.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; nothing changed.
    """
    group = state.existing(ConsumerGroup, message.group_id)
    member = leaving_member(group, message)
    batch = Batch(group.group_id)
    if message.member_epoch == STATIC_LEAVE_EPOCH:
        left = away(member.current)
        record = consumer_records.current_record(group.group_id, member_id=member.member_id, current=left)
        leave_for_a_while(state, group, batch, member, left=left, record=record)
    else:
        _remove(state, group, batch, members=(member,), reason="leave", now_ms=now_ms, wall_ms=request.wall_ms)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=message.member_epoch)
    return batch.result(Reply(request.request_id, response))


def remove_members(
    state: CoordinatorState, group: ConsumerGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
    """Remove the members that a LeaveGroup names."""

    def remove(group: ConsumerGroup, batch: Batch, members: Sequence[ConsumerMember]) -> None:
        _remove(state, group, batch, members=members, reason="leave", now_ms=now_ms, wall_ms=wall_ms)

    return remove_named(group, leaving, remove=remove)


def time_is_up(
    state: CoordinatorState, group: ConsumerGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
) -> CoordinatorResult:
    """Handle a timer of a consumer group that fired."""

    def remove(group: ConsumerGroup, batch: Batch, members: Sequence[ConsumerMember], reason: str) -> None:
        _remove(state, group, batch, members=members, reason=reason, now_ms=now_ms, wall_ms=wall_ms)

    return member_late(state, group, key, timer, remove=remove)


def _remove(
    state: CoordinatorState,
    group: ConsumerGroup,
    batch: Batch,
    *,
    members: Sequence[ConsumerMember],
    reason: str,
    now_ms: int,
    wall_ms: int,
) -> None:
    """Remove one or more members from the group, and bump the group epoch once.

    The next heartbeat of another member computes the target. If no member is left, the target is current by definition
    and its epoch follows at once. If only members on the classic protocol are left, the group becomes classic.
    """
    group_id = group.group_id
    if can_downgrade(state, group, gone=members):
        note_leaving(batch, members, reason=reason, group_epoch=group.group_epoch)
        gone_ids = frozenset(member.member_id for member in members)
        downgrade(state, group, batch, gone=gone_ids, now_ms=now_ms, wall_ms=wall_ms)
        return
    gone = [member.metadata for member in members]
    for member in members:
        batch.records += [
            consumer_records.current_tombstone(group_id, member_id=member.member_id),
            consumer_records.target_tombstone(group_id, member_id=member.member_id),
            consumer_records.member_metadata_tombstone(group_id, member_id=member.member_id),
        ]
    for regex in subscriptions.forgotten_regexes(group, old=gone):
        batch.records.append(consumer_records.regex_tombstone(group_id, regex=regex))
    epoch = group.group_epoch + 1
    topics = group.subscribed_topics_after(old=gone)
    metadata_hash = state.part(Subscriptions).metadata_hash(topics)
    batch.records.append(consumer_records.group_epoch_record(group_id, epoch=epoch, metadata_hash=metadata_hash))
    left = len(group.members) - len(members)
    if not left:
        batch.records.append(consumer_records.target_epoch_record(group_id, epoch=epoch, timestamp_ms=wall_ms))
    note_removed(state, group, batch, members, reason=reason)
