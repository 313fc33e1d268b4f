"""OffsetCommit (8): keep positions of a group.

Members of the consumer protocol need version 9, where the generation is the member epoch; version 10 names topics
by id.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

API_KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = (2, 10)


def handle(broker: BrokerState, request: OffsetCommitRequest, context: RequestContext) -> None:
    """Leave it to the group coordinator; it answers."""
    broker.groups.handle(request, context)
