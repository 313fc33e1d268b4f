"""Hard state of one connect group, changed by `ConnectGroup.replay` alone. No decision is taken here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, TypeAlias

import msgspec

from kip848_client.testing.coordinator.connect.catalogue import Catalogue, Units, stored_held, stored_units
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    AssignmentMetadata,
    Current,
    MemberRecord,
    SharedMetadata,
    read_assignors,
    read_classic,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup, read_state
from kip848_client.wire.messages import connect_group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord, RecordKey, RecordValue


class WorkerMetadata(SharedMetadata, frozen=True):
    """The metadata of a worker.

    Args:
        worker_id: its name for people, which two workers may share; None if it has none.
        worker_url: where it can be reached, or None.
        told_offset: of a worker on the classic protocol: offset of the catalogue at its last JoinGroup.
    """

    worker_id: str | None = None
    worker_url: str | None = None
    told_offset: int = -1

    @property
    def computes(self) -> bool:
        """Whether it brings a client-side assignor that it can run; a worker on the classic protocol cannot."""
        return bool(self.client_assignors) and self.classic is None


GroupWorker: TypeAlias = MemberRecord[str, WorkerMetadata]
"""One worker of a connect group."""


class AssignorState(msgspec.Struct, frozen=True):
    """State that a client-side assignor left for its next run. `data` is None if it left nothing."""

    version: int = 0
    data: bytes | None = None


_NO_METADATA: Final = WorkerMetadata()
_NO_STATE: Final = AssignorState()


class ConnectGroup(ModernGroup[str, WorkerMetadata]):
    """One group. Read anything; change nothing except by `replay`."""

    kind: ClassVar[str] = "connect"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, metadata=_NO_METADATA)
        self.catalogue: Catalogue = Catalogue()
        self.deferred: Units = {}
        """Units that the assignor left without a worker on purpose."""
        self.assignor_state: AssignorState = _NO_STATE
        self.target_error: int = 0
        """Error that the client-side assignor reported in place of the last target; 0 if it computed one."""
        self.computing_count: int = 0
        """Number of workers that bring a client-side assignor."""
        self.logged_sequences: Final[dict[str, int]] = {}
        """Worker -> number of the latest heartbeat whose answer had an assignment."""

    @property
    def is_client_side(self) -> bool:
        """Whether workers compute the target."""
        return self.computing_count > 0

    def session_timeout_ms(self, config: GroupConfig) -> int:
        """``connect.session.timeout.ms``."""
        return config.connect_session_timeout_ms

    def tombstones(self) -> Iterator[GroupRecord]:
        """Tombstones for all its records, in the order that replay demands."""
        group_id = self.group_id
        for member_id in self.sorted_member_ids:
            yield from worker_tombstones(group_id, member_id=member_id)
        yield GroupRecord(wire.ConnectGroupTargetMetadataKey(group_id=group_id), None)
        yield GroupRecord(wire.ConnectGroupCatalogKey(group_id=group_id), None)
        yield GroupRecord(wire.ConnectGroupMetadataKey(group_id=group_id), None)

    def replay(self, key: RecordKey, value: RecordValue | None) -> bool:
        """Bring the group to what one of its records says; see `ConsumerGroup.replay`.

        Returns:
            False if the record was the tombstone of the group itself.

        Raises:
            IllegalStateError: tombstones come in an order that no coordinator writes; the log is damaged.
        """
        match key, value:
            case wire.ConnectGroupMetadataKey(), wire.ConnectGroupMetadataValue():
                self.group_epoch: int = value.epoch
                self.last_installer: str = value.last_installer
            case wire.ConnectGroupMetadataKey(), _:
                self._check_gone()
                return False
            case wire.ConnectGroupCatalogKey(), wire.ConnectGroupCatalogValue():
                self.catalogue = Catalogue(value.offset, stored_units(value.units))
            case wire.ConnectGroupCatalogKey(), _:
                self.catalogue = Catalogue()
            case wire.ConnectGroupMemberKey(), wire.ConnectGroupMemberValue():
                current = (self.members.get(key.member_id) or self.new_member(key.member_id)).current
                self._set_member(MemberRecord(key.member_id, _read_metadata(value), current))
            case wire.ConnectGroupMemberKey(), _:
                self._remove_member(key.member_id)
            case wire.ConnectGroupTargetMetadataKey(), wire.ConnectGroupTargetMetadataValue():
                self.target_epoch: int = value.assignment_epoch
                self.target_error = value.error
                self.deferred = stored_units(value.deferred)
                self.assignor_state = AssignorState(value.state_version, value.state_bytes)
            case wire.ConnectGroupTargetMetadataKey(), _:
                self._forget_target_epoch()  # the group's tombstone follows
            case wire.ConnectGroupTargetMemberKey(), wire.ConnectGroupTargetMemberValue():
                self.target[key.member_id] = stored_units(value.units)
                self._set_target_metadata(key.member_id, _read_told(value))
            case wire.ConnectGroupTargetMemberKey(), _:
                self.target.pop(key.member_id, None)
                self.target_metadata.pop(key.member_id, None)
            case wire.ConnectGroupCurrentMemberKey(), wire.ConnectGroupCurrentMemberValue():
                self._set_current(
                    key.member_id,
                    Current(
                        member_epoch=value.member_epoch,
                        previous_member_epoch=value.previous_member_epoch,
                        state=read_state(value.state),
                        assigned=stored_held(value.assigned),
                        pending_revocation=stored_held(value.pending_revocation),
                        metadata=_read_told(value),
                    ),
                )
                self.logged_sequences[key.member_id] = value.sequence
            case wire.ConnectGroupCurrentMemberKey(), _:
                self._forget_current(key.member_id)
                self.logged_sequences.pop(key.member_id, None)
            case _:
                raise AssertionError(f"{type(key).__name__} is not a record of a connect group")
        return True

    def _count_metadata(self, metadata: WorkerMetadata, change: int) -> None:
        super()._count_metadata(metadata, change)
        self.computing_count += change * metadata.computes


def worker_tombstones(group_id: str, *, member_id: str) -> Iterator[GroupRecord]:
    """Everything of one worker, in the order that replay demands."""
    yield GroupRecord(wire.ConnectGroupCurrentMemberKey(group_id=group_id, member_id=member_id), None)
    yield GroupRecord(wire.ConnectGroupTargetMemberKey(group_id=group_id, member_id=member_id), None)
    yield GroupRecord(wire.ConnectGroupMemberKey(group_id=group_id, member_id=member_id), None)


def _read_metadata(value: wire.ConnectGroupMemberValue) -> WorkerMetadata:
    return WorkerMetadata(
        instance_id=value.instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        client_assignors=read_assignors(value.client_assignors),
        worker_id=value.worker_id,
        worker_url=value.worker_url,
        told_offset=-1 if value.classic is None else value.classic.told_offset,
        classic=None if value.classic is None else read_classic(value.classic),
    )


def _read_told(
    value: wire.ConnectGroupTargetMemberValue | wire.ConnectGroupCurrentMemberValue,
) -> AssignmentMetadata:
    if not value.error and not value.metadata_version and not value.metadata_bytes:
        return NO_METADATA
    return AssignmentMetadata(error=value.error, version=value.metadata_version, data=value.metadata_bytes)
