"""ConsumerGroupDescribe (69): consumer groups with their members. Version 1 adds the type of each member."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS: Final = (0, 1)


def handle(broker: BrokerState, request: ConsumerGroupDescribeRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
