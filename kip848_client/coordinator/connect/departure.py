"""How a worker ceases to be one: it leaves, or one of its timers fires."""

from __future__ import annotations

from msgspec.structs import replace

from kip848_client.coordinator import client_assignment
from kip848_client.coordinator.batch import Batch
from kip848_client.coordinator.connect import records
from kip848_client.coordinator.connect.group import ConnectGroup, GroupWorker
from kip848_client.coordinator.group import derive_state
from kip848_client.coordinator.group_member import STATIC_LEAVE_EPOCH
from kip848_client.coordinator.membership import static_member, unknown_member
from kip848_client.coordinator.refusal import Refused
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import CancelTimer, CoordinatorResult, Reply
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.coordinator.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)


def existing_group(state: CoordinatorState, group_id: str) -> ConnectGroup:
    """The connect group of this id.

    Raises:
        Refused: GROUP_ID_NOT_FOUND.
    """
    group = state.connect.get(group_id)
    if group is None:
        what = "is not a connect group" if group_id in state.groups or state.is_classic(group_id) else "not found"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group


def leave(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1 (gone for good) or -2 (a static worker that will be back).

    Raises:
        Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; nothing changed.
    """
    group = existing_group(state, message.group_id)
    worker: GroupWorker | None
    if message.instance_id is not None:
        worker = static_member(group, instance_id=message.instance_id, member_id=message.member_id)
    else:
        worker = group.members.get(message.member_id)
    if worker is None:
        raise unknown_member(group, member_id=message.member_id)
    batch = Batch(group.group_id)
    if message.member_epoch == STATIC_LEAVE_EPOCH:
        _leave_for_a_while(state, group, batch, worker)
    else:
        _remove(state, group, batch, worker, reason="leave")
    response = ConnectGroupHeartbeatResponse(member_id=worker.member_id, member_epoch=message.member_epoch)
    return batch.result(Reply(request.request_id, response))


def time_is_up(state: CoordinatorState, group: ConnectGroup, key: TimerKey, timer: ArmedTimer) -> CoordinatorResult:
    """What a timer that fired leads to. A timer of a worker that is gone, or has moved on, leads to nothing."""
    batch = Batch(key.group_id)
    worker = group.members.get(key.member_id)
    if worker is not None:
        if key.kind is TimerKind.SESSION:
            _remove(state, group, batch, worker, reason="session_timeout")
        elif key.kind is TimerKind.REBALANCE and worker.current.member_epoch == timer.member_epoch:
            _remove(state, group, batch, worker, reason="rebalance_timeout")
        elif key.kind is TimerKind.CLIENT_ASSIGNMENT:
            client_assignment.member_failed(state, group, batch, member_id=key.member_id, reason="timeout")
    if not batch.records:
        batch.soft.append(CancelTimer(key))
    return batch.result()


def _leave_for_a_while(state: CoordinatorState, group: ConnectGroup, batch: Batch, worker: GroupWorker) -> None:
    """Keep a static worker's units, with their tokens, for its return; its session runs on from its last heartbeat."""
    left = replace(worker.current, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
    batch.records.append(records.current_record(group.group_id, member_id=worker.member_id, current=left))
    batch.soft.append(CancelTimer(TimerKey(TimerKind.REBALANCE, group.group_id, worker.member_id)))
    client_assignment.member_away(state, group, batch, member_id=worker.member_id)
    gone = replace(worker, current=left)
    batch.happened("member_left", member=gone, group_epoch=group.group_epoch, fields={"reason": "static_leave"})
    batch.state_changed(
        old=group.state,
        new=group.state_after(gone, group_epoch=group.group_epoch, target_epoch=group.target_epoch),
        group_epoch=group.group_epoch,
    )


def _remove(state: CoordinatorState, group: ConnectGroup, batch: Batch, worker: GroupWorker, *, reason: str) -> None:
    """Take a worker out of the group, and bump the group epoch.

    The next heartbeat of another worker leads to the new target. With the last worker the catalogue goes too, and the
    target is current by definition.
    """
    group_id, member_id, epoch = group.group_id, worker.member_id, group.group_epoch + 1
    batch.records += records.worker_tombstones(group_id, member_id=member_id)
    installer = "" if group.last_installer == member_id else group.last_installer
    batch.records.append(records.group_record(group_id, epoch=epoch, last_installer=installer))
    left = len(group.members) - 1
    if not left:
        batch.records += [records.catalogue_tombstone(group_id), records.target_epoch_record(group_id, epoch=epoch)]
    batch.cancel_timers(member_id)
    client_assignment.members_gone(state, group, batch, member_ids=frozenset({member_id}), group_epoch=epoch)
    batch.happened("member_left", member=worker, group_epoch=group.group_epoch, fields={"reason": reason})
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
