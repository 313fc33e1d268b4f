"""ConnectGroupPrepareAssignment: a worker asks for what its assignor needs. Not in Apache Kafka."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "connect"

requires: Final = read_group
handle = to_group_coordinator
