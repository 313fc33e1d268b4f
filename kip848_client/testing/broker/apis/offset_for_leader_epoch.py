"""OffsetForLeaderEpoch (23): where a leader epoch ended, so that a consumer sees whether its position was truncated.

Source:
    apache/kafka ``ReplicaManager.lastOffsetForLeaderEpoch``; KIP-320.
"""

from __future__ import annotations

from typing import Any, Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID
from kip848_client.testing.broker.apis._partitions import find_log, find_readable_topic
from kip848_client.testing.broker.apis._permissions import Outcome, describe_topics
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API_KEY: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS: Final = (2, 4)


def handle(
    broker: BrokerState, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer each partition by itself."""
    topics = []
    for asked in request.topics:
        topic = find_readable_topic(broker, name=asked.topic, topic_id=ZERO_UUID, by_id=False)
        topics.append(
            OffsetForLeaderTopicResult(
                topic=asked.topic,
                partitions=tuple(_partition(broker, topic, item, context.node_id) for item in asked.partitions),
            )
        )
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _partition(
    broker: BrokerState, topic: Topic | ErrorCode, asked: OffsetForLeaderPartition, node_id: int
) -> EpochEndOffset:
    log = find_log(broker, topic, asked.partition, node_id=node_id, current_leader_epoch=asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return EpochEndOffset(partition=asked.partition, error_code=log)
    end = log.offset_for_leader_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset)


def requires(permit: Permit, request: Any) -> Outcome:
    """DESCRIBE on each topic, or CLUSTER_ACTION, which followers have."""
    if permit.may_on_cluster(Operation.CLUSTER_ACTION, quiet=True):
        return None  # a follower's question
    return describe_topics(permit, request)
