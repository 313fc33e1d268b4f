"""DeleteRecords (21): move the start of partitions, as retention does.

0 to 1: the same. 2: flexible.
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


class DeleteRecordsPartition(WireStruct, frozen=True):
    """The first offset that stays; -1 stands for the high watermark."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    offset: Annotated[Int64, wire("0+")] = 0


class DeleteRecordsTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[DeleteRecordsPartition, ...], wire("0+")] = ()


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], frozen=True):
    """Where each partition should start."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DELETE_RECORDS, "0-2", flexible="2+", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    topics: Annotated[tuple[DeleteRecordsTopic, ...], wire("0+")] = ()
    timeout_ms: Annotated[Int32, wire("0+")] = 0


class DeleteRecordsPartitionResult(WireStruct, frozen=True):
    """Where the partition starts now, or an error."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    low_watermark: Annotated[Int64, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0


class DeleteRecordsTopicResult(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[DeleteRecordsPartitionResult, ...], wire("0+")] = ()


class DeleteRecordsResponse(Response, frozen=True):
    """A start, or an error, per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_RECORDS, "0-2", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    topics: Annotated[tuple[DeleteRecordsTopicResult, ...], wire("0+")] = ()
