"""ConnectGroupPrepareAssignment and ConnectGroupInstallAssignment: the chosen worker asks, computes and hands in.

The result is checked against the snapshot that the worker got, and is installed even if the group has moved on since.
The next round then starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kip848_client.common.model import Unit
from kip848_client.testing.coordinator.connect import connect_records
from kip848_client.testing.coordinator.connect.catalogue import Units, read_units, write_units
from kip848_client.testing.coordinator.connect.classic_workers import classic_bytes
from kip848_client.testing.coordinator.connect.connect_group import (
    AssignorState,
    ConnectGroup,
    GroupWorker,
)
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern.assignment_round import Prepared, Rounds, TargetComputed
from kip848_client.testing.coordinator.modern.client_assignment import RoundPlanner, client_assignor
from kip848_client.testing.coordinator.modern.computed_target import (
    find_round,
    invalid,
    not_chosen,
    note_refusal,
    note_target,
    parts_of_present,
    prepared_for,
)
from kip848_client.testing.coordinator.modern.member_record import NO_METADATA, AssignmentMetadata
from kip848_client.wire.messages import connect_group_install_assignment as install_wire
from kip848_client.wire.messages import connect_group_prepare_assignment as prepare_wire
from kip848_client.wire.messages.connect_group_heartbeat import Catalog
from kip848_client.wire.messages.connect_group_install_assignment import (
    ConnectGroupInstallAssignmentRequest,
    ConnectGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.connect_group_prepare_assignment import (
    ConnectGroupPrepareAssignmentRequest,
    ConnectGroupPrepareAssignmentResponse,
)

_Part = tuple[Units, AssignmentMetadata]


class PreparedConnectGroup(Prepared, frozen=True):
    """A connect group.

    Args:
        readable: member id -> (least, greatest) version of assignment metadata that it reads.
        units: the catalogue: name -> indexes.
    """

    readable: Mapping[str, tuple[int, int]]
    units: Mapping[str, tuple[int, ...]]


def handle_prepare(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupPrepareAssignmentRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConnectGroupPrepareAssignment with the group as it is now; the last answer is what counts."""
    batch = Batch(message.group_id)
    try:
        group, _ = find_round(state, message, find_group=partial(state.existing, ConnectGroup))
        worker = group.members[message.member_id]
        planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
        assignor_name = planner.renew(client_assignor(state, group), member_id=worker.member_id)
        if assignor_name is None:
            raise not_chosen(group, member_id=worker.member_id)
    except Refused as refused:
        refusal = ConnectGroupPrepareAssignmentResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, refusal))
    workers = [group.members[member_id] for member_id in group.sorted_member_ids]
    prepared = PreparedConnectGroup(
        group_epoch=group.group_epoch,
        instance_ids={member_id: instance_id for instance_id, member_id in group.static_members.items()},
        readable={other.member_id: _readable(other, assignor_name) for other in workers},
        units=group.catalogue.units,
    )
    planner.prepared(worker, prepared, now_ms=now_ms)
    installed_ms = state.part(Rounds).computed_ms.get(group.group_id)
    response = ConnectGroupPrepareAssignmentResponse(
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_name,
        members=tuple([_described(group, other, assignor_name=assignor_name) for other in workers]),
        catalog=Catalog(offset=max(group.catalogue.offset, 0), units=write_units(group.catalogue.units)),
        assignor_state=group.assignor_state.data,
        state_version=group.assignor_state.version,
        state_age_ms=-1 if installed_ms is None else now_ms - installed_ms,
    )
    return batch.result(Reply(request.request_id, response))


def handle_install(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupInstallAssignmentRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConnectGroupInstallAssignment. A refused result changes nothing; the worker may try again."""
    batch = Batch(message.group_id)
    try:
        group, flying = find_round(state, message, find_group=partial(state.existing, ConnectGroup))
        prepared = prepared_for(flying, message, kind=PreparedConnectGroup)
        parts, deferred = ({}, {}) if message.error else _read_assignment(prepared, message)
    except Refused as refused:
        note_refusal(batch, state.find(ConnectGroup, message.group_id), member_id=message.member_id, refused=refused)
        refusal = ConnectGroupInstallAssignmentResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, refusal))
    epoch, group_id = prepared.group_epoch, group.group_id
    if message.error:
        target = {
            member_id: (group.target_of(member_id), replace(group.target_metadata_of(member_id), error=message.error))
            for member_id in group.sorted_member_ids
        }
        deferred, kept = group.deferred, group.assignor_state
    else:
        target = _target_of_workers(group, prepared, parts)
        kept = AssignorState(message.state_version, message.assignor_state)
        batch.soft.append(TargetComputed(group_id, now_ms))
    if group.last_installer != flying.member_id:
        batch.records.append(
            connect_records.group_record(group_id, epoch=group.group_epoch, last_installer=flying.member_id)
        )
    for member_id, (units, told) in target.items():
        if group.target.get(member_id) != units or group.target_metadata_of(member_id) != told:
            batch.records.append(
                connect_records.target_record(group_id, member_id=member_id, target=units, metadata=told)
            )
    batch.records.append(
        connect_records.target_epoch_record(
            group_id,
            epoch=epoch,
            error=message.error,
            deferred=group.catalogue.only(deferred),
            assignor_name=flying.assignor_name,
            state=kept,
        )
    )
    planned = {member_id: units for member_id, (units, _) in target.items()}
    note_target(batch, group, flying, epoch=epoch, error=message.error, members=planned)
    planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
    planner.start_next(client_assignor(state, group) if group.group_epoch > epoch else None)
    return batch.result(Reply(request.request_id, ConnectGroupInstallAssignmentResponse()))


def _read_assignment(
    prepared: PreparedConnectGroup, message: ConnectGroupInstallAssignmentRequest
) -> tuple[dict[str, _Part], Units]:
    """The units of each worker, and the deferred ones, if they are a legal target for the group as it was prepared.

    Raises:
        Refused: INVALID_ASSIGNMENT; names the worker and the unit.
    """
    try:
        deferred = read_units(message.deferred, field="Deferred")
        parts = [(member, read_units(member.units, field=member.member_id)) for member in message.members]
    except Refused as refused:
        raise invalid(refused.message) from None
    owners: dict[Unit, str] = {}

    def take(units: Units, owner: str) -> None:
        for name, indexes in units.items():
            for index in indexes:
                unit = Unit(name, index)
                if index not in prepared.units.get(name, ()):
                    raise invalid(f"unit {unit} of {owner} is not in the catalogue.")
                if unit in owners:
                    raise invalid(f"unit {unit} is given twice: to {owners[unit]} and to {owner}.")
                owners[unit] = owner

    read: dict[str, _Part] = {}
    for member, units in parts:
        member_id = member.member_id
        if member_id not in prepared.readable:
            raise invalid(f"{member_id!r} is not a worker of the group at epoch {prepared.group_epoch}.")
        if member_id in read:
            raise invalid(f"worker {member_id!r} is there twice.")
        take(units, f"worker {member_id!r}")
        read[member_id] = (units, _told(member, prepared.readable[member_id]))
    take(deferred, "Deferred")
    missing = sorted({Unit(name, index) for name, found in prepared.units.items() for index in found} - owners.keys())
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise invalid(f"{len(missing)} units have no worker and are not deferred: {shown}.")
    return read, deferred


def _told(member: install_wire.Member, readable: tuple[int, int]) -> AssignmentMetadata:
    version, data = member.metadata_version, member.metadata_bytes
    if not version and not data:
        return NO_METADATA
    low, high = readable
    if not low <= version <= high:
        raise invalid(f"worker {member.member_id!r} reads metadata of versions {low} to {high}, not {version}.")
    return AssignmentMetadata(version=version, data=data)


def _target_of_workers(
    group: ConnectGroup, prepared: PreparedConnectGroup, parts: Mapping[str, _Part]
) -> dict[str, _Part]:
    """The target of the workers there are now, without units that have left the catalogue."""
    present = parts_of_present(group, prepared, parts, known=prepared.readable)
    return {
        member_id: ({}, NO_METADATA) if part is None else (group.catalogue.only(part[0]), part[1])
        for member_id, part in present.items()
    }


def _described(group: ConnectGroup, worker: GroupWorker, *, assignor_name: str) -> prepare_wire.Member:
    metadata = worker.metadata
    data = None if metadata.classic is None else classic_bytes(group, metadata.classic)
    offered = next(item for item in metadata.client_assignors if item.name == assignor_name)
    return prepare_wire.Member(
        member_id=worker.member_id,
        member_epoch=worker.current.member_epoch,
        reconciled=worker.is_reconciled_to(group.target_epoch),
        instance_id=metadata.instance_id,
        worker_id=metadata.worker_id,
        worker_url=metadata.worker_url,
        metadata_version=offered.metadata_version,
        reason=offered.reason,
        metadata_bytes=offered.metadata_bytes if data is None else data,
        target=write_units(group.target_of(worker.member_id)),
    )


def _readable(worker: GroupWorker, assignor_name: str) -> tuple[int, int]:
    offers: Sequence[tuple[int, int]] = [
        (item.minimum_version, item.maximum_version)
        for item in worker.metadata.client_assignors
        if item.name == assignor_name
    ]
    return offers[0]
