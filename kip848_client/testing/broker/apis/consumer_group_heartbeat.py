"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, lives, acknowledges or leaves.

In version 0 the coordinator may choose the member id; version 1 may subscribe by pattern.
"""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group_and_see_subscription
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = (0, 1)

requires: Final = read_group_and_see_subscription
handle = to_group_coordinator
