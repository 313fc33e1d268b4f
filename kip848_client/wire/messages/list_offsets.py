"""ListOffsets (2): the offset at a time.

`timestamp` may be -1 latest, -2 earliest, -3 of the largest timestamp, -4 and -5 in tiered storage.

1: one offset per partition. 2: isolation level. 4: leader epochs. 6: flexible. 7 to 11: further special timestamps;
10: a time-out for slow look-ups.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
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
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsPartition",
    "ListOffsetsTopic",
    "ListOffsetsPartitionResponse",
    "ListOffsetsTopicResponse",
]


@value
class ListOffsetsPartition:
    """The time to look up, in milliseconds, or one of the special values."""

    partition_index: int = wire(INT32, "1+")
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64, "1+")


@value
class ListOffsetsTopic:
    """The partitions of one topic to look up."""

    name: str = wire(STRING, "1+")
    partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition), "1+")


@value
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """The times to look up, partition by partition."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_OFFSETS, "1-11", flexible="6+")

    replica_id: int = wire(INT32, "1+")
    isolation_level: int = wire(INT8, "2+")
    topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic), "1+")
    timeout_ms: int = wire(INT32, "10+", ignorable=True)


@value
class ListOffsetsPartitionResponse:
    """The first offset at or after the time; -1 if there is none."""

    partition_index: int = wire(INT32, "1+")
    error_code: int = wire(INT16, "1+")
    timestamp: int = wire(INT64, "1+", default=-1)
    offset: int = wire(INT64, "1+", default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)


@value
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING, "1+")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(array(ListOffsetsPartitionResponse), "1+")


@value
class ListOffsetsResponse(Response):
    """An offset, or an error, per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_OFFSETS, "1-11", flexible="6+")

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(array(ListOffsetsTopicResponse), "1+")
