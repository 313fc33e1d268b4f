"""DeleteGroups (42): remove empty groups with their offsets."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import GROUP_FAILED, Outcome, narrow
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = (0, 3)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Outcome:
    """DELETE on each group."""
    return narrow(
        permit,
        request,
        lambda group_id: 0 if permit.may(Operation.DELETE, ResourceType.GROUP, group_id) else GROUP_FAILED,
    )
