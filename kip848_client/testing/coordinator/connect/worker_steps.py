"""The steps of a worker that joins or stays, on whichever protocol: its metadata, the group's target, its own
assignment.

(1) What the worker says may bump the group epoch; (2) the target of a newer epoch is computed here, or a worker is
asked for it; (3) the worker takes one step towards it. All records of a request are one atomic batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kip848_client.assignors.units.unit_plans import UNIT_PLANS
from kip848_client.common.model import Unit
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.connect import connect_records
from kip848_client.testing.coordinator.connect.catalogue import Catalogue, Units, check_catalogue
from kip848_client.testing.coordinator.connect.connect_group import (
    ConnectGroup,
    GroupWorker,
    WorkerMetadata,
    worker_tombstones,
)
from kip848_client.testing.coordinator.connect.heard import Heard
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern.assignment_round import Rounds
from kip848_client.testing.coordinator.modern.assignor_votes import choose_name
from kip848_client.testing.coordinator.modern.client_assignment import RoundPlanner, client_assignor
from kip848_client.testing.coordinator.modern.client_assignors import asks_for_a_target, check_versions, choice_after
from kip848_client.testing.coordinator.modern.current_assignment import MustRejoinError, Owned, Target, reconcile
from kip848_client.testing.coordinator.modern.member_lookup import Found, fenced, returned
from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    STATIC_LEAVE_EPOCH,
    AssignmentMetadata,
    Current,
    MemberRecord,
    ReconciliationState,
)
from kip848_client.testing.coordinator.modern.member_timers import arm_member_timers

STATUS_OK: Final = 0
STATUS_NO_READER: Final = 1
"""No worker reads the metadata of all: the target stays until that changes."""
STATUS_TARGET_ERROR: Final = 2
"""The assignor reported an error in place of the last target."""


def assignor_status(state: CoordinatorState, group: ConnectGroup) -> int:
    """Status code of the group's client-side assignor: one of the constants above."""
    if group.is_client_side and client_assignor(state, group) is None:
        return STATUS_NO_READER
    return STATUS_TARGET_ERROR if group.target_error else STATUS_OK


class WorkerSteps:
    """The three steps of KIP-848 for one request of a worker.

    Args:
        batch: takes records, timers and events.
        owned: what the worker says it runs; None if it does not say.
        catalogue: the units that it says the group should run; None if it does not say.
        sequence: number of its heartbeat; -1 if it has none.
        repeats: the answer will have the assignment, even if it has not changed.
    """

    def __init__(
        self,
        state: CoordinatorState,
        group: ConnectGroup,
        batch: Batch,
        *,
        owned: Owned[str] | None,
        catalogue: Catalogue | None,
        sequence: int = -1,
        repeats: bool = False,
        now_ms: int,
    ) -> None:
        self._state = state
        self._group = group
        self._batch = batch
        self._owned = owned
        self._sequence = sequence
        self._repeats = repeats
        self._now_ms = now_ms
        self._group_epoch = group.group_epoch
        self._target_epoch = group.target_epoch
        self._target: Units
        self._target_metadata: AssignmentMetadata
        self.catalogue: Catalogue = (
            group.catalogue if catalogue is None else check_catalogue(group.catalogue, catalogue)
        )
        """The catalogue in force."""
        self.planner: RoundPlanner[str, WorkerMetadata] | None = None
        """The round in which a worker computes the target, if one does, after `run`."""
        self.status = STATUS_TARGET_ERROR if group.target_error else STATUS_OK
        """Status code of the client-side assignor, after `run`."""

    def run(self, found: Found[str, WorkerMetadata], metadata: WorkerMetadata, *, is_join: bool) -> GroupWorker:
        """Take the steps.

        Args:
            metadata: what the worker says of itself now; the object of *found* if that is nothing new.
            is_join: it joins, or joins again.

        Returns:
            The worker as it will be.

        Raises:
            Refused: the code for the answer; the batch is to be dropped.
        """
        group, batch, member = self._group, self._batch, found.member
        self._check_assignors(found, metadata)
        if found.replaced is not None:
            self._write_replacement(found.replaced, member)
        updated = member
        if metadata is not member.metadata or found.is_new:
            updated = MemberRecord(member.member_id, metadata, member.current)
            batch.records.append(
                connect_records.worker_record(group.group_id, member_id=member.member_id, metadata=metadata)
            )
        if self.catalogue is not group.catalogue:
            batch.records.append(connect_records.catalogue_record(group.group_id, self.catalogue))
        self._bump_group_epoch(found, updated)
        self._update_target(found, updated)
        current = self._reconcile(updated)
        if current is not updated.current or self._repeats:
            # With its number: after this answer units may start, and an earlier heartbeat says that they do not run.
            batch.records.append(
                connect_records.current_record(
                    group.group_id, member_id=updated.member_id, current=current, sequence=self._sequence
                )
            )
        if current is not updated.current:
            updated = MemberRecord(updated.member_id, metadata, current)
        arm_member_timers(
            self._state, group, batch, updated, changed=current is not member.current, now_ms=self._now_ms
        )
        if batch.records:
            self._note(found, updated, is_join=is_join)
        return updated

    def waiting(self, current: Current[str]) -> Units:
        """Units that the worker gets once other workers have stopped them."""
        if current.state is not ReconciliationState.UNRELEASED_PARTITIONS:
            return {}
        missing = {
            name: tuple([index for index in indexes if index not in current.assigned.get(name, {})])
            for name, indexes in self.catalogue.only(self._target).items()
        }
        return {name: indexes for name, indexes in missing.items() if indexes}

    def _check_assignors(self, found: Found[str, WorkerMetadata], metadata: WorkerMetadata) -> None:
        """Refuse offers with which the group would have two modes, no common assignor, or no worker that reads all."""
        group = self._group
        if found.counted is not None and found.counted.client_assignors == metadata.client_assignors:
            return
        if metadata.computes and not self._state.config.client_assignors:
            raise Refused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                "Client-side assignors are off at this broker (kip848.client.assignors.enable); use a server assignor.",
            )
        if not self._is_client_side(found, metadata) and not group.is_client_side:
            return  # a worker that computes checks the metadata of classic workers
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

    def _is_client_side(self, found: Found[str, WorkerMetadata], metadata: WorkerMetadata) -> bool:
        """Whether workers compute the target once the worker has this metadata. Classic ones do not count."""
        before = found.counted
        count = self._group.computing_count - (before is not None and before.computes) + metadata.computes
        return count > 0

    # --- step 1

    def _bump_group_epoch(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        reason = self._reason_to_bump(found, updated.metadata)
        if reason is None:
            return
        group = self._group
        self._group_epoch = group.group_epoch + 1
        self._batch.records.append(
            connect_records.group_record(group.group_id, epoch=self._group_epoch, last_installer=group.last_installer)
        )
        self._batch.happened("group_epoch_bumped", group_epoch=self._group_epoch, fields={"reason": reason})

    def _reason_to_bump(self, found: Found[str, WorkerMetadata], after: WorkerMetadata) -> str | None:
        group, before = self._group, found.counted
        if not group.group_epoch:
            return "group_created"
        if before is None:
            return "member_joined"
        if self.catalogue.units != group.catalogue.units:
            return "catalogue_changed"
        if asks_for_a_target(old=before.client_assignors, new=after.client_assignors):
            return "client_assignors_changed"
        names = tuple(UNIT_PLANS)
        if choose_name(group, names=names) != choose_name(group, names=names, old=before, new=after):
            return "assignor_changed"
        return None

    # --- step 2

    def _update_target(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        """Bring the target to the group epoch, here or by a worker; read the worker's own part of it."""
        group = self._group
        own = (found.replaced or updated).member_id
        self._target, self._target_metadata = group.target_of(own), group.target_metadata_of(own)
        if self._group_epoch <= group.target_epoch:
            return
        if self._is_client_side(found, updated.metadata):
            self._ask_a_worker(found, updated)
            return
        if group.group_id in self._state.part(Rounds).in_flight:
            RoundPlanner(self._state, group, self._batch, group_epoch=self._group_epoch, speaker=updated).end()
        plan = self._plan(found, updated)
        batch = self._batch
        for member_id, units in plan.items():
            known_as = own if member_id == updated.member_id else member_id
            if units != group.target.get(known_as) or known_as in group.target_metadata:
                batch.records.append(connect_records.target_record(group.group_id, member_id=member_id, target=units))
        batch.records.append(connect_records.target_epoch_record(group.group_id, epoch=self._group_epoch))
        self._target_epoch = self._group_epoch
        self.status = STATUS_OK
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
        planned = UNIT_PLANS[self._assignor(found, updated)](member_ids, _flat(self.catalogue.units), previous)
        return {member_id: _by_name(units) for member_id, units in planned.items()}

    def _ask_a_worker(self, found: Found[str, WorkerMetadata], updated: GroupWorker) -> None:
        """Leave the target to a worker that reads the metadata of all; to none if there is no such worker."""
        group = self._group
        gone = frozenset(() if found.replaced is None else (found.replaced.member_id,))
        choice = choice_after(group, gone=gone, joined=updated.member_id, metadata=updated.metadata)
        if choice is None:
            self.status = STATUS_NO_READER
            return
        self.planner = RoundPlanner(self._state, group, self._batch, group_epoch=self._group_epoch, speaker=updated)
        self.planner.go_on(choice, first=None, may_start=True)

    # --- step 3

    def _reconcile(self, updated: GroupWorker) -> Current[str]:
        group, catalogue = self._group, self.catalogue
        start = updated.current
        if start.member_epoch == STATIC_LEAVE_EPOCH:
            start = returned(start)
        is_gone = any(len(catalogue.live(name, held)) < len(held) for name, held in start.assigned.items())
        if start.state is ReconciliationState.STABLE and start.member_epoch == self._target_epoch and not is_gone:
            return start

        def is_free(name: str, index: int) -> bool:
            return group.holders(name).get(index, updated.member_id) == updated.member_id

        def live(name: str, indexes: Collection[int]) -> Collection[int]:
            return catalogue.live(name, indexes)

        target = Target(self._target_epoch, self._target, live, is_free, self._target_metadata)
        try:
            current = reconcile(start, target, owned=self._owned, subscription_changed=is_gone)
        except MustRejoinError:
            raise fenced(
                f"The state of worker {updated.member_id} is unknown to this coordinator. The worker must stop all its "
                "units and rejoin."
            ) from None
        return current

    # --- replacing a static member

    def _write_replacement(self, replaced: GroupWorker, member: GroupWorker) -> None:
        """Move a static worker's place to its new id, before anything of its heartbeat is applied."""
        group, batch = self._group, self._batch
        group_id = group.group_id
        batch.records += worker_tombstones(group_id, member_id=replaced.member_id)
        batch.records += [
            connect_records.worker_record(group_id, member_id=member.member_id, metadata=member.metadata),
            connect_records.target_record(
                group_id,
                member_id=member.member_id,
                target=group.target_of(replaced.member_id),
                metadata=group.target_metadata_of(replaced.member_id),
            ),
            connect_records.current_record(group_id, member_id=member.member_id, current=member.current),
        ]
        batch.cancel_timers(replaced.member_id)
        batch.soft.append(Heard(group_id, replaced.member_id, None))
        batch.happened("member_left", member=replaced, group_epoch=group.group_epoch, fields={"reason": "replaced"})

    def _note(self, found: Found[str, WorkerMetadata], updated: GroupWorker, *, is_join: bool) -> None:
        group, batch = self._group, self._batch
        if is_join and (found.is_new or found.replaced is not None):
            batch.happened(
                "member_joined",
                member=updated,
                group_epoch=self._group_epoch,
                fields={
                    "topics": [],
                    "instance_id": updated.metadata.instance_id,
                    "client_host": updated.metadata.client_host,
                    "worker_id": updated.metadata.worker_id,
                },
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


def _flat(units: Mapping[str, Collection[int]]) -> list[Unit]:
    return [Unit(name, index) for name, indexes in sorted(units.items()) for index in sorted(indexes)]


def _by_name(units: Collection[Unit]) -> Units:
    found: dict[str, list[int]] = {}
    for unit in sorted(units):
        found.setdefault(unit.name, []).append(unit.index)
    return {name: tuple(indexes) for name, indexes in found.items()}
