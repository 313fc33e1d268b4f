"""DescribeTopicPartitions (75): topics page by page, with eligible leaders."""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
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


class TopicRequest(WireStruct, frozen=True):
    """A topic by name."""

    name: Annotated[str, wire("0+")] = ""


class Cursor(WireStruct, frozen=True):
    """The topic and partition to go on with."""

    topic_name: Annotated[str, wire("0+")] = ""
    partition_index: Annotated[Int32, wire("0+")] = 0


class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"], frozen=True):
    """The topics, and where to go on."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+", answered_by={"topics": "topics"}
    )

    topics: Annotated[tuple[TopicRequest, ...], wire("0+")] = ()
    response_partition_limit: Annotated[Int32, wire("0+")] = 2000
    cursor: Annotated[Cursor | None, wire("0+", nullable="0+")] = None


class DescribeTopicPartitionsResponsePartition(WireStruct, frozen=True):
    """Leader, replicas and eligible leaders of a partition."""

    error_code: Annotated[Int16, wire("0+")] = 0
    partition_index: Annotated[Int32, wire("0+")] = 0
    leader_id: Annotated[Int32, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = -1
    replica_nodes: Annotated[tuple[Int32, ...], wire("0+")] = ()
    isr_nodes: Annotated[tuple[Int32, ...], wire("0+")] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, wire("0+", nullable="0+")] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, wire("0+", nullable="0+")] = None
    offline_replicas: Annotated[tuple[Int32, ...], wire("0+")] = ()


class DescribeTopicPartitionsResponseTopic(WireStruct, frozen=True):
    """One topic."""

    error_code: Annotated[Int16, wire("0+")] = 0
    name: Annotated[str | None, wire("0+", nullable="0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    is_internal: Annotated[bool, wire("0+")] = False
    partitions: Annotated[tuple[DescribeTopicPartitionsResponsePartition, ...], wire("0+")] = ()
    topic_authorized_operations: Annotated[Int32, wire("0+")] = -2147483648


class DescribeTopicPartitionsResponse(Response, frozen=True):
    """The page, and where the next one starts."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    topics: Annotated[tuple[DescribeTopicPartitionsResponseTopic, ...], wire("0+")] = ()
    next_cursor: Annotated[Cursor | None, wire("0+", nullable="0+")] = None
