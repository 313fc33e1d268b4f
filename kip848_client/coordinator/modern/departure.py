"""The departure of members: a member leaves, an administrator removes it, or one of its timers fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.coordinator.consumer import consumer_records, subscriptions
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.core.refusal import Refused
from kip848_client.coordinator.core.requests import ApiRequest
from kip848_client.coordinator.core.result import CancelTimer, CoordinatorRecord, CoordinatorResult, Reply
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.coordinator.migration.conversion import can_downgrade, downgrade
from kip848_client.coordinator.modern import client_assignment
from kip848_client.coordinator.modern.member_lookup import Heartbeat, away, static_member, unknown_member
from kip848_client.coordinator.modern.member_record import (
    STATIC_LEAVE_EPOCH,
    Current,
    GroupMember,
    KeyT,
    Member,
    MetadataT,
)
from kip848_client.coordinator.modern.modern_group import Group, derive_state
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

GroupT = TypeVar("GroupT", bound=Group[Any, Any])

_SEVERAL_VERSION = 3
"""From this version of LeaveGroup on, a request names several members, and each gets its own code."""


def leave(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1 (gone for good) or -2 (a static member that will be back).

    Unlike other heartbeats, a leave carries no epoch that could be checked.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; nothing changed.
    """
    group = state.existing_group(message.group_id)
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


def leaving_member(group: Group[KeyT, MetadataT], message: Heartbeat) -> Member[KeyT, MetadataT]:
    """The member that a heartbeat with a negative epoch is about.

    Raises:
        Refused: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    if message.instance_id is not None:
        return static_member(group, instance_id=message.instance_id, member_id=message.member_id)
    member = group.members.get(message.member_id)
    if member is None:
        raise unknown_member(group, member_id=message.member_id)
    return member


def handle_leave_group(
    state: CoordinatorState, request: ApiRequest, message: LeaveGroupRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one LeaveGroup for a consumer group, or for a group that does not exist."""

    def remove(group: ConsumerGroup, batch: Batch, members: Sequence[GroupMember]) -> None:
        _remove(state, group, batch, members=members, reason="leave", now_ms=now_ms, wall_ms=request.wall_ms)

    return leave_group(request, message, state.groups.get(message.group_id), remove=remove)


def leave_group(
    request: ApiRequest,
    message: LeaveGroupRequest,
    group: GroupT | None,
    *,
    remove: Callable[[GroupT, Batch, Sequence[Member[Any, Any]]], None],
) -> CoordinatorResult:
    """Answer one LeaveGroup: an administrator removes members by id, or static ones by instance id alone.

    Each member has its own code. Those that are found leave together: the group epoch moves by one.

    Args:
        remove: removes members that were found.

    Source:
        Kafka's ``GroupMetadataManager.classicGroupLeaveToConsumerGroup``; KIP-345.
    """
    leaving = leaving_members(message, api_version=request.api_version)
    if not message.group_id:
        refused = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return CoordinatorResult(replies=(Reply(request.request_id, refused),))
    batch = Batch(message.group_id)
    gone: dict[str, Member[Any, Any]] = {}
    codes: list[int] = []
    for identity in leaving:
        found = _named_member(group, identity)
        if isinstance(found, ErrorCode):
            codes.append(found)
        else:
            gone[found.member_id] = found
            codes.append(ErrorCode.NONE)
    if group is not None and gone:
        remove(group, batch, tuple(gone.values()))
    response = leave_response(leaving, codes, api_version=request.api_version)
    return batch.result(Reply(request.request_id, response))


def leaving_members(message: LeaveGroupRequest, *, api_version: int) -> Sequence[MemberIdentity]:
    """The members that leave; before version 3 a request names one, in a field of its own."""
    return message.members if api_version >= _SEVERAL_VERSION else (MemberIdentity(member_id=message.member_id),)


def leave_response(leaving: Sequence[MemberIdentity], codes: Sequence[int], *, api_version: int) -> LeaveGroupResponse:
    """The code of each member, in the order of the request; before version 3 the code of the only one."""
    if api_version < _SEVERAL_VERSION:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            for identity, code in zip(leaving, codes, strict=True)
        )
    )


def _named_member(group: Group[Any, Any] | None, identity: MemberIdentity) -> Member[Any, Any] | ErrorCode:
    """The member that *identity* names, or an error code. An empty member id matches any holder of the instance id."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is None:
        return group.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        holder_id = member_id or group.static_members.get(instance_id, "")
        return static_member(group, instance_id=instance_id, member_id=holder_id)
    except Refused as refused:
        return refused.code


def leave_for_a_while(
    state: CoordinatorState,
    group: Group[KeyT, MetadataT],
    batch: Batch,
    member: Member[KeyT, MetadataT],
    *,
    left: Current[KeyT],
    record: CoordinatorRecord,
) -> None:
    """Keep the assignment of a static member for its return; its session timer runs on from its last heartbeat.

    Args:
        left: the member's assignment until then, and *record* the record of it.
    """
    batch.records.append(record)
    batch.soft.append(CancelTimer(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id)))
    client_assignment.member_away(state, group, batch, member_id=member.member_id)
    gone = replace(member, current=left)
    batch.happened("member_left", member=gone, group_epoch=group.group_epoch, fields={"reason": "static_leave"})
    batch.state_changed(
        old=group.state,
        new=group.state_after(gone, group_epoch=group.group_epoch, target_epoch=group.target_epoch),
        group_epoch=group.group_epoch,
    )


def _remove(
    state: CoordinatorState,
    group: ConsumerGroup,
    batch: Batch,
    *,
    members: Sequence[GroupMember],
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
    batch.records.append(
        consumer_records.group_epoch_record(group_id, epoch=epoch, metadata_hash=state.metadata_hash(topics))
    )
    left = len(group.members) - len(members)
    if not left:
        batch.records.append(consumer_records.target_epoch_record(group_id, epoch=epoch, timestamp_ms=wall_ms))
    note_removed(state, group, batch, members, reason=reason)


def note_removed(
    state: CoordinatorState,
    group: Group[KeyT, MetadataT],
    batch: Batch,
    members: Sequence[Member[KeyT, MetadataT]],
    *,
    reason: str,
) -> None:
    """Everything that a removal of members changes beside the records: timers, the round, and events."""
    epoch, left = group.group_epoch + 1, len(group.members) - len(members)
    gone = frozenset(member.member_id for member in members)
    for member in members:
        batch.cancel_timers(member.member_id)
    client_assignment.members_gone(state, group, batch, member_ids=gone, group_epoch=epoch)
    note_leaving(batch, members, reason=reason, group_epoch=group.group_epoch)
    batch.happened("group_epoch_bumped", group_epoch=epoch, fields={"reason": f"member_left ({reason})"})
    batch.state_changed(
        old=group.state,
        new=derive_state(
            member_count=left,
            reconciled_count=0,
            group_epoch=epoch,
            target_epoch=group.target_epoch if left else epoch,
        ),
        group_epoch=epoch,
    )


def note_leaving(batch: Batch, members: Sequence[Member[KeyT, MetadataT]], *, reason: str, group_epoch: int) -> None:
    """Add the events of members that left."""
    for member in members:
        batch.happened("member_left", member=member, group_epoch=group_epoch, fields={"reason": reason})


_REASONS: Final[Mapping[TimerKind, str]] = {
    TimerKind.SESSION: "session_timeout",
    TimerKind.REBALANCE: "rebalance_timeout",
    TimerKind.MIXED_JOIN: "rebalance_timeout",
    TimerKind.MIXED_SYNC: "sync_timeout",
}
"""Timers that remove a member, and the reason in the event log."""


def time_is_up(
    state: CoordinatorState, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
) -> CoordinatorResult:
    """Handle a timer of a consumer group that fired."""

    def remove(group: ConsumerGroup, batch: Batch, members: Sequence[GroupMember], reason: str) -> None:
        _remove(state, group, batch, members=members, reason=reason, now_ms=now_ms, wall_ms=wall_ms)

    return member_late(state, state.groups.get(key.group_id), key, timer, remove=remove)


def member_late(
    state: CoordinatorState,
    group: GroupT | None,
    key: TimerKey,
    timer: ArmedTimer,
    *,
    remove: Callable[[GroupT, Batch, Sequence[Member[Any, Any]], str], None],
) -> CoordinatorResult:
    """Handle a timer of a member that fired. Ignored if the member is gone or has another epoch now.

    Args:
        remove: removes members, for a reason.
    """
    batch = Batch(key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is not None and member is not None:
        match key.kind:
            case TimerKind.REBALANCE if member.current.member_epoch != timer.member_epoch:
                pass
            case kind if kind in _REASONS:
                remove(group, batch, (member,), _REASONS[kind])
            case TimerKind.CLIENT_ASSIGNMENT:
                client_assignment.member_failed(state, group, batch, member_id=key.member_id, reason="timeout")
    if not batch.records:
        batch.soft.append(CancelTimer(key))
    return batch.result()
