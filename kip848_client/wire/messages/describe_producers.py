"""DescribeProducers (61): the idempotent and transactional producers that partitions know."""

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


class DescribeProducersTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partition_indexes: Annotated[tuple[Int32, ...], wire("0+")] = ()


class DescribeProducersRequest(Request["DescribeProducersResponse"], frozen=True):
    """The partitions to look at."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_PRODUCERS,
        "0",
        flexible="0+",
        answered_by={"topics": "topics", "partition_indexes": "partitions"},
    )

    topics: Annotated[tuple[DescribeProducersTopic, ...], wire("0+")] = ()


class ProducerState(WireStruct, frozen=True):
    """One producer; -1 stands for "none"."""

    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int32, wire("0+")] = 0
    last_sequence: Annotated[Int32, wire("0+")] = -1
    last_timestamp: Annotated[Int64, wire("0+")] = -1
    coordinator_epoch: Annotated[Int32, wire("0+")] = 0
    current_txn_start_offset: Annotated[Int64, wire("0+")] = -1


class DescribedPartition(WireStruct, frozen=True):
    """The producers of one partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    active_producers: Annotated[tuple[ProducerState, ...], wire("0+")] = ()


class DescribedTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[DescribedPartition, ...], wire("0+")] = ()


class DescribeProducersResponse(Response, frozen=True):
    """The producers, partition by partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_PRODUCERS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    topics: Annotated[tuple[DescribedTopic, ...], wire("0+")] = ()
