"""FindCoordinator (10): the node that coordinates a group or a transactional id. Any node answers.

Versions 0-3 ask for one key, 4 and later for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import GROUP_FAILED, TRANSACTIONAL_ID_FAILED, Outcome, deny, narrow
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.metadata.placement import (
    GROUP_OFFSETS,
    NO_LEADER,
    TRANSACTION_STATE,
    CoordinatorTopic,
)
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API_KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)

_TOPICS: Final[Mapping[int, CoordinatorTopic]] = {0: GROUP_OFFSETS, 1: TRANSACTION_STATE}
"""Key type -> the topic whose partitions say which node it is."""
_KEY_TYPES: Final = {2: "share groups"}
_FIRST_BATCHED_VERSION: Final = 4


def handle(broker: BrokerState, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Answer with the node's address, or an error if no node coordinates the key."""
    if context.api_version >= _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=tuple(
                _find(broker, context, request.key_type, key, found="") for key in request.coordinator_keys
            )
        )
    only = _find(broker, context, request.key_type, request.key, found="NONE")
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(broker: BrokerState, context: RequestContext, key_type: int, key: str, *, found: str) -> Coordinator:
    """The coordinator of one key; *found* is what Kafka writes as the message of a success."""
    topic = _TOPICS.get(key_type)
    if topic is None:
        kind = _KEY_TYPES.get(key_type, f"key type {key_type}")
        return _none(
            key, ErrorCode.INVALID_REQUEST, f"this broker coordinates groups and transactions only, not {kind}"
        )
    if topic == GROUP_OFFSETS:
        broker.offsets_topic.create()
    node_id = broker.placement.coordinator(topic, key)
    if node_id == NO_LEADER:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no node lives that could coordinate it")
    host, port = broker.nodes[node_id].endpoint(context.listener)
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message=found)


def _none(key: str, error_code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=message)


_FIRST_BATCHED_FIND_COORDINATOR: Final = 4


_KEY_OF_TRANSACTION: Final = 1


def requires(permit: Permit, request: FindCoordinatorRequest) -> Outcome:
    """DESCRIBE on each group or transactional id."""
    of_transaction = request.key_type == _KEY_OF_TRANSACTION
    resource_type = ResourceType.TRANSACTIONAL_ID if of_transaction else ResourceType.GROUP
    code = TRANSACTIONAL_ID_FAILED if of_transaction else GROUP_FAILED
    if permit.context.api_version >= _FIRST_BATCHED_FIND_COORDINATOR:
        return narrow(
            permit,
            request,
            lambda key: 0 if permit.may(Operation.DESCRIBE, resource_type, key) else code,
        )
    return None if permit.may(Operation.DESCRIBE, resource_type, request.key) else deny(permit, request, code)
