"""AddPartitionsToTxn (24): partitions that a transaction will write to.

Up to 3 one transaction, in the `v3_and_below_` fields; from 4 on several, which only brokers send. 3: flexible.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTransaction",
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnResult",
]


@value
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class AddPartitionsToTxnTransaction:
    """One transaction of a batch that a broker sends."""

    transactional_id: str = wire(STRING, "4+")
    producer_id: int = wire(INT64, "4+")
    producer_epoch: int = wire(INT16, "4+")
    verify_only: bool = wire(BOOL, "4+")
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(array(AddPartitionsToTxnTopic), "4+")


@value
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """The partitions to add."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible="3+")

    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(array(AddPartitionsToTxnTopic), "0-3")


@value
class AddPartitionsToTxnPartitionResult:
    """Whether the partition was added."""

    partition_index: int = wire(INT32, "0+")
    partition_error_code: int = wire(INT16, "0+")


@value
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


@value
class AddPartitionsToTxnResult:
    """The answer for one transaction."""

    transactional_id: str = wire(STRING, "4+")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(array(AddPartitionsToTxnTopicResult), "4+")


@value
class AddPartitionsToTxnResponse(Response):
    """One result per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible="3+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "4+", ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
