"""ShareGroupHeartbeat (76): a member of a share group joins, lives or leaves."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group_and_see_subscription
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS: Final = (1, 1)

requires: Final = read_group_and_see_subscription
handle = to_group_coordinator
