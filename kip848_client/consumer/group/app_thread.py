"""The thread that polls at work for the member: performs effects in order, runs listeners, waits for answers.

`AppThread` is the loop inside poll() and every other call that waits. `member/` decides which effect is due and what an
error means; `group_member` has the calls. Any thread may `await_call`; all the rest is for the thread that polls.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, assert_never

from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.consumer.group.commit_manager import CommitManager, PendingCall
from kip848_client.consumer.group.heartbeat_manager import AppEffect, HeartbeatRequestManager
from kip848_client.consumer.group.listener_invoker import ListenerEffect, ListenerInvoker
from kip848_client.errors import (
    AuthenticationError,
    CommitFailedError,
    IllegalStateError,
    Kip848Error,
    MaxPollExceededError,
    OtherClusterError,
    RequestTimeoutError,
    StaleMemberEpochError,
)
from kip848_client.member.core.events import (
    AppPolled,
    AssignPartitions,
    CallAbandoned,
    Fail,
    LosePartitions,
    MemberEvent,
    PausePartitions,
    RevokePartitions,
    StandbyBegan,
    StartCause,
    StartFetching,
    StopFetching,
    SurfaceError,
)
from kip848_client.member.core.failures import late_poll
from kip848_client.network.presence import AppPresence
from kip848_client.network.queues import AppQueue, Posted

SLICE_S: Final = 0.05
"""Longest wait before a call looks at the member again, if something of it may come."""


QUIET_SLICE_S: Final = 0.2
"""The same if nothing is to come: Ctrl-C, and a call of another thread or task, wait for this."""


_PASSING: Final = (CommitFailedError, StaleMemberEpochError, RequestTimeoutError)
"""Failures of asynchronous commits that a broker or a rebalance causes."""

_TOLD_EVERY_S: Final = 10.0

_ANSWER_S: Final = 0.01
"""A poll() that waits looks at the member this long after its timer: an answer has mostly come by then."""


_MEMBER_LATE_S: Final = 2.0
"""How long after its time limit a call waits for the member's error, which tells more: a busy machine may be late."""


BRIEF_SLICE_S: Final = 0.005
"""The same while the member expects partitions: until the call looks again, no consumer reads them."""


FAILURES_MAX: Final = 5
"""After this many failures of one effect the consumer is fatal."""


def _go_on() -> None:
    """Let the call wait."""


class RecordSource(Protocol):
    """Reads the records of owned partitions: `Fetcher`, or for a GroupMember a class that reads nothing itself."""

    def warm(self, topics: Iterable[str]) -> object:
        """Prepare for `start` of partitions of these topics."""
        ...

    def start(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        """Read these partitions from these positions on."""
        ...

    def hold(self, partitions: Iterable[NamedPartition]) -> None:
        """Pause these partitions; their positions stay."""
        ...

    def stop(self, partitions: Iterable[NamedPartition]) -> None:
        """Stop reading these partitions, and forget their positions."""
        ...

    def stop_all(self) -> None:
        """Stop reading, and forget all positions."""
        ...

    def positions(self) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """The next offset of each partition that is read; the application has processed all records before it."""
        ...


class AppThread:
    """The application's end of the two queues.

    Args:
        manager: the heartbeat thread.
        queue, commits, presence, listeners: shared with it; see `assembly`.
        records: where the records come from.
        clock: the member's time.
    """

    def __init__(
        self,
        manager: HeartbeatRequestManager,
        *,
        queue: AppQueue[AppEffect],
        commits: CommitManager,
        presence: AppPresence,
        listeners: ListenerInvoker,
        records: RecordSource,
        clock: Clock,
    ) -> None:
        self._manager: Final = manager
        self._commits: Final = commits
        self._listeners: Final = listeners
        self._records: Final = records
        self._clock: Final = clock
        self.errors: Final[deque[Kip848Error]] = deque()
        """Errors for the application that were not raised yet, oldest first."""
        self.for_poll: Final[list[Kip848Error]] = []
        """Those of them that came from the member, and not from a call of the application: poll() raises them."""
        self.on_refused: Callable[[], None] = lambda: None
        """Called once when brokers refuse the credentials, so that librdkafka stops using them as well."""
        self.fatal: Kip848Error | None = None
        self._commits_told_s = -math.inf
        self.fatal_raised: bool = False
        """Whether the fatal error was raised to the application."""
        self.calls_end_s: float = math.inf
        """No call may wait beyond this; close() sets it, so that a listener's commit leaves time for the leave."""
        self.before_wait: Callable[[], object] = _go_on
        """Called before each wait; an exception of it ends the call as a KeyboardInterrupt there would."""
        self.stored: Callable[[], Mapping[NamedPartition, OffsetAndMetadata]] | None = None
        """Offsets that the application stored, with `enable.auto.offset.store=false`; see `committable`."""
        self.starts: Final[dict[NamedPartition, StartCause]] = {}
        """Why each partition was begun where it was; may have partitions that are not read any more."""
        self.closer: int | None = None
        """The thread that closes the consumer, if it is not the one that reads."""
        self._queue = queue
        self._posted: Posted[Any] = Posted(None, done=True)
        """The last event of `post`."""
        self._reported: AppPolled | None = None
        self._failures = 0
        """How often an exception interrupted the oldest effect."""
        self.presence: Final = presence

    @property
    def closing(self) -> bool:
        """Whether another thread closes the consumer: a call that reads ends soon."""
        return self.closer is not None and self.closer != threading.get_ident()

    def stop_fetching(self, partitions: Iterable[NamedPartition]) -> None:
        """Return no more records of these partitions."""
        self._records.stop(partitions)

    def stop_fetching_all(self) -> None:
        """Return no more records."""
        self._records.stop_all()

    def committable(self) -> dict[NamedPartition, OffsetAndMetadata]:
        """The offsets of a commit without arguments: the positions after all returned records, or the stored ones."""
        return dict(self._records.positions() if self.stored is None else self.stored())

    def post(self, event: MemberEvent) -> None:
        """Give the member an event whose effects `await_ticket` waits for."""
        self._posted = self._manager.post(event)

    # --- polling

    def begin_poll(self) -> None:
        """The application enters poll(); `end_poll` must follow, even after an exception.

        Raises:
            IllegalStateError: poll() was called from inside a listener.
        """
        if self._listeners.running is not None:
            raise IllegalStateError("poll() was called from inside a rebalance listener; return from it first")
        self.presence.enter(now_ms=self._clock.now_ms())

    def end_poll(self) -> None:
        """The application leaves poll()."""
        self.presence.leave(now_ms=self._clock.now_ms())

    def settle(self, deadline_s: float) -> bool:
        """Do the application thread's part of a rebalance, until the member waits for nothing or time is up.

        Each round performs the queued effects (callbacks, starts and stops of fetching), waits until the member has
        processed their results, and reports a poll() if the member asks for one.

        Args:
            deadline_s: on ``time.monotonic``.

        Returns:
            True if the member waits for nothing: poll() may return records. False also if another thread closes the
            consumer.

        Raises:
            ListenerError: a listener raised.
            Kip848Error: the member surfaced an error, a commit without a callback failed for good, or the member is
                FATAL.
        """
        reported_version = -1
        while True:
            self.perform_queued()
            # The member processes events in far less than a slice: wait for it even if poll(0) has no time.
            processed = self.await_ticket(max(deadline_s, time.monotonic() + SLICE_S))
            if processed and self._queue:
                continue
            # Only now, when the member has processed the end of each callback, does the application see its error.
            self.raise_due()
            if not processed or self.closing:
                return False
            view = self._manager.view
            left_s = deadline_s - time.monotonic()
            if view.poll_wanted and view.version != reported_version:
                reported_version = view.version
                self._report_poll(if_moved=view.positions_only)
            elif not view.awaiting_app:
                return True
            elif left_s <= 0:
                return False
            else:
                self.wait(left_s)

    def _report_poll(self, *, if_moved: bool) -> None:
        """Tell the member that poll() began: all records returned before are processed, up to these positions."""
        stored = None if self.stored is None else dict(self.stored())
        polled = AppPolled(dict(self._records.positions()), stored)
        # An idle consumer would wake the other thread for each automatic commit, which has nothing to commit.
        if not (if_moved and polled == self._reported):
            self._reported = polled
            self.post(polled)

    # --- effects

    @property
    def idle(self) -> bool:
        """Whether no effect is queued."""
        return not self._queue

    def perform_queued(self) -> None:
        """Perform every effect in the queue, in order; errors of listeners are kept for `raise_due`.

        An effect that Ctrl-C or an unexpected exception interrupts stays in the queue, and the next call performs it
        again. Otherwise the member would send heartbeats for partitions that the application does not read.

        Raises:
            Exception: an effect failed; the exception that interrupted it.
        """
        while (effect := self._queue.first()) is not None:
            try:
                self._perform(effect)
            except BaseException as error:
                if isinstance(effect, ListenerEffect) and self._listeners.reported == effect.token:
                    self._queue.done(effect)
                elif isinstance(error, Exception) and not self._manager.home.left:
                    self._cut_off(effect, error)
                raise
            self._queue.done(effect)
            self._failures = 0

    def _cut_off(self, effect: AppEffect, error: Exception) -> None:
        """*effect* failed: it is performed again, and after `FAILURES_MAX` failures the consumer is fatal."""
        self._failures += 1
        name = type(effect).__name__
        self._listeners.observer.log(
            logging.ERROR, LogEvent.EFFECT_FAILED, effect=name, failures=self._failures, error=repr(error)
        )
        if self._failures < FAILURES_MAX or self.fatal is not None:
            return
        failure = Kip848Error(
            f"{name} failed {self._failures} times, the last time with {error!r}; the member leaves its group. "
            "Close this consumer and make a new one"
        )
        failure.__cause__ = error
        self.fatal = failure
        self._keep_for_poll(failure)
        self._listeners.observer.failed(failure)
        self._manager.leave_without_listeners()

    def perform_starts(self) -> None:
        """Perform queued starts of fetching, so that a seek that follows meets the partition as fetched."""
        while isinstance(effect := self._queue.first(), StartFetching):
            self._perform(effect)
            self._queue.done(effect)  # not before: an interrupted effect is performed again

    def run_commit_callbacks(self) -> None:
        """Run callbacks of finished commits.

        Of commits without one, what passes is logged, at most once in ten seconds; other errors are kept for
        `raise_due`.
        """
        while (error := self._commits.run_callbacks()) is not None:
            if not isinstance(error, _PASSING):
                self.errors.append(error)
            elif time.monotonic() >= self._commits_told_s + _TOLD_EVERY_S:
                self._commits_told_s = time.monotonic()
                self._listeners.observer.log(logging.WARNING, LogEvent.ASYNC_COMMIT_FAILED, error=error)
        self._manager.home.check()

    def raise_due(self) -> None:
        """Run callbacks of finished commits, and raise the first error that waits; others are logged.

        If each record is committed by itself, hundreds say the same: they are logged in one line.
        """
        self.run_commit_callbacks()
        errors = list(self.errors)
        self.errors.clear()
        self.for_poll.clear()
        for error, times in Counter(str(error) for error in errors[1:]).items():
            self._listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=error, times=times)
        if errors:
            self.fatal_raised = self.fatal_raised or errors[0] is self.fatal
            raise errors[0]

    def _perform(self, effect: AppEffect) -> None:
        match effect:
            case PausePartitions(partitions=partitions):
                self._records.hold(tip.topic_partition for tip in partitions)
            case StartFetching(positions=positions, committed=committed, starts=starts):
                self._records.start(positions)
                self.starts.update({tip.topic_partition: start for tip, start in starts.items()})
                self._commits.committed.update({tip.topic_partition: positions[tip] for tip in committed})
            case StopFetching(partitions=partitions):
                self._stop(tip.topic_partition for tip in partitions)
            case AssignPartitions(partitions=partitions):
                # Before the offsets are fetched, so that the first fetch need not wait for the topics' metadata.
                self._records.warm({tip.topic for tip in partitions})
                self._run_listener(effect)
            case RevokePartitions() | LosePartitions():
                self._run_listener(effect)
            case StandbyBegan(topics=topics):
                self._records.warm(topics)
            case SurfaceError(error=error):
                self._keep_for_poll(self._told_now(error) if isinstance(error, MaxPollExceededError) else error)
            case Fail(error=error):
                self.fatal = error
                self._keep_for_poll(error)
                if isinstance(error, (AuthenticationError, OtherClusterError)):
                    self.on_refused()
            case _:
                assert_never(effect)

    def _keep_for_poll(self, error: Kip848Error) -> None:
        self.errors.append(error)
        self.for_poll.append(error)

    def _told_now(self, error: MaxPollExceededError) -> MaxPollExceededError:
        """*error* with the time that has passed by now: the member made it when the limit was reached."""
        observer, presence = self._listeners.observer, self.presence
        limit_ms = observer.max_poll_interval_ms
        if max(presence.gap_ms, presence.listener_ms) <= limit_ms:
            return error
        return late_poll(
            silent_ms=presence.gap_ms,
            limit_ms=limit_ms,
            group_id=observer.group_id,
            listener_ms=0 if presence.gap_ms > limit_ms else presence.listener_ms,
        )

    def _stop(self, partitions: Iterable[NamedPartition]) -> None:
        gone = list(partitions)
        self._records.stop(gone)
        for partition in gone:
            self.starts.pop(partition, None)

    def _run_listener(self, effect: ListenerEffect) -> None:
        gone = [tip.topic_partition for tip in effect.partitions]

        def stop_fetching() -> None:
            self._manager.home.check()  # the listener may have called fork(), and returned in the child
            self._stop(gone)

        with self.presence.outside(self._clock):
            error = self._listeners.run(effect, stop_fetching=stop_fetching)
        if error is not None:
            self.errors.append(error)

    # --- waiting

    def wait(self, timeout_s: float) -> None:
        """Wait until an effect, an answer or a new view arrives, at most *timeout_s* and `QUIET_SLICE_S`."""
        self.before_wait()
        self._queue.wait(min(timeout_s, QUIET_SLICE_S))
        self._manager.home.check()  # a signal handler may have called fork()
        self._manager.nudge()

    def slice_s(self) -> float:
        """How long a poll() may wait for records, from now on, before it looks at ``manager.mark`` again."""
        if self._manager.view.news_expected:
            return BRIEF_SLICE_S
        return max(SLICE_S, min(self._manager.quiet_s() + _ANSWER_S, QUIET_SLICE_S))

    def wait_for(self, call: PendingCall, timeout_s: float) -> None:
        """Wait until *call* has ended, at most *timeout_s* and `QUIET_SLICE_S` (any thread)."""
        self.before_wait()
        call.wait(min(timeout_s, QUIET_SLICE_S))
        self._manager.home.check()
        self._manager.nudge()

    def wake(self) -> None:
        """End the current or the next wait (any thread)."""
        self._queue.wake()
        self._commits.nudge()

    def limit_ms(self, timeout_ms: int) -> int:
        """*timeout_ms*, or the time until `calls_end_s` if that is less."""
        left_s = self.calls_end_s - time.monotonic()
        return timeout_ms if left_s * 1_000 >= timeout_ms else max(0, int(left_s * 1_000))

    def await_ticket(self, deadline_s: float) -> bool:
        """Wait until the member has processed what `post` gave it, such as the end of a callback; whether it has."""
        while not self._posted.done:
            left_s = deadline_s - time.monotonic()
            if self.closing:
                return False
            if left_s <= 0 or not self._manager.alive:
                self._check_thread()
                return False
            self.wait(min(left_s, SLICE_S))
        return True

    def await_call(
        self, call: PendingCall, deadline_s: float, *, what: str, member_late_s: float = _MEMBER_LATE_S
    ) -> None:
        """Wait for the member's answer (any thread). The member watches the deadline; if it is late, this wait ends it.

        Raises:
            RequestTimeoutError: there was none.
            Kip848Error: the error in the answer.
        """
        try:
            while not call.finished:
                left_s = deadline_s + member_late_s - time.monotonic()
                if left_s <= 0:
                    raise self._with_reason(RequestTimeoutError(f"{what}: the coordinator gave no answer in time"))
                self._check_thread()
                self.wait_for(call, left_s)
        except BaseException:
            # Also after a KeyboardInterrupt: an abandoned commit must not be retried after a later one.
            self.abandon(call)
            raise
        if call.error is not None:
            raise self._with_reason(call.error)

    def _with_reason(self, error: Kip848Error) -> Kip848Error:
        """*error*; a time-out without a coordinator gets the reason why none is known."""
        missing = self._listeners.observer.lookup_failure
        if missing is None or type(error) is not RequestTimeoutError or error.__cause__ is not None:
            return error
        explained = RequestTimeoutError(f"{error}; the group's coordinator is not found: {missing}")
        explained.__cause__ = missing
        return explained

    def abandon(self, call: PendingCall) -> None:
        """Stop waiting for *call* (any thread)."""
        self._commits.abandon(call)
        self._manager.post(CallAbandoned(call.call_id))

    def _check_thread(self) -> None:
        if not self._manager.alive and not self._queue and not self.errors:
            crashed = self._manager.crashed
            why = "" if crashed is None else f" with {crashed!r}"
            raise IllegalStateError(f"the heartbeat thread has ended{why}; close this consumer and make a new one")
