"""AddPartitionsToTxn (24): partitions that a transaction will write to.

Up to 3 one transaction, in the `v3_and_below_` fields; from 4 on several, which only brokers send. 3: flexible.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class AddPartitionsToTxnTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class AddPartitionsToTxnTransaction(WireStruct, frozen=True):
    """One transaction of a batch that a broker sends."""

    transactional_id: Annotated[str, wire("4+")] = ""
    producer_id: Annotated[Int64, wire("4+")] = 0
    producer_epoch: Annotated[Int16, wire("4+")] = 0
    verify_only: Annotated[bool, wire("4+")] = False
    topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], wire("4+")] = ()


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], frozen=True):
    """The partitions to add."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "0-5",
        flexible="3+",
        answered_by={
            "transactions": "results_by_transaction",
            "v3_and_below_topics": "results_by_topic_v3_and_below",
            "topics": "topic_results",
            "partitions": "results_by_partition",
        },
    )

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], wire("4+")] = ()
    v3_and_below_transactional_id: Annotated[str, wire("0-3")] = ""
    v3_and_below_producer_id: Annotated[Int64, wire("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, wire("0-3")] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], wire("0-3")] = ()


class AddPartitionsToTxnPartitionResult(WireStruct, frozen=True):
    """Whether the partition was added."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    partition_error_code: Annotated[Int16, wire("0+")] = 0


class AddPartitionsToTxnTopicResult(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    results_by_partition: Annotated[tuple[AddPartitionsToTxnPartitionResult, ...], wire("0+")] = ()


class AddPartitionsToTxnResult(WireStruct, frozen=True):
    """The answer for one transaction."""

    transactional_id: Annotated[str, wire("4+")] = ""
    topic_results: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], wire("4+")] = ()


class AddPartitionsToTxnResponse(Response, frozen=True):
    """One result per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("4+", ignorable=True)] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], wire("4+")] = ()
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], wire("0-3")] = ()
