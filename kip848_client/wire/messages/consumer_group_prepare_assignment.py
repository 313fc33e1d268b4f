"""ConsumerGroupPrepareAssignment (private key 30848): the chosen member asks for the state of its group.

KIP-848 specifies it for client-side assignors; Apache Kafka never shipped it. Served only by peers that advertise it.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "ConsumerGroupPrepareAssignmentRequest",
    "ConsumerGroupPrepareAssignmentResponse",
    "Assignor",
    "TopicPartition",
    "Member",
    "TopicMetadata",
]


@value
class ConsumerGroupPrepareAssignmentRequest(Request["ConsumerGroupPrepareAssignmentResponse"]):
    """Sent by the member whose heartbeat response said `should_compute_assignment`."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")


@value
class Assignor:
    """What one member last told about the selected assignor."""

    reason: int = wire(INT8, "0+")
    metadata_version: int = wire(INT16, "0+")
    metadata_bytes: bytes = wire(BYTES, "0+")


@value
class TopicPartition:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class Member:
    """One member of the snapshot, with its present target."""

    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")
    instance_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    subscribed_topic_ids: tuple[uuid.UUID, ...] = wire(array(UUID), "0+")
    assignor: Assignor = wire(Assignor, "0+")
    topic_partitions: tuple[TopicPartition, ...] = wire(array(TopicPartition), "0+")


@value
class TopicMetadata:
    """A topic that some member of the snapshot subscribes to."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    topic_name: str = wire(STRING, "0+")
    num_partitions: int = wire(INT32, "0+")


@value
class ConsumerGroupPrepareAssignmentResponse(Response):
    """The snapshot that an Install of `group_epoch` will be checked against."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    group_epoch: int = wire(INT32, "0+")
    assignor_name: str = wire(STRING, "0+")
    members: tuple[Member, ...] = wire(array(Member), "0+")
    topics: tuple[TopicMetadata, ...] = wire(array(TopicMetadata), "0+")
