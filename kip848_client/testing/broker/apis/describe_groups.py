"""DescribeGroups (15): classic groups, which clients ask for if ConsumerGroupDescribe finds nothing.

From version 6 on an unknown group is GROUP_ID_NOT_FOUND, before that it is in state Dead.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import GROUP_FAILED, split, with_group_operations
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

API_KEY: Final = ApiKey.DESCRIBE_GROUPS
VERSIONS: Final = (0, 6)

handle = to_group_coordinator


def requires(permit: Permit, request: DescribeGroupsRequest) -> Narrowed[Any]:
    """DESCRIBE on each group."""
    kept, refused = split(
        request.groups,
        lambda group_id: permit.may(Operation.DESCRIBE, ResourceType.GROUP, group_id),
        lambda group_id: DescribedGroup(group_id=group_id, error_code=GROUP_FAILED),
    )

    def complete(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        return replace(
            response, groups=(*(with_group_operations(permit, group) for group in response.groups), *refused)
        )

    return Narrowed(replace(request, groups=kept), complete)
