"""``Consumer.process``: handlers run in threads or processes, and the caller's thread reads, commits and rebalances."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextvars import copy_context
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kip848_client.common.callables import check_finished
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.processing.access import ConsumerAccess
from kip848_client.consumer.processing.driver import CANCELLED_GRACE_S, DRAIN_SLICE_S, LAST_TRANSACTIONS, Driver, now_ms
from kip848_client.consumer.processing.outputs import HandlerOutputs
from kip848_client.consumer.processing.pool import Pool, how_ended
from kip848_client.consumer.processing.record_copy import RecordCopy
from kip848_client.consumer.records.data_plane import Message
from kip848_client.errors import (
    ArgumentTypeError,
    ConfigError,
    DeserializationError,
    IllegalStateError,
    Kip848Error,
    MaxPollExceededError,
    TransactionFailedError,
)
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.settings import ProcessSettings
from kip848_client.member.processing.work import ATTEMPT, HANDLING, ProcessingAttempt, Work
from kip848_client.network.queues import Bell

if TYPE_CHECKING:
    from kip848_client.consumer.core import ConsumerCore

_RETURN_DONE: Final = "give a function that returns when its work is done, or use AsyncConsumer for an async one"

_SLICE_S: Final = 0.1
_IDLE_SLICE_S: Final = 1.0
_PAUSED_SLICE_S: Final = 0.005
"""How long one read may last while partitions are paused, so that they are resumed soon."""


class ThreadProcessor(Driver):
    """One ``process()`` of a `Consumer`. The lock guards the core: handlers end on their own threads.

    Args:
        executor: the user's, or what makes one; None makes a pool of ``concurrency`` threads.
    """

    def __init__(
        self,
        core: ConsumerCore[Any, Any],
        handler: Callable[..., object],
        settings: ProcessSettings,
        executor: Executor | Callable[[], Executor] | None,
    ) -> None:
        self._access: Final = ConsumerAccess(core)
        settings.check()
        self._pool: Final = Pool(executor, settings.concurrency)
        self._copies: Final = self._pool.has_processes
        super().__init__(
            _within(settings, self._pool),
            group_id=self._access.group_id,
            client_id=self._access.client_id,
            cancellable=False,
            renewable=self._pool.renewable,
        )
        self._handler: Final = handler
        self._context: Final = copy_context()
        """Of the caller; each call of the handler has a copy, so that records see nothing of each other."""
        if self._copies and self.writer is not None:
            raise ConfigError(
                "transactional= works with handlers in threads: one in another process cannot add to the transaction"
            )
        if self._copies:
            _check_can_be_sent(handler)
        self._lock: Final = threading.RLock()
        self._moved: Final = Bell()
        self._commit_due_s = time.monotonic() + self._access.commit_interval_s
        self._commit_open = False
        self._renew_wanted = False
        self._over = False

    # --- the caller's thread

    def run(self) -> None:
        """Process until the consumer is closed or has handed over, or a handler failed."""
        access = self._access
        self.runs_in: int | None = threading.get_ident()
        if self.settings.retry_later is not None:
            access.check_topics(self.settings.retry_later)
        if self.writer is not None:
            self.writer.calls.initialise()
        with access.taken(self, on_assigned=self._on_assigned, on_revoked=self._on_revoked, on_lost=self._on_lost):
            try:
                self._on_assigned(access.assigned())
                while not self._over and not access.over():
                    self._turn()
            finally:
                try:
                    self._finish()
                finally:
                    self.close_senders()
                    self._pool.close(kill=self.core.occupied)
        if self.outcome is not None:
            raise self.outcome

    def _turn(self) -> None:
        self._serve()
        with self._lock:
            slice_s = _PAUSED_SLICE_S if self.core.paused else _SLICE_S
            if self.core.empty:  # no handler runs that may end; a commit may be due
                slice_s = max(slice_s, min(self._commit_due_s - time.monotonic(), _IDLE_SLICE_S))
            slice_s = self.release_wait_s(self.slice_wait_s(self.wait_s(slice_s)))
            count = self._wanted()
        # The buffer is full. Without room in time the consumer only takes part in rebalances.
        if not count and self._await_room(slice_s):
            return
        try:
            batch = self._access.consume(count, slice_s if count else 0.0, bytes_max=self.core.room_bytes)
        except MaxPollExceededError as error:
            self.late(error)
            return
        except IllegalStateError:
            if self._access.over():  # another thread closes the consumer, and waits for the end of this
                return
            raise
        except DeserializationError as error:
            self._access.skip(error.kafka_message)
            with self._lock:
                self.feed_unreadable(error.kafka_message, error)
            return
        if batch:
            with self._lock:
                self.feed(batch)
        elif count and self.ends_here and self._access.caught_up():
            with self._lock:
                self.stop(None)

    def _await_room(self, timeout_s: float) -> bool:
        """Wait until records may be read; whether they may."""
        until_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if self.core.may_read:
                    return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            self._moved.wait(left_s)

    def _serve(self) -> None:
        """Do what handlers and time have brought: resume, commit, time-outs."""
        self._renew_pool()
        with self._lock:
            self.tick()
        self._pause()
        with self._lock:
            unknown = self.core.without_position
        if unknown and (positions := self._access.positions(unknown)):
            with self._lock:
                for name, offset in self.up_to_here(positions).items():
                    self.core.begins_at(name, offset)
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        """Commit what is done of all partitions if the interval is over, and go on."""
        if self.writer is not None:
            self._transact(due=True)
        elif (time.monotonic() >= self._commit_due_s or self.core.commit_urgent) and not self._commit_open:
            self._commit_due_s = time.monotonic() + self._access.commit_interval_s
            self._reach()
            with self._lock:
                offsets = self.core.to_commit(asks=True)
            if offsets:
                self._commit_open = True
                try:
                    self._access.commit_later(offsets, lambda error: self._committed(offsets, error))
                except Kip848Error as error:  # the member has stopped; the next read says why
                    self._committed(offsets, error)

    def _reach(self) -> None:
        """Look at positions before a commit; between two reads, so that all that was read is in the core."""
        with self._lock:
            names = self.core.at_rest
        positions = self._access.positions(names)
        with self._lock:
            self.core.reached(self.up_to_here(positions))

    def _pause(self) -> None:
        with self._lock:
            held, released = self.take_turns()
            pause, resume = self.core.pauses()
            resume = {name for name in resume if name not in self.user_paused and not self.stays_paused(name)}
            stopped = {name for name in released if name in self.user_paused or self.stays_paused(name)}
        if held:
            self._access.hold(held)
        if released:
            self._access.release(released, but=stopped)
        if pause:
            self._access.pause(pause)
        if resume:
            self._access.resume(resume)

    def _commit(self, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        failure: Kip848Error | None = None
        try:
            self._access.commit(offsets)
        except Kip848Error as error:
            failure = error
        if self._committed(offsets, failure):
            with self._lock:
                following = self.core.to_commit(offsets)
            if following:
                self._commit(following)

    def _committed(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Kip848Error | None) -> bool:
        with self._lock:
            self._commit_open = False
            again = self.commit_ended(offsets, error)
        if again:
            self._commit_due_s = 0.0
        return again

    def _transact(self, *, due: bool = False) -> None:
        """Write what is done, with its offsets; with *due* only if it is time."""
        with self._lock:
            slice_ = None if due and self.slice_wait_s(1.0) else self.begin_slice()
        if slice_ is None:
            return
        error: Exception | None = TransactionFailedError("interrupted inside a transaction")
        try:
            error = self.write(slice_, partial(self._access.group_metadata, slice_.offsets), ending=self._access.ending)
        finally:
            with self._lock:
                self.slice_ended(slice_, error)

    def _transact_all(self) -> None:
        """The last transactions before partitions are given away."""
        assert self.core.outbox is not None
        for _ in range(LAST_TRANSACTIONS):
            self._transact()
            with self._lock:
                if self.core.outbox.empty:
                    return

    # --- rebalances, on the caller's thread

    def _on_assigned(self, names: Sequence[NamedPartition]) -> None:
        if names:
            committed = self._access.committed(names, insist=self.writer is not None)
            self._access.begin_at_start(self.unread_retries(committed))
            with self._lock:
                self.assigned(committed)

    def _on_revoked(self, names: Sequence[NamedPartition]) -> None:
        with self._lock:
            self.core.revoke(names, now_ms())
            self.perform()
        drain_s = min(self.settings.drain_s, 0.8 * self._access.rebalance_timeout_s)
        self._await_idle(names, drain_s, revoking=True)
        self._tell_late(names)
        if self.writer is not None:
            self._transact_all()
        else:
            self._reach()
            with self._lock:
                offsets = self.core.to_commit(names)
            if offsets:
                self._commit(offsets)
        with self._lock:
            self.forget(names)

    def _on_lost(self, names: Sequence[NamedPartition]) -> None:
        with self._lock:
            self.lost(names)

    def _await_idle(
        self, names: Sequence[NamedPartition], limit_s: float, *, revoking: bool = False, told: bool = False
    ) -> None:
        """Wait until no call of these partitions runs, at most *limit_s*. What is done is committed meanwhile.

        Args:
            revoking: let the other partitions go on.
            told: the handlers were told to end; else the end of a hand-over ends the wait, too.
        """
        deadline_s = time.monotonic() + limit_s
        slice_s = DRAIN_SLICE_S if revoking else _SLICE_S
        commits = revoking or self.writer is None
        batch: Sequence[Message] = ()
        while True:
            self._renew_pool()
            with self._lock:
                left_s = min(deadline_s, math.inf if told else self._access.leaves_by_s) - time.monotonic()
                if left_s <= 0 or not self.core.busy(names):
                    return
                left_s = min(left_s, self.wait_s(slice_s))
            if not batch:
                self._moved.wait(left_s)
            with self._lock:
                self.tick()
            if revoking:
                self._pause()
            with self._lock:
                count = self._wanted() if revoking else 0
            batch = self._access.consume_meanwhile(count, bytes_max=self.core.room_bytes) if count else ()
            if batch:
                with self._lock:
                    self.feed(batch)
            if commits and not self._access.closed:
                self._access.serve_commits()
                self._commit_if_due()

    def _tell_late(self, names: Sequence[NamedPartition]) -> None:
        """Let handlers hear that they should end. Those that ask for it are waited for a little."""
        with self._lock:
            self.core.cancel(names)
            self.perform()
            asks = any(work.asks for work in self.core.running())
        if asks:
            self._await_idle(names, CANCELLED_GRACE_S, told=True)

    def _finish(self) -> None:
        """Nothing more starts: let what runs end, commit, and set positions to what is not done."""
        with self._lock:
            self.core.stop()
            self._over = True
        try:
            self._await_idle(self.core.partitions, self.settings.grace_s)
            self._tell_late(self.core.partitions)
        finally:  # a second Ctrl-C ends the wait, and loses nothing that is done
            if not self._access.closed:
                if self.writer is not None:
                    self.writer.calls.give_up_s = time.monotonic() + self.settings.grace_s
                    self._transact_all()
                else:
                    self._reach()
                    with self._lock:
                        offsets = self.core.to_commit()
                    if offsets:
                        self._commit(offsets)
                with self._lock:
                    low_marks, paused = self.core.low_marks(), self.left_paused
                self._access.resume(paused)
                self._access.go_back(low_marks)
            with self._lock:
                self.core.forget(self.core.partitions, now_ms())

    # --- for the driver

    def _call(self, work: Work) -> None:
        given: Any = work.records
        if self._copies:
            given = [RecordCopy.of(record) for record in given]
        if self.settings.batch is None:
            given = given[0]
        executor = self._pool.executor
        try:
            if self._copies:
                produces = self.settings.outputs is not None
                future = executor.submit(_call_alone, self._handler, given, work.told, produces)
            else:
                arguments = (given,) if work.outputs is None else (given, work.outputs)
                future = executor.submit(self._context.copy().run, self._handle, work, arguments)
        except RuntimeError as error:  # the pool was shut down, its processes died, or there are too many threads
            if isinstance(error, BrokenExecutor) and self._pool.renewable:
                self.core.crashed(work, None, now_ms())
            else:
                self.cannot_run(work, error)
            return
        if self._copies and self.telemetry.on:
            call = self.telemetry.call(work)
            future.add_done_callback(lambda done: call.end(None if done.cancelled() else done.exception()))
        future.add_done_callback(lambda done: self._ended(work, done, executor))

    def _handle(self, work: Work, arguments: tuple[Any, ...]) -> None:
        HANDLING.set((self, work))
        if not self.telemetry.on:
            check_finished(self._handler(*arguments), instead=_RETURN_DONE)
        else:
            with self.telemetry.call(work):
                check_finished(self._handler(*arguments), instead=_RETURN_DONE)

    def _ended(self, work: Work, future: Future[object], executor: Executor) -> None:
        """A handler ended, on its own thread."""
        error = None if future.cancelled() else future.exception()
        died = isinstance(error, BrokenExecutor) and self._pool.renewable
        how = how_ended(executor) if died else ""
        with self._lock:
            try:
                if self._copies and self.settings.outputs is not None:
                    work.outputs = None if future.cancelled() or error is not None else future.result()
                if died:
                    self.process_died(work, error, how)
                elif isinstance(error, BrokenExecutor):
                    self.cannot_run(work, error)
                else:
                    self.finished(work, error, cancelled=future.cancelled())
            except Exception as error:  # noqa: BLE001  else it is lost on this thread
                self.stop(error)
            self._moved.ring()
            awaited = bool(self.core.paused) or self.core.slice_due_ms() == 0 or self.core.commit_urgent
        if awaited:
            self._access.wake()

    def _cancel(self, work: Work) -> None:
        """A thread cannot be cancelled; its handler may ask (`processing_cancelled`)."""

    def _renew(self) -> None:
        self._renew_wanted = True
        self._access.wake()

    def _renew_pool(self) -> None:
        """Make a new pool if that is due: on the caller's thread, and without the lock, as it calls user code."""
        if not self._renew_wanted or self.core.stopping:
            return
        self._renew_wanted = False
        try:
            self._pool.renew().add_done_callback(self._renewed)
        except Exception as error:  # noqa: BLE001  the application's function, or there are no more processes
            with self._lock:
                self.no_pool(error)

    def _renewed(self, tried: Future[int]) -> None:
        error = CancelledError("cancelled") if tried.cancelled() else tried.exception()
        with self._lock:
            if error is None:
                self.core.renewed(now_ms())
                self.perform()
            else:
                self.no_pool(error)
            self._moved.ring()
        self._access.wake()

    def _stopped(self) -> None:
        self._over = True
        self._access.wake()

    def change(self, *, concurrency: int | None, limits: Limits | None) -> None:
        """See `Driver`."""
        with self._lock:
            settings = self.changed(concurrency=concurrency, limits=limits)
            self._pool.grow(settings.concurrency)
            self.apply(_within(settings, self._pool))
            self._moved.ring()
        self._access.wake()

    def _tell_from_thread(self, function: Callable[[], None]) -> None:
        with self._lock:
            try:
                function()
            except BaseException as error:  # noqa: BLE001  else it is lost on this thread
                self.stop(error)
            self._moved.ring()
            awaited = bool(self.core.paused) or self.core.commit_urgent
        if awaited:
            self._access.wake()


def _within(settings: ProcessSettings, pool: Pool) -> ProcessSettings:
    """With a time-out, give an executor no more than its workers take: what waits inside it would time out."""
    workers = pool.workers
    if settings.timeout_s is None or workers is None:
        return settings
    return replace(settings, concurrency=min(settings.concurrency, workers))


def _call_alone(handler: Callable[..., object], given: object, attempt: ProcessingAttempt, produces: bool) -> object:
    """Call the handler in a context of its own. Runs in the worker process, which has one for all that it does.

    Returns:
        What it has produced, if it *produces*.
    """
    context = copy_context()
    context.run(ATTEMPT.set, attempt)
    if not produces:
        return context.run(handler, given)
    outputs = HandlerOutputs()
    context.run(handler, given, outputs)
    return outputs.end()


def _check_can_be_sent(handler: object) -> None:
    try:
        ForkingPickler.dumps(handler)  # as the pool will
    except Exception as error:
        raise ArgumentTypeError(
            f"handler={handler!r} cannot be sent to another process ({error}): give a function that a module defines, "
            "and no lambda or inner function"
        ) from error
