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
from contextvars import copy_context
from typing import Any, Final, cast

import msgspec

from kip848_client.common.callables import check_finished
from kip848_client.consumer.processing.daemon_threads import DaemonThreads
from kip848_client.consumer.processing.dead_letters import DeadLetters
from kip848_client.consumer.processing.driver import _Retry as Retry
from kip848_client.consumer.records.message import Message
from kip848_client.errors import Kip848Error
from kip848_client.member.share.held_records import AcquiredRecord
from kip848_client.member.share.share_events import AcknowledgeType
from kip848_client.share.core import Changes, ShareCore
from kip848_client.share.message import ShareMessage
from kip848_client.share.settings import QueueSettings, QueueStatus, Reject

_RENEW_AT: Final = 2 / 3
_LOOK_S: Final = 0.25


class Job(msgspec.Struct, eq=False):
    """A record and its handler."""

    message: ShareMessage[Any, Any]
    attempt: int = 0
    began_ms: int = 0
    running: bool = False
    over: bool = False
    """Its outcome is decided: what its handler does from now on does not count."""
    renewed_ms: int = 0
    first_started_ms: int = 0

    @property
    def held(self) -> AcquiredRecord:
        """The record."""
        return self.message.held


class QueueProcessor(ABC):
    """One ``process()``."""

    def __init__(self, core: ShareCore, settings: QueueSettings) -> None:
        self._core: Final = core
        self._settings: Final = settings
        self._retry: Final = None if settings.retry is None else Retry(settings.retry)
        self._jobs: Final[dict[AcquiredRecord, Job]] = {}
        self._retries: Final[list[tuple[int, int, Job]]] = []
        self._number: Final = itertools.count()
        self._counts: Final = dict.fromkeys(("accepted", "released", "rejected", "renewed", "lost"), 0)
        self.stopping: bool = False
        self._stop_by_ms: int | None = None

    def begin(self) -> None:
        """Take over from poll().

        Raises:
            IllegalStateError: it runs already, or nothing is subscribed.
        """
        self._core.begin_processing(self)

    def end(self) -> None:
        """Give back to poll()."""
        self._core.end_processing()

    # --- for the two kinds

    @abstractmethod
    def start(self, job: Job) -> None:
        """Call the handler; `ended` is called when it has ended."""

    @abstractmethod
    def cancel(self, job: Job) -> None:
        """Stop a handler if that is possible. Its end does not count."""

    def step(self) -> float | None:
        """Do what is due. Returns the seconds until the next call; None when the end is reached.

        Raises:
            Kip848Error: a broker refused what no retry cures.
        """
        now_ms = self._core.clock.now_ms()
        self._lose()
        self._hold(now_ms)
        self.stopping = self.stopping or self._core.host.closing
        if self.stopping:
            if self._stop_by_ms is None:
                self._stop_by_ms = now_ms + int(self._settings.grace_s * 1000)
                self._core.stop_acquiring()
                for job in list(self._jobs.values()):
                    if not job.running:  # it waits for its next attempt
                        self._finish(job, AcknowledgeType.RELEASE)
            running = [job for job in self._jobs.values() if job.running]
            if not running:
                return None
            if now_ms >= self._stop_by_ms:
                for job in running:
                    self._finish(job, AcknowledgeType.RELEASE)
                    self.cancel(job)
                return None
            return _LOOK_S
        self._begin(now_ms)
        return self._next_s(now_ms)

    def ended(self, job: Job, error: BaseException | None) -> None:
        """A handler has returned or raised."""
        job.running = False
        if job.over:
            return
        if error is None:
            self._finish(job, AcknowledgeType.ACCEPT)
            return
        settings, now_ms = self._settings, self._core.clock.now_ms()
        rejected = isinstance(error, (Reject, *settings.reject))
        wait_s = None
        if not rejected and self._retry is not None and not self.stopping:
            wait_s = self._retry.wait_s(
                job.message, error, attempt=job.attempt, elapsed_ms=now_ms - job.first_started_ms
            )
        last = job.held.delivery_count >= settings.max_deliveries
        self._core.log_failure(job.message, error, attempt=job.attempt, again=wait_s is not None)
        if wait_s is not None:
            heapq.heappush(self._retries, (now_ms + int(wait_s * 1000), next(self._number), job))
        elif settings.dead_letter is not None and (rejected or last):
            self._bury(job, error, settings.dead_letter)
        else:
            self._finish(job, AcknowledgeType.REJECT if rejected else AcknowledgeType.RELEASE)

    def release_all(self) -> None:
        """The end by an exception: give back what is in hand."""
        for job in list(self._jobs.values()):
            self._finish(job, AcknowledgeType.RELEASE)
            if job.running:
                self.cancel(job)

    def status(self) -> QueueStatus:
        """What is in hand now."""
        running = sum(job.running for job in list(self._jobs.values()))
        return QueueStatus(running=running, waiting_retry=len(self._retries), **self._counts)

    # --- inside

    def _begin(self, now_ms: int) -> None:
        running = sum(job.running for job in self._jobs.values())
        while self._retries and self._retries[0][0] <= now_ms and running < self._settings.concurrency:
            job = heapq.heappop(self._retries)[2]
            if not job.over:
                self._call(job, now_ms)
                running += 1
        free = self._settings.concurrency - len(self._jobs)
        for message in self._core.take_jobs(free):
            job = self._jobs[message.held] = Job(message, renewed_ms=now_ms, first_started_ms=now_ms)
            self._call(job, now_ms)

    def _call(self, job: Job, now_ms: int) -> None:
        job.attempt += 1
        job.began_ms = now_ms
        job.running = True
        self.start(job)

    def _hold(self, now_ms: int) -> None:
        """Renew locks, and end calls that take too long."""
        limit_ms = None if self._settings.timeout_s is None else int(self._settings.timeout_s * 1000)
        lock_ms = self._core.lock_ms
        for job in list(self._jobs.values()):
            if limit_ms is not None and job.running and now_ms - job.began_ms >= limit_ms:
                late = TimeoutError(f"the handler took longer than {self._settings.timeout_s} s")
                self.cancel(job)
                self.ended(job, late)
                job.over = True
            elif lock_ms and now_ms - job.renewed_ms >= int(lock_ms * _RENEW_AT):
                job.renewed_ms = now_ms
                if self._core.say(job.held, AcknowledgeType.RENEW):
                    self._counts["renewed"] += 1

    def _lose(self) -> None:
        """Cancel handlers whose locks have ended: another member has their records."""
        for job in [job for job in self._jobs.values() if not self._core.has(job.held)]:
            self._counts["lost"] += 1
            job.over = True
            self._forget(job)
            self._core.log_failure(
                job.message, Kip848Error("its lock has ended: another member has it"), attempt=job.attempt, again=False
            )
            if job.running:
                self.cancel(job)

    def _finish(self, job: Job, word: AcknowledgeType) -> None:
        job.over = True
        self._forget(job)
        self._core.say(job.held, word)
        self._counts[_COUNTED[word]] += 1

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.held, None)

    def _bury(self, job: Job, error: BaseException, letters: DeadLetters) -> None:
        def delivered(failure: Exception | None) -> None:
            if job.over:
                return
            if failure is not None:
                self._core.log_failure(job.message, failure, attempt=job.attempt, again=False)
            self._finish(job, AcknowledgeType.RELEASE if failure else AcknowledgeType.ACCEPT)

        sent = letters.send(
            cast("Message", job.message),  # it has the methods that are used
            error,
            original=(job.held.record.key, job.held.record.value),
            attempts=job.attempt,
            on_end=delivered,
        )
        if not sent:  # the producer's queue is full
            self._finish(job, AcknowledgeType.RELEASE)

    def _next_s(self, now_ms: int) -> float:
        if self._settings.dead_letter is not None:
            self._settings.dead_letter.serve()
        due = [self._retries[0][0]] if self._retries else []
        lock_ms = self._core.lock_ms
        if lock_ms and self._jobs:
            due.append(min(job.renewed_ms for job in self._jobs.values()) + int(lock_ms * _RENEW_AT))
        limit_s = self._settings.timeout_s
        running = [job.began_ms for job in self._jobs.values() if job.running]
        if limit_s is not None and running:
            due.append(min(running) + int(limit_s * 1000))
        wait_s = max(0.0, (min(due) - now_ms) / 1000) if due else 1.0
        return min(wait_s, _LOOK_S if self._settings.dead_letter is not None else 1.0)


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
        super().__init__(core, settings)
        self._changes: Final = changes
        self._handler: Final = handler
        self._own: Final = executor is None
        self._pool: Final = executor or DaemonThreads(settings.concurrency)
        self._context: Final = copy_context()
        self._thread: int | None = None
        self._ends: Final[deque[tuple[Job, BaseException | None]]] = deque()

    def run(self) -> None:
        """Handle records until the consumer is closed or hands over."""
        self._thread = threading.get_ident()
        self.begin()
        try:
            while True:
                version = self._changes.version
                while self._ends:
                    self.ended(*self._ends.popleft())
                wait_s = self.step()
                if wait_s is None:
                    return
                if not self._ends:
                    self._changes.wait(version, time.monotonic() + wait_s)
        except BaseException:
            self.release_all()
            raise
        finally:
            self.end()
            if self._own:
                self._pool.shutdown(wait=False)

    @property
    def runs_in_this_thread(self) -> bool:
        """Whether the caller is inside `run`."""
        return self._thread == threading.get_ident()

    def stop(self) -> None:
        """Begin nothing new. From any thread."""
        self.stopping = True
        self._changes.changed()

    def start(self, job: Job) -> None:
        """Call the handler in a thread, in a context of its own."""
        context = self._context.copy()
        self._pool.submit(lambda: context.run(self._handle, job))

    def cancel(self, job: Job) -> None:
        """A thread goes on."""

    def _handle(self, job: Job) -> None:
        error: BaseException | None = None
        try:
            check_finished(self._handler(job.message), instead="return when the record is handled")
        except BaseException as raised:  # noqa: BLE001  the handler's, whatever it is
            error = raised
        self._ends.append((job, error))
        self._changes.changed()
