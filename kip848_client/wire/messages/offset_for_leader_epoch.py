"""OffsetForLeaderEpoch (23): where a leader epoch ended, to find truncated records.

2: the current leader epoch is checked. 3: the asking replica. 4: flexible.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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


class OffsetForLeaderPartition(WireStruct, frozen=True):
    """The epoch to look up in one partition."""

    partition: Annotated[Int32, wire("2+")] = 0
    current_leader_epoch: Annotated[Int32, wire("2+")] = -1
    leader_epoch: Annotated[Int32, wire("2+")] = 0


class OffsetForLeaderTopic(WireStruct, frozen=True):
    """The partitions of one topic to look up."""

    topic: Annotated[str, wire("2+")] = ""
    partitions: Annotated[tuple[OffsetForLeaderPartition, ...], wire("2+")] = ()


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], frozen=True):
    """The leader epochs to look up."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        "2-4",
        flexible="4+",
        answered_by={"topics": "topics", "partitions": "partitions"},
    )

    replica_id: Annotated[Int32, wire("3+", ignorable=True)] = -2
    topics: Annotated[tuple[OffsetForLeaderTopic, ...], wire("2+")] = ()


class EpochEndOffset(WireStruct, frozen=True):
    """The largest epoch not above the wanted one, and its end."""

    error_code: Annotated[Int16, wire("2+")] = 0
    partition: Annotated[Int32, wire("2+")] = 0
    leader_epoch: Annotated[Int32, wire("2+")] = -1
    end_offset: Annotated[Int64, wire("2+")] = -1


class OffsetForLeaderTopicResult(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic: Annotated[str, wire("2+")] = ""
    partitions: Annotated[tuple[EpochEndOffset, ...], wire("2+")] = ()


class OffsetForLeaderEpochResponse(Response, frozen=True):
    """The end offset of each epoch."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("2+")] = 0
    topics: Annotated[tuple[OffsetForLeaderTopicResult, ...], wire("2+")] = ()
