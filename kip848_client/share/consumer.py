"""`ShareConsumer`: the public, synchronous member of a share group. Owns the call signatures and what a poll() means.

Does not own: the thread behind it (`host`), any rule of the protocol (`kip848_client.member.share`).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, cast

from kip848_client.common.callables import USE_ASYNC_CONSUMER, check_not_async, check_takes
from kip848_client.common.clock import Clock, SystemClock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.consumer.group.translation import record_count
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
from kip848_client.member.share.share_events import AcknowledgeType, Outcome
from kip848_client.share.config import ShareConfig, parse_share_config
from kip848_client.share.host import ShareHost
from kip848_client.share.message import ShareMessage

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

CLOSE_TIMEOUT_S: Final = 30.0
"""Default time limit of close()."""

COMMIT_TIMEOUT_S: Final = 60.0
"""Default time limit of commit()."""

AcknowledgementCallback: TypeAlias = "Callable[[Mapping[TopicPartition, frozenset[int]], Kip848Error | None], object]"
"""``callback(offsets, error)``: partition -> the offsets that were acknowledged; None if the leader confirmed them."""


class ShareConsumer(Generic[K_co, V_co]):
    """A member of a share group (KIP-932), for which a topic is a queue.

    A record is *acquired* by one member of the group at a time, and its lock ends after the group's
    ``share.record.lock.duration.ms`` (30 s). Accepted records are done; released ones, and those whose lock ended, are
    delivered again, to any member, until the group's limit of deliveries. There may be more members than partitions.

    With ``share.acknowledgement.mode=implicit`` (the default) the next poll(), commit() or close() accepts the records
    that were returned. With ``explicit`` each record is acknowledged by hand before the next poll().

    Any thread may use it; two threads that poll get different records.

    Args:
        config: Kafka's property names; docs/share-groups.md has them. Keyword arguments are added to it.
        clock: tells the time of locks and deadlines; a test can move its own.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.

    Example::

        with ShareConsumer({"bootstrap.servers": "...", "group.id": "mails"}) as queue:
            queue.subscribe(["mails"])
            for message in queue:
                send(message.value())
    """

    def __init__(
        self, config: Mapping[str, ConfigValue] | None = None, *, clock: Clock | None = None, **settings: ConfigValue
    ) -> None:
        self._config: Final[ShareConfig] = parse_share_config(merge_settings(config, settings))
        self._clock: Final = clock or SystemClock()
        self._changed: Final = threading.Condition()
        changed = self._changed
        self._host: Final = ShareHost(self._config, clock=self._clock, on_change=lambda: _tell(changed))
        self._values: Final[Deserializers | None] = deserializers_of(self._config.connections)
        self._topics: tuple[str, ...] = ()
        self._started = False
        self._closed = False
        self._returned: list[AcquiredRecord] = []
        """What the last poll() returned and nobody has acknowledged."""
        self._callback: AcknowledgementCallback | None = None
        self._last_commit_id = 0
        self._finalizer = weakref.finalize(self, _abandon, self._host, self._config.connections.group_id)

    # --- group

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, in place of earlier ones. The member joins the group in the background.

        Raises:
            ConfigError: a name is blank, or a pattern: share groups have none.
            IllegalStateError: the consumer is closed.
        """
        self._check_open()
        names = _topic_names(topics)
        if not names:
            self.unsubscribe()
            return
        with self._host.lock:
            self._topics = names
            self._want_records()
        if not self._started:
            self._started = True
            self._host.start()
        self._host.post(SubscriptionChanged(Subscription(topics=frozenset(names))))

    def unsubscribe(self) -> None:
        """Leave the group; records that were returned can still be acknowledged while their locks hold."""
        self._check_open()
        if self._topics:
            self._topics = ()
            self._host.post(LeaveRequested(0, self._clock.now_ms() + self._config.connections.request_timeout_ms))

    def subscription(self) -> list[str]:
        """The topics, sorted."""
        return list(self._topics)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads now, sorted; other members may read them as well."""
        with self._host.lock:
            reader = self._host.reader
            return sorted(
                (public(NamedPartition(reader.topic_of(of), of[1])) for of in reader.assigned),
                key=lambda each: (each.topic, each.partition),
            )

    # --- records

    def poll(self, timeout: float | None = -1.0) -> list[ShareMessage[K_co, V_co]]:
        """Return the records that are there, at most ``max.poll.records``; wait for the first one.

        With implicit acknowledgement the records of the poll() before are accepted first.

        Args:
            timeout: seconds; negative or None waits for ever.

        Returns:
            Records, each with a lock; empty after the timeout.

        Raises:
            IllegalStateError: the consumer is closed, or nothing is subscribed; or with explicit acknowledgement a
                record of the poll() before was not acknowledged.
            Kip848Error: a broker refused a request; every later call raises a ``fatal`` one again.
        """
        return self.consume(self._config.max_poll_records, timeout)

    def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[ShareMessage[K_co, V_co]]:
        """As `poll`, with at most *num_messages* records.

        Raises:
            Kip848Error: what `poll` raises.
        """
        record_count(num_messages)
        ends_s = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        self._check_open()
        if not self._topics:
            raise IllegalStateError("nothing is subscribed: this would wait for ever; call subscribe() first")
        self._settle_returned()
        while True:
            self._tell_outcomes()
            with self._host.lock:
                self._raise_error()
                taken = self._host.reader.take(num_messages, now_ms=self._clock.now_ms())
                self._returned += taken
            if taken:
                self._host.wake()
                opened = self._open(taken)
                if opened:
                    return opened
                continue
            with self._changed:
                if self._host.reader.held.waiting or self._host.error is not None or self._host.fatal is not None:
                    continue
                left_s = None if ends_s is None else ends_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return []
                if self._host.closing:
                    raise IllegalStateError("the share consumer was closed by another thread")
                self._changed.wait(left_s)

    def __iter__(self) -> Iterator[ShareMessage[K_co, V_co]]:
        """Yield records for ever, each accepted (implicitly) once the next one is asked for; ends after close()."""
        while not self._closed:
            try:
                found = self.consume(1, 1.0)
            except IllegalStateError:
                if self._host.closing:  # by another thread, meanwhile
                    return
                raise
            yield from found

    def _open(self, taken: list[AcquiredRecord]) -> list[ShareMessage[K_co, V_co]]:
        messages: list[ShareMessage[K_co, V_co]] = []
        for held in taken:
            message: ShareMessage[K_co, V_co] = ShareMessage(held)
            if self._values is not None:
                try:
                    wanted = self._values.open(cast("Message", message))  # it has the methods that are used
                except DeserializationError:
                    # Nobody can read it: another delivery would fail as well.
                    self._say(held, AcknowledgeType.REJECT)
                    if messages:
                        # Told by the next call, or the records before it would be lost to the caller.
                        self._give_back(taken[taken.index(held) + 1 :])
                        return messages
                    self._give_back(taken[taken.index(held) + 1 :])
                    raise
                if not wanted:
                    self._say(held, AcknowledgeType.REJECT)
                    continue
            messages.append(message)
        return messages

    def _give_back(self, records: list[AcquiredRecord]) -> None:
        with self._host.lock:
            self._host.reader.held.put_back(records)
            self._returned = [held for held in self._returned if held not in records]

    # --- acknowledging

    def acknowledge(
        self,
        message: ShareMessage[Any, Any],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,  # noqa: A002
    ) -> None:
        """Say what became of a record. Sent in the background; `commit` waits for the leader's word.

        Args:
            message: a record that this consumer returned.
            type: ACCEPT: it is done. RELEASE: it may be delivered again. REJECT: it is never delivered again. RENEW: it
                is still handled, and its lock begins anew.

        Raises:
            IllegalStateError: the lock has ended, or it was acknowledged already.
        """
        if not isinstance(message, ShareMessage):
            raise ArgumentTypeError(f"acknowledge() takes a record of poll(), got {message!r}")
        self._acknowledge(message.held, _checked_type(type))

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,  # noqa: A002
    ) -> None:
        """As `acknowledge`, for a record that is known by its place only.

        Raises:
            IllegalStateError: this consumer has no such record.
        """
        for (of, at), held in self._host.reader.held.out.items():
            if held.topic == topic and of[1] == partition and at == offset:
                self._acknowledge(held, _checked_type(type))
                return
        raise IllegalStateError(
            f"{topic}-{partition} offset {offset} is not with this consumer: its lock has ended, or it was "
            "acknowledged already"
        )

    def _acknowledge(self, held: AcquiredRecord, word: AcknowledgeType) -> None:
        self._check_open()
        if not self._say(held, word):
            raise IllegalStateError(
                f"{held.topic}-{held.partition[1]} offset {held.offset} is not with this consumer any more: its lock "
                "has ended, so another member may have it, or it was acknowledged already"
            )

    def _say(self, held: AcquiredRecord, word: AcknowledgeType) -> bool:
        with self._host.lock:
            if self._host.reader.held.out.get((held.partition, held.offset)) is not held:
                return False
            said = self._host.reader.acknowledge(held.partition, held.offset, word)
        self._host.wake()
        return said

    def commit(self, timeout_s: float | None = None) -> dict[TopicPartition, Kip848Error | None]:
        """Wait until the leaders have answered to everything that was said.

        With implicit acknowledgement the records of the last poll() are accepted first.

        Args:
            timeout_s: seconds; 60 if None, negative waits for ever.

        Returns:
            Each partition of which something was said: None if it was confirmed; a `BrokerError` if it was refused
            (INVALID_RECORD_STATE: a lock had ended); another error if the answer was lost, so that it may count or not.

        Raises:
            RequestTimeoutError: the time was over before all was answered.
        """
        self._check_open()
        if not self._config.explicit:
            self._accept_returned()
        limit_s = COMMIT_TIMEOUT_S if timeout_s is None else timeout_s
        far_ms = 2**62
        deadline_ms = far_ms if limit_s < 0 else self._clock.now_ms() + int(limit_s * 1000)
        with self._host.lock:
            self._last_commit_id += 1
            commit_id = self._last_commit_id
            self._host.reader.commit(commit_id, deadline_ms=deadline_ms)
        self._host.wake()
        while True:
            with self._host.lock:
                ended = self._host.commits.pop(commit_id, None)
                self._raise_fatal()
            if ended is not None:
                break
            if self._host.ended.is_set() or not self._started:
                return {}
            with self._changed:
                if commit_id not in self._host.commits:
                    self._changed.wait(0.5)
        self._tell_outcomes()
        if ended.timed_out:
            raise RequestTimeoutError(f"commit(): not all leaders answered in {limit_s} s; what was said may count")
        reader = self._host.reader
        return {
            public(NamedPartition(reader.topic_of(of), of[1])): error for of, error in sorted(ended.results.items())
        }

    def commit_sync(self, timeout: float = COMMIT_TIMEOUT_S) -> dict[TopicPartition, Kip848Error | None]:
        """`commit`, by the name that confluent_kafka gives it."""
        return self.commit(timeout)

    def commit_async(self) -> None:
        """Send what was said; with implicit acknowledgement the records of the last poll() are accepted first.

        The outcomes go to the callback of `set_acknowledgement_commit_callback`.
        """
        self._check_open()
        if not self._config.explicit:
            self._accept_returned()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have *callback* told what became of what was said, inside poll(), commit() and close().

        Raises:
            ConfigError: it is async, or does not take two arguments.
        """
        check_not_async(callback, name="callback", instead=USE_ASYNC_CONSUMER)
        check_takes(callback, "offsets", "error", name="callback")
        with self._host.lock:
            self._callback = callback
            self._host.wants_outcomes = callback is not None

    def _settle_returned(self) -> None:
        if not self._config.explicit:
            self._accept_returned()
            return
        with self._host.lock:
            out = self._host.reader.held.out
            self._returned = [held for held in self._returned if out.get((held.partition, held.offset)) is held]
            if self._returned:
                first = self._returned[0]
                raise IllegalStateError(
                    f"{len(self._returned)} records of the last poll() were not acknowledged, the first is "
                    f"{first.topic}-{first.partition[1]} offset {first.offset}; with "
                    "share.acknowledgement.mode=explicit acknowledge() each record before the next poll()"
                )

    def _accept_returned(self) -> None:
        with self._host.lock:
            returned, self._returned = self._returned, []
            out = self._host.reader.held.out
            for held in returned:
                if out.get((held.partition, held.offset)) is held:
                    self._host.reader.acknowledge(held.partition, held.offset, AcknowledgeType.ACCEPT)
        if returned:
            self._host.wake()

    def _tell_outcomes(self) -> None:
        while self._callback is not None:
            try:
                outcome: Outcome = self._host.outcomes.popleft()
            except IndexError:
                return
            topic = self._host.reader.topic_of(outcome.partition)
            partition = public(NamedPartition(topic, outcome.partition[1]))
            self._callback({partition: frozenset(outcome.offsets)}, outcome.error)

    # --- state

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long a lock lasts, as the brokers say; None before the first answer."""
        return self._host.reader.lock_ms or None

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        return self._host.member.state

    def memberid(self) -> str:
        """The id of the member, which the client makes."""
        return self._host.member.member_id

    # --- closing

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say what is to be said, give back everything else at once, and leave the group.

        With implicit acknowledgement the records of the last poll() are accepted; with explicit, those that were not
        acknowledged are released. Waits until the leaders have answered, at most *timeout_s*.
        """
        self._close(timeout_s, accept=not self._config.explicit)

    def _close(self, timeout_s: float, *, accept: bool) -> None:
        with self._host.lock:
            if self._closed:
                return
            self._closed = True
        if accept:
            self._accept_returned()
        self._finalizer.detach()
        if self._started:
            self._host.close(deadline_ms=self._clock.now_ms() + int(max(0.0, timeout_s) * 1000))
            if not self._host.ended.wait(max(0.0, timeout_s) + 6.0):
                log_event(
                    logging.WARNING,
                    LogEvent.ERROR_DROPPED,
                    group_id=self._config.connections.group_id,
                    error="the share consumer did not end in time",
                )
        _tell(self._changed)
        self._tell_outcomes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The block failed while it had the last records: they were not handled.
        self._close(CLOSE_TIMEOUT_S, accept=exc is None and not self._config.explicit)

    def __repr__(self) -> str:
        connections = self._config.connections
        state = "closed" if self._closed else self.state.name
        return f"<ShareConsumer group={connections.group_id!r} client={connections.client_id!r} state={state}>"

    # --- small

    def _check_open(self) -> None:
        self._host.home.check()
        if self._closed:
            raise IllegalStateError("the share consumer is closed")
        self._raise_fatal()

    def _raise_fatal(self) -> None:
        if self._host.fatal is not None:
            raise self._host.fatal

    def _raise_error(self) -> None:
        self._raise_fatal()
        error, self._host.error = self._host.error, None
        if error is not None:
            raise error

    def _want_records(self) -> None:
        self._host.reader.room = self._config.max_poll_records


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
        raise ConfigError(
            f"an acknowledgement is one of {', '.join(AcknowledgeType.__members__)}, got {given!r}"
        ) from None


def _tell(changed: threading.Condition) -> None:
    with changed:
        changed.notify_all()


def _abandon(host: ShareHost, group_id: str) -> None:
    """The consumer was dropped, or the interpreter ends, without close()."""
    if host.home.left or host.ended.is_set():
        return
    hint = "call close(), or use the consumer in a with statement"
    log_event(logging.WARNING, LogEvent.NOT_CLOSED, group_id=group_id, hint=hint)
    host.close(deadline_ms=0)
