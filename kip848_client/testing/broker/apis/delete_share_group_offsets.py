"""DeleteShareGroupOffsets (92): make an empty share group forget topics."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.testing.broker.apis._groups import to_group_coordinator
from kip848_client.testing.broker.apis._permissions import TOPIC_FAILED, Outcome, narrow, whole_group
from kip848_client.testing.broker.metadata.acls import Operation, ResourceType
from kip848_client.testing.broker.security.access import Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 0)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Outcome:
    """DELETE on the group, without which all is refused, and READ on each topic."""
    refused_group = whole_group(Operation.DELETE)(permit, request)
    if refused_group is not None:
        return refused_group
    return narrow(
        permit,
        request,
        lambda topic: 0 if permit.may(Operation.READ, ResourceType.TOPIC, topic.topic_name) else TOPIC_FAILED,
    )
