"""DeleteTopics (20): remove topics. 4: flexible. 5: error messages. 6: by id, in `topics`; up to 5 in `topic_names`."""

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


class DeleteTopicState(WireStruct, frozen=True):
    """A topic by name or by id."""

    name: Annotated[str | None, wire("6+", nullable="6+")] = None
    topic_id: Annotated[uuid.UUID, wire("6+")] = ZERO_UUID


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], frozen=True):
    """The topics to remove."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DELETE_TOPICS, "1-6", flexible="4+", answered_by={"topics": "responses", "topic_names": "responses"}
    )

    topics: Annotated[tuple[DeleteTopicState, ...], wire("6+")] = ()
    topic_names: Annotated[tuple[str, ...], wire("1-5", ignorable=True)] = ()
    timeout_ms: Annotated[Int32, wire("1+")] = 0


class DeletableTopicResult(WireStruct, frozen=True):
    """Whether the topic was removed."""

    name: Annotated[str | None, wire("1+", nullable="6+")] = ""
    topic_id: Annotated[uuid.UUID, wire("6+", ignorable=True)] = ZERO_UUID
    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None


class DeleteTopicsResponse(Response, frozen=True):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_TOPICS, "1-6", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    responses: Annotated[tuple[DeletableTopicResult, ...], wire("1+")] = ()
