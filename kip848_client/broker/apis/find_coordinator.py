"""FindCoordinator (10): this broker coordinates every group and every transactional id.

Versions 0-3 ask for one key, 4 and later for several.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.error_codes import ErrorCode
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_KEY_TYPES: Final = {2: "share groups"}
_FIRST_BATCHED_VERSION: Final = 4


def handle(broker: BrokerState, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Answer with this broker's address, or an error for what it does not coordinate."""
    error_code = ErrorCode.NONE
    error_message = "" if context.api_version >= _FIRST_BATCHED_VERSION else "NONE"  # as Kafka writes them
    if request.key_type not in (_GROUP, _TRANSACTION):
        error_code = ErrorCode.INVALID_REQUEST
        kind = _KEY_TYPES.get(request.key_type, f"key type {request.key_type}")
        error_message = f"this broker coordinates groups and transactions only, not {kind}"
    if error_code:
        node_id, host, port = -1, "", -1
    else:
        node_id, host, port = broker.node_id, broker.host, broker.port
    if context.api_version < _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            error_code=error_code, error_message=error_message, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error_code, error_message=error_message
            )
            for key in request.coordinator_keys
        )
    )
