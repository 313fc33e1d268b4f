"""ShareFetch (78): records for a member of a share group, which has them to itself for a while.

First it does what the request says about records that the member had before. Then it waits, as Fetch does, until there
are ``min_bytes`` that the member may have: for an append, and for records that other members give back or lose.

Source:
    apache/kafka ``KafkaApis.handleShareFetchRequest``, ``DelayedShareFetch``, ``ShareFetchUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kip848_client.common.clock import TimerHandle
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._partitions import CurrentLeader, find_log
from kip848_client.testing.broker.apis._permissions import read_group
from kip848_client.testing.broker.apis._share import (
    FIRST_VERSION_WITH_RENEWAL,
    AcknowledgeResult,
    acknowledge,
    by_topic,
    endpoints,
    find_shared,
    leader_of,
    may_read,
    said_in,
    why_invalid,
)
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.share.share_partition_manager import LivePartition
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.append_watchers import Watch
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.share_partitions.share_partition import AcquiredRecords, BatchOffsets
from kip848_client.testing.share_partitions.share_sessions import FINAL_EPOCH, ReadPartition
from kip848_client.testing.share_partitions.share_state import ShareKey
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import share_fetch as messages
from kip848_client.wire.messages.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kip848_client.wire.record_batch import BatchHeader, batches_of

API_KEY: Final = ApiKey.SHARE_FETCH
VERSIONS: Final = (1, 2)

requires: Final = read_group

_RECORD_LIMIT: Final = 1
_READ_COMMITTED: Final = "read_committed"


def handle(broker: BrokerState, request: ShareFetchRequest, context: RequestContext) -> Slices:
    """Acknowledge, then answer at once if there are records or nothing to wait for; else park."""
    group_id, member_id = request.group_id, request.member_id
    reason = why_invalid(group_id, member_id) or _why_no_renewal(request, context)
    if reason is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    assert group_id is not None
    assert member_id is not None
    said = said_in(request)
    acknowledges = any(batches for _, batches in said)
    try:
        reads = broker.share_sessions[context.node_id].fetch(
            group_id,
            member_id,
            epoch=request.share_session_epoch,
            named=[of for of, _ in said],
            forgotten=[
                ReadPartition(topic.topic_id, number)
                for topic in request.forgotten_topics_data
                for number in topic.partitions
            ],
            acknowledges=acknowledges,
            connection_id=context.connection_id,
        )
    except BrokerError as error:
        refused = ShareFetchResponse(error_code=error.code, error_message=str(error))
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
            return refused
        # As in Kafka: a member that finds no room does not ask again and again.
        timer = broker.call_later(request.max_wait_ms, lambda: context.reply(refused))
        context.on_cancel(timer.cancel)
        return None
    verdicts: dict[ReadPartition, AcknowledgeResult] = {}
    if acknowledges:
        verdicts = yield from acknowledge(
            broker,
            context,
            group_id=group_id,
            member_id=member_id,
            said=said,
            is_renew_ack=request.is_renew_ack,
        )
        if context.cancelled:  # nobody would get the records that it acquires
            return None
    fetch = _ShareFetch(
        broker, request, context, ShareSessionKey(group_id, member_id), () if request.is_renew_ack else reads, verdicts
    )
    if fetch.must_be_answered_now():
        return fetch.answer()
    fetch.park()
    return None


class ShareSessionKey(NamedTuple):
    """Who fetches."""

    group_id: str
    member_id: str


class _Target(msgspec.Struct, eq=False):
    """One partition of the session: its records in flight, or why there are none."""

    of: ReadPartition
    live: LivePartition | ErrorCode


class _ShareFetch:
    """One ShareFetch from its arrival to its answer."""

    __slots__ = (
        "_broker",
        "_committed",
        "_context",
        "_max_bytes",
        "_member",
        "_request",
        "_settings",
        "_soon",
        "_targets",
        "_timer",
        "_verdicts",
        "_watch",
    )

    def __init__(
        self,
        broker: BrokerState,
        request: ShareFetchRequest,
        context: RequestContext,
        member: ShareSessionKey,
        reads: Iterable[ReadPartition],
        verdicts: Mapping[ReadPartition, AcknowledgeResult],
    ) -> None:
        self._broker: Final = broker
        self._request: Final = request
        self._context: Final = context
        self._member: Final = member
        self._verdicts: Final = verdicts
        self._settings: Final = broker.shares.settings_of(member.group_id)
        self._committed: Final = self._settings.isolation_level == _READ_COMMITTED
        limit = broker.throttling.fetch_bytes_max(context)
        bytes_max = broker.config.fetch_bytes_max if limit is None else min(broker.config.fetch_bytes_max, limit)
        self._max_bytes: Final = min(request.max_bytes, bytes_max)
        self._targets: Final = [_Target(of, self._open(of)) for of in reads]
        self._timer: TimerHandle | None = None
        self._soon: TimerHandle | None = None
        self._watch: Watch | None = None

    def must_be_answered_now(self) -> bool:
        """Whether to answer at once: nothing can be waited for, or there is enough."""
        return self._request.max_wait_ms <= 0 or not self._reads_anything or self._has_enough()

    def park(self) -> None:
        """Wait for records, the time-out, or the end of the connection."""
        lives = self._lives()
        self._watch = self._broker.topics.watch(
            [live.log for _, live in lives], on_append=lambda _: self._look(), on_gone=self._look
        )
        for _, live in lives:
            live.waiters[self._look] = None
        self._timer = self._broker.call_later(self._request.max_wait_ms, self._reply)
        self._context.on_cancel(self._forget)
        self._context.outlives_eof = True

    def answer(self) -> ShareFetchResponse:
        """Acquire what there is now, within the limits of the request."""
        partitions: dict[ReadPartition, PartitionData] = {}
        for target in self._targets:
            if isinstance(target.live, ErrorCode):
                partitions[target.of] = PartitionData(
                    partition_index=target.of.partition, error_code=target.live, records=b""
                )
        if self._reads_anything:
            partitions |= self._acquire()
        sessions, (group_id, member_id) = self._broker.share_sessions[self._context.node_id], self._member
        epoch = self._request.share_session_epoch
        try:
            told = {
                of: data
                for of, data in partitions.items()
                if sessions.tells(
                    group_id,
                    member_id,
                    epoch=epoch,
                    partition=of,
                    has_records=bool(data.records),
                    has_error=bool(data.error_code),
                )
            }
        except BrokerError as error:
            return ShareFetchResponse(error_code=error.code, error_message=str(error))
        for of, (code, reason) in self._verdicts.items():
            data = told.get(of) or PartitionData(partition_index=of.partition, records=b"")
            told[of] = replace(data, acknowledge_error_code=code, acknowledge_error_message=reason)
        if epoch == FINAL_EPOCH and (ended := sessions.end(group_id, member_id)) is not None:
            self._broker.shares.session_ended(ended, node_id=self._context.node_id)
        return self._with_leaders(told)

    # --- internals

    @property
    def _reads_anything(self) -> bool:
        return self._request.max_records > 0 and self._max_bytes > 0 and bool(self._lives())

    def _open(self, of: ReadPartition) -> LivePartition | ErrorCode:
        topic = find_shared(self._broker, of, is_readable=may_read(self._broker, self._context))
        if isinstance(topic, ErrorCode):
            return topic
        log = find_log(self._broker, topic, of.partition, node_id=self._context.node_id)
        if isinstance(log, ErrorCode):
            return log
        try:
            return self._broker.shares.open(ShareKey(self._member.group_id, *of), topic)
        except BrokerError as error:
            return ErrorCode(error.code)

    def _lives(self) -> list[tuple[_Target, LivePartition]]:
        return [(each, each.live) for each in self._targets if not isinstance(each.live, ErrorCode)]

    def _acquirable(self) -> list[tuple[_Target, LivePartition]]:
        return [(each, live) for each, live in self._lives() if live.partition.can_acquire(self._settings)]

    def _has_enough(self) -> bool:
        """Whether there are so many bytes that the member may have, or a partition of which something is wrong."""
        acquirable = self._acquirable()
        if not acquirable:
            return False
        available, each_max = 0, self._max_bytes // len(acquirable)
        for _, live in acquirable:
            offset = live.partition.next_fetch_offset()
            if offset < live.log.log_start_offset:
                return True
            if offset > live.log.high_watermark:  # the log lost records that the group is done with
                continue
            size = live.log.readable_bytes(offset, committed=self._committed)
            available += min(size, each_max)
        return available >= min(self._request.min_bytes, self._max_bytes)

    def _acquire(self) -> dict[ReadPartition, PartitionData]:
        acquirable = self._acquirable()
        left, is_first, each_max = self._request.max_records, True, self._max_bytes // max(len(acquirable), 1)
        partitions = {}
        for target, live in acquirable:
            records = b""
            acquired: list[AcquiredRecords] = []
            if left > 0:
                try:
                    records, acquired = self._acquire_from(live, left, each_max, at_least_one=is_first)
                except BrokerError:  # the records were deleted: what is left begins later
                    live.partition.log_start_moved(live.log.log_start_offset)
            if acquired:
                is_first = False
                left -= sum(last - first + 1 for first, last, _ in acquired)
                self._broker.shares.acquired(live)
            partitions[target.of] = PartitionData(
                partition_index=target.of.partition,
                records=records,
                acquired_records=tuple([messages.AcquiredRecords(*each) for each in acquired]),
            )
        return partitions

    def _acquire_from(
        self, live: LivePartition, max_records: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[bytes, list[AcquiredRecords]]:
        partition, offset = live.partition, live.partition.next_fetch_offset()
        data = live.log.read(
            offset,
            max_bytes,
            at_least_one=at_least_one,
            committed=self._committed,
            last_offset=max(partition.end_offset - 1, offset) + max_records,
        )
        batches = list(batches_of(data))
        acquired = partition.acquire(
            self._member.member_id,
            [_range_of(header) for _, header in batches],
            fetch_offset=offset,
            max_records=max_records,
            batch_size=self._request.batch_size,
            record_limit=self._request.share_acquire_mode == _RECORD_LIMIT,
            settings=self._settings,
            now_ms=self._broker.clock.now_ms(),
            aborted=_aborted(live.log, [header for _, header in batches]) if self._committed else (),
        )
        return _sliced(data, batches, acquired), acquired

    def _with_leaders(self, told: dict[ReadPartition, PartitionData]) -> ShareFetchResponse:
        leaders: dict[ReadPartition, CurrentLeader] = {}
        for of, data in told.items():
            leader = leader_of(self._broker, of, data.error_code)
            if leader is not None:
                leaders[of] = leader
                told[of] = replace(data, current_leader=LeaderIdAndEpoch(*leader))
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._settings.record_lock_duration_ms,
            responses=tuple(
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=found)
                for topic_id, found in by_topic(told.items())
            ),
            node_endpoints=endpoints(self._broker, self._context, leaders.values(), NodeEndpoint),
        )

    def _look(self) -> None:
        """Something has changed. Answer in the next turn: one change often comes with others."""
        if self._soon is None:
            self._soon = self._broker.call_later(0, self._try)

    def _try(self) -> None:
        """Answer if there is something left: other members that waited may have been faster."""
        self._soon = None
        for target, live in self._lives():
            if self._broker.shares.get(live.key) is not live:
                target.live = self._open(target.of)
                if isinstance(target.live, ErrorCode):
                    self._reply()
                    return
                target.live.waiters[self._look] = None
        if self._has_enough():
            self._reply()

    def _reply(self) -> None:
        self._forget()
        if not self._context.cancelled:
            self._context.reply(self.answer())

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for _, live in self._lives():
            live.waiters.pop(self._look, None)
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()
        self._watch = self._timer = self._soon = None


def _why_no_renewal(request: ShareFetchRequest, context: RequestContext) -> str | None:
    """A request that renews locks must not fetch: records that it waits for would delay the renewal."""
    if context.api_version < FIRST_VERSION_WITH_RENEWAL or not request.is_renew_ack:
        return None
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [f"{name} must be set to 0" for name, value in limits.items() if value]
    return f"{', '.join(wrong)}, if isRenewAck is true." if wrong else None


def _range_of(header: BatchHeader) -> BatchOffsets:
    return BatchOffsets(header.base_offset, header.base_offset + header.last_offset_delta)


def _aborted(log: PartitionLog, headers: list[BatchHeader]) -> list[BatchOffsets]:
    """The batches that belong to aborted transactions."""
    if not headers:
        return []
    found = log.aborted_between(headers[0].base_offset, headers[-1].base_offset + 1)
    return [
        _range_of(header)
        for header in headers
        if header.is_transactional
        and not header.is_control
        and any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in found
        )
    ]


def _sliced(data: bytes, batches: list[tuple[int, BatchHeader]], acquired: list[AcquiredRecords]) -> bytes:
    """The batches with records that were acquired."""
    if not acquired:
        return b""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    wanted = [
        (at, at + header.size)
        for at, header in batches
        if header.base_offset <= last and header.base_offset + header.last_offset_delta >= first
    ]
    begin, end = wanted[0][0], wanted[-1][1]
    return data if (begin, end) == (0, len(data)) else data[begin:end]
