"""DescribeTopicPartitions (75): topics in the order of their names, a page at a time (KIP-966).

The Java AdminClient asks this first when it describes topics by name; others use Metadata.

Source:
    apache/kafka ``DescribeTopicPartitionsRequestHandler``, ``KRaftMetadataCache.describeTopicResponse``.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._partitions import (
    TOPIC_OPERATIONS,
    described_topics,
    find_described_topic,
    is_internal,
    partition_states,
)
from kip848_client.testing.broker.apis._permissions import TOPIC_FAILED, may_on_topic, shown_topics, split
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.metadata.topic_name_rules import check_topic_name
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API_KEY: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS: Final = (0, 0)

_PARTITIONS_MAX: Final = 2000
"""Kafka's ``max.request.partition.size.limit``."""


def handle(
    broker: BrokerState, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page of the topics that were asked for, or of all; `next_cursor` says where the next page begins."""
    del context
    if request.cursor is not None and request.cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=tuple(
                DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=ErrorCode.INVALID_REQUEST)
                for topic in request.topics
            )
        )
    names = sorted({topic.name for topic in request.topics}) or [topic.name for topic in described_topics(broker)]
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    first = request.cursor
    topics = []
    for name in names:
        if first is not None and name < first.topic_name:
            continue
        topic = find_described_topic(broker, name)
        if topic is None:
            topics.append(_error(name))
            continue
        begin = max(0, first.partition_index) if first is not None and first.topic_name == name else 0
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=tuple(topics), next_cursor=Cursor(topic_name=name, partition_index=begin)
            )
        end = min(begin + left, topic.partition_count)
        topics.append(_describe(broker, topic, range(begin, end)))
        left -= max(0, end - begin)
        if end < topic.partition_count:
            return DescribeTopicPartitionsResponse(
                topics=tuple(topics), next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=tuple(topics))


def _describe(broker: BrokerState, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    states = partition_states(broker, topic)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(broker, topic),
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                error_code=states[index].error_code,
                partition_index=index,
                leader_id=states[index].leader_id,
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=states[index].replicas,
                isr_nodes=states[index].in_sync,
                offline_replicas=states[index].offline,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in indexes
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _error(name: str) -> DescribeTopicPartitionsResponseTopic:
    code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except BrokerError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=TOPIC_OPERATIONS
    )


def requires(permit: Permit, request: DescribeTopicPartitionsRequest) -> Narrowed[Any]:
    """DESCRIBE on each topic; if all are asked for, the sender gets the topics that it may see."""
    wants_all = not request.topics
    kept, refused = split(
        request.topics,
        may_on_topic(permit, Operation.DESCRIBE),
        lambda topic: DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=TOPIC_FAILED),
    )

    def complete(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        if not (wants_all or kept):
            return DescribeTopicPartitionsResponse(topics=refused)
        shown = shown_topics(permit, response.topics, all_topics=wants_all)
        return replace(response, topics=(*shown, *refused))

    return Narrowed(replace(request, topics=kept), complete)
