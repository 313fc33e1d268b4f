"""ListOffsets (2): the offset of a time, of the beginning or of the end.

Negative timestamps are questions: -1 latest, -2 earliest, -3 the record with the highest timestamp, -4 earliest on
this broker's disk, -5 latest in tiered storage, -6 earliest not yet there. There is no tiered storage here, so -5 and
-6 are answered with offset -1, as a broker of Apache Kafka without it does.

Source:
    apache/kafka ``ReplicaManager.fetchOffset``, ``UnifiedLog.fetchOffsetByTimestamp``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import ZERO_UUID
from kip848_client.testing.broker.apis._partitions import find_log, find_readable_topic
from kip848_client.testing.broker.apis._permissions import describe_topics
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.testing.partitions.partition_log import PartitionLog, TimestampAndOffset
from kip848_client.testing.partitions.producer_batches import RecordAllowance
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API_KEY: Final = ApiKey.LIST_OFFSETS
VERSIONS: Final = (1, 11)

requires: Final = describe_topics

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_FIRST_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_ISOLATION_LEVELS: Final = (0, 1)
_READ_COMMITTED: Final = 1


def handle(broker: BrokerState, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer each partition by itself; one that is asked for twice is refused."""
    times_asked = Counter((topic.name, item.partition_index) for topic in request.topics for item in topic.partitions)
    allowance = RecordAllowance()
    topics = []
    for asked in request.topics:
        topic = find_readable_topic(broker, name=asked.name, topic_id=ZERO_UUID, by_id=False)
        partitions = tuple(
            ListOffsetsPartitionResponse(partition_index=item.partition_index, error_code=ErrorCode.INVALID_REQUEST)
            if times_asked[asked.name, item.partition_index] > 1
            else _partition(broker, topic, item, request.isolation_level, context, allowance)
            for item in asked.partitions
        )
        topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=partitions))
    return ListOffsetsResponse(topics=tuple(topics))


def _partition(
    broker: BrokerState,
    topic: Topic | ErrorCode,
    asked: ListOffsetsPartition,
    isolation_level: int,
    context: RequestContext,
    allowance: RecordAllowance,
) -> ListOffsetsPartitionResponse:
    if isolation_level not in _ISOLATION_LEVELS:
        return _error(asked, ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka stumbles over it, and answers so
    if asked.timestamp < 0 and context.api_version < _FIRST_VERSION.get(asked.timestamp, 2**15):
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    log = find_log(
        broker,
        topic,
        asked.partition_index,
        node_id=context.node_id,
        current_leader_epoch=asked.current_leader_epoch,
    )
    if isinstance(log, ErrorCode):
        return _error(asked, log)
    found = _find(log, asked.timestamp, isolation_level, allowance)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _find(log: PartitionLog, timestamp: int, isolation_level: int, allowance: RecordAllowance) -> TimestampAndOffset:
    end = log.last_stable_offset if isolation_level == _READ_COMMITTED else log.high_watermark
    match timestamp:
        case -1:
            return TimestampAndOffset(-1, end, log.leader_epoch)
        case -2 | -4:
            return TimestampAndOffset(-1, log.log_start_offset, log.epoch_at(log.log_start_offset))
        case -3:
            return _below(end, log.offset_of_max_timestamp(allowance=allowance))
        case -5 | -6:
            return TimestampAndOffset(-1, -1, -1)
        case _:
            return _below(end, log.offset_for_timestamp(timestamp, allowance=allowance))


def _below(end: int, found: TimestampAndOffset) -> TimestampAndOffset:
    return found if found.offset < end else TimestampAndOffset(-1, -1, -1)


def _error(asked: ListOffsetsPartition, error_code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error_code)
