"""DeleteGroups (42): remove groups without members, and their offsets."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest

API_KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = (0, 2)


def handle(broker: BrokerState, request: DeleteGroupsRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
