"""Produce (0): append one batch per partition. Topics by name up to version 12, by id from 13.

There is one copy of the log, so acks=1 and acks=all differ only in a cluster of several nodes, where
``min.insync.replicas`` counts living replicas. With acks=0 there is no answer; a failure closes the connection, which
is all that such a producer can notice. Whether a transactional batch may be written is asked of the transaction
coordinator, partition by partition. A node that does not lead a partition says who does (KIP-951).

Source:
    apache/kafka ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.common.clock import SystemClock
from kip848_client.errors import BrokerError, ErrorCode, ProtocolError, RefusedRecordsError, error_name
from kip848_client.testing.broker.apis._partitions import current_leader, find_log, find_topic
from kip848_client.testing.broker.apis._permissions import (
    TRANSACTIONAL_ID_FAILED,
    Outcome,
    deny,
    each_topic,
    may_write_transaction,
)
from kip848_client.testing.broker.cluster.live_settings import ALL_NODES
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.metadata.placement import NO_LEADER
from kip848_client.testing.broker.metadata.topic_configs import MIN_IN_SYNC, record_rules
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.security.access import Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.testing.partitions.producer_batches import NO_RULES, RecordAllowance, RecordRules
from kip848_client.testing.transactions.transaction import GROUP_OFFSETS_TOPIC
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
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
_FIRST_VERSION_WITH_LEADER: Final = 10
_ALL_IN_SYNC: Final = -1
_ZSTD: Final = 4
_UNKNOWN_OFFSET: Final = -1
_LENGTH_END: Final = 12
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_START_NOT_TOLD: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals that do not say where the partition starts; the others do, as in Kafka."""
_MACHINE_CLOCK: Final = SystemClock()


def handle(broker: BrokerState, request: ProduceRequest, context: RequestContext) -> Slices:
    """Append, partition by partition; one that fails does not stop the others.

    Raises:
        ProtocolError: acks=0 and something was not appended.
    """
    allowance = RecordAllowance()
    responses: list[TopicProduceResponse] = []
    for data in request.topic_data:
        rules = NO_RULES
        partitions: list[PartitionProduceResponse] = []
        for partition in data.partition_data:
            if partitions or responses:
                yield  # meanwhile the topic may go
            topic = _find(broker, data, context)
            if not partitions:
                rules = _rules(broker, topic)
            partitions.append(_partition(broker, request, topic, partition, context, rules, allowance))
        responses.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(partitions))
        )
    if request.acks != 0:
        return ProduceResponse(
            responses=tuple(responses),
            node_endpoints=(
                _endpoints(broker, responses, listener=context.listener) if broker.placement.is_spread else ()
            ),
        )
    for response in responses:
        for answer in response.partition_responses:
            if answer.error_code:
                raise ProtocolError(
                    f"produce with acks=0 to {response.name or response.topic_id}-{answer.index} failed: "
                    f"{error_name(answer.error_code)}: {answer.error_message}"
                )
    context.reply(None)
    return None


def _find(broker: BrokerState, data: TopicProduceData, context: RequestContext) -> Topic | ErrorCode:
    if data.name == GROUP_OFFSETS_TOPIC or data.topic_id == broker.offsets_topic.described.topic_id:
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # only the coordinator writes there
    by_id = context.api_version >= _FIRST_VERSION_BY_ID
    return find_topic(broker.topics, name=data.name, topic_id=data.topic_id, by_id=by_id)


def _rules(broker: BrokerState, topic: Topic | ErrorCode) -> RecordRules:
    if isinstance(topic, ErrorCode):
        return NO_RULES
    # Producers run on the machine's clock, even if a test moves the broker's by hand: a timestamp is refused only if it
    # is too old, or too far ahead, by both clocks.
    wall_ms, machine_ms = broker.clock.wall_ms(), _MACHINE_CLOCK.wall_ms()
    return record_rules(
        topic.in_force,
        append_time_ms=wall_ms,
        earliest_now_ms=min(wall_ms, machine_ms),
        latest_now_ms=max(wall_ms, machine_ms),
    )


def _partition(
    broker: BrokerState,
    request: ProduceRequest,
    topic: Topic | ErrorCode,
    data: PartitionProduceData,
    context: RequestContext,
    rules: RecordRules,
    allowance: RecordAllowance,
) -> PartitionProduceResponse:
    if request.acks not in (-1, 0, 1):
        text = f"acks is {request.acks}, not -1, 0 or 1"
        return _refused(data, BrokerError(text, code=ErrorCode.INVALID_REQUIRED_ACKS))
    log = find_log(broker, topic, data.index, node_id=context.node_id)
    if log is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return _led_elsewhere(broker, topic, data, context)
    if isinstance(log, ErrorCode):
        return _refused(data, BrokerError("no such topic or partition", code=log))
    assert not isinstance(topic, ErrorCode)
    records, api_version = data.records or b"", context.api_version
    try:
        _check_attributes(records, api_version)
        if request.acks == _ALL_IN_SYNC and broker.placement.is_spread:
            _check_in_sync(broker, topic, data.index)
        broker.transactions.admit_batch(
            request.transactional_id, records, topic.name, data.index, log, api_version=api_version
        )
        appended = broker.topics.append(
            topic,
            data.index,
            records,
            rules=rules,
            allowance=allowance,
        )
    except BrokerError as error:
        says_start = error.code not in _START_NOT_TOLD and _is_one_batch(records)
        return _refused(data, error, log_start_offset=log.log_start_offset if says_start else _UNKNOWN_OFFSET)
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.header.max_timestamp if appended.header.is_log_append_time else -1,
        log_start_offset=log.log_start_offset,
    )


def _refused(
    data: PartitionProduceData, error: BrokerError, *, log_start_offset: int = _UNKNOWN_OFFSET
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        error_code=error.code,
        base_offset=_UNKNOWN_OFFSET,
        log_start_offset=log_start_offset,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in (error.records.items() if isinstance(error, RefusedRecordsError) else ())
        ),
        error_message=str(error),
    )


def _led_elsewhere(
    broker: BrokerState, topic: Topic | ErrorCode, data: PartitionProduceData, context: RequestContext
) -> PartitionProduceResponse:
    error = BrokerError(f"node {context.node_id} does not lead it", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused = _refused(data, error)
    leader = current_leader(broker, topic, data.index)
    if leader is None or context.api_version < _FIRST_VERSION_WITH_LEADER:
        return refused
    return replace(refused, current_leader=LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch))


def _endpoints(
    broker: BrokerState, responses: Sequence[TopicProduceResponse], *, listener: int
) -> tuple[NodeEndpoint, ...]:
    """The addresses of all leaders that the answer names."""
    named = {partition.current_leader.leader_id for topic in responses for partition in topic.partition_responses} - {
        NO_LEADER
    }
    return tuple(
        NodeEndpoint(node.node_id, *node.endpoint(listener), rack=node.rack)
        for node in map(broker.nodes.__getitem__, sorted(named))
    )


def _check_in_sync(broker: BrokerState, topic: Topic, partition: int) -> None:
    wanted = int({**broker.settings.changed(ALL_NODES), **topic.configs}[MIN_IN_SYNC])
    in_sync = len(broker.placement.in_sync(broker.placement.get(topic.topic_id, partition)))
    if in_sync < wanted:
        raise BrokerError(
            f"{in_sync} replica(s) of {topic.name}-{partition} are in sync; {MIN_IN_SYNC}={wanted}",
            code=ErrorCode.NOT_ENOUGH_REPLICAS,
        )


def _is_one_batch(records: bytes) -> bool:
    """Whether *records* are exactly one batch in a known format. Kafka refuses all others without a look at the log."""
    return (
        len(records) > _MAGIC_AT
        and int.from_bytes(records[8:_LENGTH_END], "big") == len(records) - _LENGTH_END
        and records[_MAGIC_AT] >= _MAGIC
    )


def _check_attributes(records: bytes, api_version: int) -> None:
    if len(records) < 23:
        return  # the log raises the right error
    attributes = records[22]
    if attributes & 0x07 == _ZSTD and api_version < _FIRST_VERSION_WITH_ZSTD:
        raise BrokerError(
            f"Produce version {api_version} may not carry zstd; version {_FIRST_VERSION_WITH_ZSTD} may",
            code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


_ATTRIBUTES: Final = 22


_TRANSACTIONAL: Final = 0x10


_write_topics = each_topic(Operation.WRITE)


def requires(permit: Permit, request: ProduceRequest) -> Outcome:
    """WRITE on each topic, and on the transactional id of transactional batches."""
    name = request.transactional_id
    if name is not None and _is_transactional(request) and not may_write_transaction(permit, name):
        outcome: Outcome = deny(permit, request, TRANSACTIONAL_ID_FAILED)
    else:
        outcome = _write_topics(permit, request)
    if outcome is not None and request.acks == 0:
        raise ProtocolError("a produce request with acks=0 was refused: its sender may not write there")
    return outcome


def _is_transactional(request: ProduceRequest) -> bool:
    return any(
        item.records is not None
        and len(item.records) > _ATTRIBUTES
        and bytes(item.records[_ATTRIBUTES : _ATTRIBUTES + 1])[0] & _TRANSACTIONAL
        for topic in request.topic_data
        for item in topic.partition_data
    )
