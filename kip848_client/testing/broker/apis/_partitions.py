"""Checks of a topic or partition that several APIs make before they serve it. No API of its own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.metadata.placement import GROUP_OFFSETS, NO_LEADER, TopicKey
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic, TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog

CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""Bits of CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""

TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Bits of READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""

OPERATIONS_NOT_ASKED: Final = -(2**31)


def find_topic(topics: TopicRegistry, *, name: str, topic_id: uuid.UUID, by_id: bool) -> Topic | ErrorCode:
    """The topic, or the error that each of its partitions is answered with."""
    if by_id:
        return topics.get_by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def find_readable_topic(broker: BrokerState, *, name: str, topic_id: uuid.UUID, by_id: bool) -> Topic | ErrorCode:
    """As `find_topic`, for requests that only read: the topic of the groups' records is there for them."""
    offsets = broker.offsets_topic.described
    if (topic_id == offsets.topic_id) if by_id else (name == offsets.name):
        return broker.offsets_topic.readable()
    return find_topic(broker.topics, name=name, topic_id=topic_id, by_id=by_id)


def described_topics(broker: BrokerState) -> list[Topic]:
    """All topics by name, as a client sees them that asks for all: with the internal one, once it is listed."""
    listed = list(broker.topics)
    if broker.offsets_topic.is_listed:
        listed.append(broker.offsets_topic.described)
        listed.sort(key=lambda topic: topic.name)
    return listed


def is_internal(broker: BrokerState, topic: Topic) -> bool:
    """Whether the topic is that of the groups' records."""
    return topic is broker.offsets_topic.described


def find_described_topic(broker: BrokerState, name: str) -> Topic | None:
    """The topic of that name, also the internal one; None if there is none."""
    offsets = broker.offsets_topic.described
    return offsets if name == offsets.name else broker.topics.get(name)


def find_log(
    broker: BrokerState,
    topic: Topic | ErrorCode,
    partition: int,
    *,
    node_id: int,
    current_leader_epoch: int = -1,
    from_follower: bool = False,
) -> PartitionLog | ErrorCode:
    """The log of a partition, or why it is not served by that node. Leader epochs are judged before leadership.

    Args:
        node_id: the node that was asked.
        current_leader_epoch: what the client believes; -1 if it does not say.
        from_follower: any replica will do (KIP-392), and not only the leader.
    """
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = topic.partitions[partition]
    placement = broker.placement
    placed = placement.get(placement_key(topic), partition) if placement.is_spread else None
    if placed is not None and node_id not in placed.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch >= 0:
        if current_leader_epoch < log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > log.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    if placed is not None and node_id != placed.leader and not from_follower:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return log


def placement_key(topic: Topic) -> TopicKey:
    """The placement's name for a topic: that of the groups' records has the name of their coordinators."""
    return GROUP_OFFSETS if topic.name == GROUP_OFFSETS else topic.topic_id


class CurrentLeader(NamedTuple):
    """The present leader of a partition, for a client that asked the wrong node (KIP-951)."""

    node_id: int
    epoch: int


def current_leader(broker: BrokerState, topic: Topic | ErrorCode, partition: int) -> CurrentLeader | None:
    """The leader of a partition and its epoch; None without one, or without the partition."""
    if isinstance(topic, ErrorCode) or topic.deleted or not 0 <= partition < topic.partition_count:
        return None
    leader = broker.placement.get(placement_key(topic), partition).leader
    return None if leader == NO_LEADER else CurrentLeader(leader, topic.partitions[partition].leader_epoch)


def is_replica(broker: BrokerState, topic: Topic, partition: int, *, node_id: int) -> bool:
    """Whether a node has a replica of a partition."""
    return not broker.placement.is_spread or node_id in broker.placement.get(placement_key(topic), partition).replicas


class PartitionState(NamedTuple):
    """A partition as Metadata and similar APIs describe it."""

    error_code: int
    leader_id: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


def partition_states(broker: BrokerState, topic: Topic) -> Sequence[PartitionState]:
    """The state of each partition of a topic, by index."""
    placement = broker.placement
    if not placement.is_spread:
        (node_id,) = only = placement.nodes
        return (PartitionState(ErrorCode.NONE, node_id, only, only, ()),) * topic.partition_count
    return [
        PartitionState(
            ErrorCode.LEADER_NOT_AVAILABLE if placed.leader == NO_LEADER else ErrorCode.NONE,
            placed.leader,
            placed.replicas,
            placement.in_sync(placed),
            placement.offline(placed),
        )
        for placed in placement.of(placement_key(topic))
    ]
