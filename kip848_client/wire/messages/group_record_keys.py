"""Keys of the records in ``__consumer_offsets``; `group_records` owns their bytes and the values.

The number of a key's record type is its ``WIRE.api_key``. Keys have no tagged fields and one layout each.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.schema import Int32, Int64, MessageSpec, RecordPart, record, wire

__all__ = [
    "GroupRecordKey",
    "OffsetCommitKey",
    "GroupMetadataKey",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupRegularExpressionKey",
    "PendingOffsetKey",
]


class OffsetCommitKey(RecordPart, frozen=True):
    """Types 0 (written by very old coordinators) and 1: which offset this is."""

    WIRE: ClassVar[MessageSpec] = record(1, "0", flexible="none")

    group: Annotated[str, wire("0+")] = ""
    topic: Annotated[str, wire("0+")] = ""
    partition: Annotated[Int32, wire("0+")] = 0


class GroupMetadataKey(RecordPart, frozen=True):
    """Type 2: a classic group."""

    WIRE: ClassVar[MessageSpec] = record(2, "0", flexible="none")

    group: Annotated[str, wire("0+")] = ""


class ConsumerGroupMetadataKey(RecordPart, frozen=True):
    """Type 3: a consumer group."""

    WIRE: ClassVar[MessageSpec] = record(3, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupPartitionMetadataKey(RecordPart, frozen=True):
    """Type 4: topic metadata as Kafka 4.0 kept it; newer coordinators only write tombstones."""

    WIRE: ClassVar[MessageSpec] = record(4, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupMemberMetadataKey(RecordPart, frozen=True):
    """Type 5: a member and its subscription."""

    WIRE: ClassVar[MessageSpec] = record(5, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupTargetAssignmentMetadataKey(RecordPart, frozen=True):
    """Type 6: of which epoch a group's target is."""

    WIRE: ClassVar[MessageSpec] = record(6, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupTargetAssignmentMemberKey(RecordPart, frozen=True):
    """Type 7: the target of one member."""

    WIRE: ClassVar[MessageSpec] = record(7, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupCurrentMemberAssignmentKey(RecordPart, frozen=True):
    """Type 8: what one member owns now."""

    WIRE: ClassVar[MessageSpec] = record(8, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""


class ConsumerGroupRegularExpressionKey(RecordPart, frozen=True):
    """Type 16: a pattern that members of the group subscribe to."""

    WIRE: ClassVar[MessageSpec] = record(16, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    regular_expression: Annotated[str, wire("0+")] = ""


class PendingOffsetKey(RecordPart, frozen=True):
    """Type 30848, ours: an offset that an open transaction commits. Kafka keeps it in a transactional batch."""

    WIRE: ClassVar[MessageSpec] = record(30_848, "0", flexible="none")

    producer_id: Annotated[Int64, wire("0+")] = 0
    group: Annotated[str, wire("0+")] = ""
    topic: Annotated[str, wire("0+")] = ""
    partition: Annotated[Int32, wire("0+")] = 0


GroupRecordKey = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | PendingOffsetKey
)
