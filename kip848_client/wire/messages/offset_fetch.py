"""OffsetFetch: the request and the response."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
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
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchRequestGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopics",
    "OffsetFetchResponseGroup",
]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequestTopic:
    """`OffsetFetchRequestTopic` of OffsetFetch."""

    name: str = wire(STRING, "1-7")
    partition_indexes: tuple[int, ...] = wire(array(INT32), "1-7")


@dataclass(frozen=True, slots=True)
class OffsetFetchRequestTopics:
    """`OffsetFetchRequestTopics` of OffsetFetch."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partition_indexes: tuple[int, ...] = wire(array(INT32), "8+")


@dataclass(frozen=True, slots=True)
class OffsetFetchRequestGroup:
    """`OffsetFetchRequestGroup` of OffsetFetch."""

    group_id: str = wire(STRING, "8+")
    member_id: str | None = wire(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(array(OffsetFetchRequestTopics), "8+", nullable="8+")


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """OffsetFetch request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.OFFSET_FETCH, "1-10", flexible="6+")

    group_id: str = wire(STRING, "1-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), "1-7", nullable="2-7")
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponsePartition:
    """`OffsetFetchResponsePartition` of OffsetFetch."""

    partition_index: int = wire(INT32, "1-7")
    committed_offset: int = wire(INT64, "1-7")
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "1-7", nullable="1-7")
    error_code: int = wire(INT16, "1-7")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseTopic:
    """`OffsetFetchResponseTopic` of OffsetFetch."""

    name: str = wire(STRING, "1-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(array(OffsetFetchResponsePartition), "1-7")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponsePartitions:
    """`OffsetFetchResponsePartitions` of OffsetFetch."""

    partition_index: int = wire(INT32, "8+")
    committed_offset: int = wire(INT64, "8+")
    committed_leader_epoch: int = wire(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "8+", nullable="8+")
    error_code: int = wire(INT16, "8+")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseTopics:
    """`OffsetFetchResponseTopics` of OffsetFetch."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(array(OffsetFetchResponsePartitions), "8+")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponseGroup:
    """`OffsetFetchResponseGroup` of OffsetFetch."""

    group_id: str = wire(STRING, "8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(array(OffsetFetchResponseTopics), "8+")
    error_code: int = wire(INT16, "8+")


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse(Response):
    """OffsetFetch response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_FETCH, "1-10", flexible="6+")

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic), "1-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(array(OffsetFetchResponseGroup), "8+")
