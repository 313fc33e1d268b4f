"""Produce: the request and the response."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
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
    "ProduceRequest",
    "ProduceResponse",
    "PartitionProduceData",
    "TopicProduceData",
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "PartitionProduceResponse",
    "TopicProduceResponse",
    "NodeEndpoint",
]


@dataclass(frozen=True, slots=True)
class PartitionProduceData:
    """`PartitionProduceData` of Produce."""

    index: int = wire(INT32, "3+")
    records: bytes | None = wire(RECORDS, "3+", nullable="3+")


@dataclass(frozen=True, slots=True)
class TopicProduceData:
    """`TopicProduceData` of Produce."""

    name: str = wire(STRING, "3-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(array(PartitionProduceData), "3+")


@dataclass(frozen=True, slots=True)
class ProduceRequest(Request["ProduceResponse"]):
    """Produce request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.PRODUCE, "3-13", flexible="9+")

    transactional_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    acks: int = wire(INT16, "3+")
    timeout_ms: int = wire(INT32, "3+")
    topic_data: tuple[TopicProduceData, ...] = wire(array(TopicProduceData), "3+")


@dataclass(frozen=True, slots=True)
class BatchIndexAndErrorMessage:
    """`BatchIndexAndErrorMessage` of Produce."""

    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


@dataclass(frozen=True, slots=True)
class LeaderIdAndEpoch:
    """`LeaderIdAndEpoch` of Produce."""

    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@dataclass(frozen=True, slots=True)
class PartitionProduceResponse:
    """`PartitionProduceResponse` of Produce."""

    index: int = wire(INT32, "3+")
    error_code: int = wire(INT16, "3+")
    base_offset: int = wire(INT64, "3+")
    log_append_time_ms: int = wire(INT64, "3+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(array(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0)


@dataclass(frozen=True, slots=True)
class TopicProduceResponse:
    """`TopicProduceResponse` of Produce."""

    name: str = wire(STRING, "3-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(array(PartitionProduceResponse), "3+")


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """`NodeEndpoint` of Produce."""

    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


@dataclass(frozen=True, slots=True)
class ProduceResponse(Response):
    """Produce response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.PRODUCE, "3-13", flexible="9+")

    responses: tuple[TopicProduceResponse, ...] = wire(array(TopicProduceResponse), "3+")
    throttle_time_ms: int = wire(INT32, "3+")
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), "10+", tag=0)
