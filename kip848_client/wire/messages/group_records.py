"""Keys and values of the records in ``__consumer_offsets`` that offsets, classic and consumer groups need.

Owns their layouts and their bytes. A key starts with the record's type (int16), a value with its version (int16).
Types: 0 and 1 OffsetCommit, 2 GroupMetadata, 3 to 8 and 16 of KIP-848's consumer groups; streams groups (17 and up)
are not ours and come out as `UnknownRecord`. The layouts of share groups' records (10 to 15) are in
`share_group_records`, those of connect groups, which are ours alone, in `connect_group_records`.

Tags from 10000 on are ours (client-side assignors, which Apache Kafka never shipped); others skip them.

Source: apache/kafka ``group-coordinator/src/main/resources/common/message``; KIP-848; KIP-1101 (MetadataHash);
KIP-1251 (AssignmentEpochs); KIP-1263 (AssignmentTimestamp).
"""

from __future__ import annotations

import struct
import uuid
from typing import Annotated, ClassVar, Final

import msgspec

from kip848_client.errors import ProtocolError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.messages import connect_group_records as connect
from kip848_client.wire.messages import share_group_records as share
from kip848_client.wire.messages.group_record_keys import (
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupRecordKey,
    OffsetCommitKey,
    PendingOffsetKey,
)
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    RecordPart,
    WireStruct,
    record,
    wire,
)

__all__ = [
    "GroupRecord",
    "UnknownRecord",
    "encode_record_key",
    "encode_record_value",
    "decode_record",
    "decode_record_key",
    "group_of",
    "RecordKey",
    "RecordValue",
    "GroupRecordKey",
    "GroupRecordValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "MemberMetadata",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "TopicMetadata",
    "PartitionMetadata",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "Assignor",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "TopicPartition",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "TopicPartitions",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "PendingOffsetKey",
    "PendingOffsetValue",
]


class OffsetCommitValue(RecordPart, frozen=True):
    """A committed offset. Version 1 alone has a time of expiry, version 4 alone the topic's id."""

    WIRE: ClassVar[MessageSpec] = record(1, "0-4", flexible="4+")

    offset: Annotated[Int64, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("3+", ignorable=True)] = -1
    metadata: Annotated[str, wire("0+")] = ""
    commit_timestamp: Annotated[Int64, wire("0+")] = 0
    expire_timestamp: Annotated[Int64, wire("1", ignorable=True)] = -1
    topic_id: Annotated[uuid.UUID, wire("4+", tag=0, ignorable=True)] = ZERO_UUID


class MemberMetadata(WireStruct, frozen=True):
    """One member of a classic group."""

    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+", ignorable=True)] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    rebalance_timeout: Annotated[Int32, wire("1+", ignorable=True)] = -1
    session_timeout: Annotated[Int32, wire("0+")] = 0
    subscription: Annotated[bytes, wire("0+")] = b""
    assignment: Annotated[bytes, wire("0+")] = b""


class GroupMetadataValue(RecordPart, frozen=True):
    """A classic group after a completed rebalance, or empty."""

    WIRE: ClassVar[MessageSpec] = record(2, "0-4", flexible="4+")

    protocol_type: Annotated[str, wire("0+")] = ""
    generation: Annotated[Int32, wire("0+")] = 0
    protocol: Annotated[str | None, wire("0+", nullable="0+")] = None
    leader: Annotated[str | None, wire("0+", nullable="0+")] = None
    current_state_timestamp: Annotated[Int64, wire("2+", ignorable=True)] = -1
    members: Annotated[tuple[MemberMetadata, ...], wire("0+")] = ()


class ConsumerGroupMetadataValue(RecordPart, frozen=True):
    """The group epoch, and the hash of the topics' metadata that it was bumped for."""

    WIRE: ClassVar[MessageSpec] = record(3, "0", flexible="0+")

    epoch: Annotated[Int32, wire("0+")] = 0
    metadata_hash: Annotated[Int64, wire("0+", tag=0)] = 0


class PartitionMetadata(WireStruct, frozen=True):
    """The racks of one partition; never used."""

    partition: Annotated[Int32, wire("0+")] = 0
    racks: Annotated[tuple[str, ...], wire("0+")] = ()


class TopicMetadata(WireStruct, frozen=True):
    """One subscribed topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""
    num_partitions: Annotated[Int32, wire("0+")] = 0
    partition_metadata: Annotated[tuple[PartitionMetadata, ...], wire("0+")] = ()


class ConsumerGroupPartitionMetadataValue(RecordPart, frozen=True):
    """All subscribed topics of a group."""

    WIRE: ClassVar[MessageSpec] = record(4, "0", flexible="0+")

    topics: Annotated[tuple[TopicMetadata, ...], wire("0+")] = ()


class ClassicMemberMetadata(WireStruct, frozen=True):
    """Fields that only a member on the classic protocol has."""

    session_timeout_ms: Annotated[Int32, wire("0+")] = 0
    supported_protocols: Annotated[tuple[ClassicProtocol, ...], wire("0+")] = ()


class Assignor(WireStruct, frozen=True):
    """One client-side assignor of a member, as in its heartbeat."""

    name: Annotated[str, wire("0+")] = ""
    minimum_version: Annotated[Int16, wire("0+")] = 0
    maximum_version: Annotated[Int16, wire("0+")] = 0
    reason: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConsumerGroupMemberMetadataValue(RecordPart, frozen=True):
    """The member's description of itself."""

    WIRE: ClassVar[MessageSpec] = record(5, "0", flexible="0+")

    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    subscribed_topic_names: Annotated[tuple[str, ...], wire("0+")] = ()
    subscribed_topic_regex: Annotated[str | None, wire("0+", nullable="0+")] = None
    rebalance_timeout_ms: Annotated[Int32, wire("0+")] = -1
    server_assignor: Annotated[str | None, wire("0+", nullable="0+")] = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, wire("0+", nullable="0+", tag=0)] = None
    client_assignors: Annotated[tuple[Assignor, ...], wire("0+", tag=10000)] = ()


class ConsumerGroupTargetAssignmentMetadataValue(RecordPart, frozen=True):
    """The target's epoch, when it was computed, and by which client-side assignor (empty: by the server)."""

    WIRE: ClassVar[MessageSpec] = record(6, "0", flexible="0+")

    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    assignment_timestamp: Annotated[Int64, wire("0+", tag=0)] = 0
    assignor_name: Annotated[str, wire("0+", tag=10000)] = ""


class TopicPartition(WireStruct, frozen=True):
    """Partitions of one topic in a target."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class ConsumerGroupTargetAssignmentMemberValue(RecordPart, frozen=True):
    """The target of the member, and the message for its client-side assignor."""

    WIRE: ClassVar[MessageSpec] = record(7, "0", flexible="0+")

    topic_partitions: Annotated[tuple[TopicPartition, ...], wire("0+")] = ()
    error: Annotated[Int8, wire("0+", tag=10000)] = 0
    metadata_version: Annotated[Int16, wire("0+", tag=10001)] = 0
    metadata_bytes: Annotated[bytes, wire("0+", tag=10002)] = b""
    assignor_name: Annotated[str, wire("0+", tag=10003)] = ""


class TopicPartitions(WireStruct, frozen=True):
    """Partitions of one topic, and the epoch at which each was given to the member (None: not kept)."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()
    assignment_epochs: Annotated[tuple[Int32, ...] | None, wire("0+", nullable="0+", tag=0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(RecordPart, frozen=True):
    """How far the member has come. `state`: 0 stable, 1 unrevoked partitions, 2 unreleased partitions.

    The tags are what its client-side assignor hears at `member_epoch`, as KIP-848 keeps it here.
    """

    WIRE: ClassVar[MessageSpec] = record(8, "0", flexible="0+")

    member_epoch: Annotated[Int32, wire("0+")] = 0
    previous_member_epoch: Annotated[Int32, wire("0+")] = 0
    state: Annotated[Int8, wire("0+")] = 0
    assigned_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()
    partitions_pending_revocation: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()
    error: Annotated[Int8, wire("0+", tag=10000)] = 0
    metadata_version: Annotated[Int16, wire("0+", tag=10001)] = 0
    metadata_bytes: Annotated[bytes, wire("0+", tag=10002)] = b""
    assignor_name: Annotated[str, wire("0+", tag=10003)] = ""


class ConsumerGroupRegularExpressionValue(RecordPart, frozen=True):
    """The topics that the pattern matched, at which version of the metadata, and when."""

    WIRE: ClassVar[MessageSpec] = record(16, "0", flexible="0+")

    topics: Annotated[tuple[str, ...], wire("0+")] = ()
    version: Annotated[Int64, wire("0+")] = 0
    timestamp: Annotated[Int64, wire("0+")] = 0


class PendingOffsetValue(RecordPart, frozen=True):
    """An offset that is committed when its transaction is. Ours, as its key."""

    WIRE: ClassVar[MessageSpec] = record(30_848, "0", flexible="0+")

    producer_epoch: Annotated[Int16, wire("0+")] = 0
    offset: Annotated[Int64, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = -1
    metadata: Annotated[str, wire("0+")] = ""
    commit_timestamp: Annotated[Int64, wire("0+")] = 0
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID


GroupRecordValue = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | PendingOffsetValue
)


RecordKey = GroupRecordKey | share.ShareGroupRecordKey | connect.ConnectGroupRecordKey
RecordValue = GroupRecordValue | share.ShareGroupRecordValue | connect.ConnectGroupRecordValue


class GroupRecord(msgspec.Struct, frozen=True):
    """A record of a type that we know. A value of None is a tombstone."""

    key: RecordKey
    value: RecordValue | None


class UnknownRecord(msgspec.Struct, frozen=True):
    """A record of a type that we do not know: to be skipped with a warning, never to be an error."""

    record_type: int
    key: bytes
    value: bytes | None


_PARTS: Final[dict[int, tuple[type[RecordKey], type[RecordValue]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue),
    11: (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue),
    12: (share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue),
    13: (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue),
    14: (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue),
    15: (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    30_848: (PendingOffsetKey, PendingOffsetValue),
    30_850: (connect.ConnectGroupMetadataKey, connect.ConnectGroupMetadataValue),
    30_851: (connect.ConnectGroupCatalogKey, connect.ConnectGroupCatalogValue),
    30_852: (connect.ConnectGroupMemberKey, connect.ConnectGroupMemberValue),
    30_853: (connect.ConnectGroupTargetMetadataKey, connect.ConnectGroupTargetMetadataValue),
    30_854: (connect.ConnectGroupTargetMemberKey, connect.ConnectGroupTargetMemberValue),
    30_855: (connect.ConnectGroupCurrentMemberKey, connect.ConnectGroupCurrentMemberValue),
}

_INT16: Final = struct.Struct(">h")


def group_of(key: RecordKey) -> str:
    """The id of the group that a record belongs to."""
    match key:
        case OffsetCommitKey() | GroupMetadataKey() | PendingOffsetKey():
            return key.group
        case _:
            return key.group_id


def encode_record_key(key: RecordKey) -> bytes:
    """The record type and the fields of *key*. Raises as `encode_record_value`."""
    pieces = [_INT16.pack(key.WIRE.api_key)]
    encode_body(key, 0, pieces)
    return b"".join(pieces)


def encode_record_value(value: RecordValue, *, version: int | None = None) -> bytes:
    """The version and the fields of *value*; by default in the version that Kafka's own coordinator writes.

    Raises:
        MessageValueError: a value does not fit its field.
        UnsupportedVersionError: *version* is not one of this record's.
    """
    if version is None:
        version = _version_to_write(value)
    pieces = [_INT16.pack(version)]
    encode_body(value, version, pieces)
    return b"".join(pieces)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | UnknownRecord:
    """Read one record of ``__consumer_offsets``; a *value* of None is a tombstone.

    Raises:
        ProtocolError: the bytes are not what their type and version say.
        UnsupportedVersionError: a type that we know, with a value version that we do not.
    """
    record_type = _leading_int16(key, "key")
    if record_type not in _PARTS:
        return UnknownRecord(record_type, key, value)
    key_class, value_class = _PARTS[record_type]
    read_key = decode_body(key_class, 0, key, 2)
    if value is None:
        return GroupRecord(read_key, None)
    return GroupRecord(read_key, decode_body(value_class, _leading_int16(value, "value"), value, 2))


def decode_record_key(key: bytes) -> RecordKey | int:
    """Read the key of a record of ``__consumer_offsets``, or only its type if we do not know that.

    Raises:
        ProtocolError: the bytes are not what their type says.
    """
    record_type = _leading_int16(key, "key")
    if record_type not in _PARTS:
        return record_type
    read: RecordKey = decode_body(_PARTS[record_type][0], 0, key, 2)
    return read


def _version_to_write(value: RecordValue) -> int:
    match value:
        case OffsetCommitValue(expire_timestamp=expiry) if expiry != -1:
            return 1
        case OffsetCommitValue(topic_id=topic_id):
            return 3 if topic_id == ZERO_UUID else 4
        case GroupMetadataValue():
            return 3  # the highest version without tagged fields, which Kafka writes too
        case _:
            return 0


def _leading_int16(data: bytes, what: str) -> int:
    try:
        value: int = _INT16.unpack_from(data)[0]
    except struct.error as failure:
        raise ProtocolError(
            f"the {what} of a group record has {len(data)} bytes; its type or version needs two"
        ) from failure
    return value
