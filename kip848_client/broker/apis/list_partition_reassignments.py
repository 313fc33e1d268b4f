"""ListPartitionReassignments (46): none is ever going on, because `alter_partition_reassignments` ends each at once."""

from __future__ import annotations

from typing import Final

from kip848_client.broker.apis._permissions import whole_cluster
from kip848_client.broker.metadata.acls import Operation
from kip848_client.broker.net.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API_KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 0)

requires: Final = whole_cluster(Operation.DESCRIBE)


def handle(
    _broker: BrokerState, _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Nothing; topics and partitions that do not exist are no error, as in Kafka."""
    return ListPartitionReassignmentsResponse()
