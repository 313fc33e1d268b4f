"""ConsumerGroupDescribe (69): consumer groups with members, assignments and targets."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import describe_groups_and_topics
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_describe import DescribedGroup

API_KEY: Final = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS: Final = (0, 1)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Narrowed[Any]:
    """DESCRIBE on each group, and on all topics that its members have."""
    return describe_groups_and_topics(
        permit, request, DescribedGroup, lambda member: (member.assignment, member.target_assignment)
    )
