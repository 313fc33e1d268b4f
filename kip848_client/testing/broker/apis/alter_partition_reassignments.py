"""AlterPartitionReassignments (45): partitions move to other nodes, at once: a cluster has one copy of each log.

The leader stays if it is among the new replicas; otherwise the first of them that is running leads. Partitions of
internal topics follow the nodes by themselves and are not found.

Source:
    apache/kafka ``ReplicationControlManager.alterPartitionReassignments``; KIP-455, KIP-860.
"""

from __future__ import annotations

from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API_KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 1)

requires: Final = whole_cluster(Operation.ALTER)


def handle(
    broker: BrokerState, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Reassign, partition by partition."""
    del context
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,  # as in Kafka
        responses=tuple(
            ReassignableTopicResponse(
                name=named.name,
                partitions=tuple(
                    _reassign(
                        broker,
                        broker.topics.get(named.name),
                        named.name,
                        asked,
                        may_change_factor=request.allow_replication_factor_change,
                    )
                    for asked in named.partitions
                ),
            )
            for named in request.topics
        ),
    )


def _reassign(
    broker: BrokerState, topic: Topic | None, name: str, asked: ReassignablePartition, *, may_change_factor: bool
) -> ReassignablePartitionResponse:
    partition = asked.partition_index
    try:
        if topic is None:
            raise BrokerError(f"Unable to find a topic named {name}.", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not 0 <= partition < topic.partition_count:
            text = f"Unable to find partition {name}:{partition}."
            raise BrokerError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.replicas is None:
            raise BrokerError("No partition reassignment found.", code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        broker.placement.check_assignments([asked.replicas])
        now = len(broker.placement.get(topic.topic_id, partition).replicas)
        if not may_change_factor and len(asked.replicas) != now:
            text = f"The replication factor is changed from {now} to {len(asked.replicas)}"
            raise BrokerError(text, code=ErrorCode.INVALID_REPLICATION_FACTOR)
        broker.topics.reassign(topic, partition, asked.replicas)
    except BrokerError as error:
        return ReassignablePartitionResponse(partition_index=partition, error_code=error.code, error_message=str(error))
    return ReassignablePartitionResponse(partition_index=partition)
