"""How a worker ceases to be one: it leaves, an administrator removes it, or one of its timers fires."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.connect import connect_records
from kip848_client.testing.coordinator.connect.connect_conversion import downgrade
from kip848_client.testing.coordinator.connect.connect_group import (
    ConnectGroup,
    GroupWorker,
    worker_tombstones,
)
from kip848_client.testing.coordinator.connect.heard import Heard
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
from kip848_client.testing.coordinator.modern.member_record import STATIC_LEAVE_EPOCH
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.wire.messages.leave_group import MemberIdentity


def leave(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1 (gone for good) or -2 (a static worker that will be back).

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; nothing changed.
    """
    group = state.existing(ConnectGroup, message.group_id)
    worker = leaving_member(group, message)
    batch = Batch(group.group_id)
    if message.member_epoch == STATIC_LEAVE_EPOCH:
        # It finds its units with their tokens when it comes back.
        left = replace(worker.current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
        record = connect_records.current_record(group.group_id, member_id=worker.member_id, current=left)
        leave_for_a_while(state, group, batch, worker, left=left, record=record)
    else:
        _remove(state, group, batch, (worker,), reason="leave", now_ms=now_ms, wall_ms=request.wall_ms)
    response = ConnectGroupHeartbeatResponse(member_id=worker.member_id, member_epoch=message.member_epoch)
    return batch.result(Reply(request.request_id, response))


def remove_members(
    state: CoordinatorState, group: ConnectGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
    """Remove the workers that a LeaveGroup names: those on the classic protocol send it, or an administrator does."""

    def remove(group: ConnectGroup, batch: Batch, workers: Sequence[GroupWorker]) -> None:
        _remove(state, group, batch, workers, reason="leave", now_ms=now_ms, wall_ms=wall_ms)

    return remove_named(group, leaving, remove=remove)


def time_is_up(
    state: CoordinatorState, group: ConnectGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
) -> CoordinatorResult:
    """Handle a timer of a connect group that fired."""

    def remove(group: ConnectGroup, batch: Batch, workers: Sequence[GroupWorker], reason: str) -> None:
        _remove(state, group, batch, workers, reason=reason, now_ms=now_ms, wall_ms=wall_ms)

    return member_late(state, group, key, timer, remove=remove)


def _remove(
    state: CoordinatorState,
    group: ConnectGroup,
    batch: Batch,
    workers: Sequence[GroupWorker],
    *,
    reason: str,
    now_ms: int,
    wall_ms: int,
) -> None:
    """Take workers out of the group, and bump the group epoch once.

    The next heartbeat of another worker leads to the new target. With the last worker the catalogue goes too, and the
    target is current by definition. If only workers on the classic protocol are left, the group becomes classic.
    """
    group_id, epoch = group.group_id, group.group_epoch + 1
    gone = {worker.member_id for worker in workers}
    if can_downgrade(state, group, gone=workers):
        note_leaving(batch, workers, reason=reason, group_epoch=group.group_epoch)
        left = [member for member_id, member in group.members.items() if member_id not in gone]
        turn = downgrade(state, group, batch, members=left, now_ms=now_ms, wall_ms=wall_ms)
        turn.prepare()
        batch.add(turn.result())
        return
    for member_id in sorted(gone):
        batch.records += worker_tombstones(group_id, member_id=member_id)
        batch.soft.append(Heard(group_id, member_id, None))
    installer = "" if group.last_installer in gone else group.last_installer
    batch.records.append(connect_records.group_record(group_id, epoch=epoch, last_installer=installer))
    if len(gone) == len(group.members):
        batch.records += [
            connect_records.catalogue_tombstone(group_id),
            connect_records.target_epoch_record(group_id, epoch=epoch),
        ]
    note_removed(state, group, batch, workers, reason=reason)
