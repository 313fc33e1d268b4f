"""ConsumerGroupHeartbeat (68): a member of a consumer group says that it lives, joins, leaves, or acknowledges.

Version 0 may leave the member id to the coordinator; version 1 brings it along, and may subscribe by pattern.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

API_KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = (0, 1)


def handle(broker: BrokerState, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
