"""ConnectGroupDescribe: groups of workers. Not in Apache Kafka."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import GROUP_FAILED, Outcome
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.CONNECT_GROUP_DESCRIBE
VERSIONS: Final = (0, 0)
EXTENSION: Final = "connect"

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Outcome:
    """DESCRIBE on each group; without one of them all is refused."""
    if all(permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id) for group_id in request.group_ids):
        return None
    return refusal(request, code=GROUP_FAILED, api_version=permit.context.api_version)
