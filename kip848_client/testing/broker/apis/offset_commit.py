"""OffsetCommit (8): positions of a group.

Members of consumer groups need version 9, whose generation is the member epoch. 10 names topics by id.
"""

from __future__ import annotations

from typing import Final

from kip848_client.testing.broker.apis._groups import commit_in_parts
from kip848_client.testing.broker.apis._permissions import read_group_and_topics
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = (2, 10)

requires: Final = read_group_and_topics
handle = commit_in_parts
