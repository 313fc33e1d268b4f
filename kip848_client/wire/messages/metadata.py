"""Metadata (3): brokers, topics, their ids and the leaders of their partitions.

In 0 an empty list of topics means all, from 1 on null does. 4: auto-creation can be forbidden. 7: leader epochs.
9: flexible. 10: topic ids in the answer. 12: topics can be asked for by id, with a null name. 13: a top-level error.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "MetadataRequest",
    "MetadataResponse",
    "MetadataRequestTopic",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


@value
class MetadataRequestTopic:
    """A topic by name, or from version 10 on by id with a null name."""

    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    name: str | None = wire(STRING, "0+", nullable="10+")


@value
class MetadataRequest(Request["MetadataResponse"]):
    """Topics to describe; null for all, an empty list for none (just the brokers)."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.METADATA, "0-13", flexible="9+")

    topics: tuple[MetadataRequestTopic, ...] | None = wire(array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")


@value
class MetadataResponseBroker:
    """Where a broker listens."""

    node_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "1+", nullable="1+", default=None, ignorable=True)


@value
class MetadataResponsePartition:
    """Who leads and who follows a partition."""

    error_code: int = wire(INT16, "0+")
    partition_index: int = wire(INT32, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    isr_nodes: tuple[int, ...] = wire(array(INT32), "0+")
    offline_replicas: tuple[int, ...] = wire(array(INT32), "5+", ignorable=True)


@value
class MetadataResponseTopic:
    """One topic. Asked for by an unknown id, it has a null name and UNKNOWN_TOPIC_ID."""

    error_code: int = wire(INT16, "0+")
    name: str | None = wire(STRING, "0+", nullable="12+")
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = wire(INT32, "8+", default=-2147483648)


@value
class MetadataResponse(Response):
    """The cluster as the asked broker sees it."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.METADATA, "0-13", flexible="9+")

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(array(MetadataResponseBroker), "0+")
    cluster_id: str | None = wire(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = wire(INT32, "8-10", default=-2147483648)
    error_code: int = wire(INT16, "13+", ignorable=True)
