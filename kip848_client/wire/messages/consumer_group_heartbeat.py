"""ConsumerGroupHeartbeat (68): a KIP-848 member joins, reports, acknowledges and leaves with this one.

Null and -1 mean "unchanged since the last heartbeat"; an empty list means "none". 1: subscription by pattern, and the
client makes its own member id. The tags from 10000 on are private: they carry KIP-848's client-side assignors, which
Apache Kafka never shipped; others skip them.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class TopicPartitions(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Assignor(WireStruct, frozen=True):
    """A client-side assignor that the member can run, and its metadata. Versions are those of the metadata."""

    name: Annotated[str, wire("0+")] = ""
    minimum_version: Annotated[Int16, wire("0+")] = 0
    maximum_version: Annotated[Int16, wire("0+")] = 0
    reason: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"], frozen=True):
    """`member_epoch` 0 joins, -1 leaves, -2 leaves a static member's place open; else the epoch of the last answer."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    rebalance_timeout_ms: Annotated[Int32, wire("0+")] = -1
    subscribed_topic_names: Annotated[tuple[str, ...] | None, wire("0+", nullable="0+")] = None
    subscribed_topic_regex: Annotated[str | None, wire("1+", nullable="1+")] = None
    server_assignor: Annotated[str | None, wire("0+", nullable="0+")] = None
    topic_partitions: Annotated[tuple[TopicPartitions, ...] | None, wire("0+", nullable="0+")] = None
    client_assignors: Annotated[tuple[Assignor, ...] | None, wire("0+", nullable="0+", tag=10000)] = None


class Assignment(WireStruct, frozen=True):
    """All that the member should own now; what it must wait for is in the private tag `pending_topic_partitions`."""

    topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()
    error: Annotated[Int8, wire("0+", tag=10000)] = 0
    pending_topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+", tag=10001)] = ()
    metadata_version: Annotated[Int16, wire("0+", tag=10002)] = 0
    metadata_bytes: Annotated[bytes, wire("0+", tag=10003)] = b""
    assignor_name: Annotated[str, wire("0+", tag=10004)] = ""


class ConsumerGroupHeartbeatResponse(Response, frozen=True):
    """The member's epoch and, if it changed, what the member should own now. A null assignment means unchanged."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, wire("0+")] = 0
    heartbeat_interval_ms: Annotated[Int32, wire("0+")] = 0
    assignment: Annotated[Assignment | None, wire("0+", nullable="0+")] = None
    should_compute_assignment: Annotated[bool, wire("0+", tag=10000)] = False
