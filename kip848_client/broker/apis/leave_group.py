"""LeaveGroup (13): members leave a classic group, or an administrator removes members of any group.

Version 3 names several members, static ones by their instance id alone; 5 gives a reason, which is ignored.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.leave_group import LeaveGroupRequest

API_KEY: Final = ApiKey.LEAVE_GROUP
VERSIONS: Final = (0, 5)


def handle(broker: BrokerState, request: LeaveGroupRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
