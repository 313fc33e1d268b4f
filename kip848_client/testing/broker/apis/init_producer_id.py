"""InitProducerId (22): an id and an epoch for an idempotent or a transactional producer.

Source:
    apache/kafka ``TransactionCoordinator.handleInitProducerId``: without a transactional id, any id and epoch that the
    producer had before, it gets a new id with epoch 0.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import DataDirError
from kip848_client.testing.broker.apis._permissions import (
    CLUSTER_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Outcome,
    deny,
    may_write_transaction,
)
from kip848_client.testing.broker.coordinators.transaction_admission import code_in
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API_KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 5)

_NONE: Final = -1
_FIRST_FENCED_VERSION: Final = 4


def handle(broker: BrokerState, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Without a transactional id hand out one that no producer had before; with one, fence who had it."""
    if request.transactional_id is not None:
        outcome = broker.transactions.at(context.node_id).init_producer_id(request)
        return InitProducerIdResponse(
            error_code=code_in(outcome.error, context.api_version, fenced_from=_FIRST_FENCED_VERSION),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.epoch,
        )
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):  # either both or neither
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=broker.topics.new_producer_id(), producer_epoch=0)
    except DataDirError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)


def requires(permit: Permit, request: InitProducerIdRequest) -> Outcome:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on some topic."""
    if request.transactional_id is not None:
        if may_write_transaction(permit, request.transactional_id):
            return None
        return deny(permit, request, TRANSACTIONAL_ID_FAILED)
    if permit.may_on_cluster(Operation.IDEMPOTENT_WRITE, quiet=True) or permit.may_write_somewhere():
        return None
    return deny(permit, request, CLUSTER_FAILED)
