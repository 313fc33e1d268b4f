"""ConnectGroupPrepareAssignment (30851, private): the chosen worker asks for the state of its group.

Connect groups, which Apache Kafka does not have: served only if ``group.coordinator.rebalance.protocols`` has
``connect``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_prepare_assignment import ConnectGroupPrepareAssignmentRequest

API_KEY: Final = ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "connect"


def handle(broker: BrokerState, request: ConnectGroupPrepareAssignmentRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
