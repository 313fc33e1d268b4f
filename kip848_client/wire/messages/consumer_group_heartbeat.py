"""ConsumerGroupHeartbeat (68): a KIP-848 member joins, reports, acknowledges and leaves with this one.

Null and -1 mean "unchanged since the last heartbeat"; an empty list means "none". 1: subscription by pattern, and the
client makes its own member id. The tags from 10000 on are private: they carry KIP-848's client-side assignors, which
Apache Kafka never shipped; others skip them.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
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


@value
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class Assignor:
    """A client-side assignor that the member can run, and its metadata. Versions are those of the metadata."""

    name: str = wire(STRING, "0+")
    minimum_version: int = wire(INT16, "0+")
    maximum_version: int = wire(INT16, "0+")
    reason: int = wire(INT8, "0+")
    metadata_version: int = wire(INT16, "0+")
    metadata_bytes: bytes = wire(BYTES, "0+")


@value
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """`member_epoch` 0 joins, -1 leaves, -2 leaves a static member's place open; else the epoch of the last answer."""

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


@value
class Assignment:
    """All that the member shall own now; what it must wait for is in the private tag `pending_topic_partitions`."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+")
    error: int = wire(INT8, "0+", tag=10000)
    pending_topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+", tag=10001)
    metadata_version: int = wire(INT16, "0+", tag=10002)
    metadata_bytes: bytes = wire(BYTES, "0+", tag=10003)
    assignor_name: str = wire(STRING, "0+", tag=10004)


@value
class ConsumerGroupHeartbeatResponse(Response):
    """The member's epoch and, if it changed, what the member shall own now. A null assignment means unchanged."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    heartbeat_interval_ms: int = wire(INT32, "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
    should_compute_assignment: bool = wire(BOOL, "0+", tag=10000)
