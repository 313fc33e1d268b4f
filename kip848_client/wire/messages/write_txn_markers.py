"""WriteTxnMarkers (27): write ends of transactions into partitions. 1: flexible. 2: the protocol of transactions."""

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


class WritableTxnMarkerTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partition_indexes: Annotated[tuple[Int32, ...], wire("0+")] = ()


class WritableTxnMarker(WireStruct, frozen=True):
    """The end of one producer's transaction."""

    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    transaction_result: Annotated[bool, wire("0+")] = False
    """True commits."""
    topics: Annotated[tuple[WritableTxnMarkerTopic, ...], wire("0+")] = ()
    coordinator_epoch: Annotated[Int32, wire("0+")] = 0
    transaction_version: Annotated[Int8, wire("2+", ignorable=True)] = 0


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], frozen=True):
    """The ends to write."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.WRITE_TXN_MARKERS,
        "1-2",
        flexible="1+",
        answered_by={"markers": "markers", "topics": "topics", "partition_indexes": "partitions"},
    )

    markers: Annotated[tuple[WritableTxnMarker, ...], wire("0+")] = ()


class WritableTxnMarkerPartitionResult(WireStruct, frozen=True):
    """Whether it was written."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0


class WritableTxnMarkerTopicResult(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[WritableTxnMarkerPartitionResult, ...], wire("0+")] = ()


class WritableTxnMarkerResult(WireStruct, frozen=True):
    """The answer for one producer."""

    producer_id: Annotated[Int64, wire("0+")] = 0
    topics: Annotated[tuple[WritableTxnMarkerTopicResult, ...], wire("0+")] = ()


class WriteTxnMarkersResponse(Response, frozen=True):
    """One result per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.WRITE_TXN_MARKERS, "1-2", flexible="1+")

    markers: Annotated[tuple[WritableTxnMarkerResult, ...], wire("0+")] = ()
