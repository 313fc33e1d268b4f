"""DescribeTopicPartitions: the request and the response."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

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


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """`TopicRequest` of DescribeTopicPartitions."""

    name: str = wire(STRING, "0+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """`Cursor` of DescribeTopicPartitions."""

    topic_name: str = wire(STRING, "0+")
    partition_index: int = wire(INT32, "0+")


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """DescribeTopicPartitions request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+")

    topics: tuple[TopicRequest, ...] = wire(array(TopicRequest), "0+")
    response_partition_limit: int = wire(INT32, "0+", default=2000)
    cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsResponsePartition:
    """`DescribeTopicPartitionsResponsePartition` of DescribeTopicPartitions."""

    error_code: int = wire(INT16, "0+")
    partition_index: int = wire(INT32, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+", default=-1)
    replica_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    isr_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    eligible_leader_replicas: tuple[int, ...] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    last_known_elr: tuple[int, ...] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    offline_replicas: tuple[int, ...] = wire(array(INT32), "0+")


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsResponseTopic:
    """`DescribeTopicPartitionsResponseTopic` of DescribeTopicPartitions."""

    error_code: int = wire(INT16, "0+")
    name: str | None = wire(STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = wire(UUID, "0+")
    is_internal: bool = wire(BOOL, "0+")
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = wire(INT32, "0+", default=-2147483648)


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitionsResponse(Response):
    """DescribeTopicPartitions response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)
