"""Every request that is left to the group coordinator, which answers it now or later: one row per API.

The private APIs, which Apache Kafka does not have, are served only if their extension is on: client-side assignors of
KIP-848, and connect groups (``group.coordinator.rebalance.protocols`` has ``connect``).
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.coordinator.core.requests import GroupMessage
from kip848_client.wire.api_keys import ApiKey

APIS: Final[tuple[tuple[ApiKey, tuple[int, int], str], ...]] = (
    # Positions. Members of consumer groups need version 9, where the generation is the member epoch; 10 names topics
    # by id. From version 8 on OffsetFetch names several groups.
    (ApiKey.OFFSET_COMMIT, (2, 10), ""),
    (ApiKey.OFFSET_FETCH, (1, 10), ""),
    (ApiKey.OFFSET_DELETE, (0, 0), ""),
    # Classic groups. LeaveGroup removes members of any group, too: from version 3 on several, static ones by their
    # instance id alone.
    (ApiKey.JOIN_GROUP, (0, 9), ""),
    (ApiKey.HEARTBEAT, (0, 4), ""),
    (ApiKey.LEAVE_GROUP, (0, 5), ""),
    (ApiKey.SYNC_GROUP, (0, 5), ""),
    # Consumer groups. In version 0 the coordinator may choose the member id; version 1 may subscribe by pattern.
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), ""),
    (ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, (0, 0), "client_assignors"),
    (ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, (0, 0), "client_assignors"),
    (ApiKey.CONNECT_GROUP_HEARTBEAT, (0, 0), "connect"),
    (ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT, (0, 0), "connect"),
    (ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT, (0, 0), "connect"),
    # Administration. ListGroups has states from version 4 on and types from version 5 on; DescribeGroups, which clients
    # ask if ConsumerGroupDescribe finds nothing, says GROUP_ID_NOT_FOUND from version 6 on, and state Dead before.
    (ApiKey.LIST_GROUPS, (0, 5), ""),
    (ApiKey.DESCRIBE_GROUPS, (0, 6), ""),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), ""),
    (ApiKey.CONNECT_GROUP_DESCRIBE, (0, 0), "connect"),
    (ApiKey.DELETE_GROUPS, (0, 2), ""),
)
"""API, lowest and highest version, and the extension that it belongs to."""


def handle(broker: BrokerState, request: GroupMessage, context: RequestContext) -> None:
    """Leave it to the group coordinator."""
    broker.groups.handle(request, context)
