"""ConnectGroupHeartbeat of a worker that joins or stays: find it, read what it says, take the three steps, answer.

(1) What the worker says may bump the group epoch; (2) the target of a newer epoch is computed here, or a worker is
asked for it; (3) the worker takes one step towards it. All records of a heartbeat are one atomic batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors.unit_plans import UNIT_PLANS
from kip848_client.coordinator import records as other_records
from kip848_client.coordinator.batch import Batch
from kip848_client.coordinator.client_assignment import RoundPlanner, client_assignor
from kip848_client.coordinator.client_assignors import asks_for_a_target, check_versions, choose, offers_after
from kip848_client.coordinator.connect import departure, records
from kip848_client.coordinator.connect.group import ConnectGroup, GroupWorker, WorkerMetadata
from kip848_client.coordinator.connect.units import Units, check_catalogue, write_held, write_units
from kip848_client.coordinator.connect.validation import ReadHeartbeat, read_heartbeat
from kip848_client.coordinator.current_assignment import MustRejoinError, Target, reconcile
from kip848_client.coordinator.group_member import (
    JOIN_EPOCH,
    NO_METADATA,
    STATIC_LEAVE_EPOCH,
    Current,
    Member,
    MemberState,
)
from kip848_client.coordinator.membership import Found, fenced, find_member, returned
from kip848_client.coordinator.refusal import Refused
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import ArmTimer, CancelTimer, CoordinatorResult, Reply
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.coordinator.target_assignment import choose_name
from kip848_client.coordinator.timers import TimerKey, TimerKind
from kip848_client.errors import ErrorCode
from kip848_client.model import Unit
from kip848_client.wire.messages.connect_group_heartbeat import (
    Assignment,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)

STATUS_OK: Final = 0
STATUS_NO_READER: Final = 1
"""No worker reads the metadata of all: the target stays until that changes."""
STATUS_TARGET_ERROR: Final = 2
"""The assignor reported an error in place of the last target."""


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConnectGroupHeartbeat.

    Raises:
        Refused: the code for the answer; nothing changed.
    """
    read = read_heartbeat(message, bytes_max=state.config.client_assignors_bytes_max)
    if message.member_epoch < 0:
        return departure.leave(state, request, message, now_ms=now_ms)
    return _Heartbeat(state, request, message, read, now_ms=now_ms).run()


def assignor_status(state: CoordinatorState, group: ConnectGroup) -> int:
    """What is wrong with the group's client-side assignor. A reader can only be missing while a target is due."""
    is_behind = group.is_client_side and group.group_epoch > group.target_epoch
    if is_behind and client_assignor(state, group) is None:
        return STATUS_NO_READER
    return STATUS_TARGET_ERROR if group.target_error else STATUS_OK


class _Heartbeat:
    """One heartbeat: who it is from, what it says, what follows, and how it is answered."""

    def __init__(
        self,
        state: CoordinatorState,
        request: ApiRequest,
        message: ConnectGroupHeartbeatRequest,
        read: ReadHeartbeat,
        *,
        now_ms: int,
    ) -> None:
        self._state = state
        self._request = request
        self._message = message
        self._read = read
        self._now_ms = now_ms
        self._batch = Batch(message.group_id)
        self._group = self._find_group()
        self._group_epoch = self._group.group_epoch
        self._target_epoch = self._group.target_epoch
        self._target: Units = {}
        self._target_metadata = NO_METADATA
        self._catalogue = self._group.catalogue
        self._planner: RoundPlanner[str, WorkerMetadata] | None = None
        self._status = STATUS_TARGET_ERROR if self._group.target_error else STATUS_OK

    def run(self) -> CoordinatorResult:
        """Take the steps and answer.

        Raises:
            Refused: the code for the answer.
        """
        group, message, batch = self._group, self._message, self._batch
        found = find_member(
            self._state, group, message, owned=self._read.owned, size_max=self._state.config.connect_max_size
        )
        member = found.member
        if self._read.catalogue is not None:
            self._catalogue = check_catalogue(group.catalogue, self._read.catalogue)
        metadata = self._updated_metadata(member.metadata)
        self._check_assignors(found, metadata)
        if found.replaced is not None:
            self._write_replacement(found.replaced, member)
        updated = member
        if metadata is not member.metadata or found.is_new:
            updated = Member(member.member_id, metadata, member.current)
            batch.records.append(records.worker_record(group.group_id, member_id=member.member_id, metadata=metadata))
        if self._catalogue is not group.catalogue:
            batch.records.append(records.catalogue_record(group.group_id, self._catalogue))
        self._move_group(found, updated)
        self._move_target(found, updated)
        current = self._move_member(updated)
        if current is not updated.current:
            updated = Member(updated.member_id, metadata, current)
        self._arm_timers(updated, changed=current is not member.current)
        if batch.records:
            self._note(found, updated)
        return batch.result(Reply(self._request.request_id, self._answer(updated, before=found.member)))

    # Who it is

    def _find_group(self) -> ConnectGroup:
        state, group_id = self._state, self._message.group_id
        group = state.connect.get(group_id)
        if group is not None:
            return group
        classic = state.classic.get(group_id)
        is_other = group_id in state.groups or state.is_classic(group_id)
        if is_other and not (classic is not None and not classic.size and not state.offsets.has_group(group_id)):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a connect group.")
        if self._message.member_epoch != JOIN_EPOCH:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Connect group {group_id} not found.")
        if classic is not None:
            self._batch.records.append(other_records.classic_group_tombstone(group_id))
        return ConnectGroup(group_id)

    # What it says

    def _updated_metadata(self, before: WorkerMetadata) -> WorkerMetadata:
        """Apply the fields that are given: null, and -1 for the timeout, mean unchanged."""
        message, request, offers = self._message, self._request, self._read.offers
        server_assignor = before.server_assignor
        if message.server_assignor is not None:
            server_assignor = message.server_assignor or None
        elif message.member_epoch == JOIN_EPOCH:
            server_assignor = None
        after = WorkerMetadata(
            instance_id=before.instance_id if message.instance_id is None else message.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms
            ),
            server_assignor=server_assignor,
            client_assignors=before.client_assignors if offers is None else offers,
            worker_id=before.worker_id if message.worker_id is None else message.worker_id,
            worker_url=before.worker_url if message.worker_url is None else message.worker_url,
        )
        return before if after == before else after

    def _check_assignors(self, found: Found[str, WorkerMetadata], metadata: WorkerMetadata) -> None:
        """Refuse offers with which the group would have two modes, no common assignor, or no worker that reads all."""
        group = self._group
        if self._read.offers is None or (
            found.counted is not None and found.counted.client_assignors == self._read.offers
        ):
            return
        if metadata.client_assignors and not self._state.config.client_assignors:
            raise Refused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                "Client-side assignors are off at this broker (kip848.client.assignors.enable); use a server assignor.",
            )
        if metadata.client_assignors:
            check_versions(group, old=found.counted, new=metadata)
        own = {assignor.name for assignor in metadata.client_assignors}
        gone = found.replaced.member_id if found.replaced is not None else found.member.member_id
        for member_id, other in group.members.items():
            if member_id == gone:
                continue
            names = {assignor.name for assignor in other.metadata.client_assignors}
            if bool(names) != bool(own):
                theirs, ours = ("a client-side", "none") if names else ("a server-side", "a client-side one")
                raise Refused(
                    ErrorCode.UNSUPPORTED_ASSIGNOR,
                    f"The workers of group {group.group_id} use {theirs} assignor and this worker brings {ours}; all "
                    "workers of a group must use the same kind.",
                )
            own &= names
            if names and not own:
                raise Refused(
                    ErrorCode.UNSUPPORTED_ASSIGNOR,
                    f"This worker and worker {member_id} of group {group.group_id} have no client-side assignor in "
                    f"common; that one offers {', '.join(sorted(names))}.",
                )

    # Step 1

    def _move_group(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        reason = self._reason_to_bump(found, updated.metadata)
        if reason is None:
            return
        group = self._group
        self._group_epoch = group.group_epoch + 1
        self._batch.records.append(
            records.group_record(group.group_id, epoch=self._group_epoch, last_installer=group.last_installer)
        )
        self._batch.happened("group_epoch_bumped", group_epoch=self._group_epoch, fields={"reason": reason})

    def _reason_to_bump(self, found: Found[str, WorkerMetadata], after: WorkerMetadata) -> str | None:
        group, before = self._group, found.counted
        if not group.group_epoch:
            return "group_created"
        if before is None:
            return "member_joined"
        if self._catalogue.units != group.catalogue.units:
            return "catalogue_changed"
        if asks_for_a_target(old=before.client_assignors, new=after.client_assignors):
            return "client_assignors_changed"
        names = tuple(UNIT_PLANS)
        if choose_name(group, names=names) != choose_name(group, names=names, old=before, new=after):
            return "assignor_changed"
        return None

    # Step 2

    def _move_target(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        """Bring the target to the group epoch, here or by a worker; read the worker's own part of it."""
        group = self._group
        own = (found.replaced or updated).member_id
        self._target, self._target_metadata = group.target_of(own), group.target_metadata_of(own)
        if self._group_epoch <= group.target_epoch:
            return
        if updated.metadata.client_assignors:
            self._ask_a_worker(found, updated)
            return
        if group.group_id in self._state.rounds:
            RoundPlanner(self._state, group, self._batch, group_epoch=self._group_epoch, speaker=updated).end()
        plan = self._plan(found, updated)
        batch, told = self._batch, set(group.target_metadata)
        if found.replaced is not None and found.replaced.member_id in told:
            told.add(updated.member_id)
        for member_id, units in plan.items():
            before = group.target.get(own if member_id == updated.member_id else member_id)
            if units != before or member_id in told:
                batch.records.append(records.target_record(group.group_id, member_id=member_id, target=units))
        batch.records.append(records.target_epoch_record(group.group_id, epoch=self._group_epoch))
        self._target_epoch = self._group_epoch
        self._status = STATUS_OK
        self._target, self._target_metadata = plan[updated.member_id], NO_METADATA
        batch.happened(
            "target_assignment_computed",
            group_epoch=self._group_epoch,
            fields={"assignor": self._assignor(found, updated), "members": plan},
        )

    def _assignor(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> str:
        return choose_name(self._group, names=tuple(UNIT_PLANS), old=found.counted, new=updated.metadata)

    def _plan(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> dict[str, Units]:
        group = self._group
        gone = frozenset(() if found.replaced is None else (found.replaced.member_id,))
        member_ids = sorted((group.members.keys() - gone) | {updated.member_id})
        previous = {
            member_id: _flat(self._target if member_id == updated.member_id else group.target_of(member_id))
            for member_id in member_ids
        }
        planned = UNIT_PLANS[self._assignor(found, updated)](member_ids, _flat(self._catalogue.units), previous)
        return {member_id: _by_name(units) for member_id, units in planned.items()}

    def _ask_a_worker(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        """Leave the target to a worker that reads the metadata of all; to none if there is no such worker."""
        group = self._group
        planner = RoundPlanner(self._state, group, self._batch, group_epoch=self._group_epoch, speaker=updated)
        gone = frozenset(() if found.replaced is None else (found.replaced.member_id,))
        choice = choose(offers_after(group, gone=gone, joined=updated.member_id, metadata=updated.metadata))
        if choice is None:
            planner.end()
            self._status = STATUS_NO_READER
            return
        planner.go_on(choice, first=None, may_start=True)
        self._planner = planner

    # Step 3

    def _move_member(self, updated: GroupWorker) -> Current[str]:
        group, catalogue = self._group, self._catalogue
        start = updated.current
        if start.member_epoch == STATIC_LEAVE_EPOCH:
            start = returned(start)
        is_gone = any(len(catalogue.live(name, held)) < len(held) for name, held in start.assigned.items())
        if start.state is MemberState.STABLE and start.member_epoch == self._target_epoch and not is_gone:
            return start

        def is_free(name: str, index: int) -> bool:
            return group.holders(name).get(index, updated.member_id) == updated.member_id

        def live(name: str, indexes: Collection[int]) -> Collection[int]:
            return catalogue.live(name, indexes)

        target = Target(self._target_epoch, self._target, live, is_free, self._target_metadata)
        try:
            current = reconcile(start, target, owned=self._read.owned, subscription_changed=is_gone)
        except MustRejoinError:
            raise fenced(
                f"The state of worker {updated.member_id} is unknown to this coordinator. The worker must stop all its "
                "units and rejoin."
            ) from None
        if current is not start or start is not updated.current:
            self._batch.records.append(
                records.current_record(group.group_id, member_id=updated.member_id, current=current)
            )
        return current

    # Around it

    def _write_replacement(self, replaced: GroupWorker, member: GroupWorker) -> None:
        """Move a static worker's place to its new id, before anything of its heartbeat is applied."""
        group, batch = self._group, self._batch
        group_id = group.group_id
        batch.records += records.worker_tombstones(group_id, member_id=replaced.member_id)
        batch.records += [
            records.worker_record(group_id, member_id=member.member_id, metadata=member.metadata),
            records.target_record(
                group_id,
                member_id=member.member_id,
                target=group.target_of(replaced.member_id),
                metadata=group.target_metadata_of(replaced.member_id),
            ),
            records.current_record(group_id, member_id=member.member_id, current=member.current),
        ]
        batch.cancel_timers(replaced.member_id)
        batch.happened("member_left", member=replaced, group_epoch=group.group_epoch, fields={"reason": "replaced"})

    def _arm_timers(self, worker: GroupWorker, *, changed: bool) -> None:
        group_id, member_id, epoch = self._group.group_id, worker.member_id, worker.current.member_epoch
        session_ms = self._state.session_timeout_ms(group_id, worker)
        soft = self._batch.soft
        key = TimerKey(TimerKind.SESSION, group_id, member_id)
        soft.append(ArmTimer(key, deadline_ms=self._now_ms + session_ms, member_epoch=epoch))
        if changed:
            key = TimerKey(TimerKind.REBALANCE, group_id, member_id)
            if worker.current.state is MemberState.UNREVOKED_PARTITIONS:
                deadline_ms = self._now_ms + worker.metadata.rebalance_timeout_ms
                soft.append(ArmTimer(key, deadline_ms=deadline_ms, member_epoch=epoch))
            else:
                soft.append(CancelTimer(key))

    def _note(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        group, batch = self._group, self._batch
        if self._message.member_epoch == JOIN_EPOCH and (found.is_new or found.replaced is not None):
            batch.happened(
                "member_joined",
                member=updated,
                group_epoch=self._group_epoch,
                fields={"topics": [], "instance_id": updated.metadata.instance_id},
            )
        if updated.current is not found.member.current:
            current = updated.current
            batch.happened(
                "member_assignment_changed",
                member=updated,
                group_epoch=self._group_epoch,
                fields={
                    "state": current.state.name,
                    "assigned": {name: sorted(held) for name, held in current.assigned.items()},
                    "pending_revocation": {name: sorted(held) for name, held in current.pending_revocation.items()},
                },
            )
        batch.state_changed(
            old=group.state,
            new=group.state_after(
                updated, group_epoch=self._group_epoch, target_epoch=self._target_epoch, replaced=found.replaced
            ),
            group_epoch=self._group_epoch,
        )

    # How it is answered

    def _answer(self, worker: GroupWorker, *, before: GroupWorker) -> ConnectGroupHeartbeatResponse:
        state, message, current = self._state, self._message, worker.current
        config = state.group_config(message.group_id)
        asks = message.member_epoch == JOIN_EPOCH or (
            message.rebalance_timeout_ms != -1
            and message.owned_units is not None
            and not (message.client_assignors is None and message.server_assignor is None)
        )
        assignment = None
        if asks or _is_news(current, before=before.current):
            assignment = Assignment(
                error=current.metadata.error,
                assigned=write_held(current.assigned),
                pending=write_units(self._waiting(current)),
                metadata_version=current.metadata.version,
                metadata_bytes=current.metadata.data,
            )
        planner = self._planner
        return ConnectGroupHeartbeatResponse(
            member_id=worker.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=config.connect_heartbeat_interval_ms,
            session_timeout_ms=config.connect_session_timeout_ms,
            should_compute_assignment=planner is not None and planner.notify(worker, now_ms=self._now_ms),
            assignor_status=self._status,
            catalog_offset=self._catalogue.offset,
            assignment=assignment,
        )

    def _waiting(self, current: Current[str]) -> Units:
        """What the worker gets as soon as others have stopped it."""
        if current.state is not MemberState.UNRELEASED_PARTITIONS:
            return {}
        missing = {
            name: tuple([index for index in indexes if index not in current.assigned.get(name, {})])
            for name, indexes in self._catalogue.only(self._target).items()
        }
        return {name: indexes for name, indexes in missing.items() if indexes}


def _is_news(current: Current[str], *, before: Current[str]) -> bool:
    """Whether the worker has to hear of its assignment again; that its epoch was confirmed is none of its business."""
    return replace(current, previous_member_epoch=before.previous_member_epoch) != before


def _flat(units: Mapping[str, Collection[int]]) -> list[Unit]:
    return [Unit(name, index) for name, indexes in sorted(units.items()) for index in sorted(indexes)]


def _by_name(units: Collection[Unit]) -> Units:
    found: dict[str, list[int]] = {}
    for unit in sorted(units):
        found.setdefault(unit.name, []).append(unit.index)
    return {name: tuple(indexes) for name, indexes in found.items()}
