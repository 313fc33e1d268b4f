"""DeleteShareGroupOffsets (92): makes an empty share group forget topics, with all that it has delivered of them."""

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


class RequestTopic(WireStruct, frozen=True):
    """A topic to forget."""

    topic_name: Annotated[str, wire("0+")] = ""


class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"], frozen=True):
    """The group, and the topics to forget."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", flexible="0+", answered_by={"topics": "responses"}
    )

    group_id: Annotated[str, wire("0+")] = ""
    topics: Annotated[tuple[RequestTopic, ...], wire("0+")] = ()


class ResponseTopic(WireStruct, frozen=True):
    """What became of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class DeleteShareGroupOffsetsResponse(Response, frozen=True):
    """An error of the whole request, or one entry per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    responses: Annotated[tuple[ResponseTopic, ...], wire("0+")] = ()
