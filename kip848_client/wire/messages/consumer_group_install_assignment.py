"""ConsumerGroupInstallAssignment (private key 30849): the chosen member hands in what its assignor computed.

KIP-848 specifies it for client-side assignors; Apache Kafka never shipped it. `metadata_version` is an int16 as
everywhere else in the KIP (its one int32 is taken for a slip).
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


class TopicPartition(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Member(WireStruct, frozen=True):
    """The whole target of one member, and what its assignor should hear."""

    member_id: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[TopicPartition, ...], wire("0+")] = ()
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConsumerGroupInstallAssignmentRequest(Request["ConsumerGroupInstallAssignmentResponse"], frozen=True):
    """A target for all members of the snapshot, or the assignor's error."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    group_epoch: Annotated[Int32, wire("0+")] = 0
    error: Annotated[Int8, wire("0+")] = 0
    members: Annotated[tuple[Member, ...], wire("0+")] = ()


class ConsumerGroupInstallAssignmentResponse(Response, frozen=True):
    """Whether the target was taken."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
