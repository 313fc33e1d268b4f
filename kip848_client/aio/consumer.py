"""`AsyncConsumer`: the consumer for tasks of an event loop. The synchronous one does the work, in a thread of its own.

Owns awaiting, cancellation and iteration. Signatures and meanings are those of `Consumer`; membership, commits and
fetching are the same objects, so that the two cannot differ.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
)

import anyio
import anyio.lowlevel
import anyio.to_thread

from kip848_client.aio.owner_thread import OwnerThread
from kip848_client.aio.reading_task import current_task, has_returned, runs_only
from kip848_client.common.callables import check_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import NamedPartition, SubscriptionPattern
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.config.other_clients import missing_attribute, refuse_milliseconds
from kip848_client.consumer.consumer import BATCH_RECORDS, HAND_OVER_TIMEOUT_S, Consumer, core_of
from kip848_client.consumer.core import ABANDON_TIMEOUT_S, CLOSE_TIMEOUT_S, ConsumerCore
from kip848_client.consumer.group.app_thread import QUIET_SLICE_S, SLICE_S
from kip848_client.consumer.group.filling import Filling
from kip848_client.consumer.group.health import ConsumerHealth
from kip848_client.consumer.group.translation import (
    CommitCallback,
    check_commit_callback,
    check_leave_mode,
    limit_s,
    record_count,
)
from kip848_client.consumer.listeners import ConsumerRebalanceListener, read_listener
from kip848_client.consumer.records.data_plane import ErrorDetails, TopicPartition
from kip848_client.consumer.records.message import K_co, Message, V_co
from kip848_client.errors import IllegalStateError, RequestTimeoutError
from kip848_client.journal import Journal
from kip848_client.member.core.events import LeaveMode
from kip848_client.member.core.states import MemberState
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.settings import (
    BUFFER_BYTES,
    DRAIN_S,
    GRACE_S,
    SLICE_MS,
    SLICE_RECORDS,
    ProcessSettings,
)
from kip848_client.member.processing.work import Order, ProcessingFailure, ProcessingStatus

if TYPE_CHECKING:
    from tenacity import BaseRetrying

    from kip848_client.aio.reading_task import Task
    from kip848_client.consumer.processing.dead_letters import DeadLetters
    from kip848_client.consumer.processing.outputs import HandlerOutputs
    from kip848_client.consumer.processing.retry_topics import RetryTopics
    from kip848_client.consumer.processing.slices import HandlerTransaction
    from kip848_client.consumer.records.data_plane import Producer

YIELD_S: Final = 0.001
"""A call that has run this long lets other tasks run, even if a record is ready."""

CLOSE_GRACE_S: Final = 1.0
"""How long a cancelled close() waits; closing continues in the background."""


P = ParamSpec("P")
ValueT = TypeVar("ValueT")


def _awaited(
    method: Callable[Concatenate[Consumer[Any, Any], P], ValueT], *, grace_s: float = math.inf
) -> Callable[Concatenate[AsyncConsumer[Any, Any], P], Coroutine[Any, Any, ValueT]]:
    """*method*, awaited: it runs on the consumer's thread.

    Args:
        grace_s: how long a cancelled task waits for its end.
    """

    @wraps(method, assigned=("__name__", "__doc__"))
    async def call(self: AsyncConsumer[Any, Any], /, *args: P.args, **kwargs: P.kwargs) -> ValueT:
        return await self._thread.run(partial(method, self._consumer, *args, **kwargs), grace_s=grace_s)

    call.__qualname__ = f"AsyncConsumer.{method.__name__}"
    return call


class AsyncConsumer(Generic[K_co, V_co]):
    """A member of a consumer group (KIP-848) that reads the records of its partitions, for asyncio and trio.

    It has the methods and properties of `Consumer`, with the same names and arguments. All methods but health() and
    hand_over() are awaited. Only one task at a time may read (poll, consume, iterate); other calls may come from
    several tasks, and run one after the other. Listeners and commit callbacks run in the event loop, in the task that
    awaits.

    **Cancellation.** A cancelled call loses no record: the next call returns it. If a listener was cancelled, the next
    poll() or close() calls it again. A task that is cancelled inside ``async with`` leaves the group in order: it
    commits the records before those that the last read returned (with enable.auto.commit), runs listeners, and sends
    the leave. A cancelled close() waits at most one second more, and closing continues in the background; so does a
    cancelled question to the cluster, such as list_topics() or lag(), until its timeout.

    **Back-pressure.** The consumer reads on demand: at most one prefetch of 256 records waits here, and librdkafka
    stops fetching at ``queued.max.messages.kbytes``. A task that does not poll for max.poll.interval.ms loses its
    membership, as a thread does.

    Args:
        config: as for `Consumer`. ``on_commit`` is called in the event loop, and awaited if it can be; ``error_cb``,
            ``stats_cb`` and ``throttle_cb`` are called on the consumer's thread.
        journal: where the client writes its event log.
        settings: override *config*.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.

    Example::

        async with AsyncConsumer({"bootstrap.servers": "...", "group.id": "orders"}) as consumer:
            await consumer.subscribe(["orders"])
            async for message in consumer:
                await handle(message)
                await consumer.commit(message)
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        config = merge_settings(config, settings)
        self._thread: OwnerThread = OwnerThread()
        on_commit = config.get("on_commit")
        if callable(on_commit):
            config = {**config, "on_commit": self._in_loop(on_commit)}
        self._consumer: Consumer[K_co, V_co] = Consumer(config, journal=journal, clock=clock)
        self._core: Final[ConsumerCore[K_co, V_co]] = core_of(self._consumer)
        self._thread.name = f"kip848-async-{self._core.config.client_id}"
        self._thread.nudge = self._core.group.thread.wake
        self._core.group.thread.before_wait = self._thread.check
        self._yielded_s = 0.0
        self._busy_s = time.monotonic()
        """When a record came, or another task called in the middle of a read."""
        self._reading = False
        self._reader: Task | None = None
        """The task that read last."""
        self._finalizer = weakref.finalize(self, self._thread.end)

    # --- group

    async def subscribe(
        self,
        topics: Iterable[str | SubscriptionPattern] | SubscriptionPattern,
        listener: AsyncConsumerRebalanceListener | ConsumerRebalanceListener | AsyncRebalanceCallback | None = None,
        on_revoke: AsyncRebalanceCallback | None = None,
        on_lost: AsyncRebalanceCallback | None = None,
        *,
        on_assign: AsyncRebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; see `Consumer.subscribe`.

        Args:
            topics: names, `SubscriptionPattern` objects, or names that start with ``^``.
            listener: called when partitions are assigned, revoked or lost; its methods may be ``async`` or not. A
                function in this place is *on_assign*.
            on_assign, on_revoke, on_lost: the same as callables ``(consumer, partitions)``, ``async`` or not.
        """
        called, on_assign = read_listener(
            listener, on_assign, on_revoke, on_lost, kinds=(AsyncConsumerRebalanceListener, ConsumerRebalanceListener)
        )
        if called is not None:
            on_assign, on_revoke, on_lost = _methods_of(cast("_AnyListener", called))
        bridged = None
        if on_assign or on_revoke or on_lost:
            bridged = _BridgedListener(
                cast(
                    "Callable[[], AsyncConsumer[Any, Any]]", weakref.ref(self)
                ),  # during the call a task awaits a method
                self._thread.call_out,
                on_assign=on_assign,
                on_revoke=on_revoke,
                on_lost=on_lost,
            )
        await self._thread.run(partial(self._consumer.subscribe, topics, bridged))

    request_reassignment: Final = _awaited(Consumer.request_reassignment)

    async def unsubscribe(self) -> None:
        """Leave the group, after on_partitions_revoked for all partitions; see `Consumer.unsubscribe`.

        Raises:
            ListenerError: the listener raised; the consumer has left anyway.
        """
        self._core.check_not_handling("unsubscribe")
        await self._thread.run(self._consumer.unsubscribe)

    assign: Final = _awaited(Consumer.assign)
    unassign: Final = _awaited(Consumer.unassign)
    incremental_assign: Final = _awaited(Consumer.incremental_assign)
    incremental_unassign: Final = _awaited(Consumer.incremental_unassign)
    assignment: Final = _awaited(Consumer.assignment)

    # --- records

    async def poll(self, timeout: float | None = -1.0, *, timeout_ms: None = None) -> Message[K_co, V_co] | None:
        """Take part in rebalances, and return the next record; see `Consumer.poll`.

        Args:
            timeout: seconds; negative or None waits for ever.

        Raises:
            IllegalStateError: another task is reading; or as in `Consumer`.
        """
        if timeout_ms is not None:
            refuse_milliseconds("poll", timeout_ms)
        while self._core.ready and self._nothing_moved():
            now_s = time.monotonic()
            if now_s - self._yielded_s < YIELD_S:
                self._reader = current_task()
                message: Message[K_co, V_co] = self._core.ready[0]
                self._core.in_hand = (message,)  # first, as in `Consumer.poll`: it is in one place or the other
                del self._core.ready[0]
                return message
            self._core.in_hand = ()  # also if the task is cancelled in the next line
            await anyio.lowlevel.checkpoint()
            self._yielded_s = time.monotonic()
        filling = Filling(1, timeout)
        batch = await self._read_for(filling, partial(self._poll_once, filling))
        return batch[0] if batch else None

    async def consume(
        self, num_messages: int = 1, timeout: float | None = -1.0, *, timeout_ms: None = None
    ) -> list[Message[K_co, V_co]]:
        """Take part in rebalances, and wait for *num_messages* records, or as many as come in time.

        See `Consumer.consume`. Calls of other tasks run meanwhile.

        Args:
            num_messages: how many, 0 to 1,000,000.
            timeout: seconds; negative or None waits until *num_messages* have come.
        """
        if timeout_ms is not None:
            refuse_milliseconds("consume", timeout_ms)
        return await self._filled(num_messages, timeout, linger_s=None)

    def batches(
        self, num_messages: int = BATCH_RECORDS, timeout: float | None = -1.0, *, linger_s: float = 0.0
    ) -> AsyncIterator[list[Message[K_co, V_co]]]:
        """``async for batch in consumer.batches()``: lists of records; ends when the consumer closes.

        Args:
            num_messages: maximum size of a batch.
            timeout: seconds until an empty batch is yielded without a record; negative or None: never.
            linger_s: how many seconds a batch waits for more records after its first one.
        """
        return _Batches(self._core, partial(self._filled, num_messages, timeout, linger_s=linger_s))

    async def _filled(
        self, num_messages: int, timeout: float | None, *, linger_s: float | None
    ) -> list[Message[K_co, V_co]]:
        filling = Filling(record_count(num_messages), timeout if num_messages else 0.0, linger_s)
        return await self._read_for(filling, partial(self._core.fill, filling))

    def __aiter__(self) -> AsyncIterator[Message[K_co, V_co]]:
        """Yield records for ever; ends when the consumer is closed, or has handed over."""
        return _Messages(self, self._core)

    def _nothing_moved(self) -> bool:
        return (
            self._core.mark is self._core.manager.mark
            and not self._reading
            and self._thread.idle
            and self._core.gate.owner is None
            and self._core.values is None
            and self._core.processor is None
        )

    def _poll_once(self, filling: Filling, slice_s: float) -> list[Message[K_co, V_co]]:
        message = self._consumer.poll(max(0.0, min(slice_s, filling.deadline_s - time.monotonic())))
        return [] if message is None else [message]

    async def _process_read(
        self, read: Callable[[float], list[Message[K_co, V_co]]], timeout: float
    ) -> list[Message[K_co, V_co]]:
        """Read for process(), once: *read* takes the seconds that it may wait."""
        filling = Filling(1, timeout)

        def once(slice_s: float) -> list[Message[K_co, V_co]]:
            return read(max(0.0, min(slice_s, filling.deadline_s - time.monotonic())))

        return await self._read_for(filling, once, processing=True)

    async def _read_for(
        self, filling: Filling, read: Callable[[float], list[Message[K_co, V_co]]], *, processing: bool = False
    ) -> list[Message[K_co, V_co]]:
        """Read until *filling* is over; *read* takes the length of a slice in seconds, and returns what is complete."""
        self._thread.home.check()
        if not processing:  # here, because process() does other things between two reads
            self._core.check_not_processing("poll")
        if self._reading and not self._thread.inside:
            raise IllegalStateError("another task reads from this consumer; one at a time may poll, consume or iterate")
        self._reader = current_task()
        self._core.in_hand = ()  # also if it is cancelled before the thread begins
        reading, self._reading = self._reading, True
        try:
            while True:
                batch, readable, timed_out = await self._thread.run(
                    partial(self._read_until, read, filling), undo=lambda taken: self._core.put_back(taken[0])
                )
                self._yielded_s = time.monotonic()
                if (
                    batch
                    and readable is not self._core.group.view.readable
                    and readable != self._core.group.view.readable
                ):
                    # Partitions were revoked while the records went from one thread to the other.
                    await self._thread.run(partial(self._core.put_back, batch), interruptible=False)
                elif batch or timed_out or self._core.group.handed_over:
                    return batch
        finally:
            self._reading = reading

    def _read_until(
        self, read: Callable[[float], list[Message[K_co, V_co]]], filling: Filling
    ) -> tuple[list[Message[K_co, V_co]], frozenset[NamedPartition], bool]:
        """Read until there are records, the time is up, or another call needs the thread (on the thread).

        Returns:
            Records, the partitions that were readable at that time, and whether the time was up before the last read.
        """
        while True:
            if filling.deadline_s == math.inf and not self._core.group.wants_records:
                self._consumer.poll()  # raises: it would wait for ever
            now_s = time.monotonic()
            # Other tasks' calls wait for this: for a tenth of the time in which nothing has happened.
            slice_s = max(SLICE_S, min((now_s - self._busy_s) / 10, QUIET_SLICE_S))
            is_last = filling.deadline_s <= now_s + slice_s
            batch = read(slice_s)
            timed_out = is_last and filling.deadline_s <= time.monotonic()
            wanted = self._thread.wanted
            if batch or wanted:
                self._busy_s = time.monotonic()
            if batch or wanted or timed_out or self._core.group.handed_over:
                return batch, self._core.group.view.readable, timed_out
            self._thread.check()

    async def process(
        self,
        handler: Callable[[Message[K_co, V_co]], Awaitable[object]]
        | Callable[[list[Message[K_co, V_co]]], Awaitable[object]]
        | Callable[[Message[K_co, V_co], HandlerOutputs], Awaitable[object]]
        | Callable[[list[Message[K_co, V_co]], HandlerOutputs], Awaitable[object]]
        | Callable[[Message[K_co, V_co], HandlerTransaction], Awaitable[object]]
        | Callable[[list[Message[K_co, V_co]], HandlerTransaction], Awaitable[object]],
        *,
        concurrency: int = 10,
        limits: Limits | None = None,
        order: Order = "key",
        retry: BaseRetrying | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        dead_letter: DeadLetters | None = None,
        retry_later: RetryTopics | None = None,
        on_failure: Callable[[ProcessingFailure], object] | None = None,
        until: Literal["end"] | None = None,
        timeout_s: float | None = None,
        batch: Sequence[int] | None = None,
        split: bool = False,
        buffer: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        drain_s: float = DRAIN_S,
        grace_s: float = GRACE_S,
        outputs: Producer | None = None,
        transactional: Producer | None = None,
        slice_records: int = SLICE_RECORDS,
        slice_ms: int = SLICE_MS,
    ) -> None:
        """Await *handler* for each record, many at once, until cancelled, handed over, or a handler failed.

        Order is kept within a lane: the records of one key in one partition (``order="key"``; those without a key have
        no order), of one partition, or of none. What is done beyond the first record that is not done is noted in the
        commit's metadata, so that a new owner does not repeat it. Rebalances let running handlers end before partitions
        are given away; see docs/processing.md for what is repeated after which death.

        While it runs, poll(), consume(), seek() and commit() are refused. Afterwards automatic commits stay off, and
        positions are at the first record that is not done.

        Args:
            handler: ``await handler(record)`` runs in a task; with *batch* ``await handler(records)``.
            concurrency: handlers that run at once.
            limits: a `kip848_client.Limits`: calls a second, in all and of each key; what holds for single topics.
            order: ``"key"``, ``"partition"`` or ``"none"``.
            retry: a ``tenacity.Retrying`` object: which exceptions are tried again, how often, after which time. Other
                lanes go on meanwhile. Its ``before``, ``after`` and ``before_sleep`` are called. None: never, but for
                `kip848_client.RetryLater`.
            on_error: of a record that failed for good. ``"stop"`` ends process() with a `ProcessingError`, and the
                record is not committed; ``"skip"`` logs it and counts it as done.
            dead_letter: where it goes instead; a `DeadLetters`.
            retry_later: a `RetryTopics`: after the attempts of *retry* a record waits in other topics, for minutes or
                hours, and holds nothing here. It has failed for good after the last of them.
            on_failure: called with a `ProcessingFailure` for each call of the handler that failed, before what follows;
                it should return soon. If it raises, process() ends with a `ProcessingError`.
            until: ``"end"``: return once all partitions are read to their ends and everything in hand is done, for
                batch jobs and tests. A member without partitions returns, too.
            timeout_s: how long one call may take; afterwards it counts as having raised `TimeoutError`. The task is
                cancelled.
            batch: (most records, milliseconds), or a list of the two: the handler gets a list of records of one lane,
                as soon as there are so many or the first has waited so long.
            split: the records of a batch that failed for good are handled again one by one, each in a list of its own
                and with attempts of its own.
            buffer: records in hand above which partitions are paused; twice the concurrency if None.
            buffer_bytes: bytes of keys and values in hand at which reading stops; the last record may exceed them.
            drain_s: how long a revocation waits for running handlers, within 0.8 of max.poll.interval.ms; it
                should be less than what a deployment waits before it kills.
            grace_s: how long the end waits for them. Cancelled, it waits so long, and commits what is done.
            outputs: a `confluent_kafka.Producer` for what handlers produce, which get a second argument, a
                `HandlerOutputs`, for that. The record is done once all of it is acknowledged; if a record is refused,
                the handler has failed. What a handler gives to a producer itself may be lost: its record is committed
                when it returns.
            transactional: a `confluent_kafka.Producer` with a ``transactional.id``, for exactly once: the handler gets
                a second argument, a `HandlerTransaction`, to produce with. If it returns, what it has produced is
                written in one transaction with its record's offset. See docs/exactly-once.md.
            slice_records, slice_ms: a transaction is written once so many records are done, or the first of them has
                waited so many milliseconds.

        Raises:
            ProcessingError: a handler failed for good, or all slots are taken by handlers that do not end.
            ProducerFencedError, TransactionFailedError: another process has taken the ``transactional.id``, or the
                producer cannot go on. End the process.
            Kip848Error: the last commit failed, as commit() would.
            ConfigError: an argument is wrong.
            IllegalStateError: nothing is subscribed, or process() runs already.
        """
        from kip848_client.aio.processing import TaskProcessor

        check_async(handler, name="handler", instead="a synchronous one is for Consumer.process")
        settings = ProcessSettings(
            concurrency=concurrency,
            limits=limits,
            order=order,
            retry=retry,
            on_error=on_error,
            dead_letter=dead_letter,
            retry_later=retry_later,
            on_failure=on_failure,
            until=until,
            timeout_s=timeout_s,
            batch=batch,
            split=split,
            buffer=buffer,
            buffer_bytes=buffer_bytes,
            drain_s=drain_s,
            grace_s=grace_s,
            outputs=outputs,
            transactional=transactional,
            slice_records=slice_records,
            slice_ms=slice_ms,
        )
        check_takes(handler, *settings.handler_arguments, name="handler")
        await TaskProcessor(self._core, self._thread, self._process_read, handler, settings).run()

    def processing_status(self) -> ProcessingStatus | None:
        """What ``process()`` has in hand; see `Consumer.processing_status`. Not awaited, because it never waits."""
        return self._consumer.processing_status()

    def change_processing(self, *, concurrency: int | None = None, limits: Limits | None = None) -> None:
        """Change what ``process()`` was given; see `Consumer.change_processing`. Not awaited: it never waits."""
        self._consumer.change_processing(concurrency=concurrency, limits=limits)

    # --- offsets

    async def commit(
        self,
        message: Message[Any, Any] | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout_s: float | None = None,
        on_commit: AsyncCommitCallback | None = None,
    ) -> list[TopicPartition] | None:
        """Commit offsets: of one message, of the given partitions, or of all records returned so far.

        A commit whose task is cancelled may have been applied; see `Consumer.commit`.

        Args:
            message: commits the offset after it.
            offsets: partitions with the next offset to read.
            asynchronous: do not wait for the coordinator's answer. A failure goes to *on_commit*, else to on_commit of
                the configuration. Else one that passes (a broker is away, a rebalance) is logged, and another, as of a
                missing right, is raised by a later call.
            timeout_s: seconds, for a synchronous commit; default.api.timeout.ms if None, negative waits for ever.
            on_commit: ``(error or None, partitions)``, ``async`` or not, called in the event loop inside a later call.

        Returns:
            Committed partitions, or None if asynchronous.

        Raises:
            CommitFailedError: the partitions may belong to another member now.
            RequestTimeoutError: no answer in time; the commit may have been applied.
            BrokerError: the coordinator refused it.
        """
        check_commit_callback(on_commit, awaited=True)  # the event loop calls it later
        callback = self._in_loop(on_commit) if on_commit is not None else None
        commit = partial(self._consumer.commit, message, offsets, asynchronous, timeout_s=timeout_s, on_commit=callback)
        known = message is not None or offsets is not None
        if asynchronous and known and self._thread.idle and not self._core.group.commits.callbacks_due:
            return commit()  # it waits for nothing, and librdkafka is not asked for positions
        return await self._thread.run(commit)

    store_offsets: Final = _awaited(Consumer.store_offsets)
    committed: Final = _awaited(Consumer.committed)
    position: Final = _awaited(Consumer.position)
    seek: Final = _awaited(Consumer.seek)
    pause: Final = _awaited(Consumer.pause)
    resume: Final = _awaited(Consumer.resume)
    paused: Final = _awaited(Consumer.paused)

    # --- questions

    list_topics: Final = _awaited(Consumer.list_topics, grace_s=0)
    cluster_id: Final = _awaited(Consumer.cluster_id, grace_s=0)
    get_watermark_offsets: Final = _awaited(Consumer.get_watermark_offsets, grace_s=0)
    offsets_for_times: Final = _awaited(Consumer.offsets_for_times, grace_s=0)
    lag: Final = _awaited(Consumer.lag, grace_s=0)

    # --- state

    @property
    def state(self) -> MemberState:
        """The member's state: UNJOINED, STABLE, RECONCILING, RELEASING_ASSIGNMENT or FATAL."""
        return self._consumer.state

    @property
    def member_id(self) -> str:
        """The member id; made by the client, constant for the life of the consumer."""
        return self._consumer.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; -1 outside the group."""
        return self._consumer.member_epoch

    async def memberid(self) -> str:
        """`member_id`, as confluent_kafka spells it."""
        return self.member_id

    group_metadata: Final = _awaited(Consumer.group_metadata)

    consumer_group_metadata = group_metadata

    set_sasl_credentials: Final = _awaited(Consumer.set_sasl_credentials)

    # --- close

    def health(self) -> ConsumerHealth:
        """The health of this consumer, for a probe; not awaited, because it never waits. See `Consumer.health`."""
        return self._consumer.health()

    def group_instance_id(self) -> str | None:
        """The static slot of this member; see `Consumer.group_instance_id`."""
        return self._consumer.group_instance_id()

    def hand_over(self, timeout_s: float | None = HAND_OVER_TIMEOUT_S) -> None:
        """Leave without a gap; see `Consumer.hand_over`. Not awaited, so that a signal handler of the loop can call it.

        Args:
            timeout_s: seconds for all of it, negative for ever.

        Example::

            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.hand_over)
            async for message in consumer:
                await handle(message)
        """
        self._consumer.hand_over(timeout_s)

    @property
    def handed_over(self) -> bool:
        """Whether `hand_over` is complete: this consumer owns nothing and will get nothing."""
        return self._core.group.handed_over

    async def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S, mode: LeaveMode = LeaveMode.DEFAULT) -> None:
        """Commit returned records (with enable.auto.commit), run on_partitions_revoked, leave the group, close.

        Ends another task's poll() or iteration. A task that is already cancelled may call it, and it does all of
        this within its time; see `Consumer.close`. A listener that has not returned by then is cancelled.

        The records that the last poll() or consume() returned are left out of the commit, and read again, if another
        task got them that has not returned: it goes on, was cancelled, or failed. The same holds if a task was made for
            that call alone: ``asyncio.create_task(consumer.poll())``, or ``asyncio.wait_for`` before Python 3.12.

        Args:
            timeout_s: seconds; negative waits for ever.
            mode: whether to leave the group; matters mostly for static members.

        Raises:
            ListenerError: the listener raised; everything was closed anyway.
            TopicAuthorizationError, GroupAuthorizationError: the last automatic commit was refused; the same is true.
            RequestTimeoutError: another task's call, or its listener, did not end in time; the group was left.
            Kip848Error: an asynchronous commit failed, and no call has raised it yet. What a poll() would have raised
                is logged instead (``member.error_dropped``), so that close() in ``finally`` hides no other exception.
        """
        await self._close(timeout_s, mode, failed=False)

    async def _close(self, timeout_s: float | None, mode: LeaveMode, *, failed: bool) -> None:
        limit = limit_s(timeout_s, default=CLOSE_TIMEOUT_S)
        check_leave_mode(mode)
        self._core.check_not_handling("close")
        if self._end_if_closed():
            return
        reader = self._reader
        done = not failed and (reader is None or reader is current_task() or self._has_finished(reader))
        self._thread.home.check()
        deadline_s = time.monotonic() + limit
        patience_end_s = anyio.current_time() + max(limit, CLOSE_GRACE_S)  # also with no time a listener gets some
        # A task that is already cancelled does its clean-up here; one that is cancelled from now on should end.
        with anyio.CancelScope(shield=anyio.current_effective_deadline() == -math.inf):
            try:
                await self._thread.run(
                    lambda: self._core.close(max(0.0, deadline_s - time.monotonic()), mode, in_hand_is_done=done),
                    interruptible=False,
                    start_by_s=patience_end_s,
                    grace_s=CLOSE_GRACE_S,
                    callouts_end_s=patience_end_s,
                )
            except RequestTimeoutError:
                if not self._end_if_closed():
                    await anyio.to_thread.run_sync(partial(self._core.manager.detach, timeout_s=ABANDON_TIMEOUT_S))
                raise
            finally:
                self._end_if_closed()

    @staticmethod
    def _has_finished(reader: Task) -> bool:
        """Whether another task that read has processed its records; not if they went to a third one."""
        cls = AsyncConsumer
        return has_returned(reader) and not runs_only(
            reader, cls.poll, cls.consume, _Messages.__anext__, _Batches.__anext__
        )

    def _in_loop(self, callback: Callable[..., object]) -> CommitCallback:
        call_out = self._thread.call_out  # and not self, which would keep the consumer from being dropped

        def called_out(error: ErrorDetails | None, partitions: list[TopicPartition]) -> None:
            call_out(lambda: callback(error, partitions))

        return called_out

    def _end_if_closed(self) -> bool:
        if self._core.group.closed:
            self._finalizer()
            self._reader = None
        return self._core.group.closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._close(CLOSE_TIMEOUT_S, LeaveMode.DEFAULT, failed=exc is not None)
        except Exception as error:
            if exc is None:
                raise
            # The block's own exception matters more than a later error of close().
            self._core.group.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=repr(error))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a consumer cannot be sent to another process, or copied; make one there")

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<Consumer", "<AsyncConsumer", 1)

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = missing_attribute


def behind(consumer: AsyncConsumer[Any, Any]) -> tuple[ConsumerCore[Any, Any], OwnerThread]:
    """What *consumer* is made of, and the thread that may touch it."""
    return consumer._core, consumer._thread  # noqa: SLF001  users need not see them


AsyncRebalanceCallback: TypeAlias = "Callable[[AsyncConsumer[Any, Any], list[TopicPartition]], object]"
"""``callback(consumer, partitions)``; an awaitable result is awaited."""

AsyncCommitCallback: TypeAlias = Callable[[ErrorDetails | None, list[TopicPartition]], object]
"""``callback(error or None, partitions)``; an awaitable result is awaited."""

_CallOut: TypeAlias = Callable[[Callable[[], object]], None]


class AsyncConsumerRebalanceListener:
    """Called when partitions are assigned, revoked or lost. Override what you need; the defaults do nothing.

    Methods run in the event loop, in the task that awaits ``poll()``, ``consume()``, ``unsubscribe()`` or ``close()``,
    one at a time, while heartbeats go on in the background. They may await any method of the consumer except close(),
    poll() and consume(). If a method raises, that call raises `ListenerError`, and a later ``poll()`` repeats the step.
    A method that is cancelled with its task is called again, too.

    Source:
        Kafka's ``ConsumerRebalanceListener``.
    """

    async def on_partitions_assigned(self, consumer: AsyncConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called after a rebalance with the new partitions, possibly none. Fetching starts after it has returned.

        ``await consumer.seek(partition)``, or ``await consumer.assign(partitions)`` with offsets, sets where to
        start; the default is the committed offset, else ``auto.offset.reset``.
        """

    async def on_partitions_revoked(self, consumer: AsyncConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called before partitions are revoked; they are paused already. The last chance to commit."""

    async def on_partitions_lost(self, consumer: AsyncConsumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called when partitions may belong to another member already; a commit fails. Calls revoked by default."""
        await self.on_partitions_revoked(consumer, partitions)


_AnyListener: TypeAlias = AsyncConsumerRebalanceListener | ConsumerRebalanceListener


class _BridgedListener(ConsumerRebalanceListener):
    """Adapts a listener of an `AsyncConsumer` for the synchronous consumer that calls it.

    Args:
        living: the AsyncConsumer.
        call_out: runs a function in the event loop and waits for its end.
        on_assign, on_revoke, on_lost: the user's; without *on_lost*, *on_revoke* is called.
    """

    def __init__(
        self,
        living: Callable[[], AsyncConsumer[Any, Any]],
        call_out: _CallOut,
        *,
        on_assign: AsyncRebalanceCallback | None,
        on_revoke: AsyncRebalanceCallback | None,
        on_lost: AsyncRebalanceCallback | None,
    ) -> None:
        self._living: Final = living
        self._call_out: Final = call_out
        self._on_assign: Final = on_assign
        self._on_revoke: Final = on_revoke
        self._on_lost: Final = on_lost if on_lost is not None else on_revoke

    def on_partitions_assigned(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Have *on_assign* called."""
        self._tell(self._on_assign, partitions)

    def on_partitions_revoked(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Have *on_revoke* called."""
        self._tell(self._on_revoke, partitions)

    def on_partitions_lost(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Have *on_lost* called."""
        self._tell(self._on_lost, partitions)

    def _tell(self, callback: AsyncRebalanceCallback | None, partitions: list[TopicPartition]) -> None:
        if callback is not None:
            self._call_out(lambda: callback(self._living(), partitions))


def _methods_of(
    listener: _AnyListener,
) -> tuple[AsyncRebalanceCallback, AsyncRebalanceCallback, AsyncRebalanceCallback | None]:
    """The callables for assigned, revoked and lost of a listener of either kind."""
    # The default of the synchronous class would drop what an overridden on_partitions_revoked returns to be awaited.
    lost = type(listener).on_partitions_lost is not ConsumerRebalanceListener.on_partitions_lost
    return (
        cast("AsyncRebalanceCallback", listener.on_partitions_assigned),
        cast("AsyncRebalanceCallback", listener.on_partitions_revoked),
        cast("AsyncRebalanceCallback", listener.on_partitions_lost) if lost else None,
    )


class _Messages(Generic[K_co, V_co]):
    """The iterator of ``async for message in consumer``."""

    def __init__(self, consumer: AsyncConsumer[K_co, V_co], core: ConsumerCore[K_co, V_co]) -> None:
        self._consumer = consumer
        self._core = core

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[K_co, V_co]:
        try:
            message = await self._consumer.poll()
        except IllegalStateError:
            if not self._core.group.closed:
                raise
            message = None
        if message is None:
            raise StopAsyncIteration
        return message


class _Batches(Generic[K_co, V_co]):
    """The iterator of ``async for batch in consumer.batches()``.

    Args:
        read: awaits the next batch.
    """

    def __init__(
        self, core: ConsumerCore[K_co, V_co], read: Callable[[], Awaitable[list[Message[K_co, V_co]]]]
    ) -> None:
        self._core = core
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Message[K_co, V_co]]:
        try:
            batch = await self._read()
            if batch or not self._core.group.handed_over:
                return batch
        except IllegalStateError:
            if not self._core.group.closed:
                raise
        raise StopAsyncIteration
