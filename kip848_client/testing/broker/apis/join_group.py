"""JoinGroup (11): a member of a classic group joins or asks for a new generation."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.JOIN_GROUP
VERSIONS: Final = (0, 9)

requires: Final = read_group
handle = to_group_coordinator
