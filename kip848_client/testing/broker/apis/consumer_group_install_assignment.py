"""ConsumerGroupInstallAssignment: a member brings the result of its client-side assignor. Not in Apache Kafka."""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT
VERSIONS: Final = (0, 0)
EXTENSION: Final = "client_assignors"

requires: Final = read_group
handle = to_group_coordinator
