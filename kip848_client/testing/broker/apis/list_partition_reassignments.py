"""ListPartitionReassignments (46): none is ever going on, because `alter_partition_reassignments` ends each at once."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.testing.broker.apis._permissions import CLUSTER_FAILED, Outcome, deny
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API_KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 0)


def handle(
    _broker: BrokerState, _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Nothing; topics and partitions that do not exist are no error, as in Kafka."""
    return ListPartitionReassignmentsResponse()


def requires(permit: Permit, request: ListPartitionReassignmentsRequest) -> Outcome:
    """DESCRIBE on the cluster; the refusal names what was asked for, as in Kafka."""
    if permit.may_on_cluster(Operation.DESCRIBE):
        return None
    return replace(
        deny(permit, request, CLUSTER_FAILED),
        topics=tuple(
            OngoingTopicReassignment(
                name=topic.name,
                partitions=tuple(
                    OngoingPartitionReassignment(partition_index=partition) for partition in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        ),
    )
