"""DescribeProducers (61): the idempotent and transactional producers that a partition knows."""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID
from kip848_client.testing.broker.apis._partitions import find_log, find_topic
from kip848_client.testing.broker.apis._permissions import read_topics
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_producers import (
    DescribedPartition,
    DescribedTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)

API_KEY: Final = ApiKey.DESCRIBE_PRODUCERS
VERSIONS: Final = (0, 0)

requires: Final = read_topics

_NONE: Final = -1


def handle(
    broker: BrokerState, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Look into the partitions."""
    topics = []
    for asked in request.topics:
        topic = find_topic(broker.topics, name=asked.name, topic_id=ZERO_UUID, by_id=False)
        topics.append(
            DescribedTopic(
                name=asked.name,
                partitions=tuple(
                    _partition(broker, topic, index, context.node_id) for index in asked.partition_indexes
                ),
            )
        )
    return DescribeProducersResponse(topics=tuple(topics))


def _partition(broker: BrokerState, topic: Topic | ErrorCode, index: int, node_id: int) -> DescribedPartition:
    log = find_log(broker, topic, index, node_id=node_id, from_follower=True)
    if isinstance(log, ErrorCode):
        return DescribedPartition(partition_index=index, error_code=log)
    return DescribedPartition(
        partition_index=index,
        active_producers=tuple(
            ProducerState(
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.last_timestamp,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=log.open_transactions.get(known.producer_id, _NONE),
            )
            for known in log.producers()
        ),
    )
