"""ConsumerGroupInstallAssignment (private key 30849): the chosen member hands in what its assignor computed.

KIP-848 specifies it for client-side assignors; Apache Kafka never shipped it. `metadata_version` is an int16 as
everywhere else in the KIP (its one int32 is taken for a slip).
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
    "ConsumerGroupInstallAssignmentRequest",
    "ConsumerGroupInstallAssignmentResponse",
    "TopicPartition",
    "Member",
]


@value
class TopicPartition:
    """Partitions of one topic."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class Member:
    """The whole target of one member, and what its assignor shall hear."""

    member_id: str = wire(STRING, "0+")
    partitions: tuple[TopicPartition, ...] = wire(array(TopicPartition), "0+")
    metadata_version: int = wire(INT16, "0+")
    metadata_bytes: bytes = wire(BYTES, "0+")


@value
class ConsumerGroupInstallAssignmentRequest(Request["ConsumerGroupInstallAssignmentResponse"]):
    """A target for all members of the snapshot, or the assignor's error."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")
    group_epoch: int = wire(INT32, "0+")
    error: int = wire(INT8, "0+")
    members: tuple[Member, ...] = wire(array(Member), "0+")


@value
class ConsumerGroupInstallAssignmentResponse(Response):
    """Whether the target was taken."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
