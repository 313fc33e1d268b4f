"""What several APIs ask of a topic or partition before they serve it. No API of its own."""

from __future__ import annotations

import uuid
from typing import Final

from kip848_client.broker.state import BrokerState
from kip848_client.broker.topics import Topic, TopicRegistry
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.partition_log import PartitionLog

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


def find_log(topic: Topic | ErrorCode, partition: int, *, current_leader_epoch: int = -1) -> PartitionLog | ErrorCode:
    """The log of a partition, or why it is not served.

    Args:
        current_leader_epoch: what the client believes; -1 if it does not say.
    """
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    log = topic.partitions[partition]
    if current_leader_epoch >= 0:
        if current_leader_epoch < log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > log.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return log


def check_replicas(broker: BrokerState, broker_ids: tuple[int, ...]) -> None:
    """Refuse a manual assignment to anything but this one broker.

    Raises:
        BrokerError: INVALID_REPLICA_ASSIGNMENT.
    """
    if broker_ids != (broker.node_id,):
        raise BrokerError(
            f"The manual partition assignment includes brokers {list(broker_ids)}, but only broker "
            f"{broker.node_id} is registered.",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
