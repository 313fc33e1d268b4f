"""`Consumer`: the public, synchronous consumer. A `GroupMember` for the group, a `Fetcher` for the records.

Owns the call signatures (confluent_kafka's, so that programs port by changing an import), what a rebalance listener
is, and the order inside poll(): first what the group wants, then records. Rules of the protocol are in `member/`.
"""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, NoReturn, Self, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from kip848_client.common.callables import (
    USE_ASYNC_CONSUMER,
    check_methods_not_async,
    check_not_async,
    check_result_not_async,
    check_takes,
)
from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import (
    NamedPartition,
    OffsetAndMetadata,
    SubscriptionPattern,
    TopicIdPartition,
    describe_partitions,
)
from kip848_client.config import ConfigValue, merge_settings, parse_consumer_config
from kip848_client.config.other_clients import missing_attribute, refuse_milliseconds, refuse_seek
from kip848_client.config.security import check_data_plane
from kip848_client.consumer.group.app_thread import BRIEF_SLICE_S
from kip848_client.consumer.group.assembly import build_group_member
from kip848_client.consumer.group.filling import Filling
from kip848_client.consumer.group.health import ConsumerHealth, HealthProbe
from kip848_client.consumer.group.heartbeat_manager import HeartbeatRequestManager
from kip848_client.consumer.group.librdkafka_stats import complete_stats
from kip848_client.consumer.group.listener_invoker import ListenerEffect
from kip848_client.consumer.group.silence import SilenceWatch
from kip848_client.consumer.group.translation import (
    CommitCallback,
    assign_positions,
    check_commit_callback,
    check_leave_mode,
    check_partition,
    check_partitions,
    check_times,
    commit_offsets,
    flag,
    librdkafka_s,
    limit_ms,
    limit_s,
    public_callback,
    public_offsets,
    read_subscription,
    record_count,
    seek_position,
)
from kip848_client.consumer.records.data_plane import (
    LIBRDKAFKA_CLOSED,
    OFFSET_INVALID,
    KafkaException,
    TopicPartition,
    check_group_metadata_layout,
    create_record_consumer,
    group_metadata_bytes,
    internal,
    is_own_lookup,
    is_refused_lookup,
    public,
    public_commit,
)
from kip848_client.consumer.records.deserializers import Deserializers, deserializers_of
from kip848_client.consumer.records.error_messages import error_messages, is_error
from kip848_client.consumer.records.fetcher import WARM_TIMEOUT_S, Fetcher, first_offsets, is_missing
from kip848_client.consumer.records.gap_check import GapCheck
from kip848_client.consumer.records.message import K_co, Message, V_co
from kip848_client.consumer.records.plane_questions import ask_brokers
from kip848_client.consumer.records.read_meter import ReadMeter
from kip848_client.consumer.records.stalls import QUEUED_MIN, StallWatch
from kip848_client.errors import (
    ArgumentTypeError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    ErrorCode,
    IllegalStateError,
    Kip848Error,
    ListenerError,
    RequestTimeoutError,
    error_for_code,
    join_names,
)
from kip848_client.journal import Journal
from kip848_client.member.core.events import AppProgressed, AssignPartitions, LeaveMode, Start, StartReason
from kip848_client.member.core.states import MemberState
from kip848_client.member.processing.settings import (
    BUFFER_BYTES,
    DRAIN_S,
    GRACE_S,
    SLICE_MS,
    SLICE_RECORDS,
    ProcessSettings,
)
from kip848_client.member.processing.work import HANDLING, Order, ProcessingFailure, ProcessingStatus
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.ownership import ForkGuard, OneThread, is_alive, thread_name

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tenacity import BaseRetrying

    from kip848_client.consumer.processing.dead_letters import DeadLetters
    from kip848_client.consumer.processing.driver import Driver
    from kip848_client.consumer.processing.record_copy import RecordCopy
    from kip848_client.consumer.processing.slices import HandlerTransaction
    from kip848_client.consumer.records.data_plane import ClusterMetadata, Producer

AnswerT = TypeVar("AnswerT")
_ListenerT = TypeVar("_ListenerT")
_CallbackT = TypeVar("_CallbackT")

PREFETCH_RECORDS: Final = 256
"""Records that one poll() takes from librdkafka at most; the next calls return all but the first."""

BATCH_RECORDS: Final = 500
"""Default size of a batch of batches()."""

CLOSE_TIMEOUT_S: Final = 30.0
"""Default time limit of close()."""

HAND_OVER_TIMEOUT_S: Final = 8.0
"""Default time-out of hand_over(): ``docker stop`` kills after 10 s."""

SEEKS_TOLD_EVERY_MS: Final = 1_000
"""How often the log tells of seek() calls."""

LAG_TIMEOUT_S: Final = 5.0
"""Default time-out of lag()."""

_LISTENER_METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
_METHOD_MEANT: Final[Mapping[str, str]] = {
    "assign": "on_partitions_assigned",
    "assigned": "on_partitions_assigned",
    "revoke": "on_partitions_revoked",
    "revoked": "on_partitions_revoked",
    "lost": "on_partitions_lost",
}
"""End of a method's name -> the method of a listener."""

_SLICE_SLACK_S: Final = 0.001
"""A slice that ends so close to the deadline of its call goes on until then, and returns what has come."""
_END_READING_S: Final = 0.02
"""How often close() looks whether the call of another thread has ended; mostly it is told."""

ABANDON_TIMEOUT_S: Final = 0.3
"""Time for leaving the group if the consumer is dropped, or the interpreter ends, without close()."""


class Consumer(Generic[K_co, V_co]):
    """A member of a consumer group (KIP-848) that reads the records of its partitions.

    One thread at a time may read: call poll() and consume(), iterate, seek, subscribe and assign. Any other thread may
    meanwhile commit, ask, pause and resume, hand over and close, also while that one is inside a listener and waits
    for them. A thread of the library sends heartbeats. Errors are raised, never returned as messages. Rebalances
    happen, and listeners run, inside poll(), consume(), unsubscribe() and close().

    Args:
        config: Kafka's property names as librdkafka spells them; docs/porting.md has the differences.
        journal: where the client writes its event log.
        clock: tells the time of intervals and deadlines; a test can move its own.
        settings: override *config*: ``Consumer(conf, logger=log)``, ``Consumer(**conf)``.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.

    Example::

        with Consumer({"bootstrap.servers": "...", "group.id": "orders", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            for message in consumer:
                handle(message)
                consumer.commit(message)
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        self._config = parse_consumer_config(merge_settings(config, settings))
        check_data_plane(self._config.security)
        data_plane = self._data_plane = dict(self._config.data_plane)
        stats = complete_stats(data_plane)
        self._fetcher = Fetcher(
            create_record_consumer(data_plane), make_plane=lambda: create_record_consumer(data_plane)
        )
        self._ready = self._fetcher.ready
        on_commit = public_callback(self._config.on_commit) if self._config.on_commit is not None else None
        self._opener = ConnectionOpener(self._config)
        self._fetcher.gaps = GapCheck(self._opener, self._config.bootstrap_servers, report=self._fetcher.report)
        self._group = build_group_member(
            self._config,
            opener=self._opener,
            records=self._fetcher,
            buffer=self._ready,
            on_commit=on_commit,
            clock=clock or SystemClock(),
            journal=journal,
        )
        if stats is not None:
            stats.attach(self._fetcher, self._group)
        if not self._config.auto_offset_store:
            stored = self._fetcher.stored
            self._group.thread.stored = lambda: stored
        # librdkafka would retry the same credentials for ever, and lock the account.
        self._group.thread.on_refused = self._fetcher.close
        self._fetcher.on_renewed = self._group.listeners.observer.data_plane_renewed
        self._manager = self._group.manager
        self._silence: Final = SilenceWatch(self._group, self._fetcher)
        self._sought: dict[NamedPartition, OffsetAndMetadata] = {}
        """seek() of partitions that were being read already, until the log has them."""
        self._told_of_seeks_ms = -SEEKS_TOLD_EVERY_MS
        if self._config.auto_commit_interval_ms is not None:
            me = weakref.ref(self)
            self._manager.progress = lambda: consumer._progress() if (consumer := me()) is not None else None
            self._manager.progress_every_s = max(0.1, self._config.auto_commit_interval_ms / 1_000)
        self._presence: Final = self._group.thread.presence
        self._health: Final = HealthProbe(self._group, max_poll_interval_ms=self._config.max_poll_interval_ms)
        observer = self._group.listeners.observer
        # The heartbeat thread has the observer: through the group it would keep a listener alive, and so a consumer
        # that was dropped without close().
        health = weakref.ref(self._health)
        self._stalls: Final = StallWatch(
            self._fetcher,
            self._opener,
            self._config.bootstrap_servers,
            read_committed=data_plane.get("isolation.level", "read_committed") == "read_committed",
            queued_min=int(str(data_plane.get("queued.min.messages", QUEUED_MIN))),
            tell=observer.stalled,
        )
        self._health.stalls = self._stalls
        self._meter: Final = ReadMeter(
            observer.metrics,
            group_id=self._config.group_id,
            lags=lambda: probe.lags() if (probe := health()) is not None else {},
        )
        self._fetcher.meter = self._meter
        stalls = self._stalls
        observer.more_gauges = {
            **self._meter.figures(),
            "kip848.consumer.stalled.partitions": lambda: len(stalls.stalled),
        }
        observer.want_lags = lambda: probe.want_lags() if (probe := health()) is not None else None
        self._mark: object = None
        self._in_hand: Sequence[Message[Any, Any]] = ()
        """What the last poll() or consume() returned. It counts as processed when the next one begins."""
        self._committed_by_hand: dict[NamedPartition, OffsetAndMetadata] = {}
        """Commits of the application since then: records before these offsets are processed, too."""
        self._layout_checked = False
        self._processor: Driver | None = None
        """The ``process()`` that runs."""
        self._in_transaction = False
        self._processor_reads = False
        self._values = deserializers_of(self._config)
        if self._values is not None:
            fetcher = self._fetcher
            self._values.introduce(lambda: fetcher.list_topics(timeout=10.0).cluster_id)
        self._as_messages: Final = self._config.errors_as_messages
        self._error_messages: Final[deque[Any]] = deque()
        """With errors.as.messages: errors that no call has returned yet."""
        self._told_of_nothing_wanted = False
        self._unmet_topics: frozenset[str] = frozenset()
        self._gate = gate = OneThread()
        self._fetcher.is_reader = lambda: gate.is_reader
        self._group.run_callbacks = self._run_commit_callbacks
        self._fork_guard = ForkGuard(self._gate, leaked=(self._fetcher, self._manager))
        self._finalizer = weakref.finalize(
            self, _abandon, self._manager, os.getpid(), self._config.group_id, self._config.client_id
        )

    # --- group

    def subscribe(
        self,
        topics: Iterable[str | SubscriptionPattern] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        *,
        on_assign: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to these topics, in place of earlier ones. The consumer joins the group in the background.

        Partitions are assigned, and listeners called, in poll(). The first one has max.poll.interval.ms from here on.

        Args:
            topics: names, `SubscriptionPattern` objects, or names that start with ``^``, which are patterns (RE2,
                matched by the coordinator against whole names). An empty list is `unsubscribe`.
            listener: called when partitions are assigned, revoked or lost. A function in this place is *on_assign*:
                ``subscribe(topics, on_assign, on_revoke, on_lost)`` works as in confluent_kafka.
            on_assign, on_revoke, on_lost: the same as callables ``(consumer, partitions)``.

        Raises:
            ConfigError: a name is blank, or both a listener and callables are given.
            IllegalStateError: partitions are assigned by hand, or the consumer is closed.
        """
        with self._gate:
            self._group.check_usable()
            subscription = read_subscription(topics)
            called, on_assign = read_listener(
                listener, on_assign, on_revoke, on_lost, kinds=(ConsumerRebalanceListener,)
            )
            for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
                check_not_async(callback, name=name, instead=USE_ASYNC_CONSUMER)
            check_methods_not_async(called, *_LISTENER_METHODS, instead=USE_ASYNC_CONSUMER)
            if on_assign or on_revoke or on_lost:
                called = CallableListener(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            if not subscription:
                self._group.unsubscribe(timeout_ms=self._group.default_api_timeout_ms, waits=not self._as_messages)
                return
            self._group.subscribe(subscription, _Callbacks(self, called) if called is not None else None)
            self._unmet_topics = frozenset(subscription.topics)
            self._silence.begin()

    def request_reassignment(self, reason: int) -> None:
        """Request a new assignment by the group's client-side assignor. Returns at once.

        The local assignors' metadata() is called first, so that the new assignment uses the result. Calls within one
        second of another one count as one, with the last *reason*.

        Args:
            reason: a number that the assignor defines, -128..127 and not 0; `PartitionAssignor.assign` sees the last
                one as `MemberSpec.reason`.

        Raises:
            IllegalStateError: ``group.local.assignors`` is not set, or the consumer is closed.
            ConfigError: *reason* is 0 or too large.
        """
        self._gate.check_process()
        self._group.request_reassignment(reason)

    def unsubscribe(self) -> None:
        """Leave the group, after on_partitions_revoked for all partitions. Ends a manual assignment as well.

        With enable.auto.commit, returned records are committed first; a listener that unsubscribes must commit itself.
        Waits for the coordinator's answer, at most default.api.timeout.ms; inside a listener, and with
        errors.as.messages, it does not wait: on_partitions_revoked runs in the next poll() or close().

        Raises:
            ListenerError: the listener raised; the consumer has left anyway.
        """
        self._check_not_handling("unsubscribe")
        with self._gate:
            self._group.unsubscribe(timeout_ms=self._group.default_api_timeout_ms, waits=not self._as_messages)
            if not self._group.listener_effect and not self._as_messages:
                self._fetcher.stop_all()

    # --- records

    def poll(self, timeout: float | None = -1.0, *, timeout_ms: None = None) -> Message[K_co, V_co] | None:
        """Take part in rebalances, and return the next record.

        Args:
            timeout: seconds; negative or None waits for ever.
            timeout_ms: refused: it is kafka-python's.

        Returns:
            A record; None after the timeout, also before subscribe(). With enable.partition.eof=true also messages with
            the ``error().code()`` `KafkaError._PARTITION_EOF`, but no other errors.

        Raises:
            ListenerError: a listener raised; the rebalance goes on with the next poll().
            BrokerError: the broker refused a request; every later call raises a ``fatal`` one again.
            Kip848Error: any other error of this library; see `kip848_client.errors`.
            IllegalStateError: the consumer is closed, also by another thread during this call; another thread reads;
                the call comes from a listener; or it would wait for ever, because nothing is subscribed or assigned.
            ConfigError: *timeout* is not a number.
        """
        if self._values is not None:
            opened = self._read_opened(self._values, Filling(1, timeout))
            return opened[0] if opened else None
        # The fast path: ownership has not changed since the last check, and a record is ready.
        ready = self._ready
        if not (ready and self._mark is self._manager.mark and self._gate.owner is None):
            if timeout_ms is not None:
                refuse_milliseconds("poll", timeout_ms)
            with self._gate:
                batch = self._next_batch(Filling(PREFETCH_RECORDS, timeout))
                if not batch:
                    return None
                if self._as_messages and is_error(batch[0]):
                    return batch[0]
                # In front: after a resume() `ready` may hold more than the batch that was taken from it.
                ready.extendleft(reversed(batch))
                self._fetcher.on_the_way = False
        # Python handles Ctrl-C at calls: there is none between here and the caller.
        try:
            message: Message[K_co, V_co] = ready[0]
            self._in_hand = (message,)
            del ready[0]
        except IndexError:
            raise self._closed_elsewhere() from None
        return message

    def consume(
        self, num_messages: int = 1, timeout: float | None = -1.0, *, timeout_ms: None = None
    ) -> list[Message[K_co, V_co]]:
        """Take part in rebalances, and wait for *num_messages* records, or as many as come within *timeout*.

        A rebalance, hand_over() and 64 MiB of values end the wait early, with what has come of the partitions that
        stay; what came of others goes to their new owners. `batches` waits for the first record only.

        Args:
            num_messages: how many, 0 to 1,000,000.
            timeout: seconds; negative or None waits until *num_messages* have come.
            timeout_ms: refused: it is kafka-python's.

        Returns:
            Records, and ends of partitions as from `poll`; empty if none came in time. With a deserialiser of your own
            that leaves records out there may be fewer.

        Raises:
            Kip848Error: what `poll` raises.
        """
        if timeout_ms is not None:
            refuse_milliseconds("consume", timeout_ms)
        return self._read(record_count(num_messages), timeout, linger_s=None)

    def batches(
        self, num_messages: int = BATCH_RECORDS, timeout: float | None = -1.0, *, linger_s: float = 0.0
    ) -> Iterator[list[Message[K_co, V_co]]]:
        """``for batch in consumer.batches()``: iterate over lists of records; ends when the consumer closes.

        Args:
            num_messages: maximum size of a batch.
            timeout: seconds until an empty batch is yielded without a record; negative or None: never.
            linger_s: how many seconds a batch waits for more records after its first one; 0 yields what is at hand,
                which has the least latency. For bulk inserts: ``batches(500, linger_s=1.0)``.
        """
        record_count(num_messages)
        while not self._is_over():
            try:
                batch = self._read(num_messages, timeout, linger_s=linger_s)
            except IllegalStateError:
                if self._is_over():  # another thread closed the consumer
                    return
                raise
            yield batch

    def _read(
        self, num_messages: int, timeout: float | None, *, linger_s: float | None = 0.0
    ) -> list[Message[K_co, V_co]]:
        """Read at most *num_messages* records; for the arguments see `Filling`."""
        manager = self._manager
        mark = manager.mark
        fetcher = self._fetcher
        gate = self._gate
        if (
            self._mark is mark
            and gate.owner is None
            and not self._ready
            and fetcher.smooth
            and self._values is None
            and gate.is_reader
            and manager.lease_ns() <= manager.trusted_until_ns
        ):
            # The fast path: ownership has not changed since the last check, and librdkafka has records.
            with fetcher.lock:
                batch = self._at_hand(num_messages, mark, timeout, linger_s)
            if batch:
                fetcher.on_the_way = False  # Python handles Ctrl-C at calls: there is none between here and the caller
                return batch
        return self._fill(Filling(num_messages, timeout, linger_s))

    def _at_hand(self, count: int, mark: object, *wait_s: float | None) -> list[Message[K_co, V_co]]:
        """The records that librdkafka has ready, if they may be returned; they are on the way then. Under its lock.

        Args:
            wait_s: how long the call waits for more; with a 0 not at all. They were not checked yet.
        """
        fetcher = self._fetcher
        if not fetcher.smooth:  # another thread was faster with the lock
            return []
        fetcher.on_the_way = True
        began_s = time.monotonic() if self._meter.metrics.measuring else 0.0
        fetcher.inside += 1
        try:
            batch: list[Any] = fetcher.plane.consume(count, 0)
        finally:
            fetcher.inside -= 1
            if fetcher.close_due:
                fetcher.close_plane()
        fetcher.emptied += len(batch) < count
        if batch:
            fetcher.reads += 1
            fetcher.returned += len(batch)
            if began_s:
                self._meter.took(batch, time.monotonic() - began_s)
            # map and any stay in C: 25 ns a record, where a loop costs 60.
            if self._manager.mark is mark and not any(map(Message.error, batch)):
                if len(batch) == count or any(type(limit_s) in {int, float} and limit_s == 0 for limit_s in wait_s):
                    self._presence.calls += 1
                    self._in_hand = tuple(batch)  # a copy: the application may take records out of its list
                    return batch
                self._ready.extend(batch)
            else:
                self._ready.extend(fetcher.without_errors(batch))
        fetcher.on_the_way = False
        return []

    def _fill(self, filling: Filling, slice_s: float = math.inf) -> list[Message[K_co, V_co]]:
        """Read until *filling* is over, or *slice_s* have passed: then what has come waits in `ready`."""
        if self._values is not None:
            return self._read_opened(self._values, filling, slice_s)
        with self._gate:
            batch = self._next_batch(filling, slice_s)
        if not (batch and self._as_messages and is_error(batch[0])):
            self._in_hand = tuple(batch)
        self._fetcher.on_the_way = False  # Python handles Ctrl-C at calls: there is none between here and the caller
        return batch

    def __iter__(self) -> Iterator[Message[K_co, V_co]]:
        """Yield records for ever; ends when the consumer is closed, or has handed over.

        Raises:
            IllegalStateError: nothing is subscribed or assigned.
        """
        while not self._is_over():
            try:
                message = self.poll(1.0 if self._group.wants_records else None)
            except IllegalStateError:
                if self._is_over():  # another thread closed the consumer
                    return
                raise
            if message is not None:
                yield message

    def _is_over(self) -> bool:
        return self._group.closed or self._group.handed_over or self._group.thread.closing

    def _read_opened(
        self, values: Deserializers, filling: Filling, slice_s: float = math.inf
    ) -> list[Message[K_co, V_co]]:
        """Read records and deserialise keys and values. A record that fails stays first in `ready`."""
        end_s = time.monotonic() + slice_s
        count = filling.count
        ready = self._ready
        opened: list[Message[K_co, V_co]] = []
        with self._gate:
            while True:
                batch = self._next_batch(filling, end_s - time.monotonic())
                if batch and self._as_messages and is_error(batch[0]):
                    return batch
                ready.extendleft(reversed(batch))
                self._fetcher.on_the_way = False
                self._in_hand = opened  # from the first on: Ctrl-C may come before it is returned
                try:
                    while batch and ready and len(opened) < count:
                        message = ready[0]
                        wanted = values.open(message)
                        if ready and ready[0] is message:  # or on_deserialization_error sought elsewhere
                            if wanted:
                                opened.append(message)
                            del ready[0]
                except BaseException as error:
                    if opened and isinstance(error, Exception):
                        break  # the next call meets the same record first
                    values.take_back(opened, ready)
                    self._fetcher.take_back(opened)
                    raise
                if opened or not batch:
                    break
        return opened.copy()  # the application may take records out of its list

    def _next_batch(self, filling: Filling, slice_s: float = math.inf) -> list[Message[K_co, V_co]]:
        """At most *filling.count* records, or an error; none if *slice_s* pass before *filling* is over."""
        if not self._as_messages or self._processor_reads:
            return self._gather(filling, slice_s)
        if not self._error_messages:
            told = self._group.thread.fatal_raised
            try:
                return self._gather(filling, slice_s)
            except ListenerError as error:
                if error.__cause__ is None:
                    raise
                raise error.__cause__  # noqa: B904  confluent-kafka does not wrap what a callback raises
            except Kip848Error as error:
                self._error_messages.extend(error_messages(error))
                if not self._error_messages:
                    raise
            if told:  # a loop that goes on after a fatal error must not spin
                self._group.thread.wait(min(slice_s, max(0.0, filling.deadline_s - time.monotonic())))
        self._mark = None
        return [self._error_messages.popleft()]

    def _gather(self, filling: Filling, slice_s: float) -> list[Message[K_co, V_co]]:
        group, fetcher, ready, manager = self._group, self._fetcher, self._ready, self._manager
        thread = group.thread
        group.check_usable()
        if not self._processor_reads:
            self._check_not_processing("poll")
        count = filling.count
        end_s = time.monotonic() + slice_s + _SLICE_SLACK_S
        deadline_s = min(filling.deadline_s, end_s)
        if not group.wants_records:
            self._tell_of_nothing_wanted(forever=filling.deadline_s == math.inf)
        settled = self._mark
        thread.begin_poll()
        self._in_hand = ()
        self._committed_by_hand.clear()
        if self._sought:
            self._tell_of_seeks()
        doubt = manager.lease_ns() > manager.trusted_until_ns
        gathered = False
        try:
            while True:
                if thread.closer is not None and thread.closing and not group.closed:
                    raise self._closed_elsewhere()
                slice_s = thread.slice_s()
                mark = manager.mark
                if mark is not settled and ready and gathered and group.hand_over_wanted:
                    # What came before hand_over(): it is handled and committed before the partitions go.
                    with fetcher.lock:
                        fetcher.keep_readable(group.view.readable)
                    if ready:
                        self._mark = None
                        fetcher.on_the_way = True
                        return [ready.popleft() for _ in range(min(count, len(ready)))]
                if mark is not settled:
                    # Rebalances come first: no record is returned before pending revocations.
                    if not thread.settle(deadline_s):
                        if thread.closing:
                            continue
                        return []
                    if group.handed_over or (not group.wants_records and filling.deadline_s == math.inf):
                        return []  # a listener called unsubscribe(), or handing over is complete
                    view = group.view
                    fetcher.keep_readable(view.readable)
                    if self._health.lags_wanted:
                        self._health.measure(self._known_lags)
                    settled = mark  # the earlier version: changes since then are checked again
                    self._mark = None if view.poll_wanted else mark
                    continue
                if group.handed_over:
                    return []
                if (doubt or manager.resumed_ms is not None) and (doubt := manager.in_doubt()):
                    if (left_s := deadline_s - time.monotonic()) <= 0:
                        return []
                    thread.wait(left_s)
                    continue
                if not count or (ready and filling.over(ready, group)):
                    fetcher.on_the_way = True
                    return [ready.popleft() for _ in range(min(count, len(ready)))]
                if self._unmet_topics:
                    self._meet_topics(deadline_s)
                if (now_ms := group.clock.now_ms()) >= self._stalls.due_ms:
                    with fetcher.lock:
                        self._stalls.look(group.readable, now_ms)
                deadline_s = min(filling.deadline_s, end_s)  # a linger begins with the first record
                left_s = deadline_s - time.monotonic()
                if fetcher.idle and left_s > 0:
                    thread.wait(left_s)
                    left_s = 0
                if fetcher.asked_s:  # another thread calls now and then: it waits for the end of each read
                    if not fetcher.give_way(unless=lambda: thread.closing):
                        continue
                    slice_s = min(slice_s, max(BRIEF_SLICE_S, (time.monotonic() - fetcher.asked_s) / 10))
                with fetcher.lock:
                    batch = fetcher.read(count - len(ready), timeout_s=min(slice_s, left_s), filling=bool(ready))
                manager.home.check()  # librdkafka's callbacks are the application's code, too
                if fetcher.closed:
                    return []  # by a signal handler that interrupted this call
                if fetcher.eventful:
                    self._tell(batch)
                    continue
                if batch:
                    if manager.mark is mark and not ready and (len(batch) == count or not filling.waits):
                        return batch
                    # More is to come; or ownership changed while the records came: filter before returning them.
                    ready.extend(batch)
                    fetcher.on_the_way = False
                    if filling.waits:
                        filling.took(batch)
                        gathered = True
                elif self._silence.watching:
                    self._silence.nothing_came()
                if deadline_s <= time.monotonic() and not (ready and filling.deadline_s <= deadline_s):
                    return []
        except RuntimeError as error:
            if group.closed and str(error) == LIBRDKAFKA_CLOSED:
                return []  # by a signal handler that interrupted this call
            raise
        finally:
            thread.end_poll()

    def _tell_of_seeks(self) -> None:
        """One line for all seek() calls since the last poll(), and at most one a second: some seek for each record."""
        now_ms = self._group.clock.now_ms()
        if now_ms - self._told_of_seeks_ms >= SEEKS_TOLD_EVERY_MS:
            self._told_of_seeks_ms = now_ms
            sought, self._sought = self._sought, {}
            self._group.listeners.observer.sought(sought)

    @staticmethod
    def _closed_elsewhere() -> IllegalStateError:
        return IllegalStateError("the consumer was closed by another thread; make a new one")

    def _known_lags(self) -> dict[NamedPartition, int]:
        """How far each position is behind the end of its partition as of the last fetch; asks no broker."""
        known = self._between_reads(self._last_fetched).items()
        return {name: max(0, high - max(low, position)) for name, (position, low, high) in known if high >= 0}

    def _tell_of_nothing_wanted(self, *, forever: bool) -> None:
        if forever:
            raise IllegalStateError(
                "nothing is subscribed or assigned: this would wait for ever; call subscribe() first"
            )
        if not self._told_of_nothing_wanted:
            self._told_of_nothing_wanted = True
            hint = "nothing is subscribed or assigned, so there are no records; call subscribe()"
            self._group.listeners.observer.log(logging.WARNING, LogEvent.NOT_SUBSCRIBED, hint=hint)

    def _meet_topics(self, deadline_s: float) -> None:
        """Let librdkafka learn about the topics while the member joins; log missing ones once.

        In a short poll() there is no time for that before the member has joined: the brokers may not answer.
        """
        manual = self._group.manual
        joining = not manual and self._group.view.member_epoch <= 0
        if joining and deadline_s - time.monotonic() < WARM_TIMEOUT_S:
            return
        topics, self._unmet_topics = self._unmet_topics, frozenset()
        described = self._fetcher.warm(topics, anew=bool(manual))
        missing = [topic for topic, found in described.items() if is_missing(found)]
        missing += [
            f"{p.topic}-{p.partition}"
            for p in manual
            if (found := described.get(p.topic)) is not None and not found.error and p.partition not in found.partitions
        ]
        if missing and self._as_messages:
            self._fetcher.report(
                error_for_code(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Subscribed topic not available: {join_names(sorted(missing))}; read once it exists",
                )
            )
        elif missing:
            self._group.listeners.observer.log(
                logging.WARNING,
                LogEvent.TOPICS_MISSING,
                topics=join_names(sorted(missing)),
                hint="they are read once they exist",
            )

    def _tell(self, batch: list[Any]) -> None:
        """Raise or return librdkafka's errors among the records; the next call returns *batch*."""
        self._ready.extend(batch)
        self._fetcher.on_the_way = False
        while (lost := self._fetcher.first_lost()) is not None:
            self._group.position_lost(*lost)
            self._fetcher.forget_lost(lost)
        while (error := self._fetcher.take_error()) is not None:
            missing = isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            harmless = ((missing and not self._as_messages) or is_own_lookup(error)) and self._group.subscription
            if not harmless and not is_refused_lookup(error):
                raise error
            # A topic was deleted: the coordinator knows it and will revoke its partitions. Or librdkafka finds no
            # coordinator: what needs one looks it up itself and reports errors. Without a subscription nothing else
            # may tell of a failed login.
            self._group.listeners.observer.log(logging.INFO, LogEvent.DATA_PLANE_ERROR, error=error)

    def process(
        self,
        handler: Callable[[Message[K_co, V_co]], object]
        | Callable[[list[Message[K_co, V_co]]], object]
        | Callable[[RecordCopy], object]
        | Callable[[Message[K_co, V_co], HandlerTransaction], object]
        | Callable[[list[Message[K_co, V_co]], HandlerTransaction], object],
        *,
        concurrency: int = 10,
        order: Order = "key",
        retry: BaseRetrying | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        dead_letter: DeadLetters | None = None,
        on_failure: Callable[[ProcessingFailure], object] | None = None,
        until: Literal["end"] | None = None,
        timeout_s: float | None = None,
        batch: Sequence[int] | None = None,
        split: bool = False,
        buffer: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        drain_s: float = DRAIN_S,
        grace_s: float = GRACE_S,
        transactional: Producer | None = None,
        slice_records: int = SLICE_RECORDS,
        slice_ms: int = SLICE_MS,
        executor: Executor | None = None,
    ) -> None:
        """Call *handler* with each record, many at once, until the consumer has handed over or a handler failed.

        Order is kept within a lane: the records of one key in one partition (``order="key"``; those without a key have
        no order), of one partition, or of none. What is done beyond the first record that is not done is noted in the
        commit's metadata, so that a new owner does not repeat it. Rebalances let running handlers end before partitions
        are given away; see docs/processing.md for what is repeated after which death.

        While it runs, poll(), consume(), seek() and commit() are refused. Afterwards automatic commits stay off, and
        positions are at the first record that is not done.

        Args:
            handler: ``handler(record)``, called in a thread; with *batch* ``handler(records)``. A long one asks
                `kip848_client.processing_cancelled` now and then whether it should end.
            concurrency: handlers that run at once; an executor may have fewer workers.
            order: ``"key"``, ``"partition"`` or ``"none"``.
            retry: a ``tenacity.Retrying`` object: which exceptions are tried again, how often, after which time. Other
                lanes go on meanwhile. Its ``before``, ``after`` and ``before_sleep`` are called. None: never, but for
                `kip848_client.RetryLater`.
            on_error: of a record that failed for good. ``"stop"`` ends process() with a `ProcessingError`, and the
                record is not committed; ``"skip"`` logs it and counts it as done.
            dead_letter: where it goes instead; a `DeadLetters`.
            on_failure: called with a `ProcessingFailure` for each call of the handler that failed, before what follows;
                it should return soon. If it raises, process() ends with a `ProcessingError`.
            until: ``"end"``: return once all partitions are read to their ends and everything in hand is done, for
                batch jobs and tests. A member without partitions returns, too.
            timeout_s: how long one call may take; afterwards it counts as having raised `TimeoutError`. The thread
                goes on, and its slot is free when it ends.
            batch: (most records, milliseconds), or a list of the two: the handler gets a list of records of one lane,
                as soon as there are so many or the first has waited so long.
            split: the records of a batch that failed for good are handled again one by one, each in a list of its own
                and with attempts of its own.
            buffer: records in hand above which partitions are paused; twice the concurrency if None.
            buffer_bytes: bytes of keys and values in hand at which reading stops; the last record may exceed them.
            drain_s: how long a revocation waits for running handlers, within 0.8 of max.poll.interval.ms; it
                should be less than what a deployment waits before it kills.
            grace_s: how long the end waits for them.
            transactional: a `confluent_kafka.Producer` with a ``transactional.id``, for exactly once: the handler gets
                a second argument, a `HandlerTransaction`, to produce with. If it returns, what it has produced is
                written in one transaction with its record's offset. See docs/exactly-once.md.
            slice_records, slice_ms: a transaction is written once so many records are done, or the first of them has
                waited so many milliseconds.
            executor: a pool of your own; with a ``ProcessPoolExecutor`` the handler gets a copy of the record.

        Raises:
            ProcessingError: a handler failed for good, or all slots are taken by handlers that do not end.
            ProducerFencedError, TransactionFailedError: another process has taken the ``transactional.id``, or the
                producer cannot go on. End the process.
            Kip848Error: the last commit failed, as commit() would.
            ConfigError: an argument is wrong.
            IllegalStateError: nothing is subscribed, or process() runs already.
        """
        from kip848_client.consumer.processing.threads import ThreadProcessor

        check_not_async(handler, name="handler", instead=USE_ASYNC_CONSUMER)
        settings = ProcessSettings(
            concurrency=concurrency,
            order=order,
            retry=retry,
            on_error=on_error,
            dead_letter=dead_letter,
            on_failure=on_failure,
            until=until,
            timeout_s=timeout_s,
            batch=batch,
            split=split,
            buffer=buffer,
            buffer_bytes=buffer_bytes,
            drain_s=drain_s,
            grace_s=grace_s,
            transactional=transactional,
            slice_records=slice_records,
            slice_ms=slice_ms,
        )
        check_takes(handler, *settings.handler_arguments, name="handler")
        ThreadProcessor(self, handler, settings, executor).run()

    def processing_status(self) -> ProcessingStatus | None:
        """What ``process()`` has in hand, and why it waits; None while it does not run. From any thread."""
        processor = self._processor
        return None if processor is None else processor.status()

    def _check_not_handling(self, call: str) -> None:
        handling = HANDLING.get()
        if handling is not None and handling[0] is self._processor:
            raise IllegalStateError(
                f"{call}() inside a handler would wait for this handler; call hand_over(), or return"
            )

    def _check_not_processing(self, call: str) -> None:
        if self._processor is not None:
            raise IllegalStateError(f"{call}() is refused while process() runs, which reads and commits by itself")

    # --- offsets

    def commit(
        self,
        message: Message[Any, Any] | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout_s: float | None = None,
        on_commit: CommitCallback | None = None,
    ) -> list[TopicPartition] | None:
        """Commit offsets: of one message, of the given partitions, or of all records returned so far.

        With enable.auto.offset.store=false the last case commits the offsets of `store_offsets`.

        Any thread may call it. During a rebalance: until on_partitions_revoked has returned, the partitions that go are
        committed like others, and the next owner begins there. Afterwards they are refused.

        Args:
            message: commits the offset after it.
            offsets: partitions with the next offset to read.
            asynchronous: return at once. A failure goes to *on_commit*, else to on_commit of the configuration, else it
                is raised by a later call.
            timeout_s: seconds, for a synchronous commit; default.api.timeout.ms if None, negative waits for ever.
            on_commit: ``(error or None, partitions)``, called from a later poll(), consume(), commit() or close().

        Returns:
            Committed partitions, or None if asynchronous. Inside on_partitions_revoked, partitions of a topic that was
            deleted meanwhile are left out and logged.

        Raises:
            CommitFailedError: the partitions belong to another member now, or may do so.
            RequestTimeoutError: no answer in time; the commit may have been applied.
            BrokerError: the coordinator refused it.
            IllegalStateError: process() runs, or a block of `transaction`.
        """
        self._check_not_processing("commit")
        if self._in_transaction:
            raise IllegalStateError(
                "commit() is refused inside transaction(): the block commits these offsets together with what it has "
                "produced"
            )
        self._gate.check_process()
        chosen = commit_offsets(message, offsets)
        asynchronous = flag(asynchronous, name="asynchronous")
        check_commit_callback(on_commit)
        if chosen is None:
            self._group.check_usable()
            chosen = self._committable()
        else:
            self._fetcher.processed(chosen)
        self._committed_by_hand.update(chosen)
        if asynchronous:
            self._group.commit_async(chosen, public_callback(on_commit) if on_commit is not None else None)
            return None
        committed = self._group.commit_sync(chosen, timeout_ms=self._timeout_ms(timeout_s))
        return public_offsets(committed)

    def _committable(self) -> dict[NamedPartition, OffsetAndMetadata]:
        thread = self._group.thread
        return thread.committable() if thread.stored is not None else self._between_reads(thread.committable)

    def _progress(self) -> AppProgressed | None:
        """How far the application is, without what it has in hand (heartbeat thread); None while it is being read."""
        if self._processor is not None:
            return None
        stored, fetcher = self._group.thread.stored, self._fetcher
        if stored is not None:
            return AppProgressed(stored=dict(stored()))
        if not fetcher.lock.acquire(blocking=False):
            return None
        try:
            if fetcher.hands_out():
                return None
            known = fetcher.positions()
            # In this order: poll() may hand out the next record meanwhile. It is in one place or in the other.
            done, in_hand = self._committed_by_hand.copy(), self._in_hand
            for name, offset in first_offsets(reversed(in_hand)).items():
                committed = done.get(name)
                offset = max(offset, committed.offset) if committed is not None else offset
                if name in known and offset < known[name].offset:
                    known[name] = OffsetAndMetadata(offset)
            return None if fetcher.hands_out() else AppProgressed(known)
        except Kip848Error:  # it was closed
            return None
        finally:
            fetcher.lock.release()

    def _between_reads(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Do what needs librdkafka, or the positions; see `Fetcher.between_reads`."""
        self._gate.check_process()
        return self._fetcher.between_reads(work, wanted=self._manager.look_up)

    def _run_commit_callbacks(self) -> None:
        """Run the callbacks of commits that have ended, unless another thread reads, which does it."""
        if self._gate.try_enter():
            try:
                self._group.thread.run_commit_callbacks()
            finally:
                self._gate.__exit__(None, None, None)

    def store_offsets(
        self, message: Message[Any, Any] | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Mark records as processed, for automatic commits and commit() without arguments. Sends nothing.

        Only with enable.auto.offset.store=false. Otherwise all returned records count as processed when the next
        poll() begins. Any thread may call it. What is stored of a partition is forgotten when it is given away, after
        on_partitions_revoked.

        Args:
            message: the offset after it is stored.
            offsets: partitions with the next offset to read.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer, or enable.auto.offset.store is on.
        """
        self._check_not_processing("store_offsets")
        self._gate.check_process()
        if self._group.thread.stored is None:
            raise IllegalStateError("store_offsets() needs enable.auto.offset.store=false; set it")
        chosen = commit_offsets(message, offsets, call="store_offsets")
        if chosen is None:
            raise IllegalStateError("store_offsets() takes a message or offsets")
        self._check_assigned(chosen, call="store_offsets")
        self._fetcher.processed(chosen)
        self._fetcher.stored.update(chosen)

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Read the group's committed offsets and their metadata; OFFSET_INVALID where there is none. From any thread.

        Metadata is None if none was committed, and ends before the NUL with which confluent_kafka commits it.

        Args:
            timeout: seconds; default.api.timeout.ms if None, negative waits for ever.
        """
        self._gate.check_process()
        wanted = [internal(partition) for partition in check_partitions(partitions, call="committed")]
        found = self._group.committed(wanted, timeout_ms=self._timeout_ms(timeout))
        return [
            public(partition) if (at := found.get(partition)) is None else public_commit(partition, at)
            for partition in wanted
        ]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next offset that poll() will return; OFFSET_INVALID while unknown. Without metadata.

        From any thread; while partitions are being revoked, where they will be read on.
        """
        wanted = [internal(partition) for partition in check_partitions(partitions, call="position")]
        known = self._between_reads(lambda: self._fetcher.positions(wanted))
        return [public(p, known.get(p) or self._fetcher.sought(p)) for p in wanted]

    def seek(self, partition: TopicPartition, *others: Never) -> None:
        """Continue *partition* at its offset (>= 0, OFFSET_BEGINNING or OFFSET_END) in the next poll().

        Args:
            others: refused: other clients give the offset apart.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer, or the offset is invalid.
        """
        if others:
            refuse_seek((partition, *others))
        self._check_not_processing("seek")
        with self._gate:
            name, position = seek_position(partition)
            self._check_assigned([name], call="seek")
            self._committed_by_hand.pop(name, None)
            if self._group.listener_effect is None:
                self._group.thread.perform_starts()
            if position.offset < 0:
                self._fetcher.detach([name])
            elif self._fetcher.seek(name, position):
                self._sought[name] = position
                self._group.thread.starts[name] = Start(StartReason.SOUGHT)
                return
            self._group.seek(name, position)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no records of *partitions* until `resume`. Revocation ends the pause.

        From any thread: a call that is returning records at this moment may still return some of them. Partitions that
        are not assigned to this consumer are ignored and logged: they may have been revoked.
        """
        names = self._owned(partitions, call="pause")
        if self._processor is not None:
            self._processor.user_paused.update(names)
        self._between_reads(lambda: self._fetcher.pause(names))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of *partitions* again; unassigned ones are ignored, as in `pause`."""
        names = self._owned(partitions, call="resume")
        processor = self._processor
        if processor is not None:
            processor.user_paused.difference_update(names)
            names = [name for name in names if name not in processor.core.paused]
        self._between_reads(lambda: self._fetcher.resume(names))

    def paused(self) -> list[TopicPartition]:
        """Partitions that are paused, sorted."""
        self._gate.check_process()
        return [public(partition) for partition in sorted(self._fetcher.paused)]

    def _owned(self, partitions: list[TopicPartition], *, call: str) -> list[NamedPartition]:
        self._gate.check_process()
        self._group.check_usable()
        assigned = self._group.assigned
        names = [internal(partition) for partition in check_partitions(partitions, call=call)]
        others = sorted(set(names) - assigned)
        if others:
            self._group.listeners.observer.log(
                logging.INFO, LogEvent.NOT_ASSIGNED, call=f"{call}()", partitions=describe_partitions(others)
            )
        return [name for name in names if name in assigned]

    def _check_assigned(self, partitions: Iterable[NamedPartition], *, call: str) -> None:
        self._group.check_usable()
        assigned = self._group.assigned
        for name in partitions:
            if name not in assigned:
                raise IllegalStateError(
                    f"{name} is not assigned to this consumer{self._group.why_gone}; {call}() takes assigned partitions"
                )

    def _timeout_ms(self, timeout_s: float | None) -> int:
        return limit_ms(timeout_s, default_ms=self._group.default_api_timeout_ms)

    # --- assignment by hand

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, without membership.

        Inside on_partitions_assigned it means: start them at their offsets. There it must name every partition that
        was just assigned, and none that this member does not own.

        Args:
            partitions: each starts at its offset (>= 0, OFFSET_BEGINNING or OFFSET_END), else at its committed offset,
                else by auto.offset.reset.

        Raises:
            IllegalStateError: topics are subscribed to; or inside a listener, the group assigns other partitions.
        """
        with self._gate:
            effect = self._group.listener_effect
            if effect is not None:
                self._assign_inside(effect, partitions, call="assign", must_name_all=True)
                return
            self._group.assign(assign_positions(partitions), in_hand=self._in_hand_offsets())
            self._silence.begin()
            self._unmet_topics = frozenset(partition.topic for partition in self._group.manual)

    def unassign(self) -> None:
        """End a manual assignment. Inside on_partitions_revoked it does nothing: the library releases partitions.

        Raises:
            IllegalStateError: inside on_partitions_assigned.
        """
        with self._gate:
            if self._group.listener_effect is None:
                self._group.assign({})
            else:
                self._refuse_unassigning("unassign")

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to a manual assignment; inside on_partitions_assigned `assign`, for some of the partitions.

        Raises:
            IllegalStateError: as for `assign`.
        """
        with self._gate:
            effect = self._group.listener_effect
            if effect is not None:
                self._assign_inside(effect, partitions, call="incremental_assign", must_name_all=False)
                return
            kept = dict.fromkeys(self._group.manual)
            added = assign_positions(partitions, call="incremental_assign")
            self._group.assign({**kept, **added}, in_hand=self._in_hand_offsets())
            self._silence.begin()
            self._unmet_topics = frozenset(partition.topic for partition in self._group.manual)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from a manual assignment; inside a listener as `unassign`.

        Raises:
            IllegalStateError: inside on_partitions_assigned.
        """
        with self._gate:
            gone = {internal(partition) for partition in check_partitions(partitions, call="incremental_unassign")}
            if self._group.listener_effect is None:
                kept = {p: None for p in self._group.manual if p not in gone}
                self._group.assign(kept, in_hand=self._in_hand_offsets())
            elif gone:
                self._refuse_unassigning("incremental_unassign")

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer owns, sorted.

        From any thread. Those that are being revoked are among them until on_partitions_revoked has returned.
        """
        self._gate.check_process()
        return [public(partition) for partition in sorted(self._group.assigned)]

    def _in_hand_offsets(self) -> dict[NamedPartition, int]:
        """The first offset of each partition that the last poll() returned, unless the application stores offsets."""
        if not self._in_hand or not self._config.auto_offset_store:
            return {}
        return first_offsets(reversed(self._fetcher.unprocessed(self._in_hand, self._committed_by_hand)))

    def _assign_inside(
        self, effect: ListenerEffect, partitions: list[TopicPartition], *, call: str, must_name_all: bool
    ) -> None:
        """Start partitions at their offsets, if that leaves every partition with the member that the group chose."""
        positions = assign_positions(partitions, call=call)
        if not isinstance(effect, AssignPartitions):
            if positions:
                raise IllegalStateError(
                    f"{call}() inside on_revoke or on_lost: these partitions go to other members; nothing can be "
                    "assigned here, so leave the call out"
                )
            return  # the library releases the partitions itself
        foreign = positions.keys() - self._group.assigned
        if foreign:
            raise IllegalStateError(
                f"{call}() inside on_assign names {describe_partitions(foreign)}, which this member does not own; give "
                "it the partitions that the callback got"
            )
        missing = {partition.topic_partition for partition in effect.partitions} - positions.keys()
        if missing and must_name_all:
            raise IllegalStateError(
                f"{call}() inside on_assign leaves out {describe_partitions(missing)}: no other member reads them, as "
                "the group assigned them to this one; name them too, and pause() what is to be read later"
            )
        for partition, position in positions.items():
            if position is not None:
                self._fetcher.mark(partition, position)
                self._group.seek(partition, position)

    def _refuse_unassigning(self, call: str) -> None:
        if isinstance(self._group.listener_effect, AssignPartitions):
            raise IllegalStateError(
                f"{call}() inside on_assign: no other member would read the partitions, as the group assigned them to "
                "this one; pause() what is to be read later"
            )

    # --- questions to the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> ClusterMetadata:
        """Describe the cluster: ``confluent_kafka.admin.ClusterMetadata``.

        Args:
            topic: only this one; all if None.
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        timeout, fetcher = librdkafka_s(timeout), self._fetcher
        if topic is not None and not isinstance(topic, str):
            raise ArgumentTypeError(f"list_topics() takes the name of one topic, or none for all, got {topic!r}")
        return self._ask("list_topics", lambda left_s: fetcher.list_topics(topic, timeout=left_s), timeout_s=timeout)

    def cluster_id(self, timeout: float = -1.0) -> str | None:
        """The id of the cluster; None if the brokers have none.

        Args:
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        found: str | None = self.list_topics(timeout=timeout).cluster_id
        return found

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition.

        Args:
            timeout: seconds; negative waits for ever.
            cached: return the values of the last fetch without a request; OFFSET_INVALID before one.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
        """
        check_partition(partition, call="get_watermark_offsets")
        fetcher, timeout, cached = self._fetcher, librdkafka_s(timeout), flag(cached, name="cached")
        answer: tuple[int, int] | None = self._ask(
            f"watermarks of {partition.topic}-{partition.partition}",
            lambda left_s: fetcher.plane.get_watermark_offsets(partition, timeout=left_s, cached=cached),
            timeout_s=0.0 if cached else timeout,
            partitions=[] if cached else [partition],
        )
        if answer is None:
            return OFFSET_INVALID, OFFSET_INVALID
        return answer

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1.0) -> list[TopicPartition]:
        """For each partition, whose offset field holds ms since 1970: the first offset at or after that time.

        Args:
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
            IllegalStateError: a partition has no time.
        """
        named = check_times(partitions)
        fetcher, timeout = self._fetcher, librdkafka_s(timeout)
        if not named:
            return []  # librdkafka would call that an invalid argument
        return self._ask(
            "offsets_for_times",
            lambda left_s: fetcher.plane.offsets_for_times(named, timeout=left_s),
            timeout_s=timeout,
            partitions=named,
        )

    def lag(self, timeout_s: float | None = LAG_TIMEOUT_S) -> dict[TopicPartition, int]:
        """The distance of each assigned partition to its end, as of its last fetch. From any thread.

        For a paused partition, which is not fetched, the leader is asked; without an answer the last fetch counts.

        Args:
            timeout_s: seconds, for questions about partitions that are paused or not fetched yet; negative: for ever.

        Returns:
            Partitions whose position is not known yet are absent.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer about a partition not fetched yet.
        """
        deadline_s = time.monotonic() + limit_s(timeout_s, default=LAG_TIMEOUT_S)
        self._gate.check_process()
        self._group.check_usable()
        behind = {}
        paused = self._fetcher.paused
        for partition, (position, low, high) in sorted(self._between_reads(self._last_fetched).items()):
            if high < 0 or partition in paused:
                left_s = max(0.001, deadline_s - time.monotonic())
                try:
                    low, high = self.get_watermark_offsets(public(partition), timeout=left_s)
                except Kip848Error:
                    if high < 0:
                        raise
            behind[public(partition)] = max(0, high - max(low, position))
        return behind

    def _last_fetched(self) -> dict[NamedPartition, tuple[int, int, int]]:
        """The position of each partition, and its lowest and next offset as of the last fetch; asks no broker."""
        found = {}
        for partition, position in self._fetcher.positions().items():
            low = high = OFFSET_INVALID
            with suppress(KafkaException):  # it was not fetched yet
                low, high = self._fetcher.plane.get_watermark_offsets(public(partition), cached=True)
            found[partition] = (position.offset, low, high)
        return found

    def _ask(
        self,
        what: str,
        ask: Callable[[float], AnswerT],
        *,
        timeout_s: float,
        partitions: Iterable[TopicPartition] = (),
    ) -> AnswerT:
        self._gate.check_process()
        self._group.check_usable()
        try:
            return ask_brokers(
                self._fetcher.list_topics,
                what,
                ask,
                timeout_s=timeout_s,
                partitions=partitions,
                before_pause=self._group.thread.before_wait,
                between_reads=self._between_reads,
            )
        except (ConnectionLostError, RequestTimeoutError) as failure:
            # librdkafka's text has no address.
            servers = self._config.data_plane["bootstrap.servers"]
            raise type(failure)(f"{failure}; bootstrap.servers is {servers}") from failure.__cause__

    # --- this member

    @property
    def state(self) -> MemberState:
        """The member's state: UNJOINED, STABLE, RECONCILING, RELEASING_ASSIGNMENT or FATAL."""
        return MemberState.FATAL if self._group.thread.fatal is not None else self._group.view.state

    @property
    def member_id(self) -> str:
        """The member id; made by the client, constant for the life of the consumer."""
        return self._group.view.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; -1 outside the group."""
        return self._group.view.member_epoch

    def group_instance_id(self) -> str | None:
        """The static slot of this member, from any thread: ``group.instance.id``, or what it took from its pool.

        With ``group.instance.id.takeover=wait`` or a pool, None while it stands by and outside the group.
        """
        return self._group.view.instance_id if self._config.slots.slots else self._config.group_instance_id

    def health(self) -> ConsumerHealth:
        """The health of this consumer, for a liveness or readiness probe. May be called on any thread; never waits.

        The lag is that of the poll() after the probe before; see `ConsumerHealth`.
        """
        return replace(self._health.look(), processing=self.processing_status())

    def memberid(self) -> str:
        """`member_id`, as confluent_kafka spells it."""
        return self.member_id

    def group_metadata(self) -> bytes:
        """The group metadata for ``producer.send_offsets_to_transaction(offsets, ...)``. From any thread.

        Call it when you send, because the epoch changes. A member that was removed, or left, keeps its last epoch, so
        that its transaction is refused. Without an epoch the coordinator would accept its offsets, even of partitions
        that another member has processed since.

        Raises:
            Kip848Error: the installed librdkafka uses another layout of these bytes.
        """
        self._gate.check_process()
        if not self._layout_checked:
            group_id, fetcher = self._config.group_id, self._fetcher
            self._between_reads(lambda: check_group_metadata_layout(fetcher.plane, group_id=group_id))
            self._layout_checked = True
        joined = self._manager.last_joined
        member_id, member_epoch, slot = ("", -1, None) if joined is None or self._group.manual else joined
        return group_metadata_bytes(
            group_id=self._config.group_id,
            member_epoch=member_epoch,
            member_id=member_id,
            instance_id=slot or self._config.group_instance_id,
        )

    consumer_group_metadata = group_metadata

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this user for new connections and renewed sessions; for PLAIN and SCRAM.

        Open connections stay. After an `AuthenticationError` make a new consumer instead.

        Raises:
            IllegalStateError: the consumer does not log in with a user and a password.
        """
        self._gate.check_process()
        self._group.check_usable()
        self._opener.set_user(username, password)
        self._data_plane.update({"sasl.username": username, "sasl.password": password})
        self._between_reads(lambda: self._fetcher.plane.set_sasl_credentials(username, password))

    # --- handing over, closing

    def hand_over(self, timeout_s: float | None = HAND_OVER_TIMEOUT_S) -> None:
        """Leave without a gap: keep reading while the other members prepare, then revoke everything.

        Returns at once. Keep polling: poll() returns records until the others are ready, or the time is up. Then
        on_partitions_revoked runs, poll() and consume() return nothing, and iterations end. Then call close(). The
        others read the partitions in about a tenth of a second; after a plain close() they notice only with their next
        heartbeats. If the group cannot be described (an old broker, no rights on the group) this is a plain
        revocation, which is logged once. Nobody waits for members that hand over as well, and the last ones of a group
        leave at once. With the classic protocol reading ends at once.

        Signal handlers and any thread may call it. Before subscribe(), or with assign(), there is nothing to give:
        reading ends at once. After close() it does nothing.

        Args:
            timeout_s: seconds for all of it, negative for ever. The others get at most three quarters, for which their
                heartbeat interval and a little is enough; the rest is for listeners, and for handlers of process() that
                have to end. Give more if these take long, and less than what is left until the process is killed.

        Example::

            signal.signal(signal.SIGTERM, lambda *_: consumer.hand_over())
            for message in consumer:
                handle(message)
            consumer.close()
        """
        self._group.hand_over(timeout_ms=limit_ms(timeout_s, default_ms=int(HAND_OVER_TIMEOUT_S * 1_000)))

    @property
    def handed_over(self) -> bool:
        """Whether `hand_over` is complete: this consumer owns nothing and will get nothing."""
        return self._group.handed_over

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S, mode: LeaveMode = LeaveMode.DEFAULT) -> None:
        """Commit returned records (with enable.auto.commit), run on_partitions_revoked, leave the group, close.

        All returned records count as processed, as in confluent_kafka: call it when the last one is done. A ``with``
        block that ends by an exception leaves out what the last poll() or consume() returned: that is read again. So
        does close() in another thread than the living one that reads. The call of that one ends with an
        `IllegalStateError`, its iteration and its process() without one; close() waits for them, and listeners run
        here.

        Returns by its deadline even if no broker answers; the leave is sent in any case. A second call does nothing.

        Args:
            timeout_s: seconds; negative waits for ever.
            mode: whether to leave the group; matters mostly for static members.

        Raises:
            ListenerError: the listener raised; everything was closed anyway.
            TopicAuthorizationError, GroupAuthorizationError: the last automatic commit was refused; the same is true.
            RequestTimeoutError: another thread did not come out of its listener or its process() in time.
            Kip848Error: an asynchronous commit failed, and no call has raised it yet. What a poll() would have raised
                is logged instead (``member.error_dropped``), so that close() in ``finally`` hides no other exception.
        """
        self._close(timeout_s, mode, in_hand_is_done=True)

    def _close(self, timeout_s: float | None, mode: LeaveMode, *, in_hand_is_done: bool) -> None:
        timeout_ms = limit_ms(timeout_s, default_ms=int(CLOSE_TIMEOUT_S * 1_000))
        check_leave_mode(mode)
        self._check_not_handling("close")
        self._gate.check_process()
        deadline_s = time.monotonic() + timeout_ms / 1_000
        if not self._gate.is_reader and not self._group.closed:
            in_hand_is_done = in_hand_is_done and not is_alive(self._gate.last)  # it may be at work with it
            self._end_reading(deadline_s)
        with self._gate:
            if self._group.closed:
                return
            errors = self._group.close(
                timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)),
                mode=mode,
                before_commit=None if in_hand_is_done else self._take_back_in_hand,
                release=self._fetcher.close,
            )
            self._finalizer.detach()
        for error in errors[1:]:
            self._group.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=repr(error))
        if errors:
            raise errors[0]

    def _end_reading(self, deadline_s: float) -> None:
        """Another thread may be reading: have its call end, and wait for that.

        Raises:
            RequestTimeoutError: it did not; the member leaves without its listeners.
        """
        thread = self._group.thread
        thread.closer = get_ident()
        self._manager.look_up()
        while True:
            thread.wake()
            processing = self._processor is not None and self._processor.runs_in not in {None, get_ident()}
            if self._gate.await_others(_END_READING_S) and not processing:
                return
            if processing:
                time.sleep(_END_READING_S)  # process() may be between two calls, where it holds nothing to wait for
            thread.before_wait()
            if time.monotonic() >= deadline_s:
                reader = thread_name(self._gate.owner or self._gate.last)
                self._manager.leave_without_listeners()
                raise RequestTimeoutError(
                    f"close(): {reader} did not come out of its call, its listener or its process() in time; the "
                    "member leaves its group without its listeners"
                )

    def _take_back_in_hand(self) -> None:
        """Count what the last poll() or consume() returned as not returned."""
        self._fetcher.take_back(self._fetcher.unprocessed(self._in_hand, self._committed_by_hand))
        self._in_hand = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._close(CLOSE_TIMEOUT_S, LeaveMode.DEFAULT, in_hand_is_done=exc is None)
        except Exception as error:
            if exc is None:
                raise
            # The block's own exception matters more than a later error of close().
            self._group.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=repr(error))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a consumer cannot be sent to another process, or copied; make one there")

    def __repr__(self) -> str:
        view = self._group.view
        state = "closed" if self._group.closed else self.state.name
        return (
            f"<Consumer group={self._config.group_id!r} client={self._config.client_id!r} state={state} "
            f"member_id={view.member_id!r} member_epoch={view.member_epoch}>"
        )

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = missing_attribute


RebalanceCallback: TypeAlias = "Callable[[Consumer, list[TopicPartition]], object]"
"""``callback(consumer, partitions)``, as in confluent-kafka."""


class ConsumerRebalanceListener:
    """Called when partitions are assigned, revoked or lost. Override what you need; the defaults do nothing.

    Methods run on the thread that calls ``poll()``, ``consume()``, ``unsubscribe()`` or ``close()``, one at a time,
    while heartbeats go on in the background. They may call any method of the consumer except close(), poll() and
    consume(). If a method raises, that call raises `ListenerError`, and a later ``poll()`` repeats the step.

    Source:
        Kafka's ``ConsumerRebalanceListener``.
    """

    def on_partitions_assigned(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called after a rebalance with the new partitions, possibly none. Fetching starts after it has returned.

        ``consumer.seek(partition)``, or ``consumer.assign(partitions)`` with offsets, sets where to start;
        the default is the committed offset, else ``auto.offset.reset``.
        """

    def on_partitions_revoked(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called before partitions are revoked; they are paused already. The last chance to commit."""

    def on_partitions_lost(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called when partitions may belong to another member already; a commit fails. Calls revoked by default."""
        self.on_partitions_revoked(consumer, partitions)


class CallableListener(ConsumerRebalanceListener):
    """A listener made from the callables of ``subscribe()``.

    Args:
        on_assign, on_revoke, on_lost: ``callback(consumer, partitions)``; without *on_lost*, *on_revoke* is called.
    """

    def __init__(
        self,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost if on_lost is not None else on_revoke

    def on_partitions_assigned(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_assign*."""
        self._call("on_assign", self._on_assign, consumer, partitions)

    def on_partitions_revoked(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_revoke*."""
        self._call("on_revoke", self._on_revoke, consumer, partitions)

    def on_partitions_lost(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_lost*, or *on_revoke* without one."""
        self._call("on_lost", self._on_lost, consumer, partitions)

    def _call(
        self,
        name: str,
        callback: RebalanceCallback | None,
        consumer: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        if callback is not None:
            check_result_not_async(callback(consumer, partitions), name=name, instead=USE_ASYNC_CONSUMER)


def read_listener(
    listener: object,
    on_assign: _CallbackT | None,
    on_revoke: _CallbackT | None,
    on_lost: _CallbackT | None,
    *,
    kinds: tuple[type[_ListenerT], ...],
) -> tuple[_ListenerT | None, _CallbackT | None]:
    """Check the listener arguments of subscribe().

    Args:
        listener: a listener of one of *kinds*; or any other callable, which is *on_assign*, as in confluent_kafka.

    Returns:
        The listener, and *on_assign*; at most one of them is not None.

    Raises:
        ConfigError: the listener is of another type or has a misspelt method, a callback cannot be called with
            (consumer, partitions), or both kinds are given.
    """
    names = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(listener, type):
        raise ConfigError(f"listener is the class {listener.__name__}; give an instance of it: {listener.__name__}()")
    if callable(listener) and not isinstance(listener, kinds):
        if on_assign is not None:
            raise ConfigError("subscribe() was given on_assign twice: as its second argument, and by name")
        listener, on_assign = None, cast("_CallbackT", listener)
    given = [callback for callback in (on_assign, on_revoke, on_lost) if callback is not None]
    if listener is not None and given:
        raise ConfigError("give subscribe() a listener or on_assign/on_revoke/on_lost, not both")
    if listener is not None and not isinstance(listener, kinds):
        raise ConfigError(f"listener must be a {names}, or a function, got {type(listener).__name__}")
    if not all(callable(callback) for callback in given):
        raise ConfigError("on_assign, on_revoke and on_lost must be callables (consumer, partitions)")
    for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
        check_takes(callback, "consumer", "partitions", name=name)
    if listener is not None:
        _refuse_misspelt_method(listener, kinds)
        for name in _LISTENER_METHODS:
            method = getattr(listener, name, None)
            check_takes(method, "consumer", "partitions", name=f"{type(listener).__name__}.{name}")
    return listener, on_assign


def _refuse_misspelt_method(listener: object, kinds: tuple[type, ...]) -> None:
    """A method that would never be called, such as ``on_revoke``, where the one that it was meant to be is missing."""
    kind = type(listener)
    for name in dir(kind):
        if not name.startswith("on_") or name in _LISTENER_METHODS:
            continue
        meant = _METHOD_MEANT.get(name[3:].removeprefix("partitions_").removeprefix("partition_"))
        if meant is None:
            continue
        if any(getattr(kind, meant) is getattr(base, meant) for base in kinds):
            raise ConfigError(f"{kind.__name__}.{name} is never called; did you mean {meant}?")


class _Callbacks:
    """Adapts a listener to `RebalanceCallbacks`: adds the consumer, and passes confluent_kafka's partitions.

    Args:
        consumer: passed to the listener; a weak reference, so that a dropped consumer can be collected.
        listener: the user's.
    """

    def __init__(self, consumer: Consumer[Any, Any], listener: ConsumerRebalanceListener) -> None:
        self._consumer = weakref.ref(consumer)
        self._listener = listener

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_assigned."""
        self._call("on_partitions_assigned", self._listener.on_partitions_assigned, partitions)

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_revoked."""
        self._call("on_partitions_revoked", self._listener.on_partitions_revoked, partitions)

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_lost."""
        self._call("on_partitions_lost", self._listener.on_partitions_lost, partitions)

    def _call(self, name: str, method: RebalanceCallback, partitions: tuple[TopicIdPartition, ...]) -> None:
        consumer = self._consumer()
        assert consumer is not None, "listeners run inside a method of the consumer"
        check_result_not_async(method(consumer, _named(partitions)), name=name, instead=USE_ASYNC_CONSUMER)


def _named(partitions: tuple[TopicIdPartition, ...]) -> list[TopicPartition]:
    return [public(partition.topic_partition) for partition in partitions]


def _abandon(manager: HeartbeatRequestManager, process_id: int, group_id: str, client_id: str) -> None:
    """Leave without listeners: the consumer was dropped, or the interpreter ends, without close()."""
    if os.getpid() != process_id:
        return  # a child of fork(): thread and connections are the parent's
    log_event(
        logging.WARNING,
        LogEvent.NOT_CLOSED,
        group_id=group_id,
        client_id=client_id,
        hint="call close(), or use the consumer in a with statement",
    )
    manager.detach(timeout_s=ABANDON_TIMEOUT_S)
