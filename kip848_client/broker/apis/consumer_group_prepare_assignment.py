"""ConsumerGroupPrepareAssignment (30848, private): the chosen member asks for the state of its group.

KIP-848's client-side assignors, which Apache Kafka does not have: served only if the extension is on.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest

API_KEY: Final = ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "client_assignors"


def handle(broker: BrokerState, request: ConsumerGroupPrepareAssignmentRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
