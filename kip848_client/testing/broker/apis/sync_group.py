"""SyncGroup (14): the leader of a classic group brings the assignment, and every member fetches its part."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.SYNC_GROUP
VERSIONS: Final = (0, 5)

requires: Final = read_group
handle = to_group_coordinator
