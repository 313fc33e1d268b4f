"""AlterShareGroupOffsets (91): moves where an empty share group begins in its partitions."""

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


class RequestPartition(WireStruct, frozen=True):
    """The new start offset of one partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    start_offset: Annotated[Int64, wire("0+")] = 0


class RequestTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[RequestPartition, ...], wire("0+")] = ()


class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"], frozen=True):
    """The group, and its new start offsets."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        "0",
        flexible="0+",
        answered_by={"topics": "responses", "partitions": "partitions"},
    )

    group_id: Annotated[str, wire("0+")] = ""
    topics: Annotated[tuple[RequestTopic, ...], wire("0+")] = ()


class ResponsePartition(WireStruct, frozen=True):
    """What became of one partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class ResponseTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partitions: Annotated[tuple[ResponsePartition, ...], wire("0+")] = ()


class AlterShareGroupOffsetsResponse(Response, frozen=True):
    """An error of the whole request, or one entry per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    responses: Annotated[tuple[ResponseTopic, ...], wire("0+")] = ()
