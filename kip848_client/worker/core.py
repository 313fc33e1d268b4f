"""The protocol of one worker: joins, heartbeats, stops before it starts, and never outlives its lease. Pure.

The shell hands in events with the time and performs effects; callbacks run elsewhere, one at a time, and heartbeats go
on meanwhile. The rules:

* W1: A worker makes its member id itself, one for each start of the process.
* W2: One heartbeat is under way at a time; the next one is sent on the interval, or at once when there is news.
* W3: Units that are not assigned any more, or have another token, stop before new ones start.
* W4: Stopped units are acknowledged at once, before anything is started.
* W5: After a failure the next heartbeat has every field.
* W6: An error that no retry cures stops the worker: it releases everything, and then ``wait()`` raises the error.
* W7: A worker that was removed releases everything (``on_lost``), and joins again under its id.
* W8: Callbacks run one at a time; heartbeats go on meanwhile.
* W9: The lease counts from the sending of the last accepted heartbeat, and units stop a margin before its end.
* W10: The coordinator removes a worker that does not stop revoked units within the rebalance timeout, so the lease also
  ends a margin before that. The time counts from the first heartbeat without an answer, since any of their answers may
  revoke units. It no longer counts when a heartbeat named all owned units, and its answer revokes none of them.
* W11: After the end of a lease nothing starts before the answer to a heartbeat that was sent after all had stopped.
* W12: Leaving: stop everything, then say so; the units are free with the answer.
* W13: Heartbeats are numbered; the coordinator refuses one that arrives after a later one.
* W14: A unit that was given and taken back before it started is confirmed too, at once.
* W15: A heartbeat that names what runs also names units that have not started. Others can be given away at once.
* W16: If a plan is newer than this worker's list of units, its units start when the function for the list has returned
  one as new. After ``worker.sync.timeout.ms`` the worker leaves, for ``worker.unsync.backoff.ms`` or until then.
* W17: Units whose `on_assigned` raised are stopped and started again after a while.
* W18: A classic coordinator removes a member that has not joined its round in time, although it answers its heartbeats.
  The round began after the last heartbeat that was answered without one, so the lease ends a margin before that time
  is over.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from kip848_client.common.model import Unit
from kip848_client.errors import ErrorCode, Kip848Error
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.connect_group_heartbeat import (
    Assignment,
    Catalog,
    ClientAssignor,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.worker.events import (
    Answered,
    CallbackDone,
    CallbackKind,
    CloseRequested,
    Confirmed,
    DrainRequested,
    GiveUpRequested,
    Left,
    LossReason,
    NotAnswered,
    Noted,
    OwnedUnit,
    Planned,
    ReadUnits,
    RebalanceRequested,
    RunCallback,
    Send,
    StartRequested,
    StopNow,
    UnitsChanged,
    WorkerEffect,
    WorkerEvent,
    WorkerFailed,
    WorkerRequest,
    WorkerTick,
    WorkerView,
)
from kip848_client.worker.planning import REASON_DRAINING, REASON_REQUESTED, Planning, units_on_wire
from kip848_client.worker.refusals import may_pass, refusal

CLOCK_DRIFT: Final = 0.1
"""How much slower than the coordinator's the worker's clock may run."""

_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
_FIRST_INTERVAL_MS: Final = 1_000
"""Between attempts to join before a coordinator has named its interval."""

_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class WorkerPhase(enum.Enum):
    """The present step of the worker; each phase belongs to one `MemberState`."""

    IDLE = "idle"
    """Not started, or drained."""
    JOINING = "joining"
    """Sends full heartbeats of epoch 0 until it has an epoch."""
    IN_SYNC = "in_sync"
    """Runs its units."""
    REVOKING = "revoking"
    """`on_revoked` is running, or is to be tried again."""
    ASSIGNING = "assigning"
    """`on_assigned` is running."""
    LEAVING = "leaving"
    """Stops everything; then the leave heartbeat is sent."""
    LEFT = "left"
    FATAL = "fatal"


_STATES: Final[Mapping[WorkerPhase, MemberState]] = {
    WorkerPhase.IDLE: MemberState.UNJOINED,
    WorkerPhase.JOINING: MemberState.UNJOINED,
    WorkerPhase.IN_SYNC: MemberState.STABLE,
    WorkerPhase.REVOKING: MemberState.RECONCILING,
    WorkerPhase.ASSIGNING: MemberState.RECONCILING,
    WorkerPhase.LEAVING: MemberState.RECONCILING,
    WorkerPhase.LEFT: MemberState.UNJOINED,
    WorkerPhase.FATAL: MemberState.FATAL,
}


class WorkerSettings(msgspec.Struct, frozen=True):
    """The settings that a worker starts with.

    Args:
        elects: it stands behind an election.
        start_backoff_ms, start_backoff_ms_max: after how long units are stopped and started again whose `on_assigned`
            raised, at first and at most; None: never.
        fence_margin_ms: how long before the end of its lease the worker stops its units; None: a third of the session.
        hold_failed_stops: an `on_revoked` that raises is tried again and not acknowledged; else it counts as stopped.
        reads_units: the application can be asked for its list of units again.
        sync_timeout_ms: how long it may take until that list is as new as the plan.
        unsync_backoff_ms: how long the worker then stays out of the group.
    """

    group_id: str
    member_id: str
    worker_id: str
    instance_id: str | None = None
    worker_url: str | None = None
    rebalance_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fence_margin_ms: int | None = None
    hold_failed_stops: bool = True
    server_assignor: str = "uniform"
    client_assignors: tuple[str, ...] = ()
    reads_units: bool = False
    sync_timeout_ms: int = 3_000
    unsync_backoff_ms: int = 300_000
    elects: bool = False
    start_backoff_ms: int | None = None
    start_backoff_ms_max: int = 30_000


class _Calling(msgspec.Struct, frozen=True):
    call_id: int
    kind: CallbackKind
    units: tuple[OwnedUnit, ...]


class WorkerCore:
    """One worker."""

    def __init__(self, settings: WorkerSettings, *, offset: int, units: Iterable[Unit]) -> None:
        self._settings: Final = settings
        self._catalogue = (offset, frozenset(units))
        self._phase = WorkerPhase.IDLE
        self._now_ms: int
        self._effects: list[WorkerEffect] = []
        self._ids = 0
        # The membership
        self._epoch = 0
        self._interval_ms = _FIRST_INTERVAL_MS
        self._session_ms = 0
        self._backoff_ms = settings.retry_backoff_ms
        self._look_anew = False
        self._in_flight: dict[int, tuple[int, bool]] = {}
        """Heartbeat without an answer -> when it was sent, and whether it has client-side assignors; one at most."""
        self._beat_due_ms: int | None = None
        self._say_all = self._say_owned = self._say_catalogue = True
        """Parts of the next heartbeat: every field (as in a join), units that run here, the list of units."""
        self._status = 0
        # The units
        self._assigned: dict[Unit, int] = {}
        """Units that the coordinator gave and this worker may run, unit -> token."""
        self._last_assignment: frozenset[Unit] = frozenset()
        """Units of the last assignment that the coordinator sent in an answer that counts."""
        self._pending: tuple[Unit, ...] = ()
        self._owned: dict[Unit, int] = {}
        """Units that run here, or may run: from before on_assigned to after on_revoked or on_lost."""
        self._failed: set[Unit] = set()
        self._calling: _Calling | None = None
        self._lost = False
        """Everything must be released before anything else."""
        self._loss = (LossReason.REMOVED, 0)
        """Why everything was lost, and until when the units may act."""
        self._last_before_release = 0
        """The last request before everything was released."""
        self._retry_stop_ms: int | None = None
        self._restart_ms: int | None = None
        """When units whose start failed are stopped, to be started again."""
        self._failed_starts = 0
        """In a row."""
        self._read_units_ms: int | None = None
        """When to ask for the list of units again, since the plan is newer."""
        self._sync_deadline_ms: int | None = None
        """Until when the list of units must become as new as the plan; no unit starts before."""
        self._rejoin_ms: int | None = None
        # The lease
        self._confirmed_ms: int | None = None
        """Send time of the last heartbeat that was accepted."""
        self._counted_in_ms = 0
        """The same of what was accepted in a conversation while no round waited, also before the first heartbeat."""
        self._revoking_since_ms: int | None = None
        """Since when the coordinator may wait for a revocation: a heartbeat's send time; None: it waits for none."""
        self._settled_ms: int | None = None
        """W18: send time of the last heartbeat by whose answer no round waits for this worker; in classic groups."""
        self._unanswered_ms: int | None = None
        """Send time of the first heartbeat since the last answer."""
        self._sent_owned_units: frozenset[Unit] | None = None
        """The owned units in the heartbeat under way; None if it does not name them."""
        self._planning = (
            Planning(
                settings.client_assignors,
                group_id=settings.group_id,
                member_id=settings.member_id,
                worker_url=settings.worker_url,
                send=self._send,
                emit=self._emit,
                note=self._note,
            )
            if settings.client_assignors
            else None
        )
        # The end
        self._closing: CloseRequested | None = None
        self._left_sent = False
        self._draining = False
        self._draining_in_group: DrainRequested | None = None
        self._comes_back = False
        """It leaves only so that the others take its units."""
        self._error: Kip848Error | None = None

    # --- calls of the shell

    def step(self, event: WorkerEvent, *, now_ms: int) -> list[WorkerEffect]:
        """Take one event."""
        self._now_ms = now_ms
        self._effects = []
        match event:
            case StartRequested():
                if self._phase is WorkerPhase.IDLE:
                    self._phase = WorkerPhase.JOINING
                    self._beat_due_ms = now_ms
            case Answered(request_id, response):
                self._answered(request_id, response)
            case NotAnswered(request_id, error, final):
                self._not_answered(request_id, error, final=final)
            case Confirmed(sent_ms, settled):
                if settled:
                    self._counted_in_ms = max(self._counted_in_ms, sent_ms)
                if self._in_flight and self._confirmed_ms is not None and not self._lost:
                    before_ms = self._confirmed_ms if self._settled_ms is None else self._settled_ms
                    self._settled_ms = max(before_ms, sent_ms) if settled else before_ms  # W18
                    self._confirmed_ms = max(self._confirmed_ms, sent_ms)  # W9
            case CallbackDone():
                self._called(event)
            case UnitsChanged(offset, units):
                self._catalogue = (offset, units)
                self._say_catalogue = True
                self._beat_now()
                if self._rejoin_ms is not None and not self._is_behind():
                    self._rejoin_ms = now_ms
            case RebalanceRequested():
                self._trigger(REASON_REQUESTED)
            case DrainRequested():
                self._drain(event)
            case GiveUpRequested(units, in_group):
                self._give_up(units, in_group=in_group)
            case Planned(plan_id, plan):
                if self._planning is not None:
                    self._planning.planned(plan_id, plan, epoch=self._epoch, now_ms=now_ms)
            case CloseRequested():
                self._closing = self._closing or event
            case WorkerTick():
                if self._planning is not None and self._planning.tick(now_ms=now_ms):
                    self._beat_now()
            case _:
                assert_never(event)
        self._advance()
        return self._effects

    def deadline_ms(self) -> int | None:
        """When a `WorkerTick` is due; None if only another event can move the worker."""
        if self._phase is WorkerPhase.LEFT:
            return None  # a callback may still run; its end is an event
        due = [] if self._in_flight else [self._beat_due_ms]
        due += [self._release_at_ms() if self._owned and not self._lost else None, self._retry_stop_ms]
        due.append(self._restart_ms)
        due += [self._read_units_ms, self._sync_deadline_ms, self._rejoin_ms]
        if self._closing is not None:
            due.append(self._closing.deadline_ms)
        if self._planning is not None:
            due += [self._planning.due_ms, self._planning.retry_ms]
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def view(self) -> WorkerView:
        """The worker as it is now."""
        is_releasing = self._lost and self._phase not in (WorkerPhase.FATAL, WorkerPhase.LEAVING)
        return WorkerView(
            state=MemberState.RELEASING_ASSIGNMENT if is_releasing else _STATES[self._phase],
            member_id=self._settings.member_id,
            member_epoch=self._epoch,
            assignment=() if self._lost else _ordered(self._owned),
            pending=self._pending,
            failed=tuple(sorted(self._failed)),
            lease_ends_ms=None if self._lost or not self._owned else self._release_at_ms(),
            waiting=tuple(sorted(self._assigned.keys() - self._owned.keys())),
            session_timeout_ms=self._session_ms,
            assignor_status=self._status,
            error=self._error,
        )

    # --- answers

    def _answered(self, request_id: int, response: object) -> None:
        if self._planning is not None and self._planning.is_waiting_for(request_id):
            if self._planning.answered(response):
                self._beat_now()
            return
        sent = self._in_flight.pop(request_id, None)
        if sent is None or not isinstance(response, ConnectGroupHeartbeatResponse):
            return
        if self._left_sent:
            self._leave_done()
            return
        code = response.error_code
        if not code:
            self._accepted(response, *sent, is_old=request_id <= self._last_before_release)
        elif code in _REJOIN and (self._epoch or code != ErrorCode.GROUP_ID_NOT_FOUND):
            self._note("fenced", error=ErrorCode(code).name)
            self._removed()
        elif may_pass(error := refusal(code, response.error_message or "", elects=self._settings.elects)):
            self._look_anew = True
            self._note("request_failed", error=str(error))
            self._retry()
        else:
            self._fail(error)

    def _accepted(self, response: ConnectGroupHeartbeatResponse, sent_ms: int, offers: bool, *, is_old: bool) -> None:
        self._backoff_ms = self._settings.retry_backoff_ms
        self._interval_ms = max(1, response.heartbeat_interval_ms)
        if response.session_timeout_ms != self._session_ms:
            self._session_ms = response.session_timeout_ms
            given_ms, margin_ms = self._settings.fence_margin_ms, self._margin_ms()
            if given_ms not in (None, margin_ms):
                self._note(
                    "margin_changed", given_ms=given_ms, margin_ms=margin_ms, session_timeout_ms=self._session_ms
                )
        self._status = response.assignor_status
        # W9: the session began no earlier than this. A first round may take longer than a session.
        self._confirmed_ms = max(self._confirmed_ms or 0, self._counted_in_ms, sent_ms)
        if self._planning is not None and offers:
            self._planning.accepted()
        self._epoch = response.member_epoch
        if self._beat_due_ms is None:  # W2: else there is news since it was sent
            self._beat_due_ms = self._now_ms + self._interval_ms
        if self._lost or is_old:
            return  # W11: it does not answer what has stopped since
        if response.assignment is not None:
            self._take(response.assignment)
        if self._settled_ms is not None:
            self._settled_ms = max(self._settled_ms, sent_ms)
        self._note_wait(response.assignment)
        if self._planning is not None and response.should_compute_assignment:
            self._planning.compute(epoch=self._epoch)
        drain = self._draining_in_group
        if drain is not None and drain.then_close and self._sent_owned_units == frozenset() and not self._assigned:
            self._close()  # the coordinator knows that nothing runs here, and the others have what ran

    def _take(self, assignment: Assignment) -> None:
        self._assigned = {
            Unit(item.name, index): token
            for item in assignment.assigned
            for index, token in zip(item.indexes, item.epochs, strict=True)
        }
        self._pending = tuple(sorted(Unit(item.name, index) for item in assignment.pending for index in item.indexes))
        if self._planning is not None:
            self._planning.plan_received(
                assignment.metadata_bytes,
                version=assignment.metadata_version,
                error=assignment.error,
                now_ms=self._now_ms,
                session_ms=self._session_ms,
            )

    def _note_wait(self, assignment: Assignment | None) -> None:
        """W10: note whether the coordinator is now waiting for this worker to stop units.

        It waits until a heartbeat names none of the units that it took away. A heartbeat without a list of running
        units counts as one that names all units that were given to this worker.
        """
        given = self._last_assignment if assignment is None else frozenset(self._assigned)
        named = self._last_assignment if self._sent_owned_units is None else self._sent_owned_units
        waits = not named <= given or (self._sent_owned_units is None and self._revoking_since_ms is not None)
        if not waits:
            self._revoking_since_ms = None
        elif self._revoking_since_ms is None:
            self._revoking_since_ms = self._unanswered_ms
        self._last_assignment, self._unanswered_ms = given, None
        if waits and not self._to_stop():
            self._say_owned = True  # W14: no unit has to stop, but the coordinator waits to be told so
            self._beat_now()

    def _not_answered(self, request_id: int, error: Kip848Error, *, final: bool) -> None:
        if self._planning is not None and self._planning.is_waiting_for(request_id):
            self._planning.not_answered()
        elif self._in_flight.pop(request_id, None) is None:
            pass  # it was abandoned
        elif self._left_sent:
            self._leave_done()
        elif final:
            self._fail(error)
        else:
            self._note("request_failed", error=str(error))
            self._retry()

    def _retry(self) -> None:
        """W5: the heartbeat after a failure has every field, since it is unknown what the coordinator received."""
        self._say_all = True
        backoff_ms = min(self._backoff_ms, self._settings.retry_backoff_max_ms)
        self._backoff_ms = 2 * backoff_ms
        self._beat_due_ms = self._now_ms + min(backoff_ms, self._interval_ms)

    def _removed(self) -> None:
        """W7: this worker is not in the group any more: release everything; what follows is for the caller to say."""
        self._lose(LossReason.REMOVED if self._error is None else LossReason.FAILED, act_until_ms=self._now_ms)
        self._epoch = 0
        self._pending = ()
        if self._planning is not None:
            self._planning.drop()
        self._confirmed_ms = self._settled_ms = None
        self._beat_due_ms = None

    def _fail(self, error: Kip848Error) -> None:
        self._error = error
        self._removed()
        self._phase = WorkerPhase.FATAL

    def _lose(self, reason: LossReason, *, act_until_ms: int) -> None:
        """Give up everything, at once where a runner can be told."""
        if self._owned and not self._lost:
            self._effects.append(StopNow(_ordered(self._owned)))
        if not self._lost or act_until_ms < self._loss[1]:
            self._loss = reason, act_until_ms
        self._lost = True
        self._assigned = {}  # only a new answer may start anything again
        self._retry_stop_ms = self._restart_ms = self._read_units_ms = self._sync_deadline_ms = None

    # --- callbacks

    def _called(self, done: CallbackDone) -> None:
        calling = self._calling
        if calling is None or calling.call_id != done.call_id:
            return
        self._calling = None
        if calling.kind is CallbackKind.ASSIGNED:
            self._failed |= done.failed & self._owned.keys()
            self._say_owned = True
            self._failed_starts = self._failed_starts + 1 if done.failed else 0
            if done.failed:
                self._note("start_failed", units=[str(unit) for unit in sorted(done.failed)])
                self._restart_later()
        elif (
            calling.kind is CallbackKind.REVOKED and done.failed and self._settings.hold_failed_stops and not self._lost
        ):
            self._retry_stop_ms = self._now_ms + self._interval_ms
            self._note("stop_failed", units=[str(unit) for unit in sorted(done.failed)])
            if self._failed:
                self._restart_later()
        else:
            for owned in calling.units:
                self._owned.pop(owned.unit, None)
                self._failed.discard(owned.unit)
            if calling.kind is CallbackKind.REVOKED:
                self._say_owned = True
                self._beat_now()  # W4: acknowledged at once, before anything is started

    def _restart_later(self) -> None:
        """W17: stop units whose start failed after a while, so that they are started again."""
        backoff_ms = self._settings.start_backoff_ms
        if backoff_ms is not None and not self._lost:
            doubled_ms = backoff_ms << min(max(self._failed_starts - 1, 0), 30)
            self._restart_ms = self._now_ms + min(doubled_ms, self._settings.start_backoff_ms_max)

    def _call(
        self, kind: CallbackKind, units: Mapping[Unit, int], reason: LossReason | None = None, act_until_ms: int = 0
    ) -> None:
        self._ids += 1
        self._calling = _Calling(self._ids, kind, _ordered(units))
        self._effects.append(RunCallback(self._ids, kind, self._calling.units, reason, act_until_ms))

    def _act_until_ms(self) -> int:
        """No other worker can start the units of this one before: the lease with its margin, without that for drift."""
        release_at_ms = self._release_at_ms()
        return self._now_ms if release_at_ms is None else release_at_ms + self._stop_ms()

    # --- moving on

    def _advance(self) -> None:
        """Do what can be done now."""
        release_at_ms = self._release_at_ms()
        if self._owned and not self._lost and release_at_ms is not None and self._now_ms >= release_at_ms:
            self._note("lease_ended", units=[str(unit) for unit in sorted(self._owned)])
            self._lose(LossReason.LEASE_ENDED, act_until_ms=self._act_until_ms())  # W9
        if self._calling is None:
            self._next_step()
        self._heartbeat()

    def _next_step(self) -> None:
        if self._lost:
            if self._owned:
                self._call(CallbackKind.LOST, self._owned, *self._loss)
                return
            self._lost = False
            self._last_before_release = self._ids
            self._say_all = True
            if self._phase is WorkerPhase.FATAL:
                assert self._error is not None
                self._effects.append(WorkerFailed(self._error))
            self._beat_now()
        if self._phase in (WorkerPhase.IDLE, WorkerPhase.LEFT, WorkerPhase.FATAL):
            if self._phase is WorkerPhase.IDLE:
                if self._closing is not None:
                    self._phase = WorkerPhase.LEFT
                    self._effects.append(Left())
                elif self._rejoin_ms is not None and self._now_ms >= self._rejoin_ms:
                    self._rejoin_ms = None
                    self._phase = WorkerPhase.JOINING
                    self._beat_now()
            return
        if self._closing is not None or self._draining:
            self._leave()
            return
        self._reconcile()

    def _reconcile(self) -> None:
        """W3: stop units that are not ours any more, acknowledge that, then start new ones."""
        to_stop = self._to_stop()
        if to_stop:
            if self._retry_stop_ms is None or self._now_ms >= self._retry_stop_ms:
                self._retry_stop_ms = None
                self._phase = WorkerPhase.REVOKING
                reason = LossReason.MOVED if self._draining_in_group is None else LossReason.CLOSED
                self._call(CallbackKind.REVOKED, to_stop, reason, self._act_until_ms())
            return
        self._retry_stop_ms = None
        if self._restart_ms is not None and self._now_ms >= self._restart_ms:
            self._restart_ms = None
            failed = {unit: token for unit, token in self._owned.items() if unit in self._failed}
            if failed:
                self._phase = WorkerPhase.REVOKING
                self._call(CallbackKind.REVOKED, failed, LossReason.FAILED, self._act_until_ms())  # W17
                return
        to_start = {unit: token for unit, token in self._assigned.items() if unit not in self._owned}
        ends_ms = self._release_at_ms()
        if to_start and self._is_behind():
            self._wait_for_units()
            return
        self._read_units_ms = self._sync_deadline_ms = None
        if to_start and ends_ms is not None and self._now_ms < ends_ms:
            self._heartbeat()  # W4: the acknowledgement leaves first
            self._phase = WorkerPhase.ASSIGNING
            self._owned.update(to_start)
            self._call(CallbackKind.ASSIGNED, to_start)
            return
        if to_start and self._confirmed_ms is not None and self._now_ms - self._confirmed_ms >= self._interval_ms:
            self._beat_now()  # W9: the answer took longer than the lease; the next one comes soon
        self._phase = WorkerPhase.IN_SYNC if self._epoch else WorkerPhase.JOINING

    def _is_behind(self) -> bool:
        """Whether the plan is of a newer list of units than the application's, which can be asked."""
        return (
            self._settings.reads_units
            and self._planning is not None
            and self._planning.catalogue_offset > self._catalogue[0]
        )

    def _wait_for_units(self) -> None:
        """W16: ask for the list of units until it is as new as the plan; leave for a while if it does not become so."""
        self._phase = WorkerPhase.ASSIGNING
        if self._sync_deadline_ms is None:
            self._sync_deadline_ms = self._now_ms + self._settings.sync_timeout_ms
        elif self._now_ms >= self._sync_deadline_ms:
            self._note("units_behind", known=self._catalogue[0])
            self._read_units_ms = self._sync_deadline_ms = None
            self._rejoin_ms = self._now_ms + self._settings.unsync_backoff_ms
            self._draining = True
            self._leave()
            return
        if self._read_units_ms is None or self._now_ms >= self._read_units_ms:
            self._read_units_ms = self._now_ms + self._settings.retry_backoff_ms
            self._emit(ReadUnits())

    def _to_stop(self) -> dict[Unit, int]:
        """Units that run and are no longer assigned, or were with another worker in between, as their token shows."""
        return {unit: token for unit, token in self._owned.items() if self._assigned.get(unit) != token}

    # --- leaving

    def _drain(self, drain: DrainRequested) -> None:
        if self._planning is not None:
            self._trigger(REASON_DRAINING)
        elif not drain.in_group:
            self._draining = True
        if self._planning is not None or drain.in_group:
            self._draining_in_group = drain
            self._say_owned = True  # its answer may be the one after which nothing is left to do
            self._beat_now()
        if drain.then_close and (not self._epoch or self._draining):
            self._close()

    def _give_up(self, units: frozenset[Unit], *, in_group: bool) -> None:
        if in_group:
            self._beat_now()
        elif self._epoch and not self._draining and not units.isdisjoint(self._owned):
            self._draining = self._comes_back = True

    def _close(self) -> None:
        self._closing = self._closing or CloseRequested(self._now_ms + self._settings.request_timeout_ms)

    def _leave(self) -> None:
        self._phase = WorkerPhase.LEAVING
        if self._owned:
            if self._retry_stop_ms is None or self._now_ms >= self._retry_stop_ms:
                self._retry_stop_ms = None
                self._call(CallbackKind.REVOKED, self._owned, LossReason.CLOSED, self._act_until_ms())
        elif not self._left_sent and not self._in_flight:
            if self._confirmed_ms is None:
                self._leave_done()
                return
            self._left_sent = True
            closing = self._closing
            for_a_while = closing is not None and closing.for_a_while and self._settings.instance_id is not None
            self._send(
                ConnectGroupHeartbeatRequest(
                    group_id=self._settings.group_id,
                    member_id=self._settings.member_id,
                    member_epoch=_LEAVE_FOR_A_WHILE if for_a_while else _LEAVE,
                    instance_id=self._settings.instance_id,
                )
            )

    def _leave_done(self) -> None:
        self._left_sent = False
        self._epoch, self._confirmed_ms, self._settled_ms, self._beat_due_ms = 0, None, None, None
        self._assigned, self._pending, self._last_assignment = {}, (), frozenset()
        self._in_flight.clear()
        if self._closing is None:
            self._draining = False
            self._phase = WorkerPhase.IDLE
            if self._comes_back:
                self._comes_back = False
                self._rejoin_ms = self._now_ms + 2 * self._interval_ms  # the others have taken the units by then
            return
        self._phase = WorkerPhase.LEFT
        self._effects.append(Left())

    # --- heartbeats

    def _beat_now(self) -> None:
        is_removed = self._lost and not self._epoch  # W7: it joins again when everything is released
        if self._phase not in (WorkerPhase.IDLE, WorkerPhase.LEFT, WorkerPhase.FATAL) and not is_removed:
            self._beat_due_ms = self._now_ms

    def _heartbeat(self) -> None:
        """W2: one at a time, on the interval, and at once where something must be said."""
        closing = self._closing
        if closing is not None and self._now_ms >= closing.deadline_ms and self._phase is not WorkerPhase.LEFT:
            if self._owned:
                # The coordinator gets no leave, so no other worker gets the units before the session is over.
                self._emit(StopNow(_ordered(self._owned)))
                self._owned.clear()
            self._leave_done()
        if self._beat_due_ms is None or self._now_ms < self._beat_due_ms or self._in_flight or self._left_sent:
            return
        joins = not self._epoch
        everything = self._say_all or joins
        settings = self._settings
        # W15: name also units that are about to start: the coordinator gives a unit away at once if it is not named.
        self._sent_owned_units = frozenset((*self._owned, *self._assigned)) if everything or self._say_owned else None
        if self._unanswered_ms is None:
            self._unanswered_ms = self._now_ms
        request = ConnectGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=settings.member_id,
            member_epoch=self._epoch,
            instance_id=settings.instance_id,
            worker_id=settings.worker_id if everything else None,
            worker_url=settings.worker_url if everything else None,
            rebalance_timeout_ms=settings.rebalance_timeout_ms if everything else -1,
            server_assignor=self._server_assignor() if everything else None,
            client_assignors=self._offers(everything=everything),
            catalog=self._catalog() if everything or self._say_catalogue else None,
            owned_units=None if self._sent_owned_units is None else units_on_wire(self._sent_owned_units),
        )
        self._say_all = self._say_owned = self._say_catalogue = False
        self._beat_due_ms = None
        self._send(request)

    def _server_assignor(self) -> str | None:
        return self._settings.server_assignor if self._planning is None else None

    def _offers(self, *, everything: bool) -> tuple[ClientAssignor, ...] | None:
        planning = self._planning
        if planning is None or not (everything or planning.says_offers):
            return None
        planning.says_offers = False
        return planning.offers()

    def _trigger(self, reason: int) -> None:
        assert self._planning is not None, "the coordinator computes the plans"
        self._planning.trigger(reason)
        self._beat_now()

    def _catalog(self) -> Catalog | None:
        offset, units = self._catalogue
        return Catalog(offset=offset, units=units_on_wire(units))

    def _send(self, request: WorkerRequest) -> int:
        self._ids += 1
        if isinstance(request, ConnectGroupHeartbeatRequest):
            request = replace(request, sequence=self._ids)  # W13
            self._in_flight = {self._ids: (self._now_ms, request.client_assignors is not None)}
        timeout_ms = self._settings.request_timeout_ms
        if self._session_ms:
            timeout_ms = min(timeout_ms, max(1, self._session_ms // 3))  # W9: another try must fit into the lease
        self._effects.append(Send(self._ids, request, timeout_ms, anew=self._look_anew))
        self._look_anew = False
        return self._ids

    def _release_at_ms(self) -> int | None:
        """When the units must be stopped: a margin before the coordinator may assign them to other workers."""
        if self._confirmed_ms is None or not self._session_ms:
            return None
        margin_ms = self._margin_ms()
        ends_ms = self._confirmed_ms + self._session_ms - margin_ms
        # W10: a heartbeat without an answer may have been the one from which the coordinator counts.
        waits_ms = self._unanswered_ms if self._revoking_since_ms is None else self._revoking_since_ms
        if waits_ms is not None:
            timeout_ms = self._settings.rebalance_timeout_ms
            # With a timeout much longer than the session, the margin must still cover drifting clocks and the stop.
            late_ms = max(margin_ms, int(timeout_ms * CLOCK_DRIFT) + self._stop_ms())
            ends_ms = min(ends_ms, waits_ms + timeout_ms - min(late_ms, timeout_ms // 2))
        if self._settled_ms is not None:  # W18
            timeout_ms = round_timeout_ms(
                rebalance_timeout_ms=self._settings.rebalance_timeout_ms, session_timeout_ms=self._session_ms
            )
            late_ms = max(margin_ms, int(timeout_ms * CLOCK_DRIFT) + self._stop_ms())
            ends_ms = min(ends_ms, self._settled_ms + timeout_ms - min(late_ms, timeout_ms // 2))
        return ends_ms

    def _margin_ms(self) -> int:
        given_ms = self._settings.fence_margin_ms
        least_ms = int(self._session_ms * CLOCK_DRIFT)
        return max(least_ms, self._session_ms // 3 if given_ms is None else min(given_ms, self._session_ms - 1))

    def _stop_ms(self) -> int:
        """How long stopping may take after the end of the lease: the part of the margin that is not for drift."""
        return min(self._session_ms // 5, self._margin_ms() - int(self._session_ms * CLOCK_DRIFT))

    def _emit(self, effect: WorkerEffect) -> None:
        self._effects.append(effect)

    def _note(self, what: str, **fields: object) -> None:
        self._emit(Noted(what, fields))


def round_timeout_ms(*, rebalance_timeout_ms: int, session_timeout_ms: int) -> int:
    """How long a round of a classic group may wait for its members (W18).

    A round has to wait for a silent member until its session is over, and not for units: they stop between two rounds.
    """
    return min(rebalance_timeout_ms, 2 * session_timeout_ms)


def _ordered(units: Mapping[Unit, int]) -> tuple[OwnedUnit, ...]:
    return tuple(OwnedUnit(unit, units[unit]) for unit in sorted(units))
