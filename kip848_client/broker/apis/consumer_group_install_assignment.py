"""ConsumerGroupInstallAssignment (30849, private): the chosen member hands in the target that it computed.

KIP-848's client-side assignors, which Apache Kafka does not have: served only if the extension is on.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest

API_KEY: Final = ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "client_assignors"


def handle(broker: BrokerState, request: ConsumerGroupInstallAssignmentRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
