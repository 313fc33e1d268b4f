"""HeartbeatRequestManager: the one background thread of a consumer. It owns the `Member`; only this thread steps it.

The thread sleeps in one event loop. It wakes when the member's deadline is reached, when an answer arrives, or when the
application posts an event, and at no other time: a steady heartbeat costs two wake-ups. Requests are performed here;
effects for the application's thread go into its queue, and then the one frozen `MemberView` is replaced.

Does not own: any protocol rule (`member/`), connections (`network`), what the application's thread does with its
effects (`group_member`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, assert_never

import anyio
import anyio.abc
import msgspec

from kip848_client.common.clock import Clock, lease_ns
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent
from kip848_client.consumer.group.assignor_runner import AssignorRunner
from kip848_client.consumer.group.commit_manager import CommitManager
from kip848_client.errors import IllegalStateError, Kip848Error, MaxPollExceededError
from kip848_client.member.core.assignor_events import (
    AssignorFailed,
    AssignorsUnsupported,
    CallOnAssignment,
    DescribeAssignors,
    GroupRestless,
    RunAssignor,
)
from kip848_client.member.core.events import (
    AUTOMATIC_COMMIT_ID,
    AppProgressed,
    AssignPartitions,
    CommitDone,
    ConnectCoordinator,
    DescribeTopics,
    Destination,
    Fail,
    GroupLeft,
    HandOverFailed,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MemberView,
    OffsetsFetched,
    PausePartitions,
    ProcessResumed,
    RequestFailed,
    RequestMetadata,
    RevokePartitions,
    SendRequest,
    SlotsUnseen,
    SlotTaken,
    StandbyBegan,
    StartFetching,
    StateChanged,
    StopFetching,
    SurfaceError,
    Tick,
)
from kip848_client.member.core.statistics import Statistics
from kip848_client.network.gauges import gauges_of
from kip848_client.network.observer import MemberObserver
from kip848_client.network.ownership import HomeProcess
from kip848_client.network.presence import AppPresence
from kip848_client.network.queues import AppQueue, Inbox, Posted
from kip848_client.network.requests import MemberRequest, RequestPerformer

AppEffect: TypeAlias = (
    PausePartitions
    | RevokePartitions
    | AssignPartitions
    | LosePartitions
    | StartFetching
    | StopFetching
    | SurfaceError
    | StandbyBegan
    | Fail
)
"""Effects that the application's thread performs, in order."""

MakePerformer: TypeAlias = Callable[[anyio.abc.TaskGroup, Callable[[MemberEvent], None]], RequestPerformer]
"""Builds the performer of requests from the loop's task group and a function that steps an unrequested event."""

DETACHED_LEAVE_ID: Final = 0
"""Request id of a leave that no application waits for; `CommitManager` counts from 1."""

_DETACHED_LEAVE_MS: Final = 5_000
"""How long a consumer that failed waits for the answer to its leave."""

_STOPPED_NS: Final = 2_000_000_000
"""If this thread runs so much too late, the process was stopped. A wrong guess costs one heartbeat."""

_PATIENCE_S: Final = 0.1
"""How long an automatic commit waits for the application to poll: most do so soon, and know best how far they are."""

_STOP_GRACE_S: Final = 0.1
"""How long stopping waits for requests that are written already, or about to be: the leave, above all."""


def _no_progress() -> None:
    """Nothing is known."""


def _looks_for_coordinator(effect: MemberRequest) -> bool:
    match effect:
        case ConnectCoordinator():
            return True
        case SendRequest(destination=destination):
            return destination is Destination.ANY_BROKER
        case _:
            return False


class SteppedMember(Protocol):
    """The part of `kip848_client.member.member.Member` that this thread needs."""

    def step(self, event: MemberEvent, *, now_ms: int) -> list[MemberEffect]:
        """Take one event; return what to do, in order."""
        ...

    def deadline_ms(self) -> int | None:
        """When a `Tick` is due."""
        ...

    def view(self) -> MemberView:
        """The view that the application's thread may read."""
        ...

    @property
    def statistics(self) -> Statistics:
        """Counts and times, which the member goes on writing."""
        ...


class _Stop(msgspec.Struct, frozen=True):
    """Inbox item: end the thread."""


class _Detach(msgspec.Struct, frozen=True):
    """Inbox item: no application is left. Leave the group without it, then end the thread."""

    leave: LeaveRequested


class HeartbeatRequestManager:
    """Runs one member. Started by the first event that is posted, on whatever thread or in whatever signal handler.

    Args:
        member: stepped on the background thread only.
        make_performer: called on the background thread.
        app_queue: takes the effects for the application's thread.
        commits: takes the ends of commits, offset fetches and leaves.
        presence: knows when the application was last inside poll().
        observer: logs and measures states and requests.
        clock: the time that the member is given.
        name: of the thread.
        assignors: calls the user's client-side assignors, elsewhere; `report` takes the answers.
    """

    def __init__(
        self,
        member: SteppedMember,
        *,
        make_performer: MakePerformer,
        app_queue: AppQueue[AppEffect],
        commits: CommitManager,
        presence: AppPresence,
        observer: MemberObserver,
        clock: Clock,
        name: str,
        assignors: AssignorRunner | None = None,
    ) -> None:
        self._member = member
        self._assignors = assignors
        self._make_performer = make_performer
        self._app_queue = app_queue
        self._commits = commits
        self._presence = presence
        self._observer = observer
        self._clock = clock
        self._name = name
        self.home: Final = HomeProcess()
        self._inbox: Inbox[MemberEvent | _Stop | _Detach] = Inbox(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None
        self._thread: threading.Thread | None = None
        """The thread that runs; set by itself."""
        self._started = False
        self._offered = threading.Lock()
        """Taken by the start that offers the gauges."""
        self._claimed = threading.Lock()
        """Taken for good by the thread that runs. A signal handler may have come in the middle of a start, and made
        another thread, as may two threads that post the first events: all but the first of them end at once."""
        self._ended = threading.Lock()
        """Released when the thread has ended."""
        self._ended.acquire()
        self._draining = False
        self._performer: RequestPerformer | None = None
        self._stopping: anyio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._patience: asyncio.TimerHandle | None = None
        """Until the application is asked how far it is; see `_ask_for_progress`."""
        self._progress_seen: object = None
        self.lease_ns: Callable[[], int] = lease_ns
        """A clock that counts the time for which the process or the machine was stopped."""
        self.trusted_until_ns: float = math.inf
        """By `lease_ns`: this thread should have run by then. If it has not, the process was stopped."""
        self.resumed_ms: int | None = None
        """When the process went on after it was stopped, until a heartbeat is accepted."""
        self._ticked_ms = -1
        self._detached: LeaveRequested | None = None
        self._requests: set[asyncio.Future[None]] = set()
        self._on_alarm: Final = self._guarded(self._on_timer)

        self.progress: Callable[[], AppProgressed | None] = _no_progress
        """Says how far the application is while it is outside poll() (this thread); None if it must be asked again."""
        self.progress_every_s: float = _PATIENCE_S
        """How often, at most."""

        # Read by the other threads, written by this one.
        self.view: MemberView = member.view()
        self.mark: object = object()
        """Replaced when the application's thread has something to look at: a new view, an effect, a finished call."""
        self.last_joined: tuple[str, int, str | None] | None = None
        """Member id, epoch and slot of the last time that the member was in the group; they outlive its removal."""
        self.processed: int = 0
        """How many posted events were processed; for tests."""
        self.crashed: BaseException | None = None
        """The exception that ended the thread: a bug of this library."""
        self.failed_lookups: int = 0
        """Times that no broker named the coordinator, or that it could not be reached."""
        self.wake_ups: int = 0
        """Times that the thread woke for a deadline or an answer; for tests of its thrift."""

    # --- from the other threads

    @property
    def statistics(self) -> Statistics:
        """Counts and times of the member, which this thread goes on writing."""
        return self._member.statistics

    def post(self, event: MemberEvent) -> Posted[MemberEvent | _Stop | _Detach]:
        """Give the member an event (any thread). It is ``done`` once its effects and its view are visible.

        Raises:
            ForkedProcessError: this is a child of the process that made the consumer.
        """
        self.home.check()
        if not self._began:
            self._start()
        return self._inbox.post(event)

    def report(self, event: MemberEvent) -> None:
        """Step an event from a thread that is neither the application's nor this one, and waits for nothing."""
        self._call_soon(self._guarded(lambda: self._step(event)))

    def look_up(self) -> None:
        """Have the next poll() look at the member, as if something had moved (any thread)."""
        self.mark = object()

    def quiet_s(self) -> float:
        """How long `mark` will stay, as far as that is known (any thread): 0 while an answer or an event is awaited.

        Ask before looking at `mark`. What cannot be foreseen may replace it earlier: another thread, a clock moved by
        hand.
        """
        if self._requests or self._draining or self._inbox.items:
            return 0.0
        due_ms = self._armed_ms
        return math.inf if due_ms is None else (due_ms - self._clock.now_ms()) / 1_000

    def in_doubt(self) -> bool:
        """Whether the process was stopped, and no heartbeat was accepted since: others may have its partitions.

        For the thread that polls. Records are handed out once it is false.
        """
        if self.resumed_ms is None and self.lease_ns() > self.trusted_until_ns:
            self.report(ProcessResumed())
            return True
        return self.resumed_ms is not None

    def nudge(self) -> None:
        """Take the posted events, in case the call that posted one was cut off before it woke this thread."""
        self._inbox.nudge()

    def poke(self) -> None:
        """Look at the clock again: it may have been moved by hand."""
        self._call_soon(self._guarded(self._on_timer))

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or will with the first event. In a child of its process it never does."""
        return not self.home.left and self.crashed is None and (self._thread is None or self._thread.is_alive())

    def stop(self, *, timeout_s: float) -> bool:
        """End the thread. Requests that are being written get a moment to reach the socket.

        Returns:
            Whether the thread ended in time; it is a daemon either way.
        """
        if not self._began:
            return True
        self._inbox.post(_Stop())
        return self._join(timeout_s)

    def detach(self, *, timeout_s: float) -> bool:
        """The application is gone without close(): leave the group without calling its listeners, then end."""
        if not self._began or not self.alive:
            return True
        deadline_ms = self._clock.now_ms() + int(timeout_s * 1_000)
        self._inbox.post(_Detach(LeaveRequested(DETACHED_LEAVE_ID, deadline_ms, closing=True)))
        return self._join(timeout_s)

    def leave_without_listeners(self) -> None:
        """The application's thread cannot go on: leave the group without its listeners, then end. Waits for nothing."""
        deadline_ms = self._clock.now_ms() + _DETACHED_LEAVE_MS
        self._inbox.post(_Detach(LeaveRequested(DETACHED_LEAVE_ID, deadline_ms, closing=True)))

    def _join(self, timeout_s: float) -> bool:
        if threading.current_thread() is self._thread:
            return False  # a garbage collection on this very thread dropped the consumer
        until_s = time.monotonic() + timeout_s
        if not self._ended.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX)):
            return False
        self._ended.release()
        assert self._thread is not None
        self._thread.join(max(0.0, min(until_s - time.monotonic(), threading.TIMEOUT_MAX)))
        return not self._thread.is_alive()

    @property
    def _began(self) -> bool:
        """Whether the thread runs, or has run, or was started a moment ago."""
        return self._started or self._thread is not None

    def _start(self) -> None:
        if self._offered.acquire(blocking=False):
            self._observer.offer(
                gauges_of(
                    statistics=self._member.statistics,
                    view=lambda: self.view,
                    presence=self._presence,
                    inbox=self._inbox,
                    app_queue=self._app_queue,
                    clock=self._clock,
                )
            )
        daemon_thread(self._run, self._name).start()
        self._started = True

    def _wake(self) -> None:
        self._call_soon(self._guarded(self._drain))

    def _call_soon(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            try:
                # In this loop's context: the caller's may say that it runs in trio, and anyio would believe it.
                loop.call_soon_threadsafe(callback, context=self._context)
            except RuntimeError:  # the loop was closed meanwhile; a waiting caller sees that the thread has ended
                self._app_queue.wake()

    # --- on the background thread

    def _run(self) -> None:
        if not self._claimed.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        try:
            anyio.run(self._main, backend="asyncio")
        except BaseException as error:  # noqa: BLE001  the application must get any error
            self._crash(error)
        finally:
            self._loop = None
            self._commits.fail_all(IllegalStateError("the consumer is closed"))
            self._observer.ended()
            if self._assignors is not None:
                self._assignors.stop(timeout_s=0)
            self.trusted_until_ns = math.inf
            self.mark = object()
            self._app_queue.wake()
            self._ended.release()

    async def _main(self) -> None:
        self._stopping = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                self._performer = self._make_performer(tasks, self._step)
                self._context = contextvars.copy_context()
                self._loop = asyncio.get_running_loop()
                self._drain()
                await self._stopping.wait()
                self._disarm()
                if self._patience is not None:
                    self._patience.cancel()
                await self._flush()
                tasks.cancel_scope.cancel()
        finally:
            if self._performer is not None:
                with anyio.CancelScope(shield=True):
                    await self._performer.aclose()

    async def _flush(self) -> None:
        """Give requests that were just started the time to be written, and an immediate answer the time to come."""
        if self._requests:
            await asyncio.wait(self._requests, timeout=_STOP_GRACE_S)
        for task in self._requests:
            task.cancel()

    def _drain(self) -> None:
        self._draining = True  # before it is empty: see `quiet_s`
        taken = self._inbox.drain()
        for posted in taken:
            match posted.item:
                case _Stop():
                    self._stop_soon()
                case _Detach(leave=leave):
                    self._detach(leave)
                case event:
                    self._step(event)
            self.processed += 1
            posted.done = True
        self._draining = False
        if taken:
            self._app_queue.wake()

    def _on_timer(self) -> None:
        deadline_ms = self._armed_ms  # every step sets it, so the member need not be asked again
        self._timer = None
        now_ms = self._clock.now_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.wake_ups += 1
            self._ticked_ms = now_ms
            self._step(Tick(app_polled_ms=self._presence.last_polled_ms(now_ms)))
        else:
            self._armed_ms = None
            self._arm()

    def _step(self, event: MemberEvent) -> None:
        if self._stopping is not None and self._stopping.is_set():
            return
        if self.lease_ns() > self.trusted_until_ns:
            self._resume()
        effects = self._member.step(event, now_ms=self._clock.now_ms())
        self._observer.stepped(self._member.statistics)
        moved = False
        view = self._member.view()
        self._observer.known_as(view.member_id)
        for effect in effects:
            moved = self._perform(effect) or moved
        if view.version != self.view.version:
            if (view.member_id, view.member_epoch) != (self.view.member_id, self.view.member_epoch):
                self._observer.rename(member_id=view.member_id, member_epoch=view.member_epoch)
            if view.member_epoch > 0:
                self.last_joined = (view.member_id, view.member_epoch, view.instance_id)
            self.view = view
            moved = True
        if self.resumed_ms is not None and self._confirmed():
            self.resumed_ms = None
            moved = True
        if moved:
            self.mark = object()
            self._app_queue.wake()
        if view.poll_wanted and self._patience is None and self._loop is not None:
            self._patience = self._loop.call_later(_PATIENCE_S, self._guarded(self._ask_for_progress))
        self._arm()

    def _resume(self) -> None:
        """The process was stopped: no record is handed out before a heartbeat is accepted."""
        self.trusted_until_ns = math.inf  # `_arm` sets it again
        self._armed_ms = None
        if self.view.member_epoch > 0:
            self.resumed_ms = self._clock.now_ms()
            self.mark = object()
            self._step(ProcessResumed())

    def _confirmed(self) -> bool:
        accepted_ms = self._observer.heartbeat_accepted_ms
        return self.view.member_epoch <= 0 or (accepted_ms is not None and accepted_ms >= (self.resumed_ms or 0))

    def _ask_for_progress(self) -> None:
        """A poll() was due some time ago. A handler may be slow: commit what was returned before its record."""
        self._patience = None
        if not self.view.poll_wanted or self._loop is None or (self._stopping is not None and self._stopping.is_set()):
            return
        self._patience = self._loop.call_later(self.progress_every_s, self._guarded(self._ask_for_progress))
        moves = self._presence.moves
        if not self._presence.inside and moves != self._progress_seen:
            progressed = self.progress()
            if progressed is not None:
                self._progress_seen = moves if progressed.stored is None else None
                self._step(progressed)

    def _perform(self, effect: MemberEffect) -> bool:
        """Do what *effect* says, or queue it. Returns whether the application's thread has something to look at."""
        match effect:
            case SendRequest() | ConnectCoordinator() | RequestMetadata() | ListOffsets() | DescribeTopics():
                self._start_request(effect)
                return False
            case CommitDone():
                automatic = effect.commit_id == AUTOMATIC_COMMIT_ID
                if effect.gone:
                    self._observer.commit_gave_up(effect.gone)
                if effect.offsets or not effect.gone:
                    self._observer.commit_ended(effect.offsets, effect.error, automatic=automatic)
                return self._commits.complete(effect)
            case OffsetsFetched():
                return self._commits.complete(effect)
            case LeaveDone():
                self._observer.left()
                if self._detached is not None and self._detached.leave_id == effect.leave_id:
                    self._stop_soon()
                return self._commits.complete(effect)
            case StateChanged():
                self._observer.state_changed(effect)
                return False
            case RevokePartitions() | AssignPartitions() | LosePartitions() if self._detached is not None:
                self._answer_for_listener(effect)
                return False
            case DescribeAssignors() | RunAssignor() | CallOnAssignment():
                assert self._assignors is not None
                self._assignors.perform(effect)
                return False
            case AssignorFailed(error=error):
                self._observer.assignor_failed(error)
                return False
            case AssignorsUnsupported(missing=missing):
                self._observer.assignors_unsupported(missing)
                return False
            case GroupRestless(text=text):
                self._observer.group_restless(text)
                return False
            case GroupLeft(reason=reason):
                self._observer.group_left(reason)
                return False
            case HandOverFailed(reason=reason):
                self._observer.hand_over_failed(reason)
                return False
            case StandbyBegan(waited_ms=waited_ms):
                self._observer.standing_by(effect)
                if waited_ms:
                    return False
            case SlotTaken():
                self._observer.slot_taken(effect)
                return False
            case SlotsUnseen(reason=reason):
                self._observer.slots_unseen(reason)
                return False
            case Fail(error=error):
                self._observer.failed(error)
            case SurfaceError(error=error):
                if isinstance(error, MaxPollExceededError):
                    self._observer.poll_missed(silent_ms=self._presence.silent_ms(self._clock.now_ms()))
                self._observer.surfaced(error)
            case StartFetching(positions=positions, starts=starts):
                self._observer.fetching_started(positions, starts)
            case RevokePartitions() | AssignPartitions() | LosePartitions() | PausePartitions() | StopFetching():
                pass
            case _:
                assert_never(effect)
        self._app_queue.put(effect)
        return True

    def _start_request(self, effect: MemberRequest) -> None:
        assert self._loop is not None
        assert self._performer is not None
        end: asyncio.Future[None] = self._loop.create_future()
        if self._performer.start(effect, partial(self._started_ended, end, effect)):
            self._requests.add(end)
            return
        # asyncio's own task, not the task group's: steps run in callbacks of the loop, where anyio cannot start one.
        task = self._loop.create_task(self._answer(effect), name=type(effect).__name__)
        self._requests.add(task)
        task.add_done_callback(self._request_ended)

    async def _answer(self, effect: MemberRequest) -> None:
        assert self._performer is not None
        self._answered(effect, await self._performer.perform(effect))

    def _started_ended(self, end: asyncio.Future[None], effect: MemberRequest, event: MemberEvent | None) -> None:
        """A request that needed no task has ended with *event*."""
        try:
            self._answered(effect, event)
        except Exception as error:  # noqa: BLE001  a bug, wherever it is
            self._crash(error)
            self._stop_soon()
        finally:
            self._requests.discard(end)  # not before the step: see `quiet_s`
            end.cancel()

    def _answered(self, effect: MemberRequest, event: MemberEvent | None) -> None:
        if isinstance(event, RequestFailed) and _looks_for_coordinator(effect):
            self.failed_lookups += 1
            self._app_queue.wake()
        if event is not None:
            self.wake_ups += 1
            self._step(event)

    def _request_ended(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crash(error)
            self._stop_soon()

    # --- timer and end

    def _arm(self) -> None:
        deadline_ms = self._member.deadline_ms()
        if deadline_ms is not None:
            deadline_ms = max(deadline_ms, self._ticked_ms + 1)  # never spin on a deadline that a Tick did not move
        if deadline_ms == self._armed_ms:
            return
        self._disarm()
        if deadline_ms is None or self._loop is None or (self._stopping is not None and self._stopping.is_set()):
            return
        self._armed_ms = deadline_ms
        delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1_000
        self.trusted_until_ns = self.lease_ns() + delay_s * 1e9 + _STOPPED_NS
        self._timer = self._loop.call_later(delay_s, self._on_alarm)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._armed_ms = None
        self.trusted_until_ns = math.inf

    def _stop_soon(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    def _detach(self, leave: LeaveRequested) -> None:
        self._detached = leave
        while (effect := self._app_queue.first()) is not None:
            if isinstance(effect, (RevokePartitions, AssignPartitions, LosePartitions)):
                self._answer_for_listener(effect)
            self._app_queue.done(effect)
        self._step(leave)

    def _answer_for_listener(self, effect: RevokePartitions | AssignPartitions | LosePartitions) -> None:
        assert self._loop is not None
        self._loop.call_soon(self._guarded(lambda: self._step(ListenerDone(effect.token))))

    def _guarded(self, callback: Callable[[], None]) -> Callable[[], None]:
        """*callback* for the loop: its exception ends the thread, instead of a line in a log and a silent consumer."""

        def guarded() -> None:
            try:
                callback()
            except Exception as error:  # noqa: BLE001  a bug, wherever it is
                self._crash(error)
                self._stop_soon()

        return guarded

    def _crash(self, error: BaseException) -> None:
        if self.crashed is None:
            failure = Kip848Error(
                f"the heartbeat thread {self._name} died of {error!r}; close this consumer and make a new one"
            )
            failure.__cause__ = error
            self._app_queue.put(Fail(failure))  # first: who sees that the thread has ended looks here for the reason
            self.crashed = error
            self._observer.log(logging.CRITICAL, LogEvent.HEARTBEAT_THREAD_DIED, error=repr(error))
            self._commits.fail_all(failure)
