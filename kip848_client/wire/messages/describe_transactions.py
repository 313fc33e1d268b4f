"""DescribeTransactions (65): where transactional ids stand."""

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


class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"], frozen=True):
    """The transactional ids to look at."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible="0+", answered_by={"transactional_ids": "transaction_states"}
    )

    transactional_ids: Annotated[tuple[str, ...], wire("0+")] = ()


class DescribedTransactionTopic(WireStruct, frozen=True):
    """Partitions that the open transaction has written to."""

    topic: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class DescribedTransaction(WireStruct, frozen=True):
    """One transactional id."""

    error_code: Annotated[Int16, wire("0+")] = 0
    transactional_id: Annotated[str, wire("0+")] = ""
    transaction_state: Annotated[str, wire("0+")] = ""
    transaction_timeout_ms: Annotated[Int32, wire("0+")] = 0
    transaction_start_time_ms: Annotated[Int64, wire("0+")] = 0
    """-1 if there was none."""
    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    topics: Annotated[tuple[DescribedTransactionTopic, ...], wire("0+")] = ()


class DescribeTransactionsResponse(Response, frozen=True):
    """One state per id."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    transaction_states: Annotated[tuple[DescribedTransaction, ...], wire("0+")] = ()
