"""ShareGroupHeartbeat (76): a member of a share group (KIP-932) joins, reports and leaves with this one.

Null means "unchanged since the last heartbeat". There is nothing to acknowledge: partitions of a share group have
several members.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
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


class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"], frozen=True):
    """`member_epoch` 0 joins, -1 leaves; else the epoch of the last answer."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SHARE_GROUP_HEARTBEAT, "1", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    subscribed_topic_names: Annotated[tuple[str, ...] | None, wire("0+", nullable="0+")] = None


class TopicPartitions(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Assignment(WireStruct, frozen=True):
    """All partitions that the member should fetch from now."""

    topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()


class ShareGroupHeartbeatResponse(Response, frozen=True):
    """The member's epoch and, if it changed, what the member should fetch. A null assignment means unchanged."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SHARE_GROUP_HEARTBEAT, "1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, wire("0+")] = 0
    heartbeat_interval_ms: Annotated[Int32, wire("0+")] = 0
    assignment: Annotated[Assignment | None, wire("0+", nullable="0+")] = None
