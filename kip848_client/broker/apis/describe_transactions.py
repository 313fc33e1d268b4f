"""DescribeTransactions (65): where transactional ids stand."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.error_codes import ErrorCode
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

API_KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS: Final = (0, 0)


def handle(
    broker: BrokerState, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id by itself."""
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            _describe(broker, name, context.node_id) for name in dict.fromkeys(request.transactional_ids)
        )
    )


def _describe(broker: BrokerState, transactional_id: str, node_id: int) -> DescribedTransaction:
    known = broker.transactions.at(node_id).get(transactional_id) if transactional_id else None
    if isinstance(known, ErrorCode):
        return DescribedTransaction(transactional_id=transactional_id, error_code=known)
    if known is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return DescribedTransaction(transactional_id=transactional_id, error_code=code)
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        partitions.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=known.state.title,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=tuple(
            DescribedTransactionTopic(topic=topic, partitions=tuple(numbers)) for topic, numbers in partitions.items()
        ),
    )
