"""ListOffsets (2): the offset at a time.

`timestamp` may be -1 latest, -2 earliest, -3 of the largest timestamp, -4 and -5 in tiered storage.

1: one offset per partition. 2: isolation level. 4: leader epochs. 6: flexible. 7 to 11: further special timestamps;
10: a time-out for slow look-ups.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int8,
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


class ListOffsetsPartition(WireStruct, frozen=True):
    """The time to look up, in milliseconds, or one of the special values."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    current_leader_epoch: Annotated[Int32, wire("4+", ignorable=True)] = -1
    timestamp: Annotated[Int64, wire("1+")] = 0


class ListOffsetsTopic(WireStruct, frozen=True):
    """The partitions of one topic to look up."""

    name: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[ListOffsetsPartition, ...], wire("1+")] = ()


class ListOffsetsRequest(Request["ListOffsetsResponse"], frozen=True):
    """The times to look up, partition by partition."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.LIST_OFFSETS, "1-11", flexible="6+", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    replica_id: Annotated[Int32, wire("1+")] = 0
    isolation_level: Annotated[Int8, wire("2+")] = 0
    topics: Annotated[tuple[ListOffsetsTopic, ...], wire("1+")] = ()
    timeout_ms: Annotated[Int32, wire("10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(WireStruct, frozen=True):
    """The first offset at or after the time; -1 if there is none."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    timestamp: Annotated[Int64, wire("1+")] = -1
    offset: Annotated[Int64, wire("1+")] = -1
    leader_epoch: Annotated[Int32, wire("4+", ignorable=True)] = -1


class ListOffsetsTopicResponse(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[ListOffsetsPartitionResponse, ...], wire("1+")] = ()


class ListOffsetsResponse(Response, frozen=True):
    """An offset, or an error, per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_OFFSETS, "1-11", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    topics: Annotated[tuple[ListOffsetsTopicResponse, ...], wire("1+")] = ()
