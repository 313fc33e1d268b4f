"""InitProducerId (22): a fresh id for an idempotent producer. Transactional ids are refused: no transactions here.

Source:
    apache/kafka ``TransactionCoordinator.handleInitProducerId``: without a transactional id, whatever id and epoch the
    producer had before, it gets a new id with epoch 0.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import DataDirError
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API_KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 5)

_NONE: Final = -1
_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The one code that every client takes as final for InitProducerId; librdkafka retries most others for ever."""


def handle(broker: BrokerState, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Hand out an id that no producer had before."""
    del context
    if request.transactional_id is not None:
        code = _REFUSED if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):  # either both or neither
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=broker.topics.new_producer_id(), producer_epoch=0)
    except DataDirError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
