"""Metadata (3): brokers, topics, their ids and the leaders of their partitions.

In 0 an empty list of topics means all, from 1 on null does. 4: auto-creation can be forbidden. 7: leader epochs.
9: flexible. 10: topic ids in the answer. 12: topics can be asked for by id, with a null name. 13: a top-level error.
"""

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


class MetadataRequestTopic(WireStruct, frozen=True):
    """A topic by name, or from version 10 on by id with a null name."""

    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    name: Annotated[str | None, wire("0+", nullable="10+")] = ""


class MetadataRequest(Request["MetadataResponse"], frozen=True):
    """Topics to describe; null for all, an empty list for none (just the brokers)."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.METADATA,
        "0-13",
        flexible="9+",
        answered_by={"topics": "topics"},
    )

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, wire("0+", nullable="1+")] = ()
    allow_auto_topic_creation: Annotated[bool, wire("4+")] = True
    include_cluster_authorized_operations: Annotated[bool, wire("8-10")] = False
    include_topic_authorized_operations: Annotated[bool, wire("8+")] = False


class MetadataResponseBroker(WireStruct, frozen=True):
    """Where a broker listens."""

    node_id: Annotated[Int32, wire("0+")] = 0
    host: Annotated[str, wire("0+")] = ""
    port: Annotated[Int32, wire("0+")] = 0
    rack: Annotated[str | None, wire("1+", nullable="1+", ignorable=True)] = None


class MetadataResponsePartition(WireStruct, frozen=True):
    """Leader and replicas of a partition."""

    error_code: Annotated[Int16, wire("0+")] = 0
    partition_index: Annotated[Int32, wire("0+")] = 0
    leader_id: Annotated[Int32, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("7+", ignorable=True)] = -1
    replica_nodes: Annotated[tuple[Int32, ...], wire("0+")] = ()
    isr_nodes: Annotated[tuple[Int32, ...], wire("0+")] = ()
    offline_replicas: Annotated[tuple[Int32, ...], wire("5+", ignorable=True)] = ()


class MetadataResponseTopic(WireStruct, frozen=True):
    """One topic. Asked for by an unknown id, it has a null name and UNKNOWN_TOPIC_ID."""

    error_code: Annotated[Int16, wire("0+")] = 0
    name: Annotated[str | None, wire("0+", nullable="12+")] = ""
    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[bool, wire("1+", ignorable=True)] = False
    partitions: Annotated[tuple[MetadataResponsePartition, ...], wire("0+")] = ()
    topic_authorized_operations: Annotated[Int32, wire("8+")] = -2147483648


class MetadataResponse(Response, frozen=True):
    """The cluster as the asked broker sees it."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.METADATA, "0-13", flexible="9+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    brokers: Annotated[tuple[MetadataResponseBroker, ...], wire("0+")] = ()
    cluster_id: Annotated[str | None, wire("2+", nullable="2+", ignorable=True)] = None
    controller_id: Annotated[Int32, wire("1+", ignorable=True)] = -1
    topics: Annotated[tuple[MetadataResponseTopic, ...], wire("0+")] = ()
    cluster_authorized_operations: Annotated[Int32, wire("8-10")] = -2147483648
    error_code: Annotated[Int16, wire("13+", ignorable=True)] = 0
