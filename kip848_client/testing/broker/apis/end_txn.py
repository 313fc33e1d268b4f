"""EndTxn (26): commit or abort a transaction. From version 5 on each end moves the producer's epoch on (KIP-890)."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._permissions import TRANSACTIONAL_ID_FAILED, Outcome, deny, may_write_transaction
from kip848_client.testing.broker.coordinators.transaction_admission import code_in
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

API_KEY: Final = ApiKey.END_TXN
VERSIONS: Final = (0, 5)

_FIRST_FENCED_VERSION: Final = 2
_FIRST_MOVING_VERSION: Final = 5


def handle(broker: BrokerState, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Decide the end; it is written into the partitions and groups next."""
    outcome = broker.transactions.at(context.node_id).end(
        request.transactional_id,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        commit=request.committed,
        moves_epoch=context.api_version >= _FIRST_MOVING_VERSION,
    )
    return EndTxnResponse(
        error_code=code_in(outcome.error, context.api_version, fenced_from=_FIRST_FENCED_VERSION),
        producer_id=outcome.producer_id,
        producer_epoch=outcome.epoch,
    )


def requires(permit: Permit, request: EndTxnRequest) -> Outcome:
    """WRITE on the transactional id."""
    return (
        None
        if may_write_transaction(permit, request.transactional_id)
        else deny(permit, request, TRANSACTIONAL_ID_FAILED)
    )
