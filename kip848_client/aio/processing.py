"""``AsyncConsumer.process``: handlers run as tasks of asyncio or trio."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelledError
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel

from kip848_client.aio.owner_thread import OwnerThread, teller
from kip848_client.common.callables import WrongHandlerError, check_finished
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.processing.access import ConsumerAccess
from kip848_client.consumer.processing.driver import CANCELLED_GRACE_S, DRAIN_SLICE_S, LAST_TRANSACTIONS, Driver, now_ms
from kip848_client.consumer.records.data_plane import Message
from kip848_client.errors import DeserializationError, Kip848Error, MaxPollExceededError, ProcessingError
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.outbox import Slice
from kip848_client.member.processing.settings import ProcessSettings
from kip848_client.member.processing.work import HANDLING, Work

if TYPE_CHECKING:
    from contextvars import Context

    from anyio.abc import TaskGroup

    from kip848_client.consumer.core import ConsumerCore

ResultT = TypeVar("ResultT")

_AWAIT_IT: Final = "await it in the handler"

_SLICE_S: Final = 1.0
_PAUSED_SLICE_S: Final = 0.01
YIELD_S: Final = 0.001
"""A task that has handled records for so long lets others run."""
_FULL_SLICE_S: Final = 0.1
"""How often a consumer whose buffer is full takes part in rebalances."""
_TOLD_EVERY_S: Final = 5.0
"""How often the log says that process() waits for handlers that were cancelled."""


class TaskProcessor(Driver):
    """One ``process()`` of an `AsyncConsumer`. All of it runs in the event loop, but calls of the consumer.

    Args:
        consumer: the synchronous one.
        thread: runs its calls.
        read: awaits one of its reading calls, for at most some seconds.
    """

    def __init__(
        self,
        core: ConsumerCore[Any, Any],
        thread: OwnerThread,
        read: Callable[[Callable[[float], list[Any]], float], Awaitable[list[Any]]],
        handler: Callable[..., Awaitable[object]],
        settings: ProcessSettings,
    ) -> None:
        self._thread: Final = thread
        self._read_with: Final = read
        self._access: Final = ConsumerAccess(core)
        super().__init__(settings, group_id=self._access.group_id, client_id=self._access.client_id, cancellable=True)
        self._handler: Final = handler
        self._context: Final = copy_context()
        """Of the caller; each call of the handler has a copy, so that records see nothing of each other."""
        self._running: Final[dict[int, tuple[Work, anyio.CancelScope, Coroutine[Any, Any, None]]]] = {}
        self._reading: Final = anyio.CancelScope()
        self._moved = anyio.Event()
        """Set when a handler has ended, if `_awaits_end`."""
        self._room = anyio.Event()
        """Set when there is room again, if `_awaits_room`."""
        self._due = anyio.Event()
        """Set when something is due before `_armed_ms`."""
        self._awaits_end = self._awaits_room = False
        self._armed_ms: float = math.inf
        self._slice_due = anyio.Event()
        """Set when a transaction is due before `_slice_armed_ms`."""
        self._slice_armed_ms: float = 0.0
        self._todo: Final[deque[Work]] = deque()
        """Started works that the task of the last one takes."""
        self._parked: Final[list[asyncio.Future[Work | None]]] = []
        """On asyncio: tasks that wait for the next work, as a new one costs ten times as much as a future."""
        self._inside = False
        """A task is between two works."""
        self._outside = False
        """No task runs, but a function that a thread has handed in: it cannot start tasks."""
        self._unstarted: Final[deque[Work]] = deque()
        """Works that were begun there, and for which no task was parked."""
        self._yielded_s = 0.0
        self._commit_due_s = 0.0
        self._reach_due_s = 0.0
        self._commit_open = False
        self._revocations = 0
        self._hurry = anyio.Event()
        """Set when a commit is due before its interval is over."""
        self._draining = False
        """A revocation waits for handlers, and does meanwhile what else the other tasks do."""
        self._in_loop: Callable[[Callable[[], object]], object] = _call
        self._tasks: TaskGroup

    async def run(self) -> None:
        """Process until the consumer is closed or has handed over, a handler failed, or the task is cancelled."""
        call_out = self._thread.call_out
        taken = self._access.taken(
            self,
            on_assigned=lambda names: call_out(partial(self._on_assigned, names)),
            on_revoked=lambda names: call_out(partial(self._on_revoked, names)),
            on_lost=lambda names: call_out(partial(self._on_lost, names)),
        )
        soon = teller()
        self._in_loop = lambda function: soon(partial(self._outside_tasks, function))
        if (later := self.settings.retry_later) is not None:
            await self._on_thread(partial(self._access.check_topics, later))
        if self.writer is not None:
            await self._on_thread_whole(self.writer.calls.initialise)
        self._commit_due_s = anyio.current_time() + self._access.commit_interval_s
        with taken:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._guarded, self._keep_time)
                self._tasks.start_soon(self._guarded, self._keep_consumer)
                if self.writer is not None:
                    self._tasks.start_soon(self._guarded, self._keep_slices)
                try:
                    with self._reading:
                        await self._guarded(self._begin_and_read)
                finally:
                    try:
                        with anyio.CancelScope(shield=True):
                            await self._finish()
                    finally:
                        self.close_senders()
                    for parked in self._parked:
                        if not parked.done():
                            parked.set_result(None)
                    self._tasks.cancel_scope.cancel()
        if self.outcome is not None:
            raise self.outcome

    async def _guarded(self, part: Callable[[], Awaitable[None]]) -> None:
        """Let an error of *part* end all of it, as itself: a task group would wrap it."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001  raised by `run`
            if not self._access.closed:
                self.stop(error)

    # --- reading

    async def _begin_and_read(self) -> None:
        await self._on_assigned(await self._on_thread(self._access.assigned))
        await self._read()

    async def _read(self) -> None:
        consume = self._read_with
        while not self.core.stopping and not self._access.over():
            if unknown := self.core.without_position:
                positions = await self._on_thread(partial(self._access.positions, unknown))
                for name, offset in self.up_to_here(positions).items():
                    self.core.begins_at(name, offset)
            if self.writer is None and anyio.current_time() >= self._reach_due_s:
                self._reach_due_s = anyio.current_time() + self._access.commit_interval_s
                await self._reach()
            count = self._wanted() or await self._wanted_soon()
            try:
                read = partial(self._access.consume, count, bytes_max=self.core.room_bytes)
                batch = await consume(read, _SLICE_S if count else 0.0)
            except MaxPollExceededError as error:
                self.late(error)
                continue
            except DeserializationError as error:
                await self._on_thread(partial(self._access.skip, error.kafka_message))
                self.feed_unreadable(error.kafka_message, error)
                self._tell()
                continue
            if batch:
                self.feed(batch)
                self._tell()  # a time-out or a batch may be due before anything else is
                await self._pause()
            elif not count:
                await self._pause()
            elif self.ends_here and await self._on_thread(self._access.caught_up):
                self.stop(None)

    async def _wanted_soon(self) -> int:
        """The buffer is full: how many records to read once there is room. Each call of the consumer costs more.

        If there is none for a while the consumer is asked for none, to take part in rebalances.
        """
        with anyio.move_on_after(_FULL_SLICE_S):
            self._awaits_room, self._room = True, anyio.Event()
            await self._room.wait()
        self._awaits_room = False
        return self._wanted()

    async def _reach(self) -> None:
        """Look at positions for the next commit; between two reads, so that all that was read is in the core."""
        positions = await self._on_thread(partial(self._access.positions, self.core.at_rest))
        self.core.reached(self.up_to_here(positions))

    async def _on_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await self._thread.run(work)

    async def _pause(self) -> None:
        held, released = self.take_turns()
        pause, resume = self.core.pauses()
        resume = {name for name in resume if name not in self.user_paused and not self.stays_paused(name)}
        if held:
            self._hurry.set()  # the next one may be due sooner
            await self._on_thread(partial(self._access.hold, held))
        if released:
            stopped = {name for name in released if name in self.user_paused or self.stays_paused(name)}
            await self._on_thread(partial(self._access.release, released, but=stopped))
        if pause:
            await self._on_thread(partial(self._access.pause, pause))
        if resume:
            await self._on_thread(partial(self._access.resume, resume))

    async def _keep_consumer(self) -> None:
        """Resume and commit as handlers end, also while a read waits."""
        while True:
            if self.pauses_move and not self._draining:
                await self._pause()
            if not self._draining:
                await self._commit_if_due()
            # Handlers that end make room in a paused partition; it is looked at now and then.
            longest_s = _PAUSED_SLICE_S if self.core.paused else _SLICE_S
            longest_s = min(longest_s, max(0.01, self._commit_due_s - anyio.current_time()))
            release_s = self.release_wait_s(longest_s)
            with anyio.move_on_after(max(release_s, DRAIN_SLICE_S) if self._draining else release_s):
                await self._hurry.wait()
            self._hurry = anyio.Event()

    async def _keep_time(self) -> None:
        """Do what is due: retries, time-outs, batches, limits."""
        while True:
            self.tick()
            while self._unstarted:
                self._start(self._unstarted.popleft())
            self._due = anyio.Event()
            wait_s = self.wait_s(_SLICE_S)
            self._armed_ms = now_ms() + wait_s * 1000
            with anyio.move_on_after(wait_s):
                await self._due.wait()
            self._armed_ms = 0.0

    # --- transactions

    async def _keep_slices(self) -> None:
        """Write what is done, when it is due."""
        while True:
            self._slice_due = anyio.Event()
            wait_s = self.slice_wait_s(math.inf)
            if wait_s > 0:
                self._slice_armed_ms = now_ms() + wait_s * 1000
                with anyio.move_on_after(wait_s):
                    await self._slice_due.wait()
                self._slice_armed_ms = 0.0
            else:
                await self._on_thread_whole(self._transact)

    def _transact(self) -> None:
        """Write what is done, with its offsets. On the consumer's thread, so that no rebalance comes in between."""
        call_out, taken = self._thread.call_out, []
        call_out(lambda: taken.append(self.begin_slice()))
        slice_ = taken[0]
        if slice_ is not None:
            error = self.write(slice_, partial(self._access.group_metadata, slice_.offsets), ending=self._access.ending)
            try:
                call_out(lambda: self.slice_ended(slice_, error))
            except BaseException:  # brokers were away for longer than the cancelled task could wait
                self.write_no_more()
                raise

    def begin_slice(self) -> Slice | None:
        """See `Driver`."""
        slice_ = super().begin_slice()
        self._tell()  # a limit may be what holds up now
        return slice_

    def slice_ended(self, slice_: Slice, error: Exception | None) -> None:
        """See `Driver`."""
        super().slice_ended(slice_, error)
        self._tell()

    async def _transact_all(self) -> None:
        """The last transactions before partitions are given away."""
        assert self.core.outbox is not None
        for _ in range(LAST_TRANSACTIONS):
            await self._on_thread_whole(self._transact)
            if self.core.outbox.empty:
                return

    async def _on_thread_whole(self, work: Callable[[], None]) -> None:
        """Run a transaction call, to its end also if the task is cancelled; unless brokers are away for long."""
        assert self.writer is not None
        try:
            await self._thread.run(work, interruptible=False, grace_s=self.settings.grace_s)
        except BaseException:
            self.writer.calls.give_up_s = time.monotonic()
            raise

    # --- commits

    def commit_ended(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Exception | None) -> bool:
        """See `Driver`."""
        again = super().commit_ended(offsets, error)
        self._tell()  # calls may have begun
        return again

    async def _commit(self, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        if not offsets:
            return
        try:
            await self._on_thread(partial(self._access.commit, offsets))
        except Kip848Error as error:
            if self._access.closed:
                return  # close() has committed what was done
            if self.commit_ended(offsets, error):
                await self._commit(self.core.to_commit(offsets))
        else:
            if self.commit_ended(offsets, None):
                await self._commit(self.core.to_commit(offsets))

    async def _commit_if_due(self) -> None:
        """Commit what is done of all partitions if the interval is over, and go on."""
        now_s = anyio.current_time()
        early = now_s < self._commit_due_s and not self.core.commit_urgent
        if early or self._commit_open or self.writer is not None:
            return
        self._commit_due_s = now_s + self._access.commit_interval_s
        if offsets := self.core.to_commit(asks=True):
            self._commit_open = True
            try:
                await self._on_thread(partial(self._commit_later, offsets, self._revocations))
            except BaseException:
                self._commit_open = False  # cancelled: the last commit comes soon
                raise

    def _commit_later(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], revocations: int) -> None:
        """Commit without waiting (on the consumer's thread). What a revocation has committed meanwhile is newer."""
        if revocations != self._revocations:
            return
        ended = partial(self._commit_ended_elsewhere, offsets)
        try:
            self._access.commit_later(offsets, ended)
        except Kip848Error as error:  # the member has stopped; the next read says why
            ended(error)

    def _commit_ended_elsewhere(
        self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Kip848Error | None
    ) -> None:
        def ended() -> None:
            self._commit_open = False
            if self.commit_ended(offsets, error):
                self._commit_due_s = 0.0
                self._hurry.set()

        self._in_loop(ended)

    # --- rebalances: in the event loop, while the consumer's thread waits

    async def _on_assigned(self, names: Sequence[NamedPartition]) -> None:
        if names:
            ask = partial(self._access.committed, names, insist=self.writer is not None)
            committed = await self._on_thread(ask)
            await self._on_thread(partial(self._access.begin_at_start, self.unread_retries(committed)))
            self.assigned(committed)

    async def _on_revoked(self, names: Sequence[NamedPartition]) -> None:
        self.core.revoke(names, now_ms())
        self.perform()
        drain_s = min(self.settings.drain_s, 0.8 * self._access.rebalance_timeout_s)
        self._commits_are_old()
        self._draining = True
        try:
            await self._await_idle(names, drain_s, revoking=True)
        finally:
            self._draining = False
        if self.core.busy(names):
            self.core.cancel(names)
            self.perform()
            await self._await_idle(names, CANCELLED_GRACE_S, told=True)
        if self.writer is not None:
            await self._transact_all()
        else:
            await self._reach()
            await self._commit(self.core.to_commit(names))
        self._commits_are_old()
        self.forget(names)

    async def _on_lost(self, names: Sequence[NamedPartition]) -> None:
        self._commits_are_old()
        self.lost(names)

    def _commits_are_old(self) -> None:
        """Drop a commit that waits for the thread: the next one is newer."""
        self._revocations += 1
        self._commit_open = False

    async def _await_idle(
        self, names: Sequence[NamedPartition], limit_s: float, *, revoking: bool = False, told: bool = False
    ) -> None:
        """Wait until no call of these partitions runs, at most *limit_s*. What is done is committed meanwhile.

        Args:
            revoking: let the other partitions go on.
            told: the handlers were told to end; else the end of a hand-over ends the wait, too.
        """
        slice_s = DRAIN_SLICE_S if revoking else _FULL_SLICE_S
        deadline_s = anyio.current_time() + limit_s
        batch: Sequence[Message] = ()
        while (
            self.core.busy(names)
            and (left_s := min(deadline_s - anyio.current_time(), math.inf if told else self._hand_over_left_s)) > 0
        ):
            if not batch:
                moved = self._next_end()
                self.tick()
                with anyio.move_on_after(min(left_s, self.wait_s(slice_s))):
                    await moved.wait()
            if revoking and self.pauses_move:
                await self._pause()
            count = self._wanted() if revoking else 0
            read = partial(self._access.consume_meanwhile, count, bytes_max=self.core.room_bytes)
            batch = await self._on_thread(read) if count else ()
            if batch:
                self.feed(batch)
                self._tell()
            if not self._access.closed:
                await self._commit_meanwhile(revoking=revoking)

    async def _commit_meanwhile(self, *, revoking: bool) -> None:
        if self.writer is not None:
            if revoking and self.slice_wait_s(1.0) <= 0:
                await self._on_thread_whole(self._transact)
            return
        if self._commit_open:
            await self._on_thread(self._access.serve_commits)
        await self._commit_if_due()

    @property
    def _hand_over_left_s(self) -> float:
        return self._access.leaves_by_s - time.monotonic()

    def _next_end(self) -> anyio.Event:
        """Set when a handler ends next. A close() and a cancelled process() may wait at the same time."""
        if not self._awaits_end:
            self._awaits_end, self._moved = True, anyio.Event()
        return self._moved

    async def _finish(self) -> None:
        """Nothing more starts: let what runs end, cancel the rest, commit, and set positions to what is not done."""
        self.core.stop()
        names = self.core.partitions
        try:
            await self._await_idle(names, self.settings.grace_s)
            self.core.cancel(names)
            self.perform()
            await self._await_idle(names, CANCELLED_GRACE_S, told=True)
        finally:  # the event loop may be ending: that cancels this wait, and loses nothing that is done
            if not self._access.closed:
                if self.writer is not None:
                    self.writer.calls.give_up_s = time.monotonic() + self.settings.grace_s
                    await self._transact_all()
                else:
                    await self._reach()
                    await self._commit(self.core.to_commit())
                await self._on_thread(partial(self._access.resume, self.left_paused))
                await self._on_thread(partial(self._access.go_back, self.core.low_marks()))
            self.core.forget(names, now_ms())
            self.perform()
        while self._running:  # they swallow their cancellation
            work, _, call = min(self._running.values(), key=lambda running: running[0].started_ms)
            self.log_handlers_that_do_not_end(len(self._running), work, at=_where(call))
            with anyio.move_on_after(_TOLD_EVERY_S):
                while self._running:
                    await self._next_end().wait()

    # --- for the driver

    def _call(self, work: Work) -> None:
        if self._inside:
            self._todo.append(work)
        else:
            self._start(work)

    def _start(self, work: Work) -> None:
        while self._parked:
            parked = self._parked.pop()
            if not parked.done():  # cancelled by the end of asyncio.run
                parked.set_result(work)
                return
        if self._outside:
            self._unstarted.append(work)
            self._due.set()
        else:
            self._tasks.start_soon(self._handle, work)

    def _outside_tasks(self, function: Callable[[], object]) -> None:
        """Call what a thread has handed in."""
        self._outside = True
        try:
            function()
        except BaseException as error:  # noqa: BLE001  else it ends the event loop, or only its log has it
            self.stop(error)
        finally:
            self._outside = False
        self._tell()

    async def _park(self) -> Work | None:
        """Wait for another work."""
        loop = asyncio._get_running_loop()
        if loop is None:
            return None
        parked: asyncio.Future[Work | None] = loop.create_future()
        self._parked.append(parked)
        return await parked

    async def _handle(self, work: Work) -> None:
        """Run one work after the other, as a task for each would cost more than many a handler."""
        error: BaseException | None = None
        # Shielded: a cancelled process() lets handlers end within grace_s.
        with anyio.CancelScope(shield=True) as scope:
            while True:
                call = self._call_handler(work)
                self._running[id(work)] = (work, scope, call)
                error = None
                if work.state != "running":  # it was cancelled before this task began with it
                    scope.cancel()
                try:
                    await _in_context(self._context.copy(), call)
                except asyncio.CancelledError as raised:
                    if scope.cancel_called:
                        raise
                    if _is_cancelled_from_outside():
                        self._cut_off(work, ProcessingError("other code cancelled the task of a handler"))
                        raise
                    error = FutureCancelledError("something that the handler has awaited was cancelled")
                    error.__cause__ = raised
                except GeneratorExit as raised:  # the event loop has ended
                    self._cut_off(work, raised)
                    raise
                except BaseException as raised:
                    if isinstance(raised, anyio.get_cancelled_exc_class()):
                        raise
                    error = raised
                if scope.cancel_called:
                    break
                del self._running[id(work)]
                following = self._next(work, error) or await self._park()
                if following is None:
                    return
                work = following
                if time.monotonic() - self._yielded_s >= YIELD_S:
                    await anyio.lowlevel.checkpoint()
                    self._yielded_s = time.monotonic()
        del self._running[id(work)]
        self.finished(work, error, cancelled=scope.cancelled_caught)
        self._tell()

    async def _call_handler(self, work: Work) -> None:
        HANDLING.set((self, work))
        given = work.items[0].record if self.settings.batch is None else work.records
        arguments = (given,) if work.outputs is None else (given, work.outputs)
        if self.telemetry.on:
            with self.telemetry.call(work):
                check_finished(await _awaitable(self._handler(*arguments)), instead=_AWAIT_IT)
        else:
            check_finished(await _awaitable(self._handler(*arguments)), instead=_AWAIT_IT)

    def _cut_off(self, work: Work, error: BaseException) -> None:
        del self._running[id(work)]
        self.end_without(work, error)
        self._tell()

    def _next(self, work: Work, error: BaseException | None) -> Work | None:
        """A handler has ended: what its task does next."""
        self._inside = True
        self.finished(work, error)
        self._inside = False
        self._tell()
        if not self._todo:
            return None
        following = self._todo.popleft()
        while self._todo:
            self._start(self._todo.popleft())
        return following

    def _cancel(self, work: Work) -> None:
        running = self._running.get(id(work))
        if running is not None:
            running[1].cancel()

    def _stopped(self) -> None:
        self._reading.cancel()

    def change(self, *, concurrency: int | None, limits: Limits | None) -> None:
        """See `Driver`. It holds once the event loop comes by."""
        self.changed(concurrency=concurrency, limits=limits)

        def apply() -> None:
            self.apply(self.changed(concurrency=concurrency, limits=limits))

        self._in_loop(apply)

    def _tell_from_thread(self, function: Callable[[], None]) -> None:
        self._in_loop(function)

    def _tell(self) -> None:
        """Wake who waits for what has happened."""
        if self._awaits_end:
            self._awaits_end = False
            self._moved.set()
        if self._awaits_room and self.core.may_read:
            self._room.set()
        if self.core.commit_urgent:
            self._hurry.set()
        due_ms = self.core.next_due_ms()
        if due_ms is not None and due_ms < self._armed_ms:
            self._due.set()
        if self.writer is not None:
            due_ms = self.core.slice_due_ms()
            if due_ms is not None and due_ms < self._slice_armed_ms:
                self._slice_due.set()


@coroutine
def _in_context(context: Context, call: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await *call* in a context that is not the task's, which has the same one for all its calls."""
    step: Callable[[], Any] = partial(call.send, None)
    while True:
        try:
            awaited = context.run(step)
        except StopIteration:
            return
        try:
            step = partial(call.send, (yield awaited))
        except GeneratorExit:
            context.run(call.close)
            raise
        except BaseException as error:  # noqa: BLE001  a cancellation, for the one that awaits
            step = partial(call.throw, error)


def _awaitable(result: Awaitable[object]) -> Awaitable[object]:
    """What the handler returned when it was called."""
    if not isinstance(result, Awaitable):  # a lambda, or a function in C, that is not asynchronous
        raise WrongHandlerError(
            f"the handler returned {type(result).__name__}, which cannot be awaited: give an async function, or use "
            "Consumer.process for a synchronous one"
        )
    return result


def _where(call: Coroutine[Any, Any, None]) -> str:
    """The coroutine that a call of the handler awaits, and where it stands."""
    handler = getattr(call, "cr_await", None)
    if not inspect.iscoroutine(handler) or handler.cr_frame is None:
        return repr(handler)
    return f"{handler.__qualname__} ({handler.cr_frame.f_code.co_filename}:{handler.cr_frame.f_lineno})"


def _call(function: Callable[[], object]) -> None:
    function()


def _is_cancelled_from_outside() -> bool:
    """Whether other code has cancelled this task of asyncio, as the end of ``asyncio.run`` does with all."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
