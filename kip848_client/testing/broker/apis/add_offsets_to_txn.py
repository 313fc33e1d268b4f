"""AddOffsetsToTxn (25): a transaction will commit offsets of a group."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._permissions import (
    GROUP_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Outcome,
    deny,
    may_write_transaction,
)
from kip848_client.testing.broker.coordinators.transaction_admission import code_in
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.transactions.transaction import offsets_partition
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API_KEY: Final = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS: Final = (0, 4)

_FIRST_FENCED_VERSION: Final = 2


def handle(broker: BrokerState, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Make the group part of the transaction."""
    outcome = broker.transactions.at(context.node_id).add_partitions(
        request.transactional_id,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        partitions=frozenset({offsets_partition(request.group_id)}),
    )
    return AddOffsetsToTxnResponse(
        error_code=code_in(outcome.error, context.api_version, fenced_from=_FIRST_FENCED_VERSION)
    )


def requires(permit: Permit, request: AddOffsetsToTxnRequest) -> Outcome:
    """WRITE on the transactional id, READ on the group."""
    if not may_write_transaction(permit, request.transactional_id):
        return deny(permit, request, TRANSACTIONAL_ID_FAILED)
    if not permit.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return deny(permit, request, GROUP_FAILED)
    return None
