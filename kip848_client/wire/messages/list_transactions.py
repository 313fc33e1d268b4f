"""ListTransactions (66): the transactional ids of one coordinator. 1: by duration. 2: by a pattern."""

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


class ListTransactionsRequest(Request["ListTransactionsResponse"], frozen=True):
    """Filters; empty ones let everything through."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_TRANSACTIONS, "0-2", flexible="0+")

    state_filters: Annotated[tuple[str, ...], wire("0+")] = ()
    producer_id_filters: Annotated[tuple[Int64, ...], wire("0+")] = ()
    duration_filter: Annotated[Int64, wire("1+")] = -1
    """Milliseconds; negative lets everything through."""
    transactional_id_pattern: Annotated[str | None, wire("2+", nullable="2+")] = None


class ListedTransaction(WireStruct, frozen=True):
    """One transactional id."""

    transactional_id: Annotated[str, wire("0+")] = ""
    producer_id: Annotated[Int64, wire("0+")] = 0
    transaction_state: Annotated[str, wire("0+")] = ""


class ListTransactionsResponse(Response, frozen=True):
    """The transactional ids that pass the filters."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_TRANSACTIONS, "0-2", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    unknown_state_filters: Annotated[tuple[str, ...], wire("0+")] = ()
    transaction_states: Annotated[tuple[ListedTransaction, ...], wire("0+")] = ()
