"""The records of a consumer group, made from values. Topics and partitions are written in ascending order.

The caller decides the order of records within a batch. `ConsumerGroup.replay` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.testing.coordinator.consumer.consumer_member import (
    ConsumerMetadata,
    CurrentAssignment,
    PartitionEpochs,
)
from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    AssignmentMetadata,
    read_assignors,
    read_classic,
)
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord


def member_metadata_record(group_id: str, *, member_id: str, metadata: ConsumerMetadata) -> GroupRecord:
    """Type 5: the member and its subscription."""
    return GroupRecord(
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupMemberMetadataValue(
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=metadata.subscribed_topic_names,
            subscribed_topic_regex=metadata.subscribed_topic_regex,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            server_assignor=metadata.server_assignor,
            client_assignors=tuple(
                [msgspec.convert(offer, wire.Assignor, from_attributes=True) for offer in metadata.client_assignors]
            ),
            classic_member_metadata=None
            if metadata.classic is None
            else wire.ClassicMemberMetadata(
                session_timeout_ms=metadata.classic.session_timeout_ms,
                supported_protocols=tuple(
                    [wire.ClassicProtocol(name=name, metadata=data) for name, data in metadata.classic.protocols]
                ),
            ),
        ),
    )


def member_metadata_tombstone(group_id: str, *, member_id: str) -> GroupRecord:
    """Type 5: the member is gone."""
    return GroupRecord(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def group_epoch_record(group_id: str, *, epoch: int, metadata_hash: int) -> GroupRecord:
    """Type 3: the group epoch."""
    return GroupRecord(
        wire.ConsumerGroupMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_epoch_tombstone(group_id: str) -> GroupRecord:
    """Type 3: the group is gone."""
    return GroupRecord(wire.ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """Type 4: never written with a value here; a log of Kafka 4.0 may hold one."""
    return GroupRecord(wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_epoch_record(group_id: str, *, epoch: int, timestamp_ms: int, client_assignor: str = "") -> GroupRecord:
    """Type 6: the target's epoch, after all its members' records; and who computed it if it was a member."""
    return GroupRecord(
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms, assignor_name=client_assignor
        ),
    )


def target_epoch_tombstone(group_id: str) -> GroupRecord:
    """Type 6: the group has no target."""
    return GroupRecord(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_record(
    group_id: str, *, member_id: str, target: TopicPartitions, metadata: AssignmentMetadata = NO_METADATA
) -> GroupRecord:
    """Type 7: the partitions that the member should own, and the metadata for its client-side assignor."""
    return GroupRecord(
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                wire.TopicPartition(topic_id=topic_id, partitions=target[topic_id]) for topic_id in sorted(target)
            ),
            error=metadata.error,
            metadata_version=metadata.version,
            metadata_bytes=metadata.data,
            assignor_name=metadata.assignor,
        ),
    )


def target_tombstone(group_id: str, *, member_id: str) -> GroupRecord:
    """Type 7: the member has no target."""
    return GroupRecord(wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def current_record(group_id: str, *, member_id: str, current: CurrentAssignment) -> GroupRecord:
    """Type 8: the member's epoch and assignment."""
    return GroupRecord(
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=int(current.state),
            assigned_partitions=_with_epochs(current.assigned),
            partitions_pending_revocation=_with_epochs(current.pending_revocation),
            error=current.metadata.error,
            metadata_version=current.metadata.version,
            metadata_bytes=current.metadata.data,
            assignor_name=current.metadata.assignor,
        ),
    )


def current_tombstone(group_id: str, *, member_id: str) -> GroupRecord:
    """Type 8: the member owns nothing any more."""
    return GroupRecord(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regex_record(group_id: str, *, regex: str, topics: Iterable[str], version: int, timestamp_ms: int) -> GroupRecord:
    """Type 16: the topics that a pattern matches."""
    return GroupRecord(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        wire.ConsumerGroupRegularExpressionValue(topics=tuple(sorted(topics)), version=version, timestamp=timestamp_ms),
    )


def regex_tombstone(group_id: str, *, regex: str) -> GroupRecord:
    """Type 16: no member subscribes to the pattern."""
    return GroupRecord(wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def read_member_metadata(value: wire.ConsumerGroupMemberMetadataValue) -> ConsumerMetadata:
    """The inverse of `member_metadata_record`."""
    return ConsumerMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        subscribed_topic_regex=value.subscribed_topic_regex or None,
        server_assignor=value.server_assignor,
        client_assignors=read_assignors(value.client_assignors),
        classic=None if value.classic_member_metadata is None else read_classic(value.classic_member_metadata),
    )


def read_assignment_metadata(
    value: wire.ConsumerGroupTargetAssignmentMemberValue | wire.ConsumerGroupCurrentMemberAssignmentValue,
) -> AssignmentMetadata:
    """Metadata that goes with a target, or with a member's assignment."""
    if not value.error and not value.metadata_version and not value.metadata_bytes:
        return NO_METADATA
    return AssignmentMetadata(
        error=value.error, version=value.metadata_version, data=value.metadata_bytes, assignor=value.assignor_name
    )


def read_target(value: wire.ConsumerGroupTargetAssignmentMemberValue) -> TopicPartitions:
    """The inverse of `target_record`."""
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in value.topic_partitions if topic.partitions}


def read_partition_epochs(topics: tuple[wire.TopicPartitions, ...], *, member_epoch: int) -> PartitionEpochs:
    """Partitions with their assignment epochs; without the epochs (before KIP-1251) the member's own counts."""
    return {
        topic.topic_id: dict.fromkeys(topic.partitions, member_epoch)
        if topic.assignment_epochs is None
        else dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        for topic in topics
        if topic.partitions
    }


def _with_epochs(partitions: PartitionEpochs) -> tuple[wire.TopicPartitions, ...]:
    return tuple(_topic_with_epochs(topic_id, partitions[topic_id]) for topic_id in sorted(partitions))


def _topic_with_epochs(topic_id: UUID, epochs: Mapping[int, int]) -> wire.TopicPartitions:
    ascending = tuple(sorted(epochs))
    return wire.TopicPartitions(
        topic_id=topic_id,
        partitions=ascending,
        assignment_epochs=tuple([epochs[partition] for partition in ascending]),
    )
