"""Heartbeat (12): a member of a classic group is alive, and hears that it has to join again.

Members of consumer groups send ConsumerGroupHeartbeat instead.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.heartbeat import HeartbeatRequest

API_KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = (0, 4)


def handle(broker: BrokerState, request: HeartbeatRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
