"""Produce (0): append one batch per partition. Topics by name up to version 12, by id from 13.

acks=1 and acks=all are the same with one replica. With acks=0 there is no answer; a failure closes the connection,
which is all that such a producer can notice. Transactions are not served: a transactional batch is refused, since a
``read_committed`` consumer would see it too early.

Source:
    apache/kafka ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.apis._partitions import find_log, find_topic
from kip848_client.broker.context import RequestContext
from kip848_client.broker.state import BrokerState
from kip848_client.broker.topics import Topic
from kip848_client.errors import BrokerError, ErrorCode, ProtocolError, error_name
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

API_KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)

_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10


def handle(broker: BrokerState, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append, partition by partition; one that fails does not stop the others.

    Raises:
        ProtocolError: acks=0 and something was not appended.
    """
    responses = tuple(_topic(broker, request, topic, context.api_version) for topic in request.topic_data)
    if request.acks != 0:
        return ProduceResponse(responses=responses)
    for topic in responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise ProtocolError(
                    f"produce with acks=0 to {topic.name or topic.topic_id}-{partition.index} failed: "
                    f"{error_name(partition.error_code)}: {partition.error_message}"
                )
    context.reply(None)
    return None


def _topic(
    broker: BrokerState, request: ProduceRequest, data: TopicProduceData, api_version: int
) -> TopicProduceResponse:
    topic = find_topic(broker.topics, name=data.name, topic_id=data.topic_id, by_id=api_version >= _FIRST_VERSION_BY_ID)
    return TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=tuple(
            _partition(broker, request, topic, partition, api_version) for partition in data.partition_data
        ),
    )


def _partition(
    broker: BrokerState,
    request: ProduceRequest,
    topic: Topic | ErrorCode,
    data: PartitionProduceData,
    api_version: int,
) -> PartitionProduceResponse:
    try:
        if request.acks not in (-1, 0, 1):
            raise BrokerError(f"acks is {request.acks}, not -1, 0 or 1", code=ErrorCode.INVALID_REQUIRED_ACKS)
        log = find_log(topic, data.index)
        if isinstance(log, ErrorCode):
            raise BrokerError("no such topic or partition", code=log)
        assert not isinstance(topic, ErrorCode)
        records = data.records or b""
        _check_attributes(records, api_version)
        appended = broker.topics.append(topic, data.index, records)
    except BrokerError as error:
        return PartitionProduceResponse(
            index=data.index, error_code=error.code, base_offset=-1, error_message=str(error)
        )
    return PartitionProduceResponse(
        index=data.index, base_offset=appended.base_offset, log_start_offset=log.log_start_offset
    )


def _check_attributes(records: bytes, api_version: int) -> None:
    if len(records) < 23:
        return  # the log says what is wrong with it
    attributes = records[22]
    if attributes & 0x07 == _ZSTD and api_version < _FIRST_VERSION_WITH_ZSTD:
        raise BrokerError(
            f"Produce version {api_version} may not carry zstd; version {_FIRST_VERSION_WITH_ZSTD} may",
            code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    if attributes & _TRANSACTIONAL:
        raise BrokerError("this broker does not serve transactions", code=ErrorCode.INVALID_TXN_STATE)
