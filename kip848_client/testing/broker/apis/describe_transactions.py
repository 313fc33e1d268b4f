"""DescribeTransactions (65): where transactional ids stand."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import TRANSACTIONAL_ID_FAILED, split, visible
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
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


def requires(permit: Permit, request: DescribeTransactionsRequest) -> Narrowed[Any]:
    """DESCRIBE on each transactional id; topics that the sender may not see are left out."""
    kept, refused = split(
        request.transactional_ids,
        lambda name: permit.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
        lambda name: DescribedTransaction(transactional_id=name, error_code=TRANSACTIONAL_ID_FAILED),
    )

    def complete(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        shown = (replace(each, topics=visible(permit, each.topics)) for each in response.transaction_states)
        return replace(response, transaction_states=(*shown, *refused))

    return Narrowed(replace(request, transactional_ids=kept), complete)
