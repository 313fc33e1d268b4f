"""Fetch (1): whole batches from given offsets, at once or when there is enough. Topics by id from version 13.

A fetch that finds less than ``min_bytes`` is parked: it waits for an append to one of its partitions, for
``max_wait_ms``, or for the end of its connection, and costs nothing meanwhile. A request of a fetch session (KIP-227)
is opened out first, so the handler sees full requests only. If a request names a
partition twice, only the last entry counts.

In a cluster, from version 11 on any node with a replica serves a partition, and the leader points the client to a
replica in its rack (KIP-392). Other nodes, and older versions, answer NOT_LEADER_OR_FOLLOWER; from version 16 on the
answer names the leader (KIP-951).

Source:
    apache/kafka ``KafkaApis.handleFetchRequest``, ``ReplicaManager.readFromLog``, ``DelayedFetch``, ``FetchManager``,
    ``RackAwareReplicaSelector``.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from kip848_client.common.clock import TimerHandle
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._partitions import current_leader, find_log, find_readable_topic, placement_key
from kip848_client.testing.broker.apis._permissions import each_topic
from kip848_client.testing.broker.config import LEADER_SELECTOR
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.metadata.placement import NO_LEADER
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.append_watchers import Watch
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

API_KEY: Final = ApiKey.FETCH
VERSIONS: Final = (4, 18)

requires: Final = each_topic(Operation.READ)

_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_FROM_FOLLOWERS: Final = 11
_FIRST_VERSION_WITH_LEADER: Final = 16
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, 1)
_WRONG_LEADER: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
_TELL_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNKNOWN_OFFSET: Final = -1
_NO_REPLICA: Final = -1
_FIRST_VERSION_WITH_SESSIONS: Final = 7


def open_out(broker: BrokerState, request: FetchRequest, context: RequestContext) -> FetchRequest | FetchResponse:
    """The full request that one of a fetch session stands for, or the answer if there is no such session."""
    if context.api_version < _FIRST_VERSION_WITH_SESSIONS:
        return request
    opened = broker.fetch_sessions[context.node_id].open_out(
        request, by_id=context.api_version >= _FIRST_VERSION_BY_ID, now_ms=context.now_ms
    )
    if opened is None or isinstance(opened, FetchResponse):
        return opened or request
    context.amend(opened.complete)
    return opened.request


def handle(broker: BrokerState, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
    """Answer at once if there is enough to read, something is wrong, or the client will not wait; else park."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _unknown_isolation_level(request, context)
    fetch = _Fetch(broker, request, context)
    if fetch.must_be_answered_now():
        return fetch.answer()
    fetch.park()
    return None


class _Target(msgspec.Struct, frozen=True):
    """One partition of the request: its log, or why there is none."""

    asked: FetchPartition
    log: PartitionLog | ErrorCode


class _TargetTopic(msgspec.Struct, frozen=True):
    name: str
    topic_id: uuid.UUID
    topic: Topic | ErrorCode
    targets: tuple[_Target, ...]


class _Fetch:
    """One fetch from its arrival to its answer."""

    __slots__ = (
        "_broker",
        "_by_id",
        "_committed",
        "_context",
        "_leaders_moved",
        "_max_bytes",
        "_missing_bytes",
        "_request",
        "_timer",
        "_topics",
        "_watch",
    )

    def __init__(self, broker: BrokerState, request: FetchRequest, context: RequestContext) -> None:
        self._broker: Final = broker
        self._request: Final = request
        self._context: Final = context
        self._by_id: Final = context.api_version >= _FIRST_VERSION_BY_ID
        limit = broker.throttling.fetch_bytes_max(context)
        bytes_max = broker.config.fetch_bytes_max if limit is None else min(broker.config.fetch_bytes_max, limit)
        self._max_bytes: Final = min(request.max_bytes, bytes_max)
        self._committed: Final = request.isolation_level == _READ_COMMITTED
        self._leaders_moved = False
        self._topics: Final = self._resolve()
        self._missing_bytes = 0
        self._timer: TimerHandle | None = None
        self._watch: Watch | None = None

    def must_be_answered_now(self) -> bool:
        """Whether to answer at once. If not, `_missing_bytes` then says how many bytes an append must still bring."""
        if self._request.max_wait_ms <= 0:
            return True
        available, readable = 0, False
        for topic in self._topics:
            if isinstance(topic.topic, Topic) and topic.topic.deleted:
                return True
            for target in topic.targets:
                if isinstance(target.log, ErrorCode):
                    if target.log in _WRONG_LEADER:
                        return True
                    continue  # as in Kafka, an unknown topic is answered together with the other ones
                readable = True
                if self._request.rack_id and self._replica_in_rack(topic.topic, target) != _NO_REPLICA:
                    return True
                try:
                    if _diverged(target.asked, target.log):
                        return True
                    available += min(
                        target.log.readable_bytes(target.asked.fetch_offset, committed=self._committed),
                        target.asked.partition_max_bytes,
                    )
                except BrokerError:
                    return True
        self._missing_bytes = min(self._request.min_bytes, self._max_bytes) - available
        return not readable or self._missing_bytes <= 0

    def park(self) -> None:
        """Wait for an append, the time-out, or the end of the connection."""
        logs = [target.log for topic in self._topics for target in topic.targets]
        self._watch = self._broker.topics.watch(
            [log for log in logs if not isinstance(log, ErrorCode)], on_append=self._on_append, on_gone=self._on_gone
        )
        self._timer = self._broker.call_later(self._request.max_wait_ms, self._reply)
        self._context.on_cancel(self._forget)
        self._context.outlives_eof = True

    def answer(self) -> FetchResponse:
        """Read what there is now, within the limits of the request."""
        left, is_first = self._max_bytes, True
        responses = []
        for topic in self._topics:
            partitions = []
            for target in topic.targets:
                data = self._read(topic, target, left, at_least_one=is_first)
                if data.records:
                    left -= len(data.records)
                    is_first = False
                partitions.append(data)
            responses.append(
                FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))
            )
        endpoints = self._endpoints(responses) if self._broker.placement.is_spread else ()
        return FetchResponse(responses=tuple(responses), node_endpoints=endpoints)

    # --- internals

    def _resolve(self) -> tuple[_TargetTopic, ...]:
        asked: dict[tuple[tuple[str, uuid.UUID], int], FetchPartition] = {}
        for named in self._request.topics:
            asked.update((((named.topic, named.topic_id), item.partition), item) for item in named.partitions)
        topics = []
        for (name, topic_id), items in itertools.groupby(asked.items(), key=lambda entry: entry[0][0]):
            topic = find_readable_topic(self._broker, name=name, topic_id=topic_id, by_id=self._by_id)
            targets = tuple(_Target(item, self._find_log(topic, item)) for _, item in items)
            topics.append(_TargetTopic(name, topic_id, topic, targets))
        return tuple(topics)

    def _find_log(self, topic: Topic | ErrorCode, asked: FetchPartition) -> PartitionLog | ErrorCode:
        return find_log(
            self._broker,
            topic,
            asked.partition,
            node_id=self._context.node_id,
            current_leader_epoch=asked.current_leader_epoch,
            from_follower=self._context.api_version >= _FIRST_VERSION_FROM_FOLLOWERS,
        )

    def _replica_in_rack(self, topic: Topic | ErrorCode, target: _Target) -> int:
        """The replica that the client should read from in place of this node, its leader; `_NO_REPLICA` for none."""
        placement = self._broker.placement
        if not placement.is_spread or isinstance(topic, ErrorCode) or topic.deleted:
            return _NO_REPLICA
        if self._broker.config.replica_selector == LEADER_SELECTOR:
            return _NO_REPLICA
        placed = placement.get(placement_key(topic), target.asked.partition)
        if placed.leader != self._context.node_id:
            return _NO_REPLICA
        near = [
            node_id
            for node_id in placement.in_sync(placed)
            if self._broker.nodes[node_id].rack == self._request.rack_id
        ]
        return near[0] if near and placed.leader not in near else _NO_REPLICA

    def _read(self, topic: _TargetTopic, target: _Target, left: int, *, at_least_one: bool) -> PartitionData:
        asked, log = target.asked, target.log
        if isinstance(topic.topic, Topic) and topic.topic.deleted:
            log = ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif self._leaders_moved:
            log = self._find_log(topic.topic, asked)
        if isinstance(log, ErrorCode):
            return self._refusal(topic.topic, asked, log)
        if self._request.rack_id and (near := self._replica_in_rack(topic.topic, target)) != _NO_REPLICA:
            return PartitionData(
                partition_index=asked.partition,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=() if self._committed else None,
                preferred_read_replica=near,
                records=b"",
            )
        try:
            # The first batch of the answer comes in any size, so that a large one does not block its reader.
            max_bytes = min(asked.partition_max_bytes, max(0, left))
            diverged = _diverged(asked, log)
            records = (
                b""
                if diverged
                else log.read(asked.fetch_offset, max_bytes, at_least_one=at_least_one, committed=self._committed)
            )
        except BrokerError as error:
            return self._refusal(topic.topic, asked, ErrorCode(error.code))
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverged or EpochEndOffset(),
            aborted_transactions=_aborted(log, asked.fetch_offset, len(records)) if self._committed else None,
            records=records,
        )

    def _refusal(self, topic: Topic | ErrorCode, asked: FetchPartition, error_code: ErrorCode) -> PartitionData:
        # No watermark with any error, as in Kafka: librdkafka and Java ask ListOffsets for the ends.
        refused = PartitionData(
            partition_index=asked.partition,
            error_code=error_code,
            high_watermark=_UNKNOWN_OFFSET,
            aborted_transactions=() if error_code in _NOT_THERE else None,
            records=b"",
        )
        if (
            error_code not in _TELL_LEADER
            or not self._broker.placement.is_spread
            or self._context.api_version < _FIRST_VERSION_WITH_LEADER
        ):
            return refused
        leader = current_leader(self._broker, topic, asked.partition)
        if leader is None:
            return refused
        return replace(refused, current_leader=LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch))

    def _endpoints(self, responses: Iterable[FetchableTopicResponse]) -> tuple[NodeEndpoint, ...]:
        """The addresses of all leaders that the answer names."""
        named = {item.current_leader.leader_id for topic in responses for item in topic.partitions} - {NO_LEADER}
        return tuple(
            NodeEndpoint(node.node_id, *node.endpoint(self._context.listener), rack=node.rack)
            for node in map(self._broker.nodes.__getitem__, sorted(named))
        )

    def _on_append(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        # An append to a transaction brings nothing that a reader of committed records may have; its end brings it all.
        if (self._committed or self._missing_bytes <= 0) and self.must_be_answered_now():
            self._reply_soon()

    def _on_gone(self) -> None:
        self._leaders_moved = self._broker.placement.is_spread
        self._reply_soon()

    def _reply_soon(self) -> None:
        # Not from inside the append: the other partitions of that produce request should be in the answer too.
        self._forget()
        self._timer = self._broker.call_later(0, self._reply)

    def _reply(self) -> None:
        self._forget()
        if not self._context.cancelled:
            self._context.reply(self.answer())

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _aborted(log: PartitionLog, offset: int, size_bytes: int) -> tuple[AbortedTransaction, ...]:
    """Aborted transactions with records in the answer. Kafka also lists some later ones, by entries of its index."""
    if not size_bytes:
        return ()
    found = log.aborted_between(offset, log.end_of_read(offset, size_bytes))
    return tuple([AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in found])


def _diverged(asked: FetchPartition, log: PartitionLog) -> EpochEndOffset | None:
    """The end of the last leader epoch that reader and log share, if the reader has records that the log lost.

    Raises:
        BrokerError: OFFSET_OUT_OF_RANGE: the log never had the epoch, or the reader's offset is below its start.

    Source:
        apache/kafka ``Partition.readRecords``; KIP-595.
    """
    if asked.last_fetched_epoch < 0:
        return None
    end = log.offset_for_leader_epoch(asked.last_fetched_epoch)
    if end.end_offset < 0 or end.leader_epoch < 0:
        raise BrokerError(f"the log has no leader epoch {asked.last_fetched_epoch}", code=ErrorCode.OFFSET_OUT_OF_RANGE)
    if asked.fetch_offset < log.log_start_offset:
        raise BrokerError(
            f"offset {asked.fetch_offset} is below the start {log.log_start_offset}",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    if end.leader_epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)
    return None


def _unknown_isolation_level(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Kafka stumbles over it, and answers so; by name also partition by partition."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = () if context.api_version >= _FIRST_VERSION_BY_ID else request.topics
    return FetchResponse(
        error_code=code,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=item.partition, error_code=code, high_watermark=_UNKNOWN_OFFSET, records=b""
                    )
                    for item in topic.partitions
                ),
            )
            for topic in topics
        ),
    )
