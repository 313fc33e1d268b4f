"""AlterPartitionReassignments (45): other replicas for partitions (KIP-455). 1: as many as before."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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


class ReassignablePartition(WireStruct, frozen=True):
    """New replicas; null ends a reassignment that is going on."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    replicas: Annotated[tuple[Int32, ...] | None, wire("0+", nullable="0+")] = None


class ReassignableTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[ReassignablePartition, ...], wire("0+")] = ()


class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"], frozen=True):
    """The partitions, each with its new replicas, the preferred leader first."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "0-1",
        flexible="0+",
        answered_by={"topics": "responses", "partitions": "partitions"},
    )

    timeout_ms: Annotated[Int32, wire("0+")] = 60_000
    allow_replication_factor_change: Annotated[bool, wire("1+")] = True
    topics: Annotated[tuple[ReassignableTopic, ...], wire("0+")] = ()


class ReassignablePartitionResponse(WireStruct, frozen=True):
    """Whether the partition gets the replicas."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class ReassignableTopicResponse(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[ReassignablePartitionResponse, ...], wire("0+")] = ()


class AlterPartitionReassignmentsResponse(Response, frozen=True):
    """One result for each partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    allow_replication_factor_change: Annotated[bool, wire("1+", ignorable=True)] = True
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    responses: Annotated[tuple[ReassignableTopicResponse, ...], wire("0+")] = ()
