"""DeleteRecords (21): move the start of partitions up; what lies before it is gone, as after retention.

Source:
    apache/kafka ``KafkaApis.handleDeleteRecordsRequest``, ``ReplicaManager.deleteRecords``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.apis._partitions import find_log, find_topic
from kip848_client.testing.broker.apis._permissions import each_topic
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED, Topic
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API_KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = (0, 2)

requires: Final = each_topic(Operation.DELETE)

_UNKNOWN_OFFSET: Final = -1


def handle(broker: BrokerState, request: DeleteRecordsRequest, context: RequestContext) -> Slices:
    """Move each partition's start; one that cannot be moved carries its own error.

    A topic named twice is answered once, and a partition named twice gets the offset that was named last, as in Kafka.
    """
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update((item.partition_index, item) for item in topic.partitions)
    topics = []
    for name, partitions in asked.items():
        results = []
        for item in partitions.values():
            results.append(_delete(broker, name, item, context.node_id))
            yield
        if results:
            topics.append(DeleteRecordsTopicResult(name=name, partitions=tuple(results)))
    return DeleteRecordsResponse(topics=tuple(topics))


def _delete(
    broker: BrokerState, name: str, asked: DeleteRecordsPartition, node_id: int
) -> DeleteRecordsPartitionResult:
    topic = find_topic(broker.topics, name=name, topic_id=ZERO_UUID, by_id=False)
    log = find_log(broker, topic, asked.partition_index, node_id=node_id)
    try:
        if isinstance(log, ErrorCode):
            raise BrokerError("no such topic or partition, or led elsewhere", code=log)
        assert isinstance(topic, Topic)
        start = broker.topics.delete_records(topic, asked.partition_index, asked.offset)
    except BrokerError as error:
        return _error(asked, error.code)
    except DataDirError:
        return _error(asked, STORAGE_FAILED)
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=start)


def _error(asked: DeleteRecordsPartition, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=_UNKNOWN_OFFSET, error_code=code
    )
