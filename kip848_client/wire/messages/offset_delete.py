"""OffsetDelete (47): remove stored positions of topics that a group does not subscribe to. Never flexible."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


@value
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = wire(INT32, "0+")


@value
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(array(OffsetDeleteRequestPartition), "0+")


@value
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """The positions to remove."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.OFFSET_DELETE, "0", flexible="none")

    group_id: str = wire(STRING, "0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(array(OffsetDeleteRequestTopic), "0+")


@value
class OffsetDeleteResponsePartition:
    """Whether the position was removed."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


@value
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(array(OffsetDeleteResponsePartition), "0+")


@value
class OffsetDeleteResponse(Response):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_DELETE, "0", flexible="none")

    error_code: int = wire(INT16, "0+")
    throttle_time_ms: int = wire(INT32, "0+")
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(array(OffsetDeleteResponseTopic), "0+")
