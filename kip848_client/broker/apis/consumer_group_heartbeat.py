"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, lives, acknowledges or leaves.

In version 0 the coordinator may choose the member id; version 1 may subscribe by pattern.
"""

from __future__ import annotations

from typing import Any, Final

from kip848_client.broker.apis._groups import to_group_coordinator
from kip848_client.broker.apis._permissions import TOPIC_FAILED, Outcome, read_group
from kip848_client.broker.coordinators.group_errors import refusal
from kip848_client.broker.metadata.acls import Operation, ResourceType
from kip848_client.broker.security.access import Permit
from kip848_client.wire.api_keys import ApiKey

API_KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = (0, 1)

handle = to_group_coordinator


def requires(permit: Permit, request: Any) -> Outcome:
    """READ on the group, DESCRIBE on each subscribed topic."""
    refused = read_group(permit, request)
    if refused is not None:
        return refused
    names = request.subscribed_topic_names or ()
    if all(permit.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        permit.remember_member(request.group_id)
        return None
    return refusal(request, code=TOPIC_FAILED, api_version=permit.context.api_version)
