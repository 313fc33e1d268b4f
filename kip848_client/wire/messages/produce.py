"""Produce (0): append records to partitions.

3: record batches of format v2. 5: log start offset in the answer. 8: errors of single records. 9: flexible.
10: leaders in errors. 12: transactions of KIP-890. 13: topics by id. With `acks` 0 there is no answer.
Records are bytes here; `record_batch` reads them.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
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


@value
class PartitionProduceData:
    """Batches for one partition."""

    index: int = wire(INT32, "3+")
    records: bytes | None = wire(RECORDS, "3+", nullable="3+")


@value
class TopicProduceData:
    """A topic, by name up to version 12 and by id from 13 on."""

    name: str = wire(STRING, "3-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(array(PartitionProduceData), "3+")


@value
class ProduceRequest(Request["ProduceResponse"]):
    """Record batches per partition."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.PRODUCE, "3-13", flexible="9+")

    transactional_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    acks: int = wire(INT16, "3+")
    timeout_ms: int = wire(INT32, "3+")
    topic_data: tuple[TopicProduceData, ...] = wire(array(TopicProduceData), "3+")


@value
class BatchIndexAndErrorMessage:
    """What is wrong with one record of the batch."""

    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


@value
class LeaderIdAndEpoch:
    """Who leads now, if not the broker that was asked."""

    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@value
class PartitionProduceResponse:
    """The offset of the first record, or an error."""

    index: int = wire(INT32, "3+")
    error_code: int = wire(INT16, "3+")
    base_offset: int = wire(INT64, "3+")
    log_append_time_ms: int = wire(INT64, "3+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(array(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0)


@value
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = wire(STRING, "3-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(array(PartitionProduceResponse), "3+")


@value
class NodeEndpoint:
    """Where a leader listens that is named in an error."""

    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


@value
class ProduceResponse(Response):
    """The offset that each batch got, or why it was refused."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.PRODUCE, "3-13", flexible="9+")

    responses: tuple[TopicProduceResponse, ...] = wire(array(TopicProduceResponse), "3+")
    throttle_time_ms: int = wire(INT32, "3+")
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), "10+", tag=0)
