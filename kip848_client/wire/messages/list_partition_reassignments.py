"""ListPartitionReassignments (46): the reassignments that are going on (KIP-455)."""

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


class ListPartitionReassignmentsTopics(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partition_indexes: Annotated[tuple[Int32, ...], wire("0+")] = ()


class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"], frozen=True):
    """The partitions; null means all."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", flexible="0+")

    timeout_ms: Annotated[Int32, wire("0+")] = 60_000
    topics: Annotated[tuple[ListPartitionReassignmentsTopics, ...] | None, wire("0+", nullable="0+")] = None


class OngoingPartitionReassignment(WireStruct, frozen=True):
    """All replicas, and those that come and go."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    replicas: Annotated[tuple[Int32, ...], wire("0+")] = ()
    adding_replicas: Annotated[tuple[Int32, ...], wire("0+")] = ()
    removing_replicas: Annotated[tuple[Int32, ...], wire("0+")] = ()


class OngoingTopicReassignment(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[OngoingPartitionReassignment, ...], wire("0+")] = ()


class ListPartitionReassignmentsResponse(Response, frozen=True):
    """Only partitions whose replicas change now."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    topics: Annotated[tuple[OngoingTopicReassignment, ...], wire("0+")] = ()
