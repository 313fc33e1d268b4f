"""OffsetFetch (9): positions of a group, or from version 8 on of several.

Version 9 adds member id and epoch, version 10 names topics by id.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest

API_KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 10)


def handle(broker: BrokerState, request: OffsetFetchRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
