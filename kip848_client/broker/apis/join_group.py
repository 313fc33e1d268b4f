"""JoinGroup (11): become a member of a classic group, or one of its next generation.

The answer comes when every member has joined, or the time for it is up.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.join_group import JoinGroupRequest

API_KEY: Final = ApiKey.JOIN_GROUP
VERSIONS: Final = (0, 9)


def handle(broker: BrokerState, request: JoinGroupRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers, now or later."""
    broker.groups.handle(request, context)
