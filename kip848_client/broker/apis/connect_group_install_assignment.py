"""ConnectGroupInstallAssignment (30852, private): the chosen worker hands in the assignment.

Connect groups, which Apache Kafka does not have: served only if ``group.coordinator.rebalance.protocols`` has
``connect``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest

API_KEY: Final = ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "connect"


def handle(broker: BrokerState, request: ConnectGroupInstallAssignmentRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
