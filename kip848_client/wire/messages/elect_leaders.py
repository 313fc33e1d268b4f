"""ElectLeaders (43): let the preferred replicas lead again. 1: unclean elections, a code for the whole. 2: flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int8,
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


class ElectLeadersRequestTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class ElectLeadersRequest(Request["ElectLeadersResponse"], frozen=True):
    """The partitions; null means all. Type 0 elects the preferred replica, 1 any living one if there is no leader."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ELECT_LEADERS,
        "0-2",
        flexible="2+",
        answered_by={"topic_partitions": "replica_election_results", "partitions": "partition_result"},
    )

    election_type: Annotated[Int8, wire("1+")] = 0
    topic_partitions: Annotated[tuple[ElectLeadersRequestTopic, ...] | None, wire("0+", nullable="0+")] = ()
    timeout_ms: Annotated[Int32, wire("0+")] = 60_000


class PartitionElectionResult(WireStruct, frozen=True):
    """Whether the partition has the leader that was asked for."""

    partition_id: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""


class ReplicaElectionResult(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic: Annotated[str, wire("0+")] = ""
    partition_result: Annotated[tuple[PartitionElectionResult, ...], wire("0+")] = ()


class ElectLeadersResponse(Response, frozen=True):
    """One result for each partition that was named; of all partitions those that have another leader now."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ELECT_LEADERS, "0-2", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    replica_election_results: Annotated[tuple[ReplicaElectionResult, ...], wire("0+")] = ()
