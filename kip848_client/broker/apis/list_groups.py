"""ListGroups (16): all groups of this node. Version 4 adds the state and a filter by it, version 5 does so by type."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_groups import ListGroupsRequest

API_KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = (0, 5)


def handle(broker: BrokerState, request: ListGroupsRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
