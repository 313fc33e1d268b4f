"""`ShareCore`: what `ShareConsumer`, `AsyncShareConsumer` and ``process()`` share. Nothing here waits.

Owns what a poll() means, acknowledgements, and the records that were returned last. Any thread may use it.

Does not own: the thread behind it (`host`), waiting (`consumer`, `kip848_client.aio.share_consumer`).
"""

from __future__ import annotations

import itertools
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.logs import LOGGER, LogEvent, log_event
from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.common.telemetry import ClientMetrics
from kip848_client.config import ConfigValue
from kip848_client.consumer.records.data_plane import TopicPartition, public
from kip848_client.consumer.records.deserializers import Deserializers, deserializers_of
from kip848_client.consumer.records.message import Message
from kip848_client.errors import (
    ArgumentTypeError,
    ConfigError,
    DeserializationError,
    IllegalStateError,
    Kip848Error,
    RequestTimeoutError,
)
from kip848_client.member.core.events import LeaveRequested, SubscriptionChanged
from kip848_client.member.core.states import MemberState
from kip848_client.member.share.held_records import AcquiredRecord
from kip848_client.member.share.share_events import CommitEnded
from kip848_client.network.queues import Bells
from kip848_client.share.config import ShareConfig, parse_share_config
from kip848_client.share.health import ShareHealth, figures_of, health_of
from kip848_client.share.host import ShareHost
from kip848_client.share.message import ShareMessage
from kip848_client.share.settings import QueueStatus

CLOSE_TIMEOUT_S: Final = 30.0
"""Default time limit of close()."""

COMMIT_TIMEOUT_S: Final = 60.0
"""Default time limit of commit()."""

_FOR_EVER_MS: Final = 2**62
_RENEW: Final = AcknowledgeType.RENEW

CommitResults: TypeAlias = dict[TopicPartition, Kip848Error | None]
AcknowledgementCallback: TypeAlias = "Callable[[Mapping[TopicPartition, frozenset[int]], Kip848Error | None], object]"
"""``callback(offsets, error)``: partition -> the offsets that were acknowledged; None if the leader confirmed them."""


class ShareCore:
    """One member of a share group.

    Args:
        clock: tells the time of locks and deadlines.

    Raises:
        ConfigError: a key or value is wrong.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, clock: Clock | None = None) -> None:
        self.config: Final[ShareConfig] = parse_share_config(conf)
        self.clock: Final = clock or SystemClock()
        self.watchers: Final[list[Callable[[], object]]] = []
        """Called after each change, on the consumer's thread; must not block."""
        watchers = self.watchers
        self.host: Final = ShareHost(self.config, clock=self.clock, on_change=lambda: _tell(watchers))
        self.topics: tuple[str, ...] = ()
        self.started: bool = False
        self.closed: bool = False
        self.callback: AcknowledgementCallback | None = None
        self.processor: object = None
        """The ``process()`` that runs, which reads and acknowledges by itself."""
        self.hands_over: bool = False
        """``process()`` is to end, or to end as soon as it begins."""
        self._values: Final[Deserializers | None] = deserializers_of(self.config.connections)
        self._returned: dict[AcquiredRecord, int] = {}
        """What the last poll() returned and nobody has acknowledged -> the thread or task that called it."""
        self._wishes: Final[dict[int, int]] = {}
        """Thread or task -> how many records its poll() waits for."""
        self._failure: DeserializationError | None = None
        self._last_commit_id = 0
        self._metrics: Final = ClientMetrics(
            client_id=self.config.connections.client_id, group_id=self.config.connections.group_id
        )
        self._finalizer = weakref.finalize(self, _abandon, self.host, self.config.connections.group_id)

    # --- group

    def subscribe(self, topics: Iterable[str]) -> None:
        """See `ShareConsumer.subscribe`."""
        self.check_open()
        names = _topic_names(topics)
        if not names:
            self.unsubscribe()
            return
        with self.host.lock:
            self.topics = names
            starts, self.started = not self.started, True
        self.host.post(SubscriptionChanged(Subscription(topics=frozenset(names))))
        if starts:
            self.host.start()
            self._metrics.offer(figures_of(self.host, self.clock))

    def unsubscribe(self) -> None:
        """See `ShareConsumer.unsubscribe`."""
        self.check_open()
        if self.topics:
            self.topics = ()
            self.host.post(LeaveRequested(0, self.clock.now_ms() + self.config.connections.request_timeout_ms))

    def assignment(self) -> list[TopicPartition]:
        """See `ShareConsumer.assignment`."""
        with self.host.lock:
            named = [self._named(of) for of in self.host.reader.assigned]
        return sorted(named, key=lambda each: (each.topic, each.partition))

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        return self.host.member.state

    @property
    def lock_ms(self) -> int:
        """How long a lock lasts; 0 before the first answer."""
        return self.host.reader.lock_ms

    # --- records

    def begin_poll(self, caller: int = 0) -> bool:
        """Accept what was returned (implicit), or see that all that *caller* got was acknowledged (explicit).

        Args:
            caller: the number of the thread or task.

        Returns:
            Whether the other thread must be woken to send it: by `want`, so that it goes with the next fetch.

        Raises:
            IllegalStateError: it was not; nothing is subscribed; or process() runs.
        """
        if self.processor is not None:
            raise IllegalStateError("poll() is refused while process() runs, which reads and acknowledges by itself")
        if not self.topics:
            raise IllegalStateError("nothing is subscribed: this would wait for ever; call subscribe() first")
        if not self.config.explicit:
            return self._accept_returned()
        with self.host.lock:
            self._returned = {held: of for held, of in self._returned.items() if self.has(held)}
            open_ones = [held for held, of in self._returned.items() if of == caller]
            if open_ones:
                first = open_ones[0]
                raise IllegalStateError(
                    f"{len(open_ones)} records of the last poll() were not acknowledged, the first is "
                    f"{first.topic}-{first.partition[1]} offset {first.offset}; with "
                    "share.acknowledgement.mode=explicit acknowledge() each record before the next poll()"
                )
        return False

    def want(self, count: int, caller: int = 0, *, wake: bool = False) -> None:
        """Acquire at most *count* records for *caller* beyond those that wait: only while it waits, as Java does.

        A worker would otherwise sit on the jobs of others while it handles its own.

        Args:
            wake: there is something to send as well.
        """
        with self.host.lock:
            before = self.host.reader.room
            self._wish(caller, count)
            changed = self.host.reader.room != before
        if changed or wake:
            self.host.wake()

    def _wish(self, caller: int, count: int) -> None:
        if count:
            self._wishes[caller] = count
        else:
            self._wishes.pop(caller, None)
        self.host.reader.room = sum(self._wishes.values())

    def take(self, count: int, caller: int = 0) -> list[ShareMessage[Any, Any]]:
        """Hand out what is there to *caller*, at most *count* records; maybe none.

        Raises:
            Kip848Error: a broker refused something.
            DeserializationError: the record is rejected.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        with self.host.lock:
            self.raise_error()
            reader = self.host.reader
            taken = reader.take(count, now_ms=self.clock.now_ms())
            # In this step: the other thread would acquire as much once more.
            if self.processor is not None:
                reader.room = max(0, reader.room - len(taken))
            elif taken:
                self._returned |= dict.fromkeys(taken, caller)
                self._wish(caller, 0)
        return self._open(taken)

    @property
    def has_news(self) -> bool:
        """Whether `take` would return or raise something."""
        host = self.host
        return bool(
            host.reader.held.waiting or host.error is not None or host.fatal is not None or host.closing
        ) or bool(self._failure)

    def _open(self, taken: Sequence[AcquiredRecord]) -> list[ShareMessage[Any, Any]]:
        if self._values is None:
            return [ShareMessage(held) for held in taken]
        messages: list[ShareMessage[Any, Any]] = []
        for number, held in enumerate(taken):
            message: ShareMessage[Any, Any] = ShareMessage(held)
            try:
                # It has the methods that are used.
                if not self._values.open(cast("Message", message)):
                    self.say(held, AcknowledgeType.REJECT)
                    continue
            except DeserializationError as error:
                # Nobody can read it: another delivery would fail as well.
                self.say(held, AcknowledgeType.REJECT)
                self.put_back(taken[number + 1 :])
                if not messages:
                    raise
                self._failure = error  # the next call raises it
                break
            messages.append(message)
        return messages

    def put_back(self, records: Sequence[AcquiredRecord]) -> None:
        """Count these as not returned."""
        if records:
            with self.host.lock:
                self.host.reader.held.put_back(records)
                for held in records:
                    self._returned.pop(held, None)

    # --- acknowledging

    def acknowledge(self, message: ShareMessage[Any, Any], word: AcknowledgeType) -> None:
        """See `ShareConsumer.acknowledge`."""
        if not isinstance(message, ShareMessage):
            raise ArgumentTypeError(f"acknowledge() takes a record of poll(), got {message!r}")
        self._acknowledge(message.held, word if type(word) is AcknowledgeType else _checked_type(word))

    def acknowledge_offset(self, topic: str, partition: int, offset: int, word: AcknowledgeType) -> None:
        """See `ShareConsumer.acknowledge_offset`."""
        with self.host.lock:
            out = list(self.host.reader.held.out)
        for held in out:
            if (held.topic, held.partition[1], held.offset) == (topic, partition, offset):
                self._acknowledge(held, _checked_type(word))
                return
        raise IllegalStateError(
            f"{topic}-{partition} offset {offset} is not with this consumer: its lock has ended, or it was "
            "acknowledged already"
        )

    def _acknowledge(self, held: AcquiredRecord, word: AcknowledgeType) -> None:
        self.check_open()
        if not self.say(held, word):
            raise IllegalStateError(
                f"{held.topic}-{held.partition[1]} offset {held.offset} is not with this consumer any more: its lock "
                "has ended, so another member may have it, or it was acknowledged already"
            )

    def has(self, held: AcquiredRecord) -> bool:
        """Whether a record that was handed out is still ours, as far as this member knows."""
        return held in self.host.reader.held.out and held.lock_until_ms > self.clock.now_ms()

    def say(self, held: AcquiredRecord, word: AcknowledgeType) -> bool:
        """Say *word* of a record, if it is still ours."""
        host = self.host
        reader = host.reader
        with host.lock:
            if not self.has(held):
                return False
            # Where something is to be said already, this goes with it: the reader has a reason to wait, and knows when.
            renews = word is _RENEW
            waits = not renews and reader.held.says_to(held.node_id)
            reader.acknowledge(held, word)
            if not renews:
                self._returned.pop(held, None)
        if not waits:
            host.wake()
        return True

    def accept_returned(self) -> None:
        """Accept what the last poll() returned and nobody has acknowledged; refused if its lock has ended meanwhile."""
        if self._accept_returned():
            self.host.wake()

    def _accept_returned(self) -> bool:
        """As `accept_returned`; whether the other thread has to be woken."""
        with self.host.lock:
            returned, self._returned = self._returned, {}
            before = self.host.reader.held.nodes_with_said
            reader, word = self.host.reader, AcknowledgeType.ACCEPT
            late = reader.held.say_of_all(returned, int(word), now_ms=self.clock.now_ms())
            for held in late:
                reader.too_late(held, word)
            # As in `say`: what there is to say to a leader already has its time.
            return bool(late) or reader.held.nodes_with_said != before

    def begin_commit(self, timeout_s: float | None) -> int:
        """Begin to wait for the outcomes of all that was said. Returns the number for `end_commit`."""
        self.check_open()
        if not self.config.explicit:
            self.accept_returned()
        limit_s = COMMIT_TIMEOUT_S if timeout_s is None else timeout_s
        deadline_ms = _FOR_EVER_MS if limit_s < 0 else self.clock.now_ms() + int(limit_s * 1000)
        with self.host.lock:
            self._last_commit_id += 1
            commit_id = self._last_commit_id
            self.host.reader.commit(commit_id, deadline_ms=deadline_ms)
            if not self.started or self.host.ended.is_set():
                self.host.commits[commit_id] = CommitEnded(commit_id, {})
        self.host.wake()
        return commit_id

    def end_commit(self, commit_id: int) -> CommitResults | None:
        """The results; None while they are not known.

        Raises:
            RequestTimeoutError: the time is over.
        """
        with self.host.lock:
            ended = self.host.commits.pop(commit_id, None)
            if ended is None:
                self.raise_fatal()
                if self.host.ended.is_set():
                    raise IllegalStateError("the share consumer was closed while commit() waited")
                return None
        if ended.timed_out:
            raise RequestTimeoutError("commit(): not all leaders answered in time; what was said may count")
        return {self._named(of): error for of, error in sorted(ended.results.items())}

    def abandon_commit(self, commit_id: int) -> None:
        """Nobody waits for it any more."""
        with self.host.lock:
            self.host.reader.abandon(commit_id)
            ended = self.host.commits.pop(commit_id, None)
            if ended is not None:  # the call was cancelled before it took this
                self.host.reader.keep_untold(ended.results)

    def set_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have *callback* told of outcomes by `tell_outcomes`."""
        with self.host.lock:
            self.callback = callback
            self.host.wants_outcomes = callback is not None

    def tell_outcomes(self) -> None:
        """Call the callback for each outcome since the last time."""
        while self.callback is not None:
            try:
                outcome = self.host.outcomes.popleft()
            except IndexError:
                return
            self.callback({self._named(outcome.partition): frozenset(outcome.offsets)}, outcome.error)

    # --- process()

    def begin_processing(self, processor: object) -> None:
        """``process()`` reads and acknowledges from now on.

        Raises:
            IllegalStateError: it runs already, or nothing is subscribed.
        """
        self.check_open()
        if self.processor is not None:
            raise IllegalStateError("process() runs already; raise its concurrency instead")
        if not self.topics:
            raise IllegalStateError("nothing is subscribed: process() would wait for ever; call subscribe() first")
        self.accept_returned()
        self.processor = processor

    def take_jobs(self, count: int) -> list[ShareMessage[Any, Any]]:
        """Take records for *count* free handlers, and acquire no more than that."""
        found = self.take(count) if count > 0 else []
        with self.host.lock:
            self.raise_error()
            reader = self.host.reader
            room = max(0, count - len(found))
            changed = reader.room != room
            reader.room, reader.record_limit = room, True
        if changed:
            self.host.wake()
        return found

    def stop_acquiring(self) -> None:
        """Take no new records, and give back at once what waits."""
        with self.host.lock:
            self.host.reader.room = 0
            self.host.reader.held.say_of_waiting(int(AcknowledgeType.RELEASE))
        self.host.wake()

    def end_processing(self) -> None:
        """``process()`` has ended: poll() reads as before."""
        with self.host.lock:
            self.processor, self.hands_over = None, False
            self._returned.clear()
            self.host.reader.room, self.host.reader.record_limit = 0, self.config.reader.record_limit

    def log_failure(self, message: ShareMessage[Any, Any], error: BaseException, *, attempt: int, again: bool) -> None:
        """Say in the log that a handler failed; after its last attempt with the traceback."""
        about: dict[str, object] = {
            "group_id": self.config.connections.group_id,
            "partition": f"{message.topic()}-{message.partition()}",
            "offset": message.offset(),
            "delivery": message.delivery_count(),
            "attempt": attempt,
            "again": again,
            "error": repr(error),
        }
        trace = None if again or error.__traceback__ is None else error
        log_event(logging.WARNING, LogEvent.SHARE_HANDLER_FAILED, exc_info=trace, logger=LOGGER, **about)

    # --- closing

    def begin_close(self, timeout_s: float, *, accept: bool) -> bool:
        """Begin to close; False if there is nothing to wait for. `host.ended` tells the end."""
        with self.host.lock:
            if self.closed:
                return False
            self.closed = True
        if accept:
            self.accept_returned()
        self._finalizer.detach()
        self._metrics.withdraw()
        if not self.started:
            return False
        self.host.close(deadline_ms=self.clock.now_ms() + int(max(0.0, timeout_s) * 1000))
        return True

    # --- small

    def health(self, processing: QueueStatus | None) -> ShareHealth:
        """See `ShareHealth`."""
        return health_of(self.host, self.clock, closed=self.closed, processing=processing)

    def check_open(self) -> None:
        """Raise if the consumer is closed, failed, or made before a fork."""
        self.host.home.check()
        if self.closed:
            raise IllegalStateError("the share consumer is closed")
        self.raise_fatal()

    def raise_fatal(self) -> None:
        """Raise why the member has stopped, if it has."""
        if self.host.fatal is not None:
            raise self.host.fatal

    def raise_error(self) -> None:
        """Raise what is to be raised once."""
        self.raise_fatal()
        error, self.host.error = self.host.error, None
        if error is not None:
            raise error

    def _named(self, partition: tuple[Any, int]) -> TopicPartition:
        return public(NamedPartition(self.host.reader.topic_of(partition), partition[1]))

    def describe(self, name: str) -> str:
        """The repr of a consumer of class *name*."""
        connections = self.config.connections
        state = "closed" if self.closed else self.state.name
        return f"<{name} group={connections.group_id!r} client={connections.client_id!r} state={state}>"


class Changes:
    """A watcher that a thread waits on."""

    def __init__(self) -> None:
        self._bells: Final = Bells()
        self._versions: Final = itertools.count(1)
        self._version = 0

    @property
    def version(self) -> int:
        """Another one after each change."""
        return self._version

    def changed(self) -> None:
        """Something has changed."""
        self._version = next(self._versions)
        self._bells.ring()

    def wait(self, version: int, until_s: float | None) -> bool:
        """Wait for a change after *version*, until ``time.monotonic()`` is *until_s*; whether one came."""
        left_s = None if until_s is None else until_s - time.monotonic()
        return self._bells.wait_for(lambda: self._version != version, left_s)


def _topic_names(topics: Iterable[str]) -> tuple[str, ...]:
    if isinstance(topics, str):
        raise ConfigError(f"topics must be a list of names, got the text {topics!r}; write [{topics!r}]")
    names = sorted(set(topics))
    for name in names:
        if not str(name).strip():
            raise ConfigError(f"a topic is a name, got {name!r}")
        if name.startswith("^"):
            raise ConfigError(f"{name!r} is a pattern: share groups subscribe to topics by name")
    return tuple(names)


def _checked_type(given: object) -> AcknowledgeType:
    try:
        return AcknowledgeType(given)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(AcknowledgeType.__members__)
        raise ConfigError(f"an acknowledgement is one of {names}, got {given!r}") from None


def _tell(watchers: list[Callable[[], object]]) -> None:
    for watcher in list(watchers):
        watcher()


def _abandon(host: ShareHost, group_id: str) -> None:
    """The consumer was dropped, or the interpreter ends, without close()."""
    if host.home.left or host.ended.is_set():
        return
    hint = "call close(), or use the consumer in a with statement"
    log_event(logging.WARNING, LogEvent.NOT_CLOSED, group_id=group_id, hint=hint)
    host.close(deadline_ms=0)
