"""Keys and values of the records of connect groups, types 30850 to 30855; `group_records` owns their bytes.

Ours: other coordinators skip these types.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.messages.connect_group_heartbeat import AssignedUnits, ClientAssignor, UnitsOfName
from kip848_client.wire.messages.group_record_keys import ClassicProtocol, GroupKey, MemberKey
from kip848_client.wire.schema import Int8, Int16, Int32, Int64, MessageSpec, RecordPart, WireStruct, record, wire


class ConnectGroupMetadataKey(GroupKey, frozen=True):
    """Type 30850: a connect group."""

    WIRE: ClassVar[MessageSpec] = record(30_850, "0", flexible="none")


class ConnectGroupMetadataValue(RecordPart, frozen=True):
    """Its epoch, and the worker that installed the last target."""

    WIRE: ClassVar[MessageSpec] = record(30_850, "0", flexible="0+")

    epoch: Annotated[Int32, wire("0+")] = 0
    last_installer: Annotated[str, wire("0+")] = ""


class ConnectGroupCatalogKey(GroupKey, frozen=True):
    """Type 30851: the catalogue of a group."""

    WIRE: ClassVar[MessageSpec] = record(30_851, "0", flexible="none")


class ConnectGroupCatalogValue(RecordPart, frozen=True):
    """All units that the group should run."""

    WIRE: ClassVar[MessageSpec] = record(30_851, "0", flexible="0+")

    offset: Annotated[Int64, wire("0+")] = 0
    units: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()


class ConnectGroupMemberKey(MemberKey, frozen=True):
    """Type 30852: a worker and its metadata."""

    WIRE: ClassVar[MessageSpec] = record(30_852, "0", flexible="none")


class ClassicWorkerMetadata(WireStruct, frozen=True):
    """Fields of a worker on the classic protocol. `told_offset` is that of the catalogue at its last JoinGroup."""

    session_timeout_ms: Annotated[Int32, wire("0+")] = 0
    told_offset: Annotated[Int64, wire("0+")] = -1
    supported_protocols: Annotated[tuple[ClassicProtocol, ...], wire("0+")] = ()


class ConnectGroupMemberValue(RecordPart, frozen=True):
    """The worker's description of itself."""

    WIRE: ClassVar[MessageSpec] = record(30_852, "0", flexible="0+")

    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_url: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    rebalance_timeout_ms: Annotated[Int32, wire("0+")] = -1
    server_assignor: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_assignors: Annotated[tuple[ClientAssignor, ...], wire("0+")] = ()
    classic: Annotated[ClassicWorkerMetadata | None, wire("0+", nullable="0+", tag=0)] = None


class ConnectGroupTargetMetadataKey(GroupKey, frozen=True):
    """Type 30853: of which epoch a group's target is."""

    WIRE: ClassVar[MessageSpec] = record(30_853, "0", flexible="none")


class ConnectGroupTargetMetadataValue(RecordPart, frozen=True):
    """The target as a whole. `assignor_name` is empty if the coordinator computed it."""

    WIRE: ClassVar[MessageSpec] = record(30_853, "0", flexible="0+")

    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    error: Annotated[Int8, wire("0+")] = 0
    deferred: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    assignor_name: Annotated[str, wire("0+")] = ""
    state_version: Annotated[Int16, wire("0+")] = 0
    state_bytes: Annotated[bytes | None, wire("0+", nullable="0+")] = None


class ConnectGroupTargetMemberKey(MemberKey, frozen=True):
    """Type 30854: the target of one worker."""

    WIRE: ClassVar[MessageSpec] = record(30_854, "0", flexible="none")


class ConnectGroupTargetMemberValue(RecordPart, frozen=True):
    """The target of a worker, and the message for its assignor."""

    WIRE: ClassVar[MessageSpec] = record(30_854, "0", flexible="0+")

    units: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    error: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConnectGroupCurrentMemberKey(MemberKey, frozen=True):
    """Type 30855: what one worker runs now."""

    WIRE: ClassVar[MessageSpec] = record(30_855, "0", flexible="none")


class ConnectGroupCurrentMemberValue(RecordPart, frozen=True):
    """How far a worker has come, with the token of each unit.

    Args:
        sequence: number of the heartbeat to which this was the answer; -1: it had none.
    """

    WIRE: ClassVar[MessageSpec] = record(30_855, "0", flexible="0+")

    member_epoch: Annotated[Int32, wire("0+")] = 0
    previous_member_epoch: Annotated[Int32, wire("0+")] = -1
    state: Annotated[Int8, wire("0+")] = 0
    assigned: Annotated[tuple[AssignedUnits, ...], wire("0+")] = ()
    pending_revocation: Annotated[tuple[AssignedUnits, ...], wire("0+")] = ()
    error: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""
    sequence: Annotated[Int64, wire("0+", tag=0)] = -1


ConnectGroupRecordKey = (
    ConnectGroupMetadataKey
    | ConnectGroupCatalogKey
    | ConnectGroupMemberKey
    | ConnectGroupTargetMetadataKey
    | ConnectGroupTargetMemberKey
    | ConnectGroupCurrentMemberKey
)
ConnectGroupRecordValue = (
    ConnectGroupMetadataValue
    | ConnectGroupCatalogValue
    | ConnectGroupMemberValue
    | ConnectGroupTargetMetadataValue
    | ConnectGroupTargetMemberValue
    | ConnectGroupCurrentMemberValue
)
