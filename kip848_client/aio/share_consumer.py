"""`AsyncShareConsumer`: `ShareConsumer` for asyncio and trio.

No thread stands between the event loop and the member: calls use the same core as `ShareConsumer`, and wait for what
its thread tells.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import anyio

from kip848_client.aio.owner_thread import PresentLoop, teller
from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.callables import check_not_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.consumer.group.translation import record_count
from kip848_client.consumer.records.data_plane import TopicPartition
from kip848_client.consumer.records.message import K_co, V_co
from kip848_client.errors import IllegalStateError, Kip848Error
from kip848_client.member.core.states import MemberState
from kip848_client.share.core import CLOSE_TIMEOUT_S, AcknowledgementCallback, ShareCore
from kip848_client.share.health import ShareHealth
from kip848_client.share.message import ShareMessage
from kip848_client.share.settings import GRACE_S, MAX_DELIVERIES, QueueSettings, QueueStatus

if TYPE_CHECKING:
    from tenacity import BaseRetrying

    from kip848_client.aio.share_processing import TaskQueueProcessor
    from kip848_client.consumer.processing.dead_letters import DeadLetters


class AsyncShareConsumer(Generic[K_co, V_co]):
    """A member of a share group (KIP-932), for asyncio and trio. The calls are those of `ShareConsumer`.

    Args:
        config: Kafka's property names; docs/share-groups.md has them. Keyword arguments are added to it.
        clock: tells the time of locks and deadlines.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.

    Example::

        async with AsyncShareConsumer({"bootstrap.servers": "...", "group.id": "mails"}) as queue:
            await queue.subscribe(["mails"])
            await queue.process(send, concurrency=100)
    """

    def __init__(
        self, config: Mapping[str, ConfigValue] | None = None, *, clock: Clock | None = None, **settings: ConfigValue
    ) -> None:
        self._core: Final = ShareCore(merge_settings(config, settings), clock=clock)
        self._changed = anyio.Event()
        self._loop: Final = PresentLoop()
        self._waiting = 0
        """How many tasks wait for a change."""
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._told: object = None
        """The `_soon` that was called and has not run `_wake` yet."""
        self._processor: TaskQueueProcessor | None = None
        self._core.watchers.append(self._tell_loop)

    def _tell_loop(self) -> None:
        """Wake what waits in the event loop. On any thread."""
        soon = self._soon
        if soon is None or self._told is soon:
            return
        self._told = soon  # not just True: another loop may have come meanwhile, and would not be told of anything
        try:
            soon(self._wake)
        except RuntimeError:  # the loop has ended
            return

    def _wake(self) -> None:
        self._told = None
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _enter(self) -> None:
        if self._loop.enter(awaited=self._waiting > 0):
            self._soon, self._told, self._changed = teller(), None, anyio.Event()

    async def _wait(self, limit_s: float | None) -> bool:
        """Wait for a change; whether one came."""
        event = self._changed
        self._waiting += 1
        try:
            with anyio.move_on_after(math.inf if limit_s is None else limit_s) as scope:
                await event.wait()
        finally:
            self._waiting -= 1
        return not scope.cancelled_caught

    # --- group

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, in place of earlier ones. The member joins the group in the background.

        Raises:
            ConfigError: a name is blank, or a pattern: share groups have none.
            IllegalStateError: the consumer is closed.
        """
        self._enter()
        self._core.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group; records that were returned can still be acknowledged while their locks hold."""
        self._core.unsubscribe()

    def subscription(self) -> list[str]:
        """The topics, sorted."""
        return list(self._core.topics)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads now, sorted; other members may read them as well."""
        return self._core.assignment()

    # --- records

    async def poll(self, timeout: float | None = -1.0) -> list[ShareMessage[K_co, V_co]]:
        """Return the records that are there, at most ``max.poll.records``; wait for the first one.

        As `ShareConsumer.poll`. If it is cancelled, no record is lost.

        Args:
            timeout: seconds; negative or None waits for ever.

        Raises:
            IllegalStateError: the consumer is closed, or nothing is subscribed; or with explicit acknowledgement a
                record of this task's poll() before was not acknowledged.
            Kip848Error: a broker refused a request; every later call raises a ``fatal`` one again.
        """
        return await self.consume(self._core.config.max_poll_records, timeout)

    async def consume(
        self,
        num_messages: int = 1,
        timeout: float | None = -1.0,
    ) -> list[ShareMessage[K_co, V_co]]:
        """As `poll`, with at most *num_messages* records.

        Raises:
            Kip848Error: what `poll` raises.
        """
        self._enter()
        count, caller = max(1, record_count(num_messages)), anyio.get_current_task().id
        until_s = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        self._core.check_open()  # before the try: after a fork wake() might wait for a lock for ever
        unsent: bool | None = None  # Ctrl-C may come when begin_poll() has accepted and not returned yet
        try:
            unsent = self._core.begin_poll(caller)
            while True:
                self._core.tell_outcomes()
                found = self._core.take(count, caller)
                if found:
                    return found
                if self._core.host.closing:
                    raise IllegalStateError("the share consumer was closed while this waited for records")
                self._core.want(count, caller, wake=unsent)
                unsent = False
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if not await self._wait(left_s) and not self._core.has_news:
                    return []
        finally:
            if unsent is None:
                self._core.host.wake()
            else:
                self._core.want(0, caller, wake=unsent)

    async def __aiter__(self) -> AsyncIterator[ShareMessage[K_co, V_co]]:
        """Yield records for ever, each accepted (implicitly) once the next one is asked for; ends after close()."""
        while True:
            try:
                found = await self.consume(1)
            except IllegalStateError:
                if self._core.closed:
                    return
                raise
            for message in found:
                yield message

    # --- acknowledging

    async def acknowledge(
        self,
        message: ShareMessage[Any, Any],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,  # noqa: A002  confluent_kafka's and Java's name
    ) -> None:
        """Say what became of a record, as `ShareConsumer.acknowledge`.

        Raises:
            IllegalStateError: the lock has ended, or it was acknowledged already.
        """
        self._core.acknowledge(message, type)

    async def commit(self, timeout_s: float | None = None) -> dict[TopicPartition, Kip848Error | None]:
        """Wait until the leaders have answered to everything that was said, as `ShareConsumer.commit`.

        Args:
            timeout_s: seconds; 60 if None, negative waits for ever.

        Raises:
            RequestTimeoutError: the time was over before all was answered.
        """
        self._enter()
        commit_id = self._core.begin_commit(timeout_s)
        try:
            while (results := self._core.end_commit(commit_id)) is None:
                await self._wait(1.0)
        finally:
            self._core.abandon_commit(commit_id)
        self._core.tell_outcomes()
        return results

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have *callback*, a plain function, told of outcomes inside poll(), process(), commit() and close().

        Raises:
            ConfigError: it is async, or does not take two arguments.
        """
        check_not_async(callback, name="callback", instead="a plain function")
        check_takes(callback, "offsets", "error", name="callback")
        self._core.set_callback(callback)

    # --- process()

    async def process(
        self,
        handler: Callable[[ShareMessage[K_co, V_co]], Awaitable[object]],
        *,
        concurrency: int = 10,
        retry: BaseRetrying | None = None,
        reject: tuple[type[BaseException], ...] = (),
        timeout_s: float | None = None,
        dead_letter: DeadLetters | None = None,
        max_deliveries: int = MAX_DELIVERIES,
        grace_s: float = GRACE_S,
    ) -> None:
        """Call *handler* with each record, many at once, until the consumer is closed or hands over.

        As `ShareConsumer.process`, with tasks: a handler that is too late, or whose lock was lost, is cancelled. If
        process() itself is cancelled, the records in hand are released.

        Args:
            handler: a coroutine function.
            concurrency: handlers that run at once.
            retry: a ``tenacity.Retrying`` object: what is tried again within this delivery; None: nothing.
            reject: exceptions after which a record is rejected, as after `Reject`.
            timeout_s: how long one call may take.
            dead_letter: where a record goes that is rejected, or whose last delivery failed; a `DeadLetters`.
            max_deliveries: which delivery is the last one; the group's ``share.delivery.count.limit``.
            grace_s: how long the end waits for handlers; then they are cancelled, and their records released.

        Raises:
            FatalGroupError: the group refused this member.
            ConfigError: an argument is wrong.
            IllegalStateError: nothing is subscribed, or process() runs already.
        """
        from kip848_client.aio.share_processing import TaskQueueProcessor

        self._enter()
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
        self._processor = TaskQueueProcessor(
            self._core, self._wait, handler, settings, wake=self._wake, wake_soon=self._tell_loop
        )
        try:
            await self._processor.run()
        finally:
            self._processor = None
            self._wake()

    def processing_status(self) -> QueueStatus | None:
        """What ``process()`` has in hand; None while it does not run."""
        processor = self._processor
        return None if processor is None else processor.status()

    def hand_over(self) -> None:
        """End ``process()``: give back at once what has not begun, and let handlers end. From any thread or signal.

        Returns at once; close() follows. Before process() it ends that at once.
        """
        self._core.hands_over = True
        self._tell_loop()

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

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Say what is to be said, give back everything else at once, and leave the group.

        While process() runs, it ends first, as after `hand_over`. If close() is cancelled, the rest goes on in the
        background.
        """
        await self._close(timeout_s, accept=not self._core.config.explicit)

    async def _close(self, timeout_s: float, *, accept: bool) -> None:
        limit_s = 1e9 if timeout_s < 0 or timeout_s == math.inf else timeout_s
        self._enter()
        self.hand_over()
        with anyio.move_on_after(limit_s):
            while self._processor is not None:
                await self._wait(1.0)
        if self._core.begin_close(limit_s, accept=accept and self._core.processor is None):
            self._wake()
            with anyio.move_on_after(limit_s + 6.0):
                while not self._core.host.ended.is_set():
                    await self._wait(0.5)
        self._wake()
        self._core.tell_outcomes()

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._close(CLOSE_TIMEOUT_S, accept=exc is None and not self._core.config.explicit)

    def __repr__(self) -> str:
        return self._core.describe("AsyncShareConsumer")
