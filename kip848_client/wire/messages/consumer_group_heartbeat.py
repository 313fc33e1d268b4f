"""ConsumerGroupHeartbeat: the request and the response."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    BYTES,
    INT8,
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
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "TopicPartitions",
    "Assignor",
    "Assignment",
]


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """`TopicPartitions` of ConsumerGroupHeartbeat."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@dataclass(frozen=True, slots=True)
class Assignor:
    """`Assignor` of ConsumerGroupHeartbeat."""

    name: str = wire(STRING, "0+")
    minimum_version: int = wire(INT16, "0+")
    maximum_version: int = wire(INT16, "0+")
    reason: int = wire(INT8, "0+")
    metadata_version: int = wire(INT16, "0+")
    metadata_bytes: bytes = wire(BYTES, "0+")


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """ConsumerGroupHeartbeat request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")
    instance_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, "0+", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(array(STRING), "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(STRING, "0+", nullable="0+", default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        array(TopicPartitions), "0+", nullable="0+", default=None
    )
    client_assignors: tuple[Assignor, ...] | None = wire(array(Assignor), "0+", nullable="0+", default=None, tag=10000)


@dataclass(frozen=True, slots=True)
class Assignment:
    """`Assignment` of ConsumerGroupHeartbeat."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+")
    error: int = wire(INT8, "0+", tag=10000)
    pending_topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+", tag=10001)
    metadata_version: int = wire(INT16, "0+", tag=10002)
    metadata_bytes: bytes = wire(BYTES, "0+", tag=10003)


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatResponse(Response):
    """ConsumerGroupHeartbeat response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    heartbeat_interval_ms: int = wire(INT32, "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
    should_compute_assignment: bool = wire(BOOL, "0+", tag=10000)
