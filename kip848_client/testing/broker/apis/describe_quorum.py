"""DescribeQuorum (55): the nodes as the voters of Kafka's metadata log. There is no such log: its offsets stay at 0.

Source:
    apache/kafka ``KafkaRaftClient.handleDescribeQuorumRequest``; KIP-595, KIP-836.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_quorum import (
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)

API_KEY: Final = ApiKey.DESCRIBE_QUORUM
VERSIONS: Final = (0, 2)

_METADATA_TOPIC: Final = "__cluster_metadata"
_EPOCH: Final = 1
_UNKNOWN_TIME: Final = -1
_FIRST_VERSION_WITH_NODES: Final = 2

requires: Final = whole_cluster(Operation.DESCRIBE)


def handle(broker: BrokerState, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Leader and voters; a node that is down was never caught up."""
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if asked != [(_METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=tuple(
                DescribedTopic(
                    topic_name=name,
                    partitions=tuple(
                        DescribedPartition(partition_index=each, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                        for each in partitions
                    ),
                )
                for name, partitions in asked
            )
        )
    now_ms = broker.clock.wall_ms()
    voters = []
    for node in broker.nodes:
        seen_ms = now_ms if node.node_id in broker.placement.living else _UNKNOWN_TIME
        voters.append(
            ReplicaState(replica_id=node.node_id, last_fetch_timestamp=seen_ms, last_caught_up_timestamp=seen_ms)
        )
    quorum = DescribedPartition(
        leader_id=broker.placement.controller, leader_epoch=_EPOCH, current_voters=tuple(voters)
    )
    return DescribeQuorumResponse(
        topics=(DescribedTopic(topic_name=_METADATA_TOPIC, partitions=(quorum,)),),
        nodes=tuple(
            Node(
                node_id=node.node_id,
                listeners=(
                    Listener(
                        name="CONTROLLER",
                        host=node.endpoint(context.listener).host,
                        port=node.endpoint(context.listener).port,
                    ),
                ),
            )
            for node in broker.nodes
        )
        if context.api_version >= _FIRST_VERSION_WITH_NODES
        else (),
    )
