"""ListTransactions (66): the transactional ids of this node that pass all filters.

A state that does not exist is named in the answer and matches nothing. An id without any transaction so far counts as
older than any duration, as in Kafka.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.patterns import compiled
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.transactions.transaction import TransactionState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

API_KEY: Final = ApiKey.LIST_TRANSACTIONS
VERSIONS: Final = (0, 2)

_STATES: Final = frozenset(state.title for state in TransactionState) | {"PrepareEpochFence"}


def handle(broker: BrokerState, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """List what all filters let through."""
    transactions = broker.transactions.at(context.node_id)
    if transactions.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = request.transactional_id_pattern
    matches = None
    if pattern:
        try:
            matches = compiled(pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = broker.clock.wall_ms()
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    return ListTransactionsResponse(
        unknown_state_filters=tuple(state for state in request.state_filters if state not in _STATES),
        transaction_states=tuple(
            ListedTransaction(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.title,
            )
            for known in transactions
            if (not states or known.state.title in states)
            and (not producer_ids or known.producer_id in producer_ids)
            and (request.duration_filter < 0 or now_ms - known.started_ms > request.duration_filter)
            and (matches is None or matches.fullmatch(known.transactional_id) is not None)
        ),
    )


def requires(permit: Permit, request: Any) -> Narrowed[Any]:
    """Nothing; only transactional ids that the sender may DESCRIBE are shown."""

    def complete(response: Any) -> Any:
        shown = (
            each
            for each in response.transaction_states
            if permit.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id, quiet=True)
        )
        return replace(response, transaction_states=tuple(shown))

    return Narrowed(request, complete)
