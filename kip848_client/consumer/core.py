"""`ConsumerCore`: what `Consumer`, `AsyncConsumer`, ``process()`` and `transaction` share.

Owns the parts of a consumer (a `GroupMember` for the group, a `Fetcher` for the records), the order inside poll():
first what the group wants, then records; and the end. Rules of the protocol are in `member/`.

Does not own: the calls of users, their arguments and texts (`consumer`, `kip848_client.aio.consumer`).
"""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import (
    NamedPartition,
    OffsetAndMetadata,
)
from kip848_client.config import ConfigValue, ConsumerConfig, parse_consumer_config
from kip848_client.config.security import check_data_plane
from kip848_client.consumer.group.app_thread import BRIEF_SLICE_S
from kip848_client.consumer.group.assembly import build_group_member
from kip848_client.consumer.group.filling import Filling
from kip848_client.consumer.group.health import HealthProbe
from kip848_client.consumer.group.heartbeat_manager import HeartbeatRequestManager
from kip848_client.consumer.group.librdkafka_stats import complete_stats
from kip848_client.consumer.group.silence import SilenceWatch
from kip848_client.consumer.group.translation import (
    check_leave_mode,
    check_partitions,
    limit_ms,
    limit_s,
    public_callback,
)
from kip848_client.consumer.records.checks.gap_check import GapCheck
from kip848_client.consumer.records.checks.stalls import QUEUED_MIN, StallWatch
from kip848_client.consumer.records.data_plane import (
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
from kip848_client.consumer.records.message import K_co, Message, V_co
from kip848_client.consumer.records.plane_questions import ask_brokers
from kip848_client.consumer.records.read_meter import ReadMeter
from kip848_client.errors import (
    BrokerError,
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
from kip848_client.member.core.events import AppProgressed, LeaveMode, MemberView
from kip848_client.member.core.states import MemberState
from kip848_client.member.processing.work import HANDLING
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.ownership import ForkGuard, OneThread, is_alive, thread_name

if TYPE_CHECKING:
    from kip848_client.consumer.processing.driver import Driver

AnswerT = TypeVar("AnswerT")

CLOSE_TIMEOUT_S: Final = 30.0
"""Default time limit of close()."""

LAG_TIMEOUT_S: Final = 5.0
"""Default time-out of lag()."""

ABANDON_TIMEOUT_S: Final = 0.3
"""Time for leaving the group if the consumer is dropped, or the interpreter ends, without close()."""

_SEEKS_TOLD_EVERY_MS: Final = 1_000
_MEET_LEAST_S: Final = 0.05
"""How long a short poll() waits for metadata at first; each time that no answer comes it waits twice as long."""
_MEET_PAUSE: Final = 20
"""After this many times that long it asks again."""
"""How often the log tells of seek() calls."""

_SLICE_SLACK_S: Final = 0.001
"""A slice that ends so close to the deadline of its call goes on until then, and returns what has come."""

_END_READING_S: Final = 0.02
"""How often close() looks whether the call of another thread has ended; mostly it is told."""


class ConsumerCore(Generic[K_co, V_co]):
    """One consumer, behind its calls. Which thread may call what is said there.

    Args:
        config: Kafka's property names.
        journal: where the client writes its event log.
        clock: tells the time of intervals and deadlines.

    Raises:
        ConfigError: a key or value is wrong.
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue],
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config: Final[ConsumerConfig] = parse_consumer_config(config)
        check_data_plane(self.config.security)
        data_plane: dict[str, Any] = dict(self.config.data_plane)
        self.data_plane: Final = data_plane
        stats = complete_stats(data_plane)
        self.fetcher: Final = Fetcher(
            create_record_consumer(data_plane), make_plane=lambda: create_record_consumer(data_plane)
        )
        self.ready: Final[deque[Any]] = self.fetcher.ready
        on_commit = public_callback(self.config.on_commit) if self.config.on_commit is not None else None
        self.opener: Final = ConnectionOpener(self.config)
        self.fetcher.gaps = GapCheck(self.opener, self.config.bootstrap_servers, report=self.fetcher.report)
        self.group: Final = build_group_member(
            self.config,
            opener=self.opener,
            records=self.fetcher,
            buffer=self.ready,
            on_commit=on_commit,
            clock=clock or SystemClock(),
            journal=journal,
        )
        if stats is not None:
            stats.attach(self.fetcher, self.group)
        if not self.config.auto_offset_store:
            stored = self.fetcher.stored
            self.group.thread.stored = lambda: stored
        # librdkafka would retry the same credentials for ever, and lock the account.
        self.group.thread.on_refused = self.fetcher.close
        self.fetcher.on_renewed = self.group.listeners.observer.data_plane_renewed
        self.manager: Final = self.group.manager
        self.silence: Final = SilenceWatch(self.group, self.fetcher)
        self.sought: dict[NamedPartition, OffsetAndMetadata] = {}
        """seek() of partitions that were being read already, until the log has them."""
        self._told_of_seeks_ms = -_SEEKS_TOLD_EVERY_MS
        if self.config.auto_commit_interval_ms is not None:
            me = weakref.ref(self)
            self.manager.progress = lambda: core.progress() if (core := me()) is not None else None
            self.manager.progress_every_s = max(0.1, self.config.auto_commit_interval_ms / 1_000)
        self._presence: Final = self.group.thread.presence
        self.health: Final = HealthProbe(self.group, max_poll_interval_ms=self.config.max_poll_interval_ms)
        observer = self.group.listeners.observer
        # The heartbeat thread has the observer: through the group it would keep a listener alive, and so a consumer
        # that was dropped without close().
        health = weakref.ref(self.health)
        self.stalls: Final = StallWatch(
            self.fetcher,
            self.opener,
            self.config.bootstrap_servers,
            read_committed=data_plane.get("isolation.level", "read_committed") == "read_committed",
            queued_min=int(str(data_plane.get("queued.min.messages", QUEUED_MIN))),
            tell=observer.stalled,
        )
        self.health.stalls = self.stalls
        self.meter: Final = ReadMeter(
            observer.metrics,
            group_id=self.config.group_id,
            lags=lambda: probe.lags() if (probe := health()) is not None else {},
        )
        self.fetcher.meter = self.meter
        stalls = self.stalls
        observer.more_gauges = {
            **self.meter.figures(),
            "kip848.consumer.stalled.partitions": lambda: len(stalls.stalled),
        }
        observer.want_lags = lambda: probe.want_lags() if (probe := health()) is not None else None
        self.mark: object = None
        self.in_hand: Sequence[Message[Any, Any]] = ()
        """What the last poll() or consume() returned. Processed once the next one, or the last commit, begins."""
        self.committed_by_hand: dict[NamedPartition, OffsetAndMetadata] = {}
        """Commits of the application since then: records before these offsets are processed, too."""
        self._layout_checked = False
        self.processor: Driver | None = None
        """The ``process()`` that runs."""
        self.in_transaction: bool = False
        self.processor_reads: bool = False
        self.values: Final[Deserializers | None] = deserializers_of(self.config)
        if self.values is not None:
            fetcher = self.fetcher
            self.values.introduce(lambda: fetcher.list_topics(timeout=10.0).cluster_id)
        self.as_messages: Final = self.config.errors_as_messages
        self.error_messages: Final[deque[Any]] = deque()
        """With errors.as.messages: errors that no call has returned yet."""
        self._told_of_nothing_wanted = False
        self.unmet_topics: frozenset[str] = frozenset()
        """Topics about which librdkafka is to ask: no broker has answered yet whether they exist."""
        self._meet_due_s = 0.0
        self._meet_least_s: float = _MEET_LEAST_S
        self._owned_topics: frozenset[str] = frozenset()
        self.gate: Final = OneThread()
        gate = self.gate
        self.fetcher.is_reader = lambda: gate.is_reader
        self.group.run_callbacks = self._run_commit_callbacks
        self._fork_guard = ForkGuard(self.gate, leaked=(self.fetcher, self.manager))
        self._finalizer = weakref.finalize(
            self, _abandon, self.manager, os.getpid(), self.config.group_id, self.config.client_id
        )

    # --- reading

    def read(
        self, num_messages: int, timeout: float | None, *, linger_s: float | None = 0.0
    ) -> list[Message[K_co, V_co]]:
        """Read at most *num_messages* records; for the arguments see `Filling`."""
        manager = self.manager
        mark = manager.mark
        fetcher = self.fetcher
        gate = self.gate
        if (
            self.mark is mark
            and gate.owner is None
            and not self.ready
            and fetcher.smooth
            and self.values is None
            and gate.is_reader
            and manager.lease_ns() <= manager.trusted_until_ns
        ):
            # The fast path: ownership has not changed since the last check, and librdkafka has records.
            with fetcher.lock:
                batch = self._at_hand(num_messages, mark, timeout, linger_s)
            if batch:
                fetcher.on_the_way = False  # Python handles Ctrl-C at calls: there is none between here and the caller
                return batch
        return self.fill(Filling(num_messages, timeout, linger_s))

    def _at_hand(self, count: int, mark: object, *wait_s: float | None) -> list[Message[K_co, V_co]]:
        """The records that librdkafka has ready, if they may be returned; they are on the way then. Under its lock.

        Args:
            wait_s: how long the call waits for more; with a 0 not at all. They were not checked yet.
        """
        fetcher = self.fetcher
        if not fetcher.smooth:  # another thread was faster with the lock
            return []
        batch = fetcher.read_at_hand(count)
        if batch:
            enough = len(batch) == count or any(type(limit_s) in {int, float} and limit_s == 0 for limit_s in wait_s)
            if enough and self.manager.mark is mark and not fetcher.eventful:
                self._presence.calls += 1
                self.in_hand = tuple(batch)  # a copy: the application may take records out of its list
                return batch
            self.ready.extend(batch)
        fetcher.on_the_way = False
        return []

    def fill(self, filling: Filling, slice_s: float = math.inf) -> list[Message[K_co, V_co]]:
        """Read until *filling* is over, or *slice_s* have passed: then what has come waits in `ready`."""
        if self.values is not None:
            return self._read_opened(self.values, filling, slice_s)
        with self.gate:
            batch = self.next_batch(filling, slice_s)
        if not (batch and self.as_messages and is_error(batch[0])):
            self.in_hand = tuple(batch)
        self.fetcher.on_the_way = False  # Python handles Ctrl-C at calls: there is none between here and the caller
        return batch

    def is_over(self) -> bool:
        """Whether no more records will come."""
        return self.group.closed or self.group.handed_over or self.group.thread.closing

    def _read_opened(
        self, values: Deserializers, filling: Filling, slice_s: float = math.inf
    ) -> list[Message[K_co, V_co]]:
        """Read records and deserialise keys and values. A record that fails stays first in `ready`."""
        end_s = time.monotonic() + slice_s
        count = filling.count
        ready = self.ready
        opened: list[Message[K_co, V_co]] = []
        with self.gate:
            while True:
                batch = self.next_batch(filling, end_s - time.monotonic())
                if batch and self.as_messages and is_error(batch[0]):
                    return batch
                ready.extendleft(reversed(batch))
                self.fetcher.on_the_way = False
                self.in_hand = opened  # from the first on: Ctrl-C may come before it is returned
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
                    self.fetcher.take_back(opened)
                    raise
                if opened or not batch:
                    break
        return opened.copy()  # the application may take records out of its list

    def put_back(self, batch: list[Message[K_co, V_co]]) -> None:
        """Keep these records, or errors, that were not returned after all: the next read returns them first."""
        if batch and is_error(batch[0]):
            self.error_messages.extendleft(batch)
            return
        if self.values is not None:
            self.values.take_back(batch, self.ready)
        self.fetcher.take_back(batch)
        self.in_hand = ()
        self.mark = None

    def next_batch(self, filling: Filling, slice_s: float = math.inf) -> list[Message[K_co, V_co]]:
        """At most *filling.count* records, or an error; none if *slice_s* pass before *filling* is over."""
        if not self.as_messages or self.processor_reads:
            return self._gather(filling, slice_s)
        if not self.error_messages:
            told = self.group.thread.fatal_raised
            try:
                return self._gather(filling, slice_s)
            except ListenerError as error:
                if error.__cause__ is None:
                    raise
                raise error.__cause__  # noqa: B904  confluent-kafka does not wrap what a callback raises
            except Kip848Error as error:
                self.error_messages.extend(error_messages(error))
                if not self.error_messages:
                    raise
            if told:  # a loop that goes on after a fatal error must not spin
                self.group.thread.wait(min(slice_s, max(0.0, filling.deadline_s - time.monotonic())))
        self.mark = None
        return [self.error_messages.popleft()]

    def _gather(self, filling: Filling, slice_s: float) -> list[Message[K_co, V_co]]:
        group, fetcher, ready, manager = self.group, self.fetcher, self.ready, self.manager
        thread = group.thread
        group.check_usable()
        if not self.processor_reads:
            self.check_not_processing("poll")
        count = filling.count
        end_s = time.monotonic() + slice_s + _SLICE_SLACK_S
        deadline_s = min(filling.deadline_s, end_s)
        if not group.wants_records:
            self._tell_of_nothing_wanted(forever=filling.deadline_s == math.inf)
        settled = self.mark
        thread.begin_poll()
        self.in_hand = ()
        self.committed_by_hand.clear()
        if self.sought:
            self._tell_of_seeks()
        doubt = manager.lease_ns() > manager.trusted_until_ns
        gathered = False
        try:
            while True:
                if thread.closer is not None and thread.closing and not group.closed:
                    raise self.closed_elsewhere()
                slice_s = thread.slice_s()
                mark = manager.mark
                if mark is not settled and ready and gathered and group.hand_over_wanted:
                    # What came before hand_over(): it is handled and committed before the partitions go.
                    with fetcher.lock:
                        fetcher.keep_readable(group.view.readable)
                    if ready:
                        self.mark = None
                        return self._take_ready(count)
                if mark is not settled:
                    # Rebalances come first: no record is returned before pending revocations.
                    if not thread.settle(deadline_s):
                        if thread.closing:
                            continue
                        return []
                    if group.handed_over or (not group.wants_records and filling.deadline_s == math.inf):
                        return []  # a listener called unsubscribe(), or handing over is complete
                    self._read_what_is_owned(mark)
                    settled = mark  # the earlier version: changes since then are checked again
                    continue
                if group.handed_over:
                    return []
                if (doubt or manager.resumed_ms is not None) and (doubt := manager.in_doubt()):
                    if (left_s := deadline_s - time.monotonic()) <= 0:
                        return []
                    thread.wait(left_s)
                    continue
                if not count or (ready and filling.over(ready, group)):
                    return self._take_ready(count)
                if self.unmet_topics:
                    self._meet_topics(deadline_s)
                if (now_ms := group.clock.now_ms()) >= self.stalls.due_ms:
                    with fetcher.lock:
                        self.stalls.look(group.readable, now_ms)
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
                elif self.silence.watching:
                    self.silence.nothing_came()
                if deadline_s <= time.monotonic() and not (ready and filling.deadline_s <= deadline_s):
                    return []
        except (LookupError, RuntimeError) as error:
            if fetcher.closed and not isinstance(error, Kip848Error):
                return []  # by a signal handler that interrupted this call
            raise
        finally:
            thread.end_poll()

    def _read_what_is_owned(self, mark: object) -> None:
        """No rebalance is pending any more: keep the records of partitions that the member still owns."""
        view = self.group.view
        self._note_topics(view)
        self.fetcher.keep_readable(view.readable)
        if self.health.lags_wanted:
            self.health.measure(self._known_lags)
        self.mark = None if view.poll_wanted else mark

    def _take_ready(self, count: int) -> list[Message[K_co, V_co]]:
        self.fetcher.on_the_way = True
        return [self.ready.popleft() for _ in range(min(count, len(self.ready)))]

    def _tell_of_seeks(self) -> None:
        """One line for all seek() calls since the last poll(), and at most one a second: some seek for each record."""
        now_ms = self.group.clock.now_ms()
        if now_ms - self._told_of_seeks_ms >= _SEEKS_TOLD_EVERY_MS:
            self._told_of_seeks_ms = now_ms
            sought, self.sought = self.sought, {}
            self.group.listeners.observer.sought(sought)

    @staticmethod
    def closed_elsewhere() -> IllegalStateError:
        """What a reading call raises if another thread has closed the consumer."""
        return IllegalStateError("the consumer was closed by another thread; make a new one")

    def _known_lags(self) -> dict[NamedPartition, int]:
        """How far each position is behind the end of its partition as of the last fetch; asks no broker."""
        known = self.between_reads(self._last_fetched).items()
        return {name: max(0, high - max(low, position)) for name, (position, low, high) in known if high >= 0}

    def _tell_of_nothing_wanted(self, *, forever: bool) -> None:
        if forever:
            raise IllegalStateError(
                "nothing is subscribed or assigned: this would wait for ever; call subscribe() first"
            )
        if not self._told_of_nothing_wanted:
            self._told_of_nothing_wanted = True
            hint = "nothing is subscribed or assigned, so there are no records; call subscribe()"
            self.group.listeners.observer.log(logging.WARNING, LogEvent.NOT_SUBSCRIBED, hint=hint)

    def _note_topics(self, view: MemberView) -> None:
        """Ask again about subscribed topics of which no partition is left: they may have been deleted."""
        if view.state is not MemberState.STABLE:
            return
        owned = frozenset(tip.topic for tip in view.assigned)
        gone = (self._owned_topics - owned) & frozenset(self.group.subscription.topics)
        self._owned_topics = owned
        self.unmet_topics |= gone

    def _meet_topics(self, deadline_s: float) -> None:
        """Let librdkafka learn about the topics while the member joins; log missing ones once.

        In a short poll() there is no time for that before the member has joined: the brokers may not answer. Without
        an answer it asks again later, and waits twice as long for it: a short poll() may take a little longer.
        """
        manual = self.group.manual
        joining = not manual and self.group.view.member_epoch <= 0
        now_s = time.monotonic()
        if now_s < self._meet_due_s or (joining and deadline_s - now_s < WARM_TIMEOUT_S):
            return
        topics = self.unmet_topics & frozenset([p.topic for p in manual] or self.group.subscription.topics)
        timeout_s = min(WARM_TIMEOUT_S, max(deadline_s - now_s, self._meet_least_s))
        described = self.fetcher.warm(topics, anew=bool(manual), timeout_s=timeout_s)
        if described is None:
            self._meet_due_s = time.monotonic() + _MEET_PAUSE * self._meet_least_s
            self._meet_least_s = min(WARM_TIMEOUT_S, 2 * self._meet_least_s)
            return
        self.unmet_topics, self._meet_due_s, self._meet_least_s = frozenset(), 0.0, _MEET_LEAST_S
        missing = [topic for topic, found in described.items() if is_missing(found)]
        missing += [
            f"{p.topic}-{p.partition}"
            for p in manual
            if (found := described.get(p.topic)) is not None and not found.error and p.partition not in found.partitions
        ]
        if missing and self.as_messages:
            self.fetcher.report(
                error_for_code(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Subscribed topic not available: {join_names(sorted(missing))}; read once it exists",
                )
            )
        elif missing:
            self.group.listeners.observer.log(
                logging.WARNING,
                LogEvent.TOPICS_MISSING,
                topics=join_names(sorted(missing)),
                hint="they are read once they exist",
            )

    def _tell(self, batch: list[Any]) -> None:
        """Raise or return librdkafka's errors among the records; the next call returns *batch*."""
        self.ready.extend(batch)
        self.fetcher.on_the_way = False
        while (lost := self.fetcher.first_lost()) is not None:
            self.group.position_lost(*lost)
            self.fetcher.forget_lost(lost)
        while (error := self.fetcher.take_error()) is not None:
            missing = isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            harmless = ((missing and not self.as_messages) or is_own_lookup(error)) and self.group.subscription
            if not harmless and not is_refused_lookup(error):
                raise error
            # A topic was deleted: the coordinator knows it and will revoke its partitions. Or librdkafka finds no
            # coordinator: what needs one looks it up itself and reports errors. Without a subscription nothing else
            # may tell of a failed login.
            self.group.listeners.observer.log(logging.INFO, LogEvent.DATA_PLANE_ERROR, error=error)

    # --- what other calls need

    def check_not_handling(self, call: str) -> None:
        """Refuse a call that a handler of ``process()`` makes, and that would wait for it."""
        handling = HANDLING.get()
        if handling is not None and handling[0] is self.processor:
            raise IllegalStateError(
                f"{call}() inside a handler would wait for this handler; call hand_over(), or return"
            )

    def check_not_processing(self, call: str) -> None:
        """Refuse a call while ``process()`` runs."""
        if self.processor is not None:
            raise IllegalStateError(f"{call}() is refused while process() runs, which reads and commits by itself")

    def committable(self) -> dict[NamedPartition, OffsetAndMetadata]:
        """What commit() without arguments commits."""
        thread = self.group.thread
        return thread.committable() if thread.stored is not None else self.between_reads(thread.committable)

    def progress(self) -> AppProgressed | None:
        """How far the application is, without what it has in hand (heartbeat thread); None while it is being read."""
        if self.processor is not None:
            return None
        stored, fetcher = self.group.thread.stored, self.fetcher
        if stored is not None:
            return AppProgressed(stored=dict(stored()))
        if not fetcher.lock.acquire(blocking=False):
            return None
        try:
            if fetcher.hands_out():
                return None
            known = fetcher.positions()
            # In this order: poll() may hand out the next record meanwhile. It is in one place or in the other.
            done, in_hand = self.committed_by_hand.copy(), self.in_hand
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

    def between_reads(self, work: Callable[[], AnswerT]) -> AnswerT:
        """Do what needs librdkafka, or the positions; see `Fetcher.between_reads`."""
        self.gate.check_process()
        return self.fetcher.between_reads(work, wanted=self.manager.look_up)

    def _run_commit_callbacks(self) -> None:
        """Run the callbacks of commits that have ended, unless another thread reads, which does it."""
        if self.gate.try_enter():
            try:
                self.group.thread.run_commit_callbacks()
            finally:
                self.gate.__exit__(None, None, None)

    def timeout_ms(self, timeout_s: float | None) -> int:
        """The time limit of a request to the coordinator; None is default.api.timeout.ms."""
        return limit_ms(timeout_s, default_ms=self.group.default_api_timeout_ms)

    def _last_fetched(self) -> dict[NamedPartition, tuple[int, int, int]]:
        """The position of each partition, and its lowest and next offset as of the last fetch; asks no broker."""
        found = {}
        for partition, position in self.fetcher.positions().items():
            low = high = OFFSET_INVALID
            with suppress(KafkaException):  # it was not fetched yet
                low, high = self.fetcher.plane.get_watermark_offsets(public(partition), cached=True)
            found[partition] = (position.offset, low, high)
        return found

    def ask(
        self,
        what: str,
        ask: Callable[[float], AnswerT],
        *,
        timeout_s: float,
        partitions: Iterable[TopicPartition] = (),
    ) -> AnswerT:
        """Ask the brokers through librdkafka; see `ask_brokers`."""
        self.gate.check_process()
        self.group.check_usable()
        try:
            return ask_brokers(
                self.fetcher.list_topics,
                what,
                ask,
                timeout_s=timeout_s,
                partitions=partitions,
                before_pause=self.group.thread.before_wait,
                between_reads=self.between_reads,
            )
        except (ConnectionLostError, RequestTimeoutError) as failure:
            # librdkafka's text has no address.
            servers = self.config.data_plane["bootstrap.servers"]
            raise type(failure)(f"{failure}; bootstrap.servers is {servers}") from failure.__cause__

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """See `Consumer.committed`."""
        self.gate.check_process()
        wanted = [internal(partition) for partition in check_partitions(partitions, call="committed")]
        found = self.group.committed(wanted, timeout_ms=self.timeout_ms(timeout))
        return [
            public(partition) if (at := found.get(partition)) is None else public_commit(partition, at)
            for partition in wanted
        ]

    def lag(self, timeout_s: float | None = LAG_TIMEOUT_S) -> dict[TopicPartition, int]:
        """See `Consumer.lag`."""
        deadline_s = time.monotonic() + limit_s(timeout_s, default=LAG_TIMEOUT_S)
        self.gate.check_process()
        self.group.check_usable()
        behind = {}
        paused = self.fetcher.paused
        for partition, (position, low, high) in sorted(self.between_reads(self._last_fetched).items()):
            if high < 0 or partition in paused:
                left_s = max(0.001, deadline_s - time.monotonic())
                try:
                    low, high = self.watermarks(public(partition), timeout=left_s)
                except Kip848Error:
                    if high < 0:
                        raise
            behind[public(partition)] = max(0, high - max(low, position))
        return behind

    def watermarks(self, partition: TopicPartition, timeout: float, *, cached: bool = False) -> tuple[int, int]:
        """See `Consumer.get_watermark_offsets`."""
        fetcher = self.fetcher
        answer: tuple[int, int] | None = self.ask(
            f"watermarks of {partition.topic}-{partition.partition}",
            lambda left_s: fetcher.plane.get_watermark_offsets(partition, timeout=left_s, cached=cached),
            timeout_s=0.0 if cached else timeout,
            partitions=[] if cached else [partition],
        )
        if answer is None:
            return OFFSET_INVALID, OFFSET_INVALID
        return answer

    def group_metadata(self) -> bytes:
        """See `Consumer.group_metadata`."""
        self.gate.check_process()
        if not self._layout_checked:
            group_id, fetcher = self.config.group_id, self.fetcher
            self.between_reads(lambda: check_group_metadata_layout(fetcher.plane, group_id=group_id))
            self._layout_checked = True
        joined = self.manager.last_joined
        member_id, member_epoch, slot = ("", -1, None) if joined is None or self.group.manual else joined
        return group_metadata_bytes(
            group_id=self.config.group_id,
            member_epoch=member_epoch,
            member_id=member_id,
            instance_id=slot or self.config.group_instance_id,
        )

    # --- the end

    def close(self, timeout_s: float | None, mode: LeaveMode, *, in_hand_is_done: bool) -> None:
        """See `Consumer.close`.

        Args:
            in_hand_is_done: commit what the last read returned, too, unless another living thread made it.
        """
        timeout_ms = limit_ms(timeout_s, default_ms=int(CLOSE_TIMEOUT_S * 1_000))
        check_leave_mode(mode)
        self.check_not_handling("close")
        self.gate.check_process()
        deadline_s = time.monotonic() + timeout_ms / 1_000
        if not self.gate.is_reader and not self.group.closed:
            in_hand_is_done = in_hand_is_done and not is_alive(self.gate.last)  # it may be at work with it
            self._end_reading(deadline_s)
        with self.gate:
            if self.group.closed:
                return
            errors = self.group.close(
                timeout_ms=max(0, int((deadline_s - time.monotonic()) * 1_000)),
                mode=mode,
                before_commit=self.count_in_hand_as_done if in_hand_is_done else self._take_back_in_hand,
                release=self.fetcher.close,
            )
            self._finalizer.detach()
        for error, times in Counter(map(repr, errors[1:])).items():
            self.group.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=error, times=times)
        if errors:
            raise errors[0]

    def _end_reading(self, deadline_s: float) -> None:
        """Another thread may be reading: have its call end, and wait for that.

        Raises:
            RequestTimeoutError: it did not; the member leaves without its listeners.
        """
        thread = self.group.thread
        thread.closer = get_ident()
        self.manager.look_up()
        while True:
            thread.wake()
            processing = self.processor is not None and self.processor.runs_in not in {None, get_ident()}
            if self.gate.await_others(_END_READING_S) and not processing:
                return
            if processing:
                time.sleep(_END_READING_S)  # process() may be between two calls, where it holds nothing to wait for
            thread.before_wait()
            if time.monotonic() >= deadline_s:
                reader = thread_name(self.gate.owner or self.gate.last)
                self.manager.leave_without_listeners()
                raise RequestTimeoutError(
                    f"close(): {reader} did not come out of its call, its listener or its process() in time; the "
                    "member leaves its group without its listeners"
                )

    def count_in_hand_as_done(self) -> None:
        """Before the member's last commit, so that none of the interval follows it with older offsets."""
        self.in_hand = ()

    def _take_back_in_hand(self) -> None:
        """Count what the last poll() or consume() returned as not returned."""
        self.fetcher.take_back(self.fetcher.unprocessed(self.in_hand, self.committed_by_hand))
        self.in_hand = ()


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
