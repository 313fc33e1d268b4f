"""Keys and values of the records of share groups, types 10 to 15; `group_records` owns their bytes.

Source: apache/kafka ``group-coordinator/src/main/resources/common/message``.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.messages.group_record_keys import GroupKey, MemberKey
from kip848_client.wire.messages.share_group_heartbeat import TopicPartitions
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int32,
    Int64,
    MessageSpec,
    RecordPart,
    WireStruct,
    record,
    wire,
)


class ShareGroupMemberMetadataKey(MemberKey, frozen=True):
    """Type 10: a member and its subscription."""

    WIRE: ClassVar[MessageSpec] = record(10, "0", flexible="none")


class ShareGroupMemberMetadataValue(RecordPart, frozen=True):
    """The member's description of itself."""

    WIRE: ClassVar[MessageSpec] = record(10, "0", flexible="0+")

    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    subscribed_topic_names: Annotated[tuple[str, ...], wire("0+")] = ()


class ShareGroupMetadataKey(GroupKey, frozen=True):
    """Type 11: a share group."""

    WIRE: ClassVar[MessageSpec] = record(11, "0", flexible="none")


class ShareGroupMetadataValue(RecordPart, frozen=True):
    """The group epoch, and the hash of the topics' metadata that it was bumped for."""

    WIRE: ClassVar[MessageSpec] = record(11, "0", flexible="0+")

    epoch: Annotated[Int32, wire("0+")] = 0
    metadata_hash: Annotated[Int64, wire("0+")] = 0


class ShareGroupTargetAssignmentMetadataKey(GroupKey, frozen=True):
    """Type 12: of which epoch a group's target is."""

    WIRE: ClassVar[MessageSpec] = record(12, "0", flexible="none")


class ShareGroupTargetAssignmentMetadataValue(RecordPart, frozen=True):
    """The target's epoch, and when it was computed."""

    WIRE: ClassVar[MessageSpec] = record(12, "0", flexible="0+")

    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    assignment_timestamp: Annotated[Int64, wire("0+", tag=0, ignorable=True)] = 0


class ShareGroupTargetAssignmentMemberKey(MemberKey, frozen=True):
    """Type 13: the target of one member."""

    WIRE: ClassVar[MessageSpec] = record(13, "0", flexible="none")


class ShareGroupTargetAssignmentMemberValue(RecordPart, frozen=True):
    """The partitions that the member should fetch from."""

    WIRE: ClassVar[MessageSpec] = record(13, "0", flexible="0+")

    topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()


class ShareGroupCurrentMemberAssignmentKey(MemberKey, frozen=True):
    """Type 14: what one member fetches from now."""

    WIRE: ClassVar[MessageSpec] = record(14, "0", flexible="none")


class ShareGroupCurrentMemberAssignmentValue(RecordPart, frozen=True):
    """How far the member has come. `state` is always 0 (stable)."""

    WIRE: ClassVar[MessageSpec] = record(14, "0", flexible="0+")

    member_epoch: Annotated[Int32, wire("0+")] = 0
    previous_member_epoch: Annotated[Int32, wire("0+")] = 0
    state: Annotated[Int8, wire("0+")] = 0
    assigned_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()


class ShareGroupStatePartitionMetadataKey(GroupKey, frozen=True):
    """Type 15: the partitions that a group has begun."""

    WIRE: ClassVar[MessageSpec] = record(15, "0", flexible="none")


class TopicPartitionsInfo(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class TopicInfo(WireStruct, frozen=True):
    """One topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""


class ShareGroupStatePartitionMetadataValue(RecordPart, frozen=True):
    """Partitions whose share-group state is being made, is there, and topics whose state is being deleted."""

    WIRE: ClassVar[MessageSpec] = record(15, "0", flexible="0+")

    initializing_topics: Annotated[tuple[TopicPartitionsInfo, ...], wire("0+")] = ()
    initialized_topics: Annotated[tuple[TopicPartitionsInfo, ...], wire("0+")] = ()
    deleting_topics: Annotated[tuple[TopicInfo, ...], wire("0+")] = ()


ShareGroupRecordKey = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)

ShareGroupRecordValue = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)
