"""OffsetDelete (47): remove offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest

API_KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = (0, 0)


def handle(broker: BrokerState, request: OffsetDeleteRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
