"""CreatePartitions (37): more partitions for topics. 2: flexible."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsAssignment",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
]


@value
class CreatePartitionsAssignment:
    """The brokers of one new partition, if the caller chooses them."""

    broker_ids: tuple[int, ...] = wire(array(INT32), "0+")


@value
class CreatePartitionsTopic:
    """The wanted total of one topic."""

    name: str = wire(STRING, "0+")
    count: int = wire(INT32, "0+")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(
        array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


@value
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """The wanted numbers of partitions."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+")

    topics: tuple[CreatePartitionsTopic, ...] = wire(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = wire(INT32, "0+")
    validate_only: bool = wire(BOOL, "0+")


@value
class CreatePartitionsTopicResult:
    """Whether the topic was extended."""

    name: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


@value
class CreatePartitionsResponse(Response):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+")

    throttle_time_ms: int = wire(INT32, "0+")
    results: tuple[CreatePartitionsTopicResult, ...] = wire(array(CreatePartitionsTopicResult), "0+")
