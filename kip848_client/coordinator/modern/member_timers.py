"""The timers that every answered request of a member arms, in every kind of group."""

from __future__ import annotations

from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.core.result import ArmTimer, CancelTimer
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.coordinator.modern.member_record import KeyT, Member, MemberState, MetadataT


def arm_member_timers(
    state: CoordinatorState, batch: Batch, member: Member[KeyT, MetadataT], *, changed: bool, now_ms: int
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
            deadline_ms=now_ms + state.session_timeout_ms(group_id, member),
            member_epoch=epoch,
        )
    )
    if not changed:
        return
    key = TimerKey(TimerKind.REBALANCE, group_id, member_id)
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        deadline_ms = now_ms + member.metadata.rebalance_timeout_ms
        soft.append(ArmTimer(key, deadline_ms=deadline_ms, member_epoch=epoch))
    else:
        soft.append(CancelTimer(key))
