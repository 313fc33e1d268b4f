"""DescribeGroups (15): classic groups; what clients ask next if ConsumerGroupDescribe finds nothing.

Version 6 says GROUP_ID_NOT_FOUND of a group that is not there; before, it is in state Dead.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest

API_KEY: Final = ApiKey.DESCRIBE_GROUPS
VERSIONS: Final = (0, 6)


def handle(broker: BrokerState, request: DescribeGroupsRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
