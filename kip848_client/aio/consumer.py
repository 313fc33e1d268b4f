"""`AsyncConsumer`: the consumer for tasks of an event loop. The synchronous one does the work, in a thread of its own.

Owns what only an event loop has: awaiting, cancellation, iteration. Signatures and meanings are those of `Consumer`;
membership, commits, fetching and their rules are the same objects, so that the two cannot differ.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Self, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from kip848_client.aio.calls import AsyncCalls
from kip848_client.aio.listener import AnyListener, AsyncRebalanceCallback, BridgedListener, methods_of
from kip848_client.aio.owner_thread import OwnerThread
from kip848_client.client.app_thread import SLICE_S
from kip848_client.client.data_plane import Message, PublicTopicPartition
from kip848_client.clock import Clock
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.consumer import ABANDON_TIMEOUT_S, BATCH_RECORDS, Consumer
from kip848_client.errors import ConfigError, IllegalStateError, RequestTimeoutError
from kip848_client.journal import Journal
from kip848_client.logs import LogEvent, log_event
from kip848_client.member.events import LeaveMode
from kip848_client.member.states import MemberState
from kip848_client.model import SubscriptionPattern, TopicPartition

__all__ = ["AsyncConsumer"]

YIELD_S: Final = 0.001
"""After so long without a turn for other tasks a call gives them one, even if a record is at hand."""

CLOSE_GRACE_S: Final = 1.0
"""How long a cancelled close() waits; closing goes on behind it."""


class AsyncConsumer(AsyncCalls):
    """A member of a consumer group (KIP-848) that reads the records of its partitions, for asyncio and trio.

    Every method of `Consumer` is here, under the same name and with the same arguments, and is awaited; every property
    is a property. One task at a time may read (poll, consume, iterate); other calls may be made from several tasks, and
    wait for each other. Listeners and commit callbacks run in the event loop, in the task that awaits.

    **Cancellation.** A cancelled call loses no record: what it would have returned is returned by the next one. A
    listener that is cancelled is called again, by the next poll() or by close(). A cancelled task leaves the group in
    order on its way out of ``async with``: what was handed out is committed (if enable.auto.commit is on), listeners
    run, the leave is written. close() that is cancelled waits one second more at most, and goes on in the background.

    **Back-pressure.** Nothing is read for an application that does not ask: at most one prefetch of 256 records waits
    here, and librdkafka stops fetching at ``queued.max.messages.kbytes``. A task that does not come back for
    max.poll.interval.ms is taken for stuck, as a thread is.

    Args:
        config: as for `Consumer`. ``on_commit`` is called in the event loop, and awaited if it can be; ``error_cb``,
            ``stats_cb`` and ``throttle_cb`` are called on the consumer's thread.
        journal: where the client writes its event log.
        settings: more of *config*, as keyword arguments.

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
        self._consumer: Consumer = Consumer(config, journal=journal, clock=clock)
        self._group = self._consumer._group
        self._thread.name = f"kip848-async-{self._consumer._config.client_id}"
        self._thread.nudge = self._group.thread.wake
        self._group.thread.before_wait = self._thread.check
        self._manager: Final = self._group.thread.manager
        self._ready: Final = self._consumer._ready
        self._yielded_s = 0.0
        self._reading = False
        self._finalizer = weakref.finalize(self, self._thread.end)

    # --------------------------------------------------------------------------------------------------------- group

    async def subscribe(
        self,
        topics: Iterable[str | SubscriptionPattern] | SubscriptionPattern,
        listener: AnyListener | None = None,
        *,
        on_assign: AsyncRebalanceCallback | None = None,
        on_revoke: AsyncRebalanceCallback | None = None,
        on_lost: AsyncRebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; see `Consumer.subscribe`.

        Args:
            topics: names, `SubscriptionPattern` objects, or names that start with ``^``.
            listener: told about partitions that come and go; its methods may be ``async`` or not.
            on_assign, on_revoke, on_lost: the same as callables ``(consumer, partitions)``, ``async`` or not.
        """
        given = [callback for callback in (on_assign, on_revoke, on_lost) if callback is not None]
        if not all(callable(callback) for callback in given):
            raise ConfigError("on_assign, on_revoke and on_lost must be callables (consumer, partitions)")
        if listener is not None:
            if given:
                raise ConfigError("give subscribe() a listener or on_assign/on_revoke/on_lost, not both")
            on_assign, on_revoke, on_lost = methods_of(listener)
        bridged = None
        if listener is not None or given:
            bridged = BridgedListener(
                cast("Callable[[], AsyncConsumer]", weakref.ref(self)),  # while it is called, somebody awaits a method
                self._thread.call_out,
                on_assign=on_assign,
                on_revoke=on_revoke,
                on_lost=on_lost,
            )
        await self._thread.run(partial(self._consumer.subscribe, topics, bridged))

    async def request_reassignment(self, reason: int) -> None:
        """Ask the group for a new assignment, by its client-side assignor; see `Consumer.request_reassignment`."""
        await self._thread.run(partial(self._consumer.request_reassignment, reason))

    async def unsubscribe(self) -> None:
        """Leave the group, after on_partitions_revoked for all partitions; see `Consumer.unsubscribe`."""
        await self._thread.run(self._consumer.unsubscribe)

    async def assign(self, partitions: list[PublicTopicPartition]) -> None:
        """Read exactly these partitions, without membership; see `Consumer.assign`."""
        await self._thread.run(partial(self._consumer.assign, partitions))

    async def unassign(self) -> None:
        """End a manual assignment; see `Consumer.unassign`."""
        await self._thread.run(self._consumer.unassign)

    async def incremental_assign(self, partitions: list[PublicTopicPartition]) -> None:
        """Add to a manual assignment; see `Consumer.incremental_assign`."""
        await self._thread.run(partial(self._consumer.incremental_assign, partitions))

    async def incremental_unassign(self, partitions: list[PublicTopicPartition]) -> None:
        """Take from a manual assignment; see `Consumer.incremental_unassign`."""
        await self._thread.run(partial(self._consumer.incremental_unassign, partitions))

    async def assignment(self) -> list[PublicTopicPartition]:
        """The partitions that this consumer has now, sorted."""
        return await self._thread.run(self._consumer.assignment)

    # ------------------------------------------------------------------------------------------------------- records

    async def poll(self, timeout: float | None = -1.0) -> Message | None:
        """Take part in rebalances, and return the next record; see `Consumer.poll`.

        Args:
            timeout: seconds; negative or None waits for ever.

        Raises:
            IllegalStateError: also if another task is reading.
        """
        while self._ready and self._nothing_moved():
            now_s = time.monotonic()
            if now_s - self._yielded_s < YIELD_S:
                return self._ready.popleft()
            await anyio.lowlevel.checkpoint()
            self._yielded_s = time.monotonic()
        batch = await self._read(self._poll_once, timeout)
        return batch[0] if batch else None

    async def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Take part in rebalances, and return the next records, those that are at hand; see `Consumer.consume`.

        Args:
            num_messages: at most so many; 0 to 1,000,000.
            timeout: seconds to wait for the first one; negative or None waits for ever.
        """
        if num_messages == 0:
            timeout = 0.0
        return await self._read(partial(self._consumer.consume, num_messages), timeout)

    def batches(self, num_messages: int = BATCH_RECORDS, timeout: float | None = -1.0) -> AsyncIterator[list[Message]]:
        """``async for batch in consumer.batches()``: what consume() returns, again and again; ends with the consumer.

        Args:
            num_messages: at most so many in a batch.
            timeout: seconds after which an empty batch comes if no record did; negative or None: no empty ones.
        """
        return _Batches(self, num_messages, timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Yield records for ever; ends when the consumer is closed, or has handed over."""
        return _Messages(self)

    def _nothing_moved(self) -> bool:
        return (
            self._consumer._mark is self._manager.mark
            and not self._reading
            and self._thread.idle
            and self._consumer._gate.owner is None
            and self._consumer._values is None
        )

    def _poll_once(self, timeout_s: float) -> list[Message]:
        message = self._consumer.poll(timeout_s)
        return [] if message is None else [message]

    async def _read(self, read: Callable[[float], list[Message]], timeout: float | None) -> list[Message]:
        self._thread.home.check()
        if self._reading and not self._thread.inside:
            raise IllegalStateError("another task reads from this consumer; one at a time may poll, consume or iterate")
        deadline_s = math.inf if timeout is None or timeout < 0 else time.monotonic() + timeout
        reading, self._reading = self._reading, True
        try:
            while True:
                batch, readable = await self._thread.run(
                    partial(self._read_until, read, deadline_s), undo=lambda taken: self._put_back(taken[0])
                )
                self._yielded_s = time.monotonic()
                if batch and readable is not self._group.view.readable and readable != self._group.view.readable:
                    # Partitions went while the records were on their way from one thread to the other.
                    await self._thread.run(partial(self._put_back, batch), interruptible=False)
                elif batch or deadline_s <= self._yielded_s or self._group.handed_over:
                    return batch
        finally:
            self._reading = reading

    def _read_until(
        self, read: Callable[[float], list[Message]], deadline_s: float
    ) -> tuple[list[Message], frozenset[TopicPartition]]:
        """Read until there are records, or time is up, or somebody else wants the thread (on the thread).

        Returns:
            Records, and what could be read when they left.
        """
        while True:
            if deadline_s == math.inf and not self._group.wants_records:
                read(-1.0)  # raises: it would wait for ever
            left_s = deadline_s - time.monotonic()
            batch = read(max(0.0, min(SLICE_S, left_s)))
            if batch or left_s <= SLICE_S or self._thread.wanted or self._group.handed_over:
                return batch, self._group.view.readable
            self._thread.check()

    def _put_back(self, batch: list[Message]) -> None:
        """These come first with the next read; until then they are not handed out (on the thread)."""
        if self._consumer._values is not None:
            self._consumer._values.take_back(batch, self._consumer._ready)
        self._consumer._fetcher.take_back(batch)
        self._consumer._mark = None

    # --------------------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> MemberState:
        """What the member is doing: UNJOINED, STABLE, RECONCILING, RELEASING_ASSIGNMENT or FATAL."""
        return self._consumer.state

    @property
    def member_id(self) -> str:
        """The id of this member; made by the client, the same as long as the consumer lives."""
        return self._consumer.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; -1 outside the group."""
        return self._consumer.member_epoch

    async def memberid(self) -> str:
        """`member_id`, as confluent_kafka spells it."""
        return self.member_id

    async def group_metadata(self) -> bytes:
        """What ``producer.send_offsets_to_transaction(offsets, ...)`` needs; see `Consumer.group_metadata`."""
        return await self._thread.run(self._consumer.group_metadata)

    consumer_group_metadata = group_metadata

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in as this user from the next connection on; see `Consumer.set_sasl_credentials`."""
        await self._thread.run(partial(self._consumer.set_sasl_credentials, username, password))

    # --------------------------------------------------------------------------------------------------------- close

    def hand_over(self, timeout_s: float = 10.0) -> None:
        """Leave without a gap; see `Consumer.hand_over`. Not awaited, so that a signal handler of the loop can call it.

        Example::

            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.hand_over)
            async for message in consumer:
                await handle(message)
        """
        self._consumer.hand_over(timeout_s)

    @property
    def handed_over(self) -> bool:
        """Whether `hand_over` was called and is complete: this consumer has nothing, and gets nothing."""
        return self._group.handed_over

    async def close(self, timeout_s: float = 30.0, mode: LeaveMode = LeaveMode.DEFAULT) -> None:
        """Commit what was handed out (if enable.auto.commit is on), run on_partitions_revoked, leave the group, close.

        Ends another task's poll() or iteration. Called by a task that is cancelled already it does all of it, within
        its time; see `Consumer.close`. A listener that has not returned by then is cancelled.

        Args:
            timeout_s: seconds, >= 0.
            mode: whether to leave the group; matters for static members most of all.

        Raises:
            ListenerError: the listener raised; everything was closed all the same.
            RequestTimeoutError: another task's call, or its listener, did not end in time; the group was left.
            Kip848Error: an asynchronous commit failed, or the member was FATAL and nobody was told.
        """
        if timeout_s < 0:
            raise ValueError(f"timeout_s is {timeout_s}; it cannot be negative")
        if self._end_if_closed():
            return
        self._thread.home.check()
        deadline_s = time.monotonic() + timeout_s
        patience_end_s = anyio.current_time() + max(timeout_s, CLOSE_GRACE_S)  # also with no time a listener gets some
        # For a task that is cancelled already this is the clean-up; one that is cancelled from now on wants to be gone.
        with anyio.CancelScope(shield=anyio.current_effective_deadline() == -math.inf):
            try:
                await self._thread.run(
                    lambda: self._consumer.close(max(0.0, deadline_s - time.monotonic()), mode),
                    interruptible=False,
                    start_by_s=patience_end_s,
                    grace_s=CLOSE_GRACE_S,
                    callouts_end_s=patience_end_s,
                )
            except RequestTimeoutError:
                if not self._end_if_closed():
                    await anyio.to_thread.run_sync(partial(self._manager.detach, timeout_s=ABANDON_TIMEOUT_S))
                raise
            finally:
                self._end_if_closed()

    def _end_if_closed(self) -> bool:
        if self._group.closed:
            self._finalizer()
        return self._group.closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as error:
            if exc is None:
                raise
            # The block's own exception matters more than what went wrong while closing after it.
            log_event(logging.WARNING, LogEvent.ERROR_DROPPED, error=repr(error))

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<Consumer", "<AsyncConsumer", 1)


class _Messages:
    """What ``async for message in consumer`` goes through."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self._consumer.poll()
        except IllegalStateError:
            if not self._consumer._group.closed:
                raise
            message = None
        if message is None:
            raise StopAsyncIteration
        return message


class _Batches:
    """What ``async for batch in consumer.batches()`` goes through."""

    def __init__(self, consumer: AsyncConsumer, num_messages: int, timeout: float | None) -> None:
        self._consumer = consumer
        self._num_messages = num_messages
        self._timeout = timeout

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Message]:
        try:
            batch = await self._consumer.consume(self._num_messages, self._timeout)
            if batch or not self._consumer.handed_over:
                return batch
        except IllegalStateError:
            if not self._consumer._group.closed:
                raise
        raise StopAsyncIteration
