"""Keys of the records in ``__consumer_offsets``; `group_records` owns their bytes and the values.

The number of a key's record type is its ``WIRE.api_key``. Keys have no tagged fields and one layout each. The keys of
connect groups are in `connect_group_records`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.schema import Int32, Int64, MessageSpec, RecordPart, WireStruct, record, wire


class GroupKey(RecordPart, frozen=True):
    """Base of the keys that a group has once."""

    group_id: Annotated[str, wire("0+")] = ""


class MemberKey(GroupKey, frozen=True):
    """Base of the keys that a group has once for each member."""

    member_id: Annotated[str, wire("0+")] = ""


class ClassicProtocol(WireStruct, frozen=True):
    """An assignor that a member on the classic protocol offered: in values of more than one kind of group."""

    name: Annotated[str, wire("0+")] = ""
    metadata: Annotated[bytes, wire("0+")] = b""


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


class ConsumerGroupMetadataKey(GroupKey, frozen=True):
    """Type 3: a consumer group."""

    WIRE: ClassVar[MessageSpec] = record(3, "0", flexible="none")


class ConsumerGroupPartitionMetadataKey(GroupKey, frozen=True):
    """Type 4: topic metadata as Kafka 4.0 kept it; newer coordinators only write tombstones."""

    WIRE: ClassVar[MessageSpec] = record(4, "0", flexible="none")


class ConsumerGroupMemberMetadataKey(MemberKey, frozen=True):
    """Type 5: a member and its subscription."""

    WIRE: ClassVar[MessageSpec] = record(5, "0", flexible="none")


class ConsumerGroupTargetAssignmentMetadataKey(GroupKey, frozen=True):
    """Type 6: of which epoch a group's target is."""

    WIRE: ClassVar[MessageSpec] = record(6, "0", flexible="none")


class ConsumerGroupTargetAssignmentMemberKey(MemberKey, frozen=True):
    """Type 7: the target of one member."""

    WIRE: ClassVar[MessageSpec] = record(7, "0", flexible="none")


class ConsumerGroupCurrentMemberAssignmentKey(MemberKey, frozen=True):
    """Type 8: what one member owns now."""

    WIRE: ClassVar[MessageSpec] = record(8, "0", flexible="none")


class ConsumerGroupRegularExpressionKey(GroupKey, frozen=True):
    """Type 16: a pattern that members of the group subscribe to."""

    WIRE: ClassVar[MessageSpec] = record(16, "0", flexible="none")

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
