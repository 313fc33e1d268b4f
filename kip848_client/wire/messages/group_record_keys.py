"""Keys of the records in ``__consumer_offsets``; `group_records` owns their bytes and the values.

The number of a key's record type is its ``WIRE.api_key``. Keys have no tagged fields and one layout each.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.schema import INT32, STRING, MessageSpec, RecordPart, record, wire

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
]


@value
class OffsetCommitKey(RecordPart):
    """Types 0 (written by very old coordinators) and 1: which offset this is."""

    WIRE: ClassVar[MessageSpec] = record(1, "0", flexible="none")

    group: str = wire(STRING, "0+")
    topic: str = wire(STRING, "0+")
    partition: int = wire(INT32, "0+")


@value
class GroupMetadataKey(RecordPart):
    """Type 2: a classic group."""

    WIRE: ClassVar[MessageSpec] = record(2, "0", flexible="none")

    group: str = wire(STRING, "0+")


@value
class ConsumerGroupMetadataKey(RecordPart):
    """Type 3: a consumer group."""

    WIRE: ClassVar[MessageSpec] = record(3, "0", flexible="none")

    group_id: str = wire(STRING, "0+")


@value
class ConsumerGroupPartitionMetadataKey(RecordPart):
    """Type 4: topic metadata as Kafka 4.0 kept it; newer coordinators only write tombstones."""

    WIRE: ClassVar[MessageSpec] = record(4, "0", flexible="none")

    group_id: str = wire(STRING, "0+")


@value
class ConsumerGroupMemberMetadataKey(RecordPart):
    """Type 5: a member and its subscription."""

    WIRE: ClassVar[MessageSpec] = record(5, "0", flexible="none")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")


@value
class ConsumerGroupTargetAssignmentMetadataKey(RecordPart):
    """Type 6: of which epoch a group's target is."""

    WIRE: ClassVar[MessageSpec] = record(6, "0", flexible="none")

    group_id: str = wire(STRING, "0+")


@value
class ConsumerGroupTargetAssignmentMemberKey(RecordPart):
    """Type 7: the target of one member."""

    WIRE: ClassVar[MessageSpec] = record(7, "0", flexible="none")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")


@value
class ConsumerGroupCurrentMemberAssignmentKey(RecordPart):
    """Type 8: what one member owns now."""

    WIRE: ClassVar[MessageSpec] = record(8, "0", flexible="none")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")


@value
class ConsumerGroupRegularExpressionKey(RecordPart):
    """Type 16: a pattern that members of the group subscribe to."""

    WIRE: ClassVar[MessageSpec] = record(16, "0", flexible="none")

    group_id: str = wire(STRING, "0+")
    regular_expression: str = wire(STRING, "0+")


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
)
