"""ListGroups (16): the groups that this node coordinates; states from version 4 on, types from version 5 on."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = (0, 5)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Narrowed[Any] | None:
    """Nothing; without DESCRIBE on the cluster only groups that the sender may DESCRIBE are shown."""
    if permit.may_on_cluster(Operation.DESCRIBE, quiet=True):
        return None

    def complete(response: Any) -> Any:
        shown = (
            group
            for group in response.groups
            if permit.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quiet=True)
        )
        return replace(response, groups=tuple(shown))

    return Narrowed(request, complete)
