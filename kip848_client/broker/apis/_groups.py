"""What the APIs of groups share: their requests are left to the group coordinator. No API of its own."""

from __future__ import annotations

from kip848_client.broker.net.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.coordinator.core.inputs import GroupMessage


def to_group_coordinator(broker: BrokerState, request: GroupMessage, context: RequestContext) -> None:
    """Leave it to the coordinator of its group or groups, which answers now or later."""
    broker.groups.handle(request, context)
