"""Produce (0): append records to partitions.

3: record batches of format v2. 5: log start offset in the answer. 8: errors of single records. 9: flexible.
10: leaders in errors. 12: transactions of KIP-890. 13: topics by id. With `acks` 0 there is no answer.
Records are bytes here; `record_batch` reads them.
"""

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
    Records,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class PartitionProduceData(WireStruct, frozen=True):
    """Batches for one partition."""

    index: Annotated[Int32, wire("3+")] = 0
    records: Annotated[Records | None, wire("3+", nullable="3+")] = None


class TopicProduceData(WireStruct, frozen=True):
    """A topic, by name up to version 12 and by id from 13 on."""

    name: Annotated[str, wire("3-12", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partition_data: Annotated[tuple[PartitionProduceData, ...], wire("3+")] = ()


class ProduceRequest(Request["ProduceResponse"], frozen=True):
    """Record batches per partition."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.PRODUCE,
        "3-13",
        flexible="9+",
        answered_by={"topic_data": "responses", "partition_data": "partition_responses"},
    )

    transactional_id: Annotated[str | None, wire("3+", nullable="3+")] = None
    acks: Annotated[Int16, wire("3+")] = 0
    timeout_ms: Annotated[Int32, wire("3+")] = 0
    topic_data: Annotated[tuple[TopicProduceData, ...], wire("3+")] = ()


class BatchIndexAndErrorMessage(WireStruct, frozen=True):
    """The error of one record of the batch."""

    batch_index: Annotated[Int32, wire("8+")] = 0
    batch_index_error_message: Annotated[str | None, wire("8+", nullable="8+")] = None


class LeaderIdAndEpoch(WireStruct, frozen=True):
    """The present leader, if it is not the broker that was asked."""

    leader_id: Annotated[Int32, wire("10+")] = -1
    leader_epoch: Annotated[Int32, wire("10+")] = -1


class PartitionProduceResponse(WireStruct, frozen=True):
    """The offset of the first record, or an error."""

    index: Annotated[Int32, wire("3+")] = 0
    error_code: Annotated[Int16, wire("3+")] = 0
    base_offset: Annotated[Int64, wire("3+")] = 0
    log_append_time_ms: Annotated[Int64, wire("3+")] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], wire("8+", ignorable=True)] = ()
    error_message: Annotated[str | None, wire("8+", nullable="8+", ignorable=True)] = None
    current_leader: Annotated[LeaderIdAndEpoch, wire("10+", tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("3-12", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partition_responses: Annotated[tuple[PartitionProduceResponse, ...], wire("3+")] = ()


class NodeEndpoint(WireStruct, frozen=True):
    """The address of a leader that an error names."""

    node_id: Annotated[Int32, wire("10+")] = 0
    host: Annotated[str, wire("10+")] = ""
    port: Annotated[Int32, wire("10+")] = 0
    rack: Annotated[str | None, wire("10+", nullable="10+")] = None


class ProduceResponse(Response, frozen=True):
    """The offset that each batch got, or why it was refused."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.PRODUCE, "3-13", flexible="9+")

    responses: Annotated[tuple[TopicProduceResponse, ...], wire("3+")] = ()
    throttle_time_ms: Annotated[Int32, wire("3+")] = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], wire("10+", tag=0)] = ()
