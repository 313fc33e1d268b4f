"""Keys and values of the records in ``__consumer_offsets`` that offsets, classic and consumer groups need.

Owns their layouts and their bytes. A key starts with the record's type (int16), a value with its version (int16).
Types: 0 and 1 OffsetCommit, 2 GroupMetadata, 3 to 8 and 16 of KIP-848's consumer groups; share and streams groups
(9 to 15, 17 and up) are not ours and come out as `UnknownRecord`.

Tags from 10000 on are ours (client-side assignors, which Apache Kafka never shipped); others skip them.

Source: apache/kafka ``group-coordinator/src/main/resources/common/message``; KIP-848; KIP-1101 (MetadataHash);
KIP-1251 (AssignmentEpochs); KIP-1263 (AssignmentTimestamp).
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar, Final

from kip848_client.errors import ProtocolError
from kip848_client.values import value
from kip848_client.wire.compiler import decode_body, encode_body
from kip848_client.wire.messages.group_record_keys import (
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
)
from kip848_client.wire.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    MessageSpec,
    RecordPart,
    array,
    record,
    wire,
)

__all__ = [
    "GroupRecord",
    "UnknownRecord",
    "encode_record_key",
    "encode_record_value",
    "decode_record",
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
]


@value
class OffsetCommitValue(RecordPart):
    """A committed offset. Version 1 alone has a time of expiry, version 4 alone the topic's id."""

    WIRE: ClassVar[MessageSpec] = record(1, "0-4", flexible="4+")

    offset: int = wire(INT64, "0+")
    leader_epoch: int = wire(INT32, "3+", default=-1, ignorable=True)
    metadata: str = wire(STRING, "0+")
    commit_timestamp: int = wire(INT64, "0+")
    expire_timestamp: int = wire(INT64, "1", default=-1, ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "4+", tag=0, ignorable=True)


@value
class MemberMetadata:
    """One member of a classic group."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    rebalance_timeout: int = wire(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = wire(INT32, "0+")
    subscription: bytes = wire(BYTES, "0+")
    assignment: bytes = wire(BYTES, "0+")


@value
class GroupMetadataValue(RecordPart):
    """A classic group after a completed rebalance, or empty."""

    WIRE: ClassVar[MessageSpec] = record(2, "0-4", flexible="4+")

    protocol_type: str = wire(STRING, "0+")
    generation: int = wire(INT32, "0+")
    protocol: str | None = wire(STRING, "0+", nullable="0+", default=None)
    leader: str | None = wire(STRING, "0+", nullable="0+", default=None)
    current_state_timestamp: int = wire(INT64, "2+", default=-1, ignorable=True)
    members: tuple[MemberMetadata, ...] = wire(array(MemberMetadata), "0+")


@value
class ConsumerGroupMetadataValue(RecordPart):
    """The group epoch, and the hash of the topics' metadata that it was bumped for."""

    WIRE: ClassVar[MessageSpec] = record(3, "0", flexible="0+")

    epoch: int = wire(INT32, "0+")
    metadata_hash: int = wire(INT64, "0+", tag=0)


@value
class PartitionMetadata:
    """The racks of one partition; never used."""

    partition: int = wire(INT32, "0+")
    racks: tuple[str, ...] = wire(array(STRING), "0+")


@value
class TopicMetadata:
    """One subscribed topic."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    topic_name: str = wire(STRING, "0+")
    num_partitions: int = wire(INT32, "0+")
    partition_metadata: tuple[PartitionMetadata, ...] = wire(array(PartitionMetadata), "0+")


@value
class ConsumerGroupPartitionMetadataValue(RecordPart):
    """All subscribed topics of a group."""

    WIRE: ClassVar[MessageSpec] = record(4, "0", flexible="0+")

    topics: tuple[TopicMetadata, ...] = wire(array(TopicMetadata), "0+")


@value
class ClassicProtocol:
    """An assignor that a member on the classic protocol offered."""

    name: str = wire(STRING, "0+")
    metadata: bytes = wire(BYTES, "0+")


@value
class ClassicMemberMetadata:
    """What only a member on the classic protocol has."""

    session_timeout_ms: int = wire(INT32, "0+")
    supported_protocols: tuple[ClassicProtocol, ...] = wire(array(ClassicProtocol), "0+")


@value
class Assignor:
    """One client-side assignor of a member, as in its heartbeat."""

    name: str = wire(STRING, "0+")
    minimum_version: int = wire(INT16, "0+")
    maximum_version: int = wire(INT16, "0+")
    reason: int = wire(INT8, "0+")
    metadata_version: int = wire(INT16, "0+")
    metadata_bytes: bytes = wire(BYTES, "0+")


@value
class ConsumerGroupMemberMetadataValue(RecordPart):
    """What the member told about itself."""

    WIRE: ClassVar[MessageSpec] = record(5, "0", flexible="0+")

    instance_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING), "0+")
    subscribed_topic_regex: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, "0+", default=-1)
    server_assignor: str | None = wire(STRING, "0+", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=0
    )
    client_assignors: tuple[Assignor, ...] = wire(array(Assignor), "0+", tag=10000)


@value
class ConsumerGroupTargetAssignmentMetadataValue(RecordPart):
    """The target's epoch, when it was computed, and by which client-side assignor (empty: by the server)."""

    WIRE: ClassVar[MessageSpec] = record(6, "0", flexible="0+")

    assignment_epoch: int = wire(INT32, "0+")
    assignment_timestamp: int = wire(INT64, "0+", tag=0)
    assignor_name: str = wire(STRING, "0+", tag=10000)


@value
class TopicPartition:
    """Partitions of one topic in a target."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class ConsumerGroupTargetAssignmentMemberValue(RecordPart):
    """What the member shall own in the end, and what its client-side assignor shall hear."""

    WIRE: ClassVar[MessageSpec] = record(7, "0", flexible="0+")

    topic_partitions: tuple[TopicPartition, ...] = wire(array(TopicPartition), "0+")
    error: int = wire(INT8, "0+", tag=10000)
    metadata_version: int = wire(INT16, "0+", tag=10001)
    metadata_bytes: bytes = wire(BYTES, "0+", tag=10002)
    assignor_name: str = wire(STRING, "0+", tag=10003)


@value
class TopicPartitions:
    """Partitions of one topic, and the epoch at which each was given to the member (None: not kept)."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")
    assignment_epochs: tuple[int, ...] | None = wire(array(INT32), "0+", nullable="0+", default=None, tag=0)


@value
class ConsumerGroupCurrentMemberAssignmentValue(RecordPart):
    """How far the member has come. `state`: 0 stable, 1 unrevoked partitions, 2 unreleased partitions.

    The tags are what its client-side assignor hears at `member_epoch`, as KIP-848 keeps it here.
    """

    WIRE: ClassVar[MessageSpec] = record(8, "0", flexible="0+")

    member_epoch: int = wire(INT32, "0+")
    previous_member_epoch: int = wire(INT32, "0+")
    state: int = wire(INT8, "0+")
    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+")
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+")
    error: int = wire(INT8, "0+", tag=10000)
    metadata_version: int = wire(INT16, "0+", tag=10001)
    metadata_bytes: bytes = wire(BYTES, "0+", tag=10002)
    assignor_name: str = wire(STRING, "0+", tag=10003)


@value
class ConsumerGroupRegularExpressionValue(RecordPart):
    """The topics that the pattern matched, at which version of the metadata, and when."""

    WIRE: ClassVar[MessageSpec] = record(16, "0", flexible="0+")

    topics: tuple[str, ...] = wire(array(STRING), "0+")
    version: int = wire(INT64, "0+")
    timestamp: int = wire(INT64, "0+")


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
)


@value
class GroupRecord:
    """A record of a type that we know. A value of None is a tombstone."""

    key: GroupRecordKey
    value: GroupRecordValue | None


@value
class UnknownRecord:
    """A record of a type that we do not know: to be skipped with a warning, never to be an error."""

    record_type: int
    key: bytes
    value: bytes | None


_PARTS: Final[dict[int, tuple[type[GroupRecordKey], type[GroupRecordValue]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}

_INT16: Final = struct.Struct(">h")


def encode_record_key(key: GroupRecordKey) -> bytes:
    """The record type and the fields of *key*. Raises as `encode_record_value`."""
    pieces = [_INT16.pack(key.WIRE.api_key)]
    encode_body(key, 0, pieces)
    return b"".join(pieces)


def encode_record_value(value: GroupRecordValue, *, version: int | None = None) -> bytes:
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


def _version_to_write(value: GroupRecordValue) -> int:
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
