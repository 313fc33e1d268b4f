"""ConsumerGroupPrepareAssignment (private key 30848): the chosen member asks for the state of its group.

KIP-848 specifies it for client-side assignors; Apache Kafka never shipped it. Served only by peers that advertise it.
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


class ConsumerGroupPrepareAssignmentRequest(Request["ConsumerGroupPrepareAssignmentResponse"], frozen=True):
    """Sent by the member whose heartbeat response said `should_compute_assignment`."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0


class Assignor(WireStruct, frozen=True):
    """One member's last metadata for the selected assignor."""

    reason: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class TopicPartition(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Member(WireStruct, frozen=True):
    """One member of the snapshot, with its present target."""

    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    subscribed_topic_ids: Annotated[tuple[uuid.UUID, ...], wire("0+")] = ()
    assignor: Annotated[Assignor, wire("0+")] = Assignor()
    topic_partitions: Annotated[tuple[TopicPartition, ...], wire("0+")] = ()


class TopicMetadata(WireStruct, frozen=True):
    """A topic that some member of the snapshot subscribes to."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""
    num_partitions: Annotated[Int32, wire("0+")] = 0


class ConsumerGroupPrepareAssignmentResponse(Response, frozen=True):
    """The snapshot that an Install of `group_epoch` will be checked against."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    group_epoch: Annotated[Int32, wire("0+")] = 0
    assignor_name: Annotated[str, wire("0+")] = ""
    members: Annotated[tuple[Member, ...], wire("0+")] = ()
    topics: Annotated[tuple[TopicMetadata, ...], wire("0+")] = ()
