"""DeleteTopics (20): remove topics. 4: flexible. 5: error messages. 6: by id, in `topics`; up to 5 in `topic_names`."""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DeleteTopicState",
    "DeletableTopicResult",
]


@value
class DeleteTopicState:
    """A topic by name or by id."""

    name: str | None = wire(STRING, "6+", nullable="6+", default=None)
    topic_id: uuid.UUID = wire(UUID, "6+")


@value
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """The topics to remove."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DELETE_TOPICS, "1-6", flexible="4+")

    topics: tuple[DeleteTopicState, ...] = wire(array(DeleteTopicState), "6+")
    topic_names: tuple[str, ...] = wire(array(STRING), "1-5", ignorable=True)
    timeout_ms: int = wire(INT32, "1+")


@value
class DeletableTopicResult:
    """Whether the topic was removed."""

    name: str | None = wire(STRING, "1+", nullable="6+")
    topic_id: uuid.UUID = wire(UUID, "6+", ignorable=True)
    error_code: int = wire(INT16, "1+")
    error_message: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


@value
class DeleteTopicsResponse(Response):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_TOPICS, "1-6", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+")
    responses: tuple[DeletableTopicResult, ...] = wire(array(DeletableTopicResult), "1+")
