"""OffsetDelete (47): forget positions of topics that no member of the group subscribes to."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import Outcome, read_topics, whole_group
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.security.access import Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = (0, 0)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Outcome:
    """DELETE on the group, READ on each topic."""
    refused_group = whole_group(Operation.DELETE)(permit, request)
    return read_topics(permit, request) if refused_group is None else refused_group
