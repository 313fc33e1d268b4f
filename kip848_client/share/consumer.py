"""`ShareConsumer`: the public, synchronous member of a share group. Owns the call signatures, and waiting.

Does not own: what a call means (`core`), the thread behind it (`host`), any rule of the protocol
(`kip848_client.member.share`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.callables import USE_ASYNC_CONSUMER, check_not_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.consumer.group.translation import record_count
from kip848_client.consumer.records.data_plane import TopicPartition
from kip848_client.consumer.records.message import K_co, V_co
from kip848_client.errors import IllegalStateError, Kip848Error
from kip848_client.member.core.states import MemberState
from kip848_client.share.core import CLOSE_TIMEOUT_S, COMMIT_TIMEOUT_S, AcknowledgementCallback, Changes, ShareCore
from kip848_client.share.health import ShareHealth
from kip848_client.share.message import ShareMessage
from kip848_client.share.settings import GRACE_S, MAX_DELIVERIES, QueueSettings, QueueStatus

if TYPE_CHECKING:
    from tenacity import BaseRetrying

    from kip848_client.consumer.processing.dead_letters import DeadLetters
    from kip848_client.share.processing import ThreadQueueProcessor


_LEAVE_SLACK_S: Final = 6.0


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
            queue.process(send, concurrency=20)
    """

    def __init__(
        self, config: Mapping[str, ConfigValue] | None = None, *, clock: Clock | None = None, **settings: ConfigValue
    ) -> None:
        self._core: Final = ShareCore(merge_settings(config, settings), clock=clock)
        self._changes: Final = Changes()
        self._core.watchers.append(self._changes.changed)
        self._processor: ThreadQueueProcessor | None = None

    # --- group

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, in place of earlier ones. The member joins the group in the background.

        Raises:
            ConfigError: a name is blank, or a pattern: share groups have none.
            IllegalStateError: the consumer is closed.
        """
        self._core.subscribe(topics)

    def unsubscribe(self) -> None:
        """Leave the group; records that were returned can still be acknowledged while their locks hold."""
        self._core.unsubscribe()

    def subscription(self) -> list[str]:
        """The topics, sorted."""
        return list(self._core.topics)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads now, sorted; other members may read them as well."""
        return self._core.assignment()

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
                record of this thread's poll() before was not acknowledged.
            DeserializationError: a deserialiser raised; the record is rejected.
            Kip848Error: a broker refused a request; every later call raises a ``fatal`` one again.
        """
        return self.consume(self._core.config.max_poll_records, timeout)

    def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[ShareMessage[K_co, V_co]]:
        """As `poll`, with at most *num_messages* records.

        Raises:
            Kip848Error: what `poll` raises.
        """
        count, caller = max(1, record_count(num_messages)), threading.get_ident()
        until_s = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        self._core.check_open()  # before the try: after a fork wake() might wait for a lock for ever
        unsent: bool | None = None  # Ctrl-C may come when begin_poll() has accepted and not returned yet
        try:
            unsent = self._core.begin_poll(caller)
            while True:
                version = self._changes.version
                self._core.tell_outcomes()
                found = self._core.take(count, caller)
                if found:
                    return found
                if self._core.host.closing:
                    raise IllegalStateError("the share consumer was closed while this waited for records")
                self._core.want(count, caller, wake=unsent)
                unsent = False
                if not self._core.has_news and not self._changes.wait(version, until_s):
                    return []
        finally:
            if unsent is None:
                self._core.host.wake()
            else:
                self._core.want(0, caller, wake=unsent)

    def __iter__(self) -> Iterator[ShareMessage[K_co, V_co]]:
        """Yield records for ever, each accepted (implicitly) once the next one is asked for; ends after close()."""
        while True:
            try:
                found = self.consume(1, 1.0)
            except IllegalStateError:
                if self._core.closed:
                    return
                raise
            yield from found

    # --- acknowledging

    def acknowledge(
        self,
        message: ShareMessage[Any, Any],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,  # noqa: A002  confluent_kafka's and Java's name
    ) -> None:
        """Say what became of a record. Sent in the background; `commit` waits for the leader's word.

        Args:
            message: a record that this consumer returned.
            type: ACCEPT: it is done. RELEASE: it may be delivered again. REJECT: it is never delivered again. RENEW: it
                is still handled, and its lock begins anew.

        Raises:
            IllegalStateError: the lock has ended, or it was acknowledged already.
        """
        self._core.acknowledge(message, type)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,  # noqa: A002  confluent_kafka's name
    ) -> None:
        """As `acknowledge`, for a record that is known by its place only.

        Raises:
            IllegalStateError: this consumer has no such record.
        """
        self._core.acknowledge_offset(topic, partition, offset, type)

    def commit(self, timeout_s: float | None = None) -> dict[TopicPartition, Kip848Error | None]:
        """Wait until the leaders have answered to everything that was said.

        With implicit acknowledgement the records of the last poll() are accepted first.

        Args:
            timeout_s: seconds; 60 if None, negative waits for ever.

        Returns:
            Each partition of which something was said since the commit() before: None if all was confirmed; a
            `BrokerError` if it was refused (INVALID_RECORD_STATE: a lock had ended); another error if the answer was
            lost, so that it may count or not. The threads of a consumer share these results; the callback has them by
            record.

        Raises:
            RequestTimeoutError: the time was over before all was answered.
        """
        commit_id = self._core.begin_commit(timeout_s)
        try:
            while True:
                version = self._changes.version
                results = self._core.end_commit(commit_id)
                if results is not None:
                    break
                self._changes.wait(version, time.monotonic() + 1.0)
        finally:
            self._core.abandon_commit(commit_id)
        self._core.tell_outcomes()
        return results

    def commit_sync(self, timeout: float = COMMIT_TIMEOUT_S) -> dict[TopicPartition, Kip848Error | None]:
        """`commit`, by the name that confluent_kafka gives it."""
        return self.commit(timeout)

    def commit_async(self) -> None:
        """Send what was said; with implicit acknowledgement the records of the last poll() are accepted first.

        The outcomes go to the callback of `set_acknowledgement_commit_callback`.
        """
        self._core.check_open()
        if not self._core.config.explicit:
            self._core.accept_returned()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have *callback* told what became of what was said, inside poll(), process(), commit() and close().

        Raises:
            ConfigError: it is async, or does not take two arguments.
        """
        check_not_async(callback, name="callback", instead=USE_ASYNC_CONSUMER)
        check_takes(callback, "offsets", "error", name="callback")
        self._core.set_callback(callback)

    # --- process()

    def process(
        self,
        handler: Callable[[ShareMessage[K_co, V_co]], object],
        *,
        concurrency: int = 10,
        retry: BaseRetrying | None = None,
        reject: tuple[type[BaseException], ...] = (),
        timeout_s: float | None = None,
        dead_letter: DeadLetters | None = None,
        max_deliveries: int = MAX_DELIVERIES,
        grace_s: float = GRACE_S,
        executor: Executor | None = None,
    ) -> None:
        """Call *handler* with each record, many at once, until the consumer is closed or hands over.

        A record whose handler returns is accepted. One whose handler raises is released, so that it is delivered
        again, here or elsewhere, until the group's limit of deliveries; the handler raises `Reject` if that makes no
        sense. Locks are renewed while handlers run, and no more is acquired than there are free handlers.

        Args:
            handler: called in a thread.
            concurrency: handlers that run at once.
            retry: a ``tenacity.Retrying`` object: what is tried again within this delivery; None: nothing.
            reject: exceptions after which a record is rejected, as after `Reject`.
            timeout_s: how long one call may take; afterwards its record is released, and its end does not count.
            dead_letter: where a record goes that is rejected, or whose last delivery failed; a `DeadLetters`. For
                brokers that have no dead letters themselves.
            max_deliveries: which delivery is the last one; the group's ``share.delivery.count.limit``.
            grace_s: how long the end waits for handlers; then their records are released.
            executor: a pool of threads of your own.

        Raises:
            FatalGroupError: the group refused this member.
            ConfigError: an argument is wrong.
            IllegalStateError: nothing is subscribed, or process() runs already.
        """
        from kip848_client.share.processing import ThreadQueueProcessor

        check_not_async(handler, name="handler", instead="AsyncShareConsumer")
        check_takes(handler, "record", name="handler")
        settings = QueueSettings(
            concurrency=concurrency,
            retry=retry,
            reject=tuple(reject),
            timeout_s=timeout_s,
            dead_letter=dead_letter,
            max_deliveries=max_deliveries,
            grace_s=grace_s,
        )
        self._processor = ThreadQueueProcessor(self._core, self._changes, handler, settings, executor)
        try:
            self._processor.run()
        finally:
            self._processor = None
            self._changes.changed()

    def processing_status(self) -> QueueStatus | None:
        """What ``process()`` has in hand; None while it does not run. From any thread."""
        processor = self._processor
        return None if processor is None else processor.status()

    def hand_over(self) -> None:
        """End ``process()``: give back at once what has not begun, and let handlers end. From any thread or signal.

        Returns at once; close() follows. Before process() it ends that at once.
        """
        self._core.hands_over = True
        self._changes.changed()

    # --- state

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long a lock lasts, as the brokers say; None before the first answer."""
        return self._core.lock_ms or None

    def health(self) -> ShareHealth:
        """The health of this consumer, for a liveness or readiness probe. From any thread; never waits."""
        return self._core.health(self.processing_status())

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        return self._core.state

    def memberid(self) -> str:
        """The id of the member, which the client makes."""
        return self._core.host.member.member_id

    # --- closing

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say what is to be said, give back everything else at once, and leave the group.

        With implicit acknowledgement the records of the last poll() are accepted; with explicit, those that were not
        acknowledged are released. Waits until the leaders have answered, at most *timeout_s*. While process() runs,
        close() lets it end first, as `hand_over`; in a signal handler of its thread that is all it does.
        """
        self._close(timeout_s, accept=not self._core.config.explicit)

    def _close(self, timeout_s: float, *, accept: bool) -> None:
        if timeout_s < 0:
            timeout_s = math.inf
        processor = self._processor
        if processor is not None:
            self.hand_over()
            if processor.runs_in_this_thread:
                return  # a signal handler: process() ends first, and then the block around it closes
            until_s = time.monotonic() + min(timeout_s, 1e9)
            while self._processor is not None and self._changes.wait(self._changes.version, until_s):
                pass
        if self._core.begin_close(min(timeout_s, 1e9), accept=accept and self._core.processor is None):
            limit_s = min(max(0.0, timeout_s), 1e9) + _LEAVE_SLACK_S
            if not self._core.host.ended.wait(limit_s):
                group_id = self._core.config.connections.group_id
                error = "the share consumer did not end in time"
                log_event(logging.WARNING, LogEvent.ERROR_DROPPED, group_id=group_id, error=error)
        self._changes.changed()
        self._core.tell_outcomes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The block failed while it had the last records: they were not handled.
        self._close(CLOSE_TIMEOUT_S, accept=exc is None and not self._core.config.explicit)

    def __repr__(self) -> str:
        return self._core.describe("ShareConsumer")
