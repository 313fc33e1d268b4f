"""The records of a connect group, made from values; the way back is `ConnectGroup.replay`."""

from __future__ import annotations

import msgspec

from kip848_client.testing.coordinator.connect.catalogue import Catalogue, Units, write_held, write_units
from kip848_client.testing.coordinator.connect.connect_group import AssignorState, WorkerMetadata
from kip848_client.testing.coordinator.modern.member_record import NO_METADATA, AssignmentMetadata, Current
from kip848_client.wire.messages import connect_group_records as wire
from kip848_client.wire.messages.connect_group_heartbeat import ClientAssignor
from kip848_client.wire.messages.group_record_keys import ClassicProtocol
from kip848_client.wire.messages.group_records import GroupRecord


def group_record(group_id: str, *, epoch: int, last_installer: str = "") -> GroupRecord:
    """Type 30850: the group epoch."""
    return GroupRecord(
        wire.ConnectGroupMetadataKey(group_id=group_id),
        wire.ConnectGroupMetadataValue(epoch=epoch, last_installer=last_installer),
    )


def catalogue_record(group_id: str, catalogue: Catalogue) -> GroupRecord:
    """Type 30851: the units that the group should run."""
    return GroupRecord(
        wire.ConnectGroupCatalogKey(group_id=group_id),
        wire.ConnectGroupCatalogValue(offset=catalogue.offset, units=write_units(catalogue.units)),
    )


def catalogue_tombstone(group_id: str) -> GroupRecord:
    """Type 30851: the group has no catalogue."""
    return GroupRecord(wire.ConnectGroupCatalogKey(group_id=group_id), None)


def worker_record(group_id: str, *, member_id: str, metadata: WorkerMetadata) -> GroupRecord:
    """Type 30852: a worker."""
    return GroupRecord(
        wire.ConnectGroupMemberKey(group_id=group_id, member_id=member_id),
        wire.ConnectGroupMemberValue(
            instance_id=metadata.instance_id,
            worker_id=metadata.worker_id,
            worker_url=metadata.worker_url,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            server_assignor=metadata.server_assignor,
            client_assignors=tuple(
                [msgspec.convert(offer, ClientAssignor, from_attributes=True) for offer in metadata.client_assignors]
            ),
            classic=None
            if metadata.classic is None
            else wire.ClassicWorkerMetadata(
                session_timeout_ms=metadata.classic.session_timeout_ms,
                told_offset=metadata.told_offset,
                supported_protocols=tuple(
                    [ClassicProtocol(name=name, metadata=data) for name, data in metadata.classic.protocols]
                ),
            ),
        ),
    )


def target_epoch_record(
    group_id: str,
    *,
    epoch: int,
    error: int = 0,
    deferred: Units | None = None,
    assignor_name: str = "",
    state: AssignorState | None = None,
) -> GroupRecord:
    """Type 30853: the target's epoch, after all its workers' records, and what belongs to the target as a whole."""
    kept = state or AssignorState()
    return GroupRecord(
        wire.ConnectGroupTargetMetadataKey(group_id=group_id),
        wire.ConnectGroupTargetMetadataValue(
            assignment_epoch=epoch,
            error=error,
            deferred=write_units(deferred or {}),
            assignor_name=assignor_name,
            state_version=kept.version,
            state_bytes=kept.data,
        ),
    )


def target_record(
    group_id: str, *, member_id: str, target: Units, metadata: AssignmentMetadata = NO_METADATA
) -> GroupRecord:
    """Type 30854: what a worker should run."""
    return GroupRecord(
        wire.ConnectGroupTargetMemberKey(group_id=group_id, member_id=member_id),
        wire.ConnectGroupTargetMemberValue(
            units=write_units(target),
            error=metadata.error,
            metadata_version=metadata.version,
            metadata_bytes=metadata.data,
        ),
    )


def current_record(group_id: str, *, member_id: str, current: Current[str], sequence: int = -1) -> GroupRecord:
    """Type 30855: how far a worker has come, and with which heartbeat."""
    return GroupRecord(
        wire.ConnectGroupCurrentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConnectGroupCurrentMemberValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=int(current.state),
            assigned=write_held(current.assigned),
            pending_revocation=write_held(current.pending_revocation),
            error=current.metadata.error,
            metadata_version=current.metadata.version,
            metadata_bytes=current.metadata.data,
            sequence=sequence,
        ),
    )
