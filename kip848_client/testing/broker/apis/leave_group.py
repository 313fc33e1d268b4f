"""LeaveGroup (13): members leave a group of any kind.

From version 3 on several, static ones by their instance id alone.
"""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.LEAVE_GROUP
VERSIONS: Final = (0, 5)

requires: Final = read_group
handle = to_group_coordinator
