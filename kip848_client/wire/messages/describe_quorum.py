"""DescribeQuorum (55): who keeps the metadata (KIP-595). 1: times. 2: directories and addresses of the nodes."""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    UInt16,
    WireStruct,
    request,
    response,
    wire,
)


class PartitionData(WireStruct, frozen=True):
    """One partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0


class TopicData(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[PartitionData, ...], wire("0+")] = ()


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], frozen=True):
    """The partitions of the metadata log; there is one, ``__cluster_metadata-0``."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_QUORUM, "0-2", flexible="0+", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    topics: Annotated[tuple[TopicData, ...], wire("0+")] = ()


class ReplicaState(WireStruct, frozen=True):
    """How far a replica is; times are milliseconds since 1970, -1 if not known."""

    replica_id: Annotated[Int32, wire("0+")] = 0
    replica_directory_id: Annotated[uuid.UUID, wire("2+")] = ZERO_UUID
    log_end_offset: Annotated[Int64, wire("0+")] = 0
    last_fetch_timestamp: Annotated[Int64, wire("1+", ignorable=True)] = -1
    last_caught_up_timestamp: Annotated[Int64, wire("1+", ignorable=True)] = -1


class DescribedPartition(WireStruct, frozen=True):
    """Leader, voters and observers of one partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("2+", nullable="2+", ignorable=True)] = None
    leader_id: Annotated[Int32, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = 0
    high_watermark: Annotated[Int64, wire("0+")] = 0
    current_voters: Annotated[tuple[ReplicaState, ...], wire("0+")] = ()
    observers: Annotated[tuple[ReplicaState, ...], wire("0+")] = ()


class DescribedTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[DescribedPartition, ...], wire("0+")] = ()


class Listener(WireStruct, frozen=True):
    """An address."""

    name: Annotated[str, wire("2+")] = ""
    host: Annotated[str, wire("2+")] = ""
    port: Annotated[UInt16, wire("2+")] = 0


class Node(WireStruct, frozen=True):
    """The addresses of one node."""

    node_id: Annotated[Int32, wire("2+")] = 0
    listeners: Annotated[tuple[Listener, ...], wire("2+")] = ()


class DescribeQuorumResponse(Response, frozen=True):
    """The quorum."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_QUORUM, "0-2", flexible="0+")

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("2+", nullable="2+", ignorable=True)] = None
    topics: Annotated[tuple[DescribedTopic, ...], wire("0+")] = ()
    nodes: Annotated[tuple[Node, ...], wire("2+")] = ()
