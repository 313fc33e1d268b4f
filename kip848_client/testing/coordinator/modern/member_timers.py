"""The timers of members: some are armed by every answered request, some start after a load."""

from __future__ import annotations

from collections.abc import Iterator

from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.member_record import (
    ClassicProtocols,
    KeyT,
    MemberRecord,
    MetadataT,
    ReconciliationState,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup


def arm_member_timers(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    member: MemberRecord[KeyT, MetadataT],
    *,
    changed: bool,
    now_ms: int,
) -> None:
    """Restart the member's session, and limit the time for a revocation.

    Args:
        member: as the request leaves it.
        changed: its assignment or epoch changed; otherwise the time for the revocation runs on.
    """
    group_id, member_id, epoch = batch.group_id, member.member_id, member.current.member_epoch
    soft = batch.soft
    soft.append(
        ArmTimer(
            TimerKey(TimerKind.SESSION, group_id, member_id),
            deadline_ms=now_ms + session_timeout_ms(state, group, member),
            member_epoch=epoch,
        )
    )
    if not changed:
        return
    key = TimerKey(TimerKind.REBALANCE, group_id, member_id)
    if member.current.state is ReconciliationState.UNREVOKED_PARTITIONS:
        deadline_ms = now_ms + member.metadata.rebalance_timeout_ms
        soft.append(ArmTimer(key, deadline_ms=deadline_ms, member_epoch=epoch))
    else:
        soft.append(CancelTimer(key))


def session_timeout_ms(
    state: CoordinatorState, group: ModernGroup[KeyT, MetadataT], member: MemberRecord[KeyT, MetadataT]
) -> int:
    """How long a member may be silent; one on the classic protocol has said so itself."""
    classic: ClassicProtocols | None = member.metadata.classic
    if classic is not None:
        return classic.session_timeout_ms
    return group.session_timeout_ms(state.group_config(group.group_id))


def timers_after_load(
    state: CoordinatorState, group: ModernGroup[KeyT, MetadataT], *, now_ms: int
) -> Iterator[ArmTimer]:
    """Start every member's session again, and the time to revoke partitions."""
    for member in group.members.values():
        epoch = member.current.member_epoch
        yield ArmTimer(
            TimerKey(TimerKind.SESSION, group.group_id, member.member_id),
            deadline_ms=now_ms + session_timeout_ms(state, group, member),
            member_epoch=epoch,
        )
        if member.current.pending_revocation:  # a static member that is away has none in any state
            yield ArmTimer(
                TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id),
                deadline_ms=now_ms + member.metadata.rebalance_timeout_ms,
                member_epoch=epoch,
            )
