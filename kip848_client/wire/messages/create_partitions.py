"""CreatePartitions (37): more partitions for topics. 2: flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class CreatePartitionsAssignment(WireStruct, frozen=True):
    """The brokers of one new partition, if the caller chooses them."""

    broker_ids: Annotated[tuple[Int32, ...], wire("0+")] = ()


class CreatePartitionsTopic(WireStruct, frozen=True):
    """The wanted total of one topic."""

    name: Annotated[str, wire("0+")] = ""
    count: Annotated[Int32, wire("0+")] = 0
    assignments: Annotated[tuple[CreatePartitionsAssignment, ...] | None, wire("0+", nullable="0+")] = ()


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], frozen=True):
    """The wanted numbers of partitions."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+", answered_by={"topics": "results"}
    )

    topics: Annotated[tuple[CreatePartitionsTopic, ...], wire("0+")] = ()
    timeout_ms: Annotated[Int32, wire("0+")] = 0
    validate_only: Annotated[bool, wire("0+")] = False


class CreatePartitionsTopicResult(WireStruct, frozen=True):
    """Whether the topic was extended."""

    name: Annotated[str, wire("0+")] = ""
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class CreatePartitionsResponse(Response, frozen=True):
    """One result per topic."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CREATE_PARTITIONS, "0-3", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    results: Annotated[tuple[CreatePartitionsTopicResult, ...], wire("0+")] = ()
