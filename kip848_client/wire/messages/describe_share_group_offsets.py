"""DescribeShareGroupOffsets (90): where share groups begin in their partitions (the share-partition start offset).

1: and how many records are left to deliver (KIP-1226).
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class RequestTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class RequestGroup(WireStruct, frozen=True):
    """A group, and the partitions to describe: null means all that it has begun."""

    group_id: Annotated[str, wire("0+")] = ""
    topics: Annotated[tuple[RequestTopic, ...] | None, wire("0+", nullable="0+")] = ()


class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"], frozen=True):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        "0-1",
        flexible="0+",
        answered_by={"groups": "groups", "topics": "topics", "partitions": "partitions"},
    )

    groups: Annotated[tuple[RequestGroup, ...], wire("0+")] = ()


class ResponsePartition(WireStruct, frozen=True):
    """One partition. `start_offset` and `lag` are -1 if the group has not begun there."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    start_offset: Annotated[Int64, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = 0
    lag: Annotated[Int64, wire("1+", ignorable=True)] = -1
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class ResponseTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[ResponsePartition, ...], wire("0+")] = ()


class ResponseGroup(WireStruct, frozen=True):
    """One group, with its own error."""

    group_id: Annotated[str, wire("0+")] = ""
    topics: Annotated[tuple[ResponseTopic, ...], wire("0+")] = ()
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class DescribeShareGroupOffsetsResponse(Response, frozen=True):
    """One entry per group that was asked for."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "0-1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    groups: Annotated[tuple[ResponseGroup, ...], wire("0+")] = ()
