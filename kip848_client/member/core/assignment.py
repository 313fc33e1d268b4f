"""One assignment of a member, and its conversion from and to wire messages.

Source: Kafka's ``AbstractMembershipManager.LocalAssignment`` (KAFKA-16185).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.wire.messages.consumer_group_describe import Assignment as DescribedAssignment
from kip848_client.wire.messages.consumer_group_heartbeat import Assignment, TopicPartitions

IdPartition: TypeAlias = tuple[UUID, int]
"""(topic id, partition), as the coordinator names a partition."""


class LocalAssignment(msgspec.Struct, frozen=True):
    """Partitions, and a number that tells two equal assignments apart.

    The coordinator may give A, then B, then A again, and must see A acknowledged twice. The number never goes on the
    wire: an assignment that differs from the one before it has a number greater by one.
    """

    partitions: frozenset[IdPartition]
    local_epoch: int


NO_ASSIGNMENT: Final = LocalAssignment(frozenset(), -1)
"""No assignment was received yet. This differs from an assignment without partitions."""


def partitions_from_wire(assignment: Assignment) -> frozenset[IdPartition]:
    """The partitions of an answer."""
    return frozenset((topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions)


def partitions_described(assignment: DescribedAssignment) -> frozenset[IdPartition]:
    """The partitions of one member in a ConsumerGroupDescribe."""
    return frozenset((topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions)


def pending_from_wire(assignment: Assignment) -> frozenset[IdPartition]:
    """The partitions that the member waits for because others still own them; only our coordinator sends them."""
    return frozenset(
        (topic.topic_id, index) for topic in assignment.pending_topic_partitions for index in topic.partitions
    )


def partitions_to_wire(partitions: Iterable[IdPartition]) -> tuple[TopicPartitions, ...]:
    """The partitions for a request, sorted, so that equal sets give equal bytes."""
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in partitions:
        topics[topic_id].append(index)
    return tuple(TopicPartitions(topic_id, tuple(sorted(topics[topic_id]))) for topic_id in sorted(topics))
