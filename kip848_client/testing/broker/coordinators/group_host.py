"""The host of a group coordinator: gives it requests, time and topics, and carries out its results.

One event goes through `GroupCoordinator.handle` (or `expire`), its records into the log and through `replay`, its soft
changes through `apply`; only then do the answers leave. If the records cannot be kept, nothing of the event happens
and its client gets a retriable error.

Lives on the broker's loop. The coordinator's timers run on the loop's time, or by `advance` on a `ManualClock`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import math
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import ConfigError, DataDirError, ErrorCode, IllegalStateError
from kip848_client.journal import Journal, NullJournal
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.group_errors import refusal
from kip848_client.testing.broker.coordinators.group_metrics import CoordinatorMetrics
from kip848_client.testing.broker.coordinators.snapshots import (
    GroupSnapshot,
    classic_snapshot,
    share_snapshot,
    snapshot_of,
)
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.storage.config_store import ConfigStore
from kip848_client.testing.broker.storage.group_log import GroupLog
from kip848_client.testing.broker.topics.offsets_topic import KeyAndValue, OffsetsTopic
from kip848_client.testing.broker.topics.topic_images import TopicImages
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroupChanged
from kip848_client.testing.coordinator.consumer.subscriptions import resolve
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.group_events import to_journal
from kip848_client.testing.coordinator.core.inputs import (
    ApiRequest,
    ConfigChanged,
    CoordinatorStops,
    GroupMessage,
    GroupRequest,
    OffsetRetentionDue,
    RegexResolved,
    ShareStateInitialized,
    TopicsChanged,
    TransactionEnded,
)
from kip848_client.testing.coordinator.core.result import (
    ArmTimer,
    CoordinatorRecord,
    CoordinatorResult,
    DeleteShareState,
    InitializeShareState,
    ResolveRegexes,
    SoftChange,
)
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.assignment_round import RoundChanged
from kip848_client.wire.messages.connect_group_records import ConnectGroupRecordKey
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.group_records import (
    PendingOffsetKey,
    UnknownRecord,
    decode_record,
    encode_record_key,
    encode_record_value,
    group_of,
)
from kip848_client.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kip848_client.wire.schema import Response

_INTERNAL_REQUEST_ID: Final = 0
_TURN_S: Final = 0.01
"""How long timers are served before requests have their turn: thousands of sessions may end at once."""
_RETRY_MS: Final = 500
"""Pause after a timer whose records could not be kept."""

Waiter = tuple[str, Callable[[GroupSnapshot], bool], "concurrent.futures.Future[GroupSnapshot]"]


class Persister(Protocol):
    """The state of share partitions, as far as their groups' coordinators change it."""

    def initialize(
        self, group_id: str, topic_id: uuid.UUID, partition: int, *, state_epoch: int, start_offset: int = -1
    ) -> None:
        """Make the state, or begin it anew.

        Raises:
            DataDirError: it could not be kept.
        """

    def delete(self, group_id: str, partitions: Iterable[tuple[uuid.UUID, int]]) -> None:
        """Delete the state of partitions, as far as there is any."""


class GroupHost:
    """Runs the coordinator of one partition of ``__consumer_offsets``; which node has which is `group_shards`.

    Args:
        log: where its records are kept.
        configs: where the overrides of single groups are kept.
        images: the topics of the broker; every change is passed on to the coordinator.
        offsets_topic: where others read what the log keeps.
        metrics: what operators see of it.
        others: the coordinators of all partitions, which share the limits of members and groups.
        has: whether a group is this coordinator's.
        acts: whether its node does anything now; a node that hangs lets no time run out.
        share_states: the state of share partitions.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: GroupLog,
        configs: ConfigStore,
        images: TopicImages,
        offsets_topic: OffsetsTopic,
        metrics: CoordinatorMetrics,
        clock: Clock,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        others: Callable[[], Iterable[GroupCoordinator]],
        has: Callable[[str], bool],
        acts: Callable[[], bool],
        share_states: Persister,
    ) -> None:
        self.coordinator: Final = GroupCoordinator(config.coordinator, rng=random.Random(), others=others)
        self._group_log: Final = log
        self._configs: Final = configs
        self._images: Final = images
        self._offsets_topic: Final = offsets_topic
        self._has: Final = has
        self._acts: Final = acts
        self._share_states: Final = share_states
        self._clock: Final = clock
        self._journal: Final = journal
        self._writes_events: Final = not isinstance(journal, NullJournal)
        self._loop: Final = loop
        self._metrics: Final = metrics
        self._waiting: Final[dict[int, RequestContext]] = {}
        self._next_request_id = _INTERNAL_REQUEST_ID
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._retention_interval_ms: Final = config.coordinator.offsets_retention_check_interval_ms
        self._retention_due_ms = clock.now_ms() + self._retention_interval_ms
        self._image_is_stale = True
        self._waiters: list[Waiter] = []
        self._closed = False
        self._unsubscribe: Final = images.subscribe(self._topics_changed)

    # --- life

    def load(self) -> None:
        """Give the coordinator every record of the log and then the topics; after that it serves.

        Raises:
            DataDirError: the log cannot be read.
            ProtocolError: a record of the log is not what its type says.
        """
        known: list[tuple[CoordinatorRecord, KeyAndValue]] = []
        for key, value in self._group_log.load():
            record = decode_record(key, value)
            assert not isinstance(record, UnknownRecord), "a record of no group"
            self.coordinator.replay(record)
            known.append((record, (key, value)))
        unpublished = [pair for pair in known if self._offsets_topic.is_empty(group_of(pair[0].key))]
        self._publish(unpublished, wall_ms=self._clock.wall_ms())
        self._refresh_topics()
        self._send_overrides()
        self.coordinator.loaded(now_ms=self._clock.now_ms())
        self._arm_timer()

    def _send_overrides(self) -> None:
        for group_id in filter(self._has, self._configs.names()):
            try:
                change = ConfigChanged(group_id, self._configs.get(group_id))
                self._perform(self.coordinator.handle(change, now_ms=self._clock.now_ms()))
            except ConfigError as error:  # the broker's own bounds are other ones now
                _warn(LogEvent.GROUP_CONFIG_IGNORED, group_id=group_id, reason=error)

    def stop_coordinating(self) -> None:
        """Answer the requests that wait for others, so that their clients look for a coordinator at once."""
        self._perform(self.coordinator.handle(CoordinatorStops(), now_ms=self._clock.now_ms()))

    def take_waiters(self) -> list[Waiter]:
        """Stop: cancel timers, forget requests. Returns the calls that wait for a group, for its next coordinator."""
        self._closed = True
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        waiters, self._waiters = self._waiters, []
        return waiters

    # --- requests

    def handle(self, message: GroupMessage, context: RequestContext) -> None:
        """Give a group request to the coordinator; the answer goes to *context*, now or later."""
        self._next_request_id = request_id = self._next_request_id + 1
        self._waiting[request_id] = context
        try:
            self._submit(
                ApiRequest(
                    request_id=request_id,
                    api_version=context.api_version,
                    message=message,
                    wall_ms=self._clock.wall_ms(),
                    client_id=context.client_id or "",
                    client_host=context.client_host,
                )
            )
        except DataDirError as error:
            # The operator must fix the cause. Until then clients keep their state and retry.
            if context.done:
                raise
            self._forget(request_id)
            context.reply(
                refusal(
                    message,
                    code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    reason=str(error),
                    api_version=context.api_version,
                )
            )
        except BaseException:
            self._forget(request_id)
            raise
        if not context.done:
            context.on_cancel(lambda: self._forget(request_id))

    def ask(self, message: GroupMessage, *, api_version: int) -> Response:
        """Answer a read-only request of the broker itself."""
        self._refresh_topics()
        result = self.coordinator.handle(
            ApiRequest(
                request_id=_INTERNAL_REQUEST_ID,
                api_version=api_version,
                message=message,
                wall_ms=self._clock.wall_ms(),
            ),
            now_ms=self._clock.now_ms(),
        )
        assert not result.records, "the broker's own question changed the groups"
        response: Response = result.replies[0].response
        return response

    def submit(self, message: GroupMessage, *, api_version: int) -> Response:
        """Do a request of the broker's own, as if a client had sent it, and return its answer."""
        answer = self.begin(message, api_version=api_version)
        assert answer is not None, "a request that waits for others"
        return answer

    def begin(self, message: GroupMessage, *, api_version: int) -> Response | None:
        """The same for a request that may wait for others: None if it does, and the later answer is not heard."""
        self._refresh_topics()
        request = ApiRequest(_INTERNAL_REQUEST_ID, api_version, message, wall_ms=self._clock.wall_ms())
        result = self.coordinator.handle(request, now_ms=self._clock.now_ms())
        self._perform(result)
        answers = (reply.response for reply in result.replies if reply.request_id == _INTERNAL_REQUEST_ID)
        return next(answers, None)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Let the offsets count that a producer's transaction has committed, or drop them.

        Raises:
            DataDirError: it could not be kept; they are pending as before.
        """
        self._submit(TransactionEnded(producer_id, commit))

    def let_time_run_out(self, kind: TimerKind, *, group_id: str, member_id: str) -> None:
        """Move a member's deadline to now, and do the work that becomes due.

        Raises:
            IllegalStateError: that timer of the member does not run.
        """
        key, now_ms = TimerKey(kind, group_id, member_id), self._clock.now_ms()
        if not self.coordinator.let_time_run_out(key, now_ms=now_ms):
            raise IllegalStateError(f"no {kind} timer runs for member {member_id!r} of group {group_id!r}")
        self.run_due()

    def go_on(self) -> None:
        """Its node does not hang any more: do the work that became due meanwhile."""
        if self._timer is not None:
            self._timer.cancel()
        self._try_to_refresh_topics()
        self._timer_fired()

    def run_due(self, *, for_s: float = math.inf) -> None:
        """Do the work that is due, unless the node hangs; work that is not done after *for_s* stays due."""
        if not self._acts():
            return
        now_ms, ends_s = self._clock.now_ms(), self._loop.time() + for_s
        while self._loop.time() < ends_s:
            deadline_ms = self.coordinator.deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            self._refresh_topics()
            self._perform(self.coordinator.expire(now_ms=now_ms, wall_ms=self._clock.wall_ms()))
        if self._retention_due_ms <= now_ms:
            self._retention_due_ms = now_ms + self._retention_interval_ms
            self._submit(OffsetRetentionDue(self._clock.wall_ms()))

    # --- configuration of groups

    def set_config(self, config: CoordinatorConfig) -> None:
        """Use other settings from now on."""
        self.coordinator.set_config(config)
        self._send_overrides()

    def set_config_overrides(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Let a group override these and nothing else, from each member's next heartbeat on.

        Raises:
            ConfigError: a name is unknown or a value not allowed.
            DataDirError: it could not be kept; the overrides are as before.
        """
        result = self.coordinator.handle(ConfigChanged(group_id, overrides), now_ms=self._clock.now_ms())
        if not validate_only:
            self._configs.replace(group_id, overrides)
            self._perform(result)

    # --- for other parts of the broker

    @property
    def waiting_count(self) -> int:
        """Requests that the coordinator was given and has not answered."""
        return len(self._waiting)

    def listed(self) -> tuple[ListedGroup, ...]:
        """All groups, as ListGroups describes them."""
        response = self.ask(ListGroupsRequest(), api_version=5)
        assert isinstance(response, ListGroupsResponse)
        return response.groups

    def snapshot(self, group_id: str) -> GroupSnapshot | None:
        """A group as it is now; None if there is none of that id, or only offsets."""
        classic = self.coordinator.classic_group(group_id)
        if classic is not None:
            return classic_snapshot(classic)
        if self.coordinator.share_group(group_id) is not None:
            shared = self.ask(ShareGroupDescribeRequest(group_ids=(group_id,)), api_version=1)
            assert isinstance(shared, ShareGroupDescribeResponse)
            return share_snapshot(shared.groups[0])
        response = self.ask(ConsumerGroupDescribeRequest(group_ids=(group_id,)), api_version=1)
        assert isinstance(response, ConsumerGroupDescribeResponse)
        described = response.groups[0]
        if described.error_code:
            return None
        flying = self.coordinator.round_in_flight(group_id)
        return snapshot_of(described, computing_member=None if flying is None else flying.member_id)

    def offered_assignors(self, group_id: str) -> tuple[Assignor, ...]:
        """The client-side assignors of one member of a group; empty if it has none."""
        group = self.coordinator.snapshot(group_id)
        member = None if group is None else next(iter(group.members.values()), None)
        return tuple(
            Assignor(
                name=offered.name,
                minimum_version=offered.minimum_version,
                maximum_version=offered.maximum_version,
                reason=offered.reason,
                metadata_version=offered.metadata_version,
                metadata_bytes=offered.metadata_bytes,
            )
            for offered in (() if member is None else member.metadata.client_assignors)
        )

    @property
    def has_waiters(self) -> bool:
        """Whether any call waits for a group."""
        return bool(self._waiters)

    def add_waiter(
        self,
        group_id: str,
        predicate: Callable[[GroupSnapshot], bool],
        future: concurrent.futures.Future[GroupSnapshot],
    ) -> None:
        """Resolve *future* with the first snapshot of the group, from now on, for which *predicate* holds."""
        self._waiters.append((group_id, predicate, future))
        self._tell_waiters()

    # --- internals

    def _submit(self, request: GroupRequest) -> None:
        try:
            self._refresh_topics()
        except DataDirError:
            self.coordinator.keep_sessions(self.coordinator.handle(request, now_ms=self._clock.now_ms()))
            raise
        self._perform(self.coordinator.handle(request, now_ms=self._clock.now_ms()))

    def _perform(self, result: CoordinatorResult) -> None:
        records, wall_ms = result.records, self._clock.wall_ms()
        if records:
            try:
                written = [_to_bytes(record) for record in records]
                self._group_log.append(written)
            except DataDirError:
                self._metrics.not_kept()
                self.coordinator.keep_sessions(result)
                raise
            self._metrics.kept(result.events)
            for record in records:
                self.coordinator.replay(record)
            self._publish(zip(records, written, strict=True), wall_ms=wall_ms)
        self.coordinator.apply(result)
        for change in result.share_state:
            self._change_share_state(change)
        for reply in result.replies:
            context = self._waiting.pop(reply.request_id, None)
            if context is not None:
                context.reply(reply.response)
        for task in result.tasks:
            self._loop.call_soon(self._resolve, task)
        for event in result.events if self._writes_events else ():  # an event of a large group costs milliseconds
            self._journal.write(to_journal(event, ts_ms=wall_ms, topic_name=self.coordinator.topic_name))
        self._arm_timer_for(result.soft)
        if self._waiters and (
            records or any(isinstance(change, RoundChanged | ClassicGroupChanged) for change in result.soft)
        ):
            self._tell_waiters()

    def _change_share_state(self, change: InitializeShareState | DeleteShareState) -> None:
        states, group_id = self._share_states, change.group_id
        if isinstance(change, DeleteShareState):
            states.delete(group_id, change.partitions)
            return
        for (topic_id, partition), start_offset in change.starts.items():
            states.initialize(group_id, topic_id, partition, state_epoch=change.state_epoch, start_offset=start_offset)
        done = ShareStateInitialized(group_id, tuple(change.starts))
        self._perform(self.coordinator.handle(done, now_ms=self._clock.now_ms()))

    def _publish(self, records: Iterable[tuple[CoordinatorRecord, KeyAndValue]], *, wall_ms: int) -> None:
        """Add records to the topic that others read, by group."""
        readable = (pair for pair in records if not isinstance(pair[0].key, PendingOffsetKey | ConnectGroupRecordKey))
        for group_id, of_group in itertools.groupby(readable, key=lambda pair: group_of(pair[0].key)):
            self._offsets_topic.append(group_id, [written for _, written in of_group], timestamp_ms=wall_ms)

    def _resolve(self, task: ResolveRegexes) -> None:
        # On the loop, in a turn of its own: RE2 takes microseconds a topic.
        if self._closed:
            return
        wall_ms = self._clock.wall_ms()
        try:
            self._submit(resolve(task, wall_ms=wall_ms, is_visible=self._images.visible_to(task.group_id)))
        except Exception as bug:  # noqa: BLE001 - logged, and ended below
            # Without an end no pattern of that group would ever be matched again.
            _report_bug(LogEvent.PATTERNS_NOT_RESOLVED, bug, group_id=task.group_id)
            self._submit(RegexResolved(task.group_id, topics={}, version=task.image.version, wall_ms=wall_ms))

    def _forget(self, request_id: int) -> None:
        self._waiting.pop(request_id, None)

    def _topics_changed(self) -> None:
        # Several changes in one turn of the loop become one image; a request that comes sooner takes it along.
        if not self._image_is_stale:
            self._image_is_stale = True
            self._loop.call_soon(self._try_to_refresh_topics)

    def _try_to_refresh_topics(self) -> None:
        with contextlib.suppress(DataDirError):  # the data folder has reported it; the next request tries again
            self._refresh_topics()

    def _refresh_topics(self) -> None:
        if not self._image_is_stale or self._closed or not self._acts():
            return
        self._image_is_stale = False
        try:
            self._perform(self.coordinator.handle(TopicsChanged(self._images.current()), now_ms=self._clock.now_ms()))
        except DataDirError:
            self._image_is_stale = True  # the next request tries again
            raise

    def _arm_timer_for(self, changes: Sequence[SoftChange]) -> None:
        """Arm the timer, unless *changes* only moved deadlines to a time after it fires."""
        armed_ms = self._timer_deadline_ms
        if armed_ms is not None:
            for change in changes:
                if change.__class__ is not ArmTimer or change.deadline_ms < armed_ms:
                    break
            else:
                return
        self._arm_timer()

    def _arm_timer(self, *, not_before_ms: int = 0) -> None:
        if isinstance(self._clock, ManualClock) or self._closed or not self._acts():
            return
        deadline_ms = max(self._deadline_ms(), not_before_ms)
        armed_ms = self._timer_deadline_ms
        if armed_ms is not None and armed_ms <= deadline_ms:
            return  # it fires in time; whether something is due is decided then
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.now_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = self._timer_deadline_ms = None
        try:
            self.run_due(for_s=math.inf if isinstance(self._clock, ManualClock) else _TURN_S)
        except DataDirError:  # the data folder has reported it; the work stays due
            self._arm_timer(not_before_ms=self._clock.now_ms() + _RETRY_MS)
        except Exception as bug:  # noqa: BLE001 - logged, and tried again below
            # Due timers stay due. Without another try no session of any group would ever run out again.
            _report_bug(LogEvent.TIMER_FAILED, bug, retry_ms=_RETRY_MS)
            self._arm_timer(not_before_ms=self._clock.now_ms() + _RETRY_MS)
        else:
            self._arm_timer()

    def _deadline_ms(self) -> int:
        deadline_ms = self.coordinator.deadline_ms()
        return self._retention_due_ms if deadline_ms is None else min(deadline_ms, self._retention_due_ms)

    def _tell_waiters(self) -> None:
        left = []
        for waiter in self._waiters:
            group_id, predicate, future = waiter
            if future.cancelled():
                continue
            snapshot = self.snapshot(group_id)
            try:
                fulfilled = snapshot is not None and predicate(snapshot)
            except Exception as error:  # noqa: BLE001 - the predicate is a test's; it fails there and not here
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
                continue
            if not fulfilled:
                left.append(waiter)
            elif snapshot is not None and future.set_running_or_notify_cancel():
                future.set_result(snapshot)
        self._waiters = left


def _to_bytes(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    return encode_record_key(record.key), None if record.value is None else encode_record_value(record.value)


def _warn(event: LogEvent, **fields: object) -> None:
    log_event(logging.WARNING, event, logger=BROKER_LOGGER, exc_info=None, **fields)


def _report_bug(event: LogEvent, bug: Exception, **fields: object) -> None:
    log_event(logging.ERROR, event, logger=BROKER_LOGGER, exc_info=bug, **fields)
