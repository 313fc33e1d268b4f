"""``process()`` of a share consumer: what follows when a handler ends, times out, or its lock is lost.

`QueueProcessor` has the bookkeeping of both kinds; `ThreadQueueProcessor` runs handlers in threads, and
`kip848_client.aio.share_processing` as tasks. A record is in one place: waiting in the reader, running, or waiting for
its next attempt. While it runs or waits here its lock is renewed at two thirds of its time.

Source: docs/share-groups.md.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.common.callables import check_finished
from kip848_client.consumer.processing.daemon_threads import DaemonThreads
from kip848_client.consumer.processing.dead_letters import DeadLetters
from kip848_client.consumer.processing.retries import Retry
from kip848_client.consumer.processing.sender import Sender
from kip848_client.consumer.records.message import Message
from kip848_client.errors import Kip848Error
from kip848_client.member.processing.work import HANDLING, ProcessingAttempt, RetryLater
from kip848_client.member.share.held_records import AcquiredRecord
from kip848_client.share.core import Changes, ShareCore
from kip848_client.share.message import ShareMessage
from kip848_client.share.settings import QueueSettings, QueueStatus, Reject

if TYPE_CHECKING:
    from kip848_client.member.processing.work import Work

_RENEW_BEFORE: Final = 1 / 3
"""Which part of its time before its end a lock is renewed; once more after half of that, if it was not."""
_LOOK_S: Final = 0.25


class RecordJob(msgspec.Struct, eq=False):
    """A record and its handler."""

    message: ShareMessage[Any, Any]
    attempt: int = 0
    began_ms: int = 0
    running: bool = False
    over: bool = False
    """Its outcome is decided: what its handler does from now on does not count."""
    renewed_ms: int | None = None
    """When its lock was last asked to be renewed."""
    first_started_ms: int = 0
    buried: bool = False
    """Its dead letter is on its way."""
    last_error: BaseException | None = None
    asks: bool = False
    heeded: bool = False
    """What `processing_cancelled` notes."""

    @property
    def state(self) -> str:
        """What `processing_cancelled` asks for."""
        return "cancelled" if self.over else "running"

    @property
    def told(self) -> ProcessingAttempt:
        """What `processing_attempt` tells the handler."""
        return ProcessingAttempt(self.attempt, self.last_error)

    @property
    def held(self) -> AcquiredRecord:
        """The record."""
        return self.message.held


class QueueProcessor(ABC):
    """One ``process()``.

    Args:
        wake: lets `step` be called soon; from any thread.
    """

    def __init__(self, core: ShareCore, settings: QueueSettings, wake: Callable[[], object]) -> None:
        self._core: Final = core
        self._settings: Final = settings
        self._retry: Final = None if settings.retry is None else Retry(settings.retry)
        self._jobs: Final[dict[AcquiredRecord, RecordJob]] = {}
        self._retries: Final[list[tuple[int, int, RecordJob]]] = []
        self._number: Final = itertools.count()
        self._ends: Final[deque[tuple[RecordJob, BaseException | None]]] = deque()
        """Handlers that have ended, with what they raised."""
        self._told: Final[deque[Callable[[], None]]] = deque()
        """What the sender of dead letters wants to be called."""
        self._wake_soon: Final = wake
        letters = settings.dead_letter
        self._sender: Final = None if letters is None else Sender(letters.producer, self._tell_from_thread)
        self._hung: Final[set[RecordJob]] = set()
        """Handlers that run although their end does not count; each still has its slot."""
        self._counts: Final = dict.fromkeys(("accepted", "released", "rejected", "renewed", "lost"), 0)
        self.stopping: bool = False
        self._stop_by_ms: int | None = None
        self._context: Final = copy_context()

    def begin(self) -> None:
        """Take over from poll().

        Raises:
            IllegalStateError: it runs already, or nothing is subscribed.
        """
        self._core.begin_processing(self)

    def end(self) -> None:
        """Give back to poll()."""
        if self._sender is not None:
            self._sender.close()
        self._core.end_processing()

    # --- for the two kinds

    @abstractmethod
    def start(self, job: RecordJob) -> None:
        """Call the handler; its end goes to `_ends`, whether it counts or not."""

    @abstractmethod
    def cancel(self, job: RecordJob) -> None:
        """Stop a handler if that is possible. Its end does not count."""

    def step(self) -> float | None:
        """Do what is due. Returns the seconds until the next call; None when the end is reached.

        Raises:
            Kip848Error: a broker refused what no retry cures.
        """
        self._core.tell_outcomes()
        while self._told:
            self._told.popleft()()
        while self._ends:
            self.ended(*self._ends.popleft())
        now_ms = self._core.clock.now_ms()
        self._lose()
        self._hold(now_ms)
        self.stopping = self.stopping or self._core.hands_over or self._core.host.closing
        if self.stopping:
            if self._stop_by_ms is None:
                self._stop_by_ms = now_ms + int(self._settings.grace_s * 1000)
                self._core.stop_acquiring()
                self._retries.clear()
                for job in list(self._jobs.values()):
                    if not job.running and not job.buried:  # it waits for its next attempt
                        self._finish(job, AcknowledgeType.RELEASE)
            if not self._jobs:
                return None
            if now_ms >= self._stop_by_ms:
                self.release_all()
                return None
            return min(_LOOK_S, self._next_s(now_ms))
        self._begin(now_ms)
        return self._next_s(now_ms)

    def ended(self, job: RecordJob, error: BaseException | None) -> None:
        """A handler has returned or raised."""
        job.running = False
        self._hung.discard(job)
        if job.over:
            return
        if error is None:
            self._finish(job, AcknowledgeType.ACCEPT)
            return
        settings, now_ms = self._settings, self._core.clock.now_ms()
        job.last_error = error.reason if isinstance(error, RetryLater) else error
        rejected = isinstance(error, (Reject, *settings.reject))
        wait_s = None
        if self.stopping:
            pass  # it is released: another worker need not wait
        elif isinstance(error, RetryLater):
            wait_s = error.delay_s
        elif not rejected and self._retry is not None:
            wait_s = self._retry.wait_s(
                job.message, error, attempt=job.attempt, elapsed_ms=now_ms - job.first_started_ms
            )
        last = job.held.delivery_count >= settings.max_deliveries
        error = job.last_error
        self._core.log_failure(job.message, error, attempt=job.attempt, again=wait_s is not None)
        if wait_s is not None:
            heapq.heappush(self._retries, (now_ms + int(wait_s * 1000), next(self._number), job))
        elif settings.dead_letter is not None and (rejected or last):
            self._bury(job, error, settings.dead_letter)
        else:
            self._finish(job, AcknowledgeType.REJECT if rejected else AcknowledgeType.RELEASE)

    def release_all(self) -> None:
        """The end by an exception: give back what is in hand, except what is done."""
        while self._ends:
            job, error = self._ends.popleft()
            if error is None and not job.over:
                self._finish(job, AcknowledgeType.ACCEPT)
        for job in list(self._jobs.values()):
            self._finish(job, AcknowledgeType.RELEASE)
            self._abandon(job)

    def status(self) -> QueueStatus:
        """What is in hand now."""
        return QueueStatus(running=self._busy, waiting_retry=len(self._retries), **self._counts)

    # --- inside

    @property
    def _busy(self) -> int:
        """Slots that are taken by handlers that run."""
        return len(self._hung) + sum(job.running for job in list(self._jobs.values()))

    def _begin(self, now_ms: int) -> None:
        busy = self._busy
        while self._retries and self._retries[0][0] <= now_ms and busy < self._settings.concurrency:
            job = heapq.heappop(self._retries)[2]
            if not job.over:
                self._call(job, now_ms)
                busy += 1
        free = self._settings.concurrency - len(self._jobs) - len(self._hung)
        for message in self._core.take_jobs(free):
            job = self._jobs[message.held] = RecordJob(message, first_started_ms=now_ms)
            self._call(job, now_ms)

    def _call(self, job: RecordJob, now_ms: int) -> None:
        job.attempt += 1
        job.began_ms = now_ms
        if self._retry is not None:
            self._retry.begins(job.message, attempt=job.attempt, elapsed_ms=now_ms - job.first_started_ms)
        job.running = True
        self.start(job)

    def context_of(self, job: RecordJob) -> Context:
        """What its handler runs in, for `processing_attempt` and `processing_cancelled`."""
        context = self._context.copy()
        context.run(HANDLING.set, (self, cast("Work", job)))  # it has the attributes that are read
        return context

    def _hold(self, now_ms: int) -> None:
        """Renew locks, and end calls that take too long."""
        limit_ms = None if self._settings.timeout_s is None else int(self._settings.timeout_s * 1000)
        lock_ms = self._core.lock_ms
        for job in list(self._jobs.values()):
            if limit_ms is not None and job.running and now_ms - job.began_ms >= limit_ms:
                again = self._jobs[job.held] = msgspec.structs.replace(job)  # what `retry` may call again
                self._abandon(job)
                self.ended(again, TimeoutError(f"the handler took longer than {self._settings.timeout_s} s"))
            elif lock_ms and now_ms >= _renew_ms(job, lock_ms):
                job.renewed_ms = now_ms
                if self._core.say(job.held, AcknowledgeType.RENEW):
                    self._counts["renewed"] += 1

    def _lose(self) -> None:
        """Cancel handlers whose locks have ended: another member has their records."""
        for job in [job for job in self._jobs.values() if not self._core.has(job.held)]:
            self._note_lost(job)
            self._abandon(job)

    def _note_lost(self, job: RecordJob) -> None:
        self._jobs.pop(job.held, None)
        self._counts["lost"] += 1
        lost = Kip848Error("its lock has ended: another member may have it, and it may be done twice")
        self._core.log_failure(job.message, lost, attempt=job.attempt, again=False)

    def _abandon(self, job: RecordJob) -> None:
        """What its handler does from now on does not count."""
        job.over = True
        if job.running:
            self._hung.add(job)
            self.cancel(job)

    def _finish(self, job: RecordJob, word: AcknowledgeType) -> None:
        job.over = True
        if self._core.say(job.held, word):
            self._jobs.pop(job.held, None)
            self._counts[_COUNTED[word]] += 1
        else:
            self._note_lost(job)

    def _bury(self, job: RecordJob, error: BaseException, letters: DeadLetters) -> None:
        job.buried = True

        def delivered(failure: Exception | None) -> None:
            if job.over:
                return
            if failure is not None:
                self._core.log_failure(job.message, failure, attempt=job.attempt, again=False)
            self._finish(job, AcknowledgeType.RELEASE if failure else AcknowledgeType.ACCEPT)

        letter = letters.letter(
            cast("Message", job.message),  # it has the methods that are used
            error,
            original=(job.held.record.key, job.held.record.value),
            attempts=job.attempt,
        )
        assert self._sender is not None
        self._sender.send([letter], delivered)

    def _tell_from_thread(self, function: Callable[[], None]) -> None:
        self._told.append(function)
        self._wake_soon()

    def _next_s(self, now_ms: int) -> float:
        due = [self._retries[0][0]] if self._retries and self._busy < self._settings.concurrency else []
        lock_ms = self._core.lock_ms
        if lock_ms and self._jobs:
            due.append(min(_renew_ms(job, lock_ms) for job in self._jobs.values()))
        limit_s = self._settings.timeout_s
        running = [job.began_ms for job in self._jobs.values() if job.running]
        if limit_s is not None and running:
            due.append(min(running) + int(limit_s * 1000))
        return min(max(0.0, (min(due) - now_ms) / 1000), 1.0) if due else 1.0


def _renew_ms(job: RecordJob, lock_ms: int) -> int:
    """When its lock is to be renewed. It may have run for a while before the handler got the record."""
    due_ms = job.held.lock_until_ms - int(lock_ms * _RENEW_BEFORE)
    return due_ms if job.renewed_ms is None else max(due_ms, job.renewed_ms + int(lock_ms * _RENEW_BEFORE / 2))


_COUNTED: Final = {
    AcknowledgeType.ACCEPT: "accepted",
    AcknowledgeType.RELEASE: "released",
    AcknowledgeType.REJECT: "rejected",
}


class ThreadQueueProcessor(QueueProcessor):
    """Handlers in threads. A thread cannot be stopped: a handler that is cancelled goes on, and its end does not count.

    Args:
        changes: wakes the thread that called process().
        executor: a pool of the application's; None: threads of its own.
    """

    def __init__(
        self,
        core: ShareCore,
        changes: Changes,
        handler: Callable[[ShareMessage[Any, Any]], object],
        settings: QueueSettings,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(core, settings, changes.changed)
        self._changes: Final = changes
        self._handler: Final = handler
        self._own: Final = executor is None
        self._pool: Final = executor or DaemonThreads(settings.concurrency)
        self._thread: int | None = None

    def run(self) -> None:
        """Handle records until the consumer is closed or hands over."""
        self._thread = threading.get_ident()
        self.begin()
        try:
            try:
                self._handle_records()
            except KeyboardInterrupt:  # let handlers end, as for SIGTERM; a second Ctrl-C does not wait
                self.stopping = True
                self._handle_records()
                raise
        except BaseException:
            self.release_all()
            raise
        finally:
            self.end()
            if self._own:
                self._pool.shutdown(wait=False)

    def _handle_records(self) -> None:
        while True:
            version = self._changes.version
            wait_s = self.step()
            if wait_s is None:
                return
            if not self._ends:
                self._changes.wait(version, time.monotonic() + wait_s)

    @property
    def runs_in_this_thread(self) -> bool:
        """Whether the caller is inside `run`."""
        return self._thread == threading.get_ident()

    def start(self, job: RecordJob) -> None:
        """Call the handler in a thread, in a context of its own."""
        context = self.context_of(job)
        self._pool.submit(lambda: context.run(self._handle, job))

    def cancel(self, job: RecordJob) -> None:
        """A thread goes on."""

    def _handle(self, job: RecordJob) -> None:
        error: BaseException | None = None
        try:
            check_finished(self._handler(job.message), instead="return when the record is handled")
        except BaseException as raised:  # noqa: BLE001  the handler's, whatever it is
            error = raised
        self._ends.append((job, error))
        self._changes.changed()
