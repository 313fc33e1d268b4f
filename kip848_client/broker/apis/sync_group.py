"""SyncGroup (14): the leader of a classic group sends the assignment, the others fetch theirs.

The answer comes when the leader's assignment has arrived.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.sync_group import SyncGroupRequest

API_KEY: Final = ApiKey.SYNC_GROUP
VERSIONS: Final = (0, 5)


def handle(broker: BrokerState, request: SyncGroupRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers, now or later."""
    broker.groups.handle(request, context)
