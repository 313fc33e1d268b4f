"""The departure of members of any group with heartbeats: a member leaves or is removed, or one of its timers fires.

Which records are written is the business of each kind: its *remove*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CancelTimer, CoordinatorRecord, CoordinatorResult
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.modern import client_assignment
from kip848_client.testing.coordinator.modern.member_lookup import MemberHeartbeat, static_member, unknown_member
from kip848_client.testing.coordinator.modern.member_record import Current, KeyT, MemberRecord, MetadataT
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup, derive_state
from kip848_client.wire.messages.leave_group import MemberIdentity

GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])


def leaving_member(group: ModernGroup[KeyT, MetadataT], message: MemberHeartbeat) -> MemberRecord[KeyT, MetadataT]:
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


def remove_named(
    group: GroupT,
    leaving: Sequence[MemberIdentity],
    *,
    remove: Callable[[GroupT, Batch, Sequence[MemberRecord[Any, Any]]], None],
) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
    """LeaveGroup: an administrator removes members by id, or static ones by instance id alone.

    Each member has its own code. The members that are found leave together: the group epoch moves by one.

    Args:
        remove: removes members that were found.

    Source:
        Kafka's ``GroupMetadataManager.classicGroupLeaveToConsumerGroup``; KIP-345.
    """
    batch = Batch(group.group_id)
    gone: dict[str, MemberRecord[Any, Any]] = {}
    codes: list[ErrorCode] = []
    for identity in leaving:
        found = _named_member(group, identity)
        if isinstance(found, ErrorCode):
            codes.append(found)
        else:
            gone[found.member_id] = found
            codes.append(ErrorCode.NONE)
    if gone:
        remove(group, batch, tuple(gone.values()))
    return codes, batch.result()


def _named_member(group: ModernGroup[Any, Any], identity: MemberIdentity) -> MemberRecord[Any, Any] | ErrorCode:
    """The member that *identity* names, or an error code. An empty member id matches any holder of the instance id."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is None:
        return group.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        holder_id = member_id or group.static_members.get(instance_id, "")
        return static_member(group, instance_id=instance_id, member_id=holder_id)
    except Refused as refused:
        return refused.code


def leave_for_a_while(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    member: MemberRecord[KeyT, MetadataT],
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


def note_removed(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    members: Sequence[MemberRecord[KeyT, MetadataT]],
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


def note_leaving(
    batch: Batch, members: Sequence[MemberRecord[KeyT, MetadataT]], *, reason: str, group_epoch: int
) -> None:
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


MEMBER_TIMERS: Final = frozenset({*_REASONS, TimerKind.CLIENT_ASSIGNMENT})
"""The timers of members of these groups."""


def member_late(
    state: CoordinatorState,
    group: GroupT,
    key: TimerKey,
    timer: ArmedTimer,
    *,
    remove: Callable[[GroupT, Batch, Sequence[MemberRecord[Any, Any]], str], None],
) -> CoordinatorResult:
    """Handle a timer of a member that fired. Ignored if the member is gone or has another epoch now.

    Args:
        remove: removes members, for a reason.
    """
    batch = Batch(key.group_id)
    member = group.members.get(key.member_id)
    if member is not None:
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
