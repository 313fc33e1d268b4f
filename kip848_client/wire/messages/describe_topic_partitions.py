"""DescribeTopicPartitions (75): topics page by page, with eligible leaders."""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "TopicRequest",
    "Cursor",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
]


@value
class TopicRequest:
    """A topic by name."""

    name: str = wire(STRING, "0+")


@value
class Cursor:
    """The topic and partition to go on with."""

    topic_name: str = wire(STRING, "0+")
    partition_index: int = wire(INT32, "0+")


@value
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """The topics, and where to go on."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+")

    topics: tuple[TopicRequest, ...] = wire(array(TopicRequest), "0+")
    response_partition_limit: int = wire(INT32, "0+", default=2000)
    cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)


@value
class DescribeTopicPartitionsResponsePartition:
    """Who leads, follows and may lead a partition."""

    error_code: int = wire(INT16, "0+")
    partition_index: int = wire(INT32, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+", default=-1)
    replica_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    isr_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    eligible_leader_replicas: tuple[int, ...] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    last_known_elr: tuple[int, ...] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    offline_replicas: tuple[int, ...] = wire(array(INT32), "0+")


@value
class DescribeTopicPartitionsResponseTopic:
    """One topic."""

    error_code: int = wire(INT16, "0+")
    name: str | None = wire(STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = wire(UUID, "0+")
    is_internal: bool = wire(BOOL, "0+")
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = wire(INT32, "0+", default=-2147483648)


@value
class DescribeTopicPartitionsResponse(Response):
    """The page, and where the next one starts."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)
