"""The core of a worker, with the clock moved by hand; the numbers are those of the scenarios in the specification."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan, WorkerSpec
from kip848_client.common.model import Unit
from kip848_client.errors import BrokerError, CatalogConflictError, ConnectionLostError, ErrorCode
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.connect_group_heartbeat import (
    AssignedUnits,
    Assignment,
    Catalog,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
    UnitsOfName,
)
from kip848_client.wire.messages.connect_group_install_assignment import (
    ConnectGroupInstallAssignmentRequest,
    ConnectGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.connect_group_install_assignment import Member as InstalledMember
from kip848_client.wire.messages.connect_group_prepare_assignment import (
    ConnectGroupPrepareAssignmentRequest,
    ConnectGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.connect_group_prepare_assignment import Member as PreparedMember
from kip848_client.wire.messages.connect_protocol import PlanMetadata, WorkerMetadata, decode, encode
from kip848_client.worker.core import WorkerCore, WorkerSettings
from kip848_client.worker.events import (
    Answered,
    CallbackDone,
    CallbackKind,
    CloseRequested,
    Confirmed,
    DrainRequested,
    Left,
    LossReason,
    NotAnswered,
    Noted,
    Plan,
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
    WorkerTick,
    WorkerView,
)

SESSION_MS, INTERVAL_MS = 45_000, 5_000


class Bench:
    """A core, its clock, and what it asked for last."""

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {"group_id": "g", "member_id": "m", "worker_id": "w", "request_timeout_ms": 30_000}
        self.core = WorkerCore(WorkerSettings(**(defaults | settings)), offset=0, units=[Unit("a"), Unit("b")])
        self.now_ms = 0
        self.sent: list[Send] = []
        self.calls: list[RunCallback] = []
        self.effects: list[WorkerEffect] = []
        self.step(StartRequested())

    def step(self, event: WorkerEvent) -> list[WorkerEffect]:
        """Step one event."""
        effects = self.core.step(event, now_ms=self.now_ms)
        self.sent += [effect for effect in effects if isinstance(effect, Send)]
        self.calls += [effect for effect in effects if isinstance(effect, RunCallback)]
        self.effects += effects
        assert len({call.call_id for call in self.calls}) == len(self.calls)
        return effects

    def request(self) -> ConnectGroupHeartbeatRequest:
        """The last heartbeat."""
        request = self.sent[-1].request
        assert isinstance(request, ConnectGroupHeartbeatRequest)
        return request

    def answer(
        self,
        epoch: int = 1,
        units: str | None = None,
        *,
        token: int = 1,
        code: int = 0,
        interval_ms: int = INTERVAL_MS,
        pending: str = "",
        status: int = 0,
        message: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        """Answer the last heartbeat; units are names."""
        assigned = None
        if units is not None:
            assigned = Assignment(
                assigned=tuple(AssignedUnits(name=name, indexes=(-1,), epochs=(token,)) for name in units.split()),
                pending=tuple(UnitsOfName(name=name, indexes=(-1,)) for name in pending.split()),
            )
        self.step(
            Answered(
                self.sent[-1].request_id,
                ConnectGroupHeartbeatResponse(
                    error_code=code,
                    error_message=message,
                    member_id="m",
                    member_epoch=epoch,
                    heartbeat_interval_ms=interval_ms,
                    session_timeout_ms=session_ms,
                    assignor_status=status,
                    assignment=assigned,
                ),
            )
        )

    def done(self, *failed: str) -> None:
        """End the callback that runs."""
        self.step(CallbackDone(self.calls[-1].call_id, frozenset(map(Unit, failed))))

    def notes(self) -> list[WorkerEffect]:
        """All that is for the log."""
        return [effect for effect in self.effects if isinstance(effect, Noted)]

    def pass_time(self, ms: int) -> None:
        """Move the clock, ticking at every deadline."""
        until_ms = self.now_ms + ms
        while (due_ms := self.core.deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.step(WorkerTick())
        self.now_ms = until_ms

    @property
    def last_call(self) -> tuple[str, list[str]]:
        """Kind and units of the last callback."""
        return self.calls[-1].kind.value, [str(owned.unit) for owned in self.calls[-1].units]

    def owned(self) -> list[str] | None:
        """What the last heartbeat said that it owns."""
        return self.named(self.sent[-1])

    @staticmethod
    def named(send: Send) -> list[str] | None:
        """The units that a heartbeat names."""
        assert isinstance(send.request, ConnectGroupHeartbeatRequest)
        units = send.request.owned_units
        return None if units is None else [item.name for item in units]


def running(**settings: Any) -> Bench:
    """A worker that runs a and b at epoch 1."""
    bench = Bench(**settings)
    bench.answer(1, "a b")
    bench.done()
    return bench


def test_a_worker_joins_with_every_field_and_starts_what_it_is_given() -> None:
    """The first heartbeat is the contract; owned units are confirmed with the next one."""
    bench = Bench(worker_url="http://w")
    assert bench.core.view() == WorkerView(MemberState.UNJOINED, "m", 0, (), (), (), None)
    request = bench.request()
    assert (request.member_epoch, request.server_assignor, bench.owned(), request.rebalance_timeout_ms) == (
        0,
        "uniform",
        [],
        60_000,
    )
    assert request.catalog is not None
    assert (request.worker_id, request.worker_url) == ("w", "http://w")

    bench.answer(1, "a b")
    assert bench.last_call == ("on_assigned", ["a", "b"])
    assert bench.core.view().state is MemberState.RECONCILING
    bench.done("b")
    bench.pass_time(INTERVAL_MS)

    assert bench.owned() == ["a", "b"]
    assert (bench.request().worker_id, bench.request().worker_url) == (None, None)
    assert bench.core.view().failed == (Unit("b"),)
    assert bench.core.view().state is MemberState.STABLE
    assert bench.notes() == [Noted("start_failed", {"units": ["b"]})]
    bench.answer(1, "a")
    bench.done()
    assert bench.core.view().failed == (), "b does not run here any more"


def test_heartbeats_go_on_while_a_unit_is_stopped() -> None:
    """Scenario 57: a stop that takes 20 s must not cost the membership."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, "a")
    assert bench.last_call == ("on_revoked", ["b"])
    assert bench.core.view().state is MemberState.RECONCILING
    before = len(bench.sent)
    for _ in range(4):
        bench.pass_time(INTERVAL_MS)
        assert bench.owned() is None
        bench.answer(1)
    assert len(bench.sent) == before + 4

    bench.done()

    assert bench.owned() == ["a"]
    assert bench.request().member_epoch == 1
    bench.answer(1)
    assert bench.core.view().lease_ends_ms == bench.now_ms + 30_000, "W10: the coordinator waits no longer"


def test_a_stop_that_ends_during_a_heartbeat_is_acknowledged_by_the_next_one_at_once() -> None:
    """W4: the units would run nowhere for another interval."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, "a")
    bench.pass_time(INTERVAL_MS)
    bench.done()
    bench.answer(1)
    assert (bench.now_ms, bench.owned()) == (2 * INTERVAL_MS, ["a"])


def test_what_is_new_starts_after_the_acknowledgement() -> None:
    """Scenario 58 and W15: the stop is confirmed first, by naming what is about to start and not what has stopped.

    What a worker does not name is given away at once when the coordinator takes it: it would run in two places.
    """
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, "b c", token=2)  # b came back with another token: another worker had it in between
    assert bench.last_call == ("on_revoked", ["a", "b"])

    effects = bench.core.step(CallbackDone(bench.calls[-1].call_id), now_ms=bench.now_ms)

    assert [type(effect).__name__ for effect in effects] == ["Send", "RunCallback"]
    (send, call) = effects
    assert isinstance(send, Send)
    assert isinstance(send.request, ConnectGroupHeartbeatRequest)
    assert bench.named(send) == ["b", "c"]
    assert isinstance(call, RunCallback)
    assert [(one.name, str(one)) for one in call.units] == [("b", "b (token 2)"), ("c", "c (token 2)")]


@pytest.mark.parametrize(("margin_ms", "ends_ms"), [(None, 30_000), (9_000, 36_000), (1, 40_500), (99_000, 1)])
def test_units_stop_the_margin_before_the_lease_ends(margin_ms: int | None, ends_ms: int) -> None:
    """W9: a third of the session by default, and never less than clocks may differ."""
    assert running(fence_margin_ms=margin_ms).core.view().lease_ends_ms == ends_ms


def test_a_margin_that_does_not_fit_the_session_is_said_once() -> None:
    """An operator who set it would rely on a time that is not kept."""
    bench = running(fence_margin_ms=99_000)
    bench.pass_time(INTERVAL_MS)
    bench.answer(1)
    fields = {"given_ms": 99_000, "margin_ms": 44_999, "session_timeout_ms": 45_000}
    assert bench.notes().count(Noted("margin_changed", fields)) == 1


def test_what_was_taken_back_before_it_started_is_confirmed() -> None:
    """W14: the coordinator removes a worker that does not answer, and gives away what it still runs."""
    bench = running()
    bench.step(CloseRequested(deadline_ms=60_000))  # on_revoked hangs
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, "a b c")
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, "a b")
    assert bench.owned() == ["a", "b"]


def test_heartbeats_are_numbered() -> None:
    """W13: one that was given up must not count when it arrives after the next."""
    bench = running()
    numbers = [bench.request().sequence]
    for _ in range(3):
        bench.pass_time(INTERVAL_MS)
        numbers.append(bench.request().sequence)
        bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.answer(1)
    bench.step(CloseRequested(deadline_ms=60_000))
    bench.done()
    numbers.append(bench.request().sequence)
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("hold", [True, False])
def test_a_stop_that_fails_is_tried_again_or_counts(hold: bool) -> None:
    """Scenario 59: with ``hold`` a unit that may still run is not given to others."""
    bench = running(hold_failed_stops=hold)
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, "a")
    bench.done("b")
    assert bench.notes() == ([Noted("stop_failed", {"units": ["b"]})] if hold else [])
    if hold:
        assert bench.owned() != ["a"]
        assert bench.last_call[0] == "on_revoked"
        assert len(bench.calls) == 2, "the application is not called again and again"
        bench.pass_time(INTERVAL_MS)
        bench.answer(1)
        assert len([call for call in bench.calls if call.kind.value == "on_revoked"]) == 2
        bench.done()
    assert bench.owned() == ["a"]


def test_a_unit_that_is_given_back_before_its_stop_succeeds_runs_on() -> None:
    """The worker would step without end, to try a stop again that is wanted no more."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, "a")
    bench.done("b")
    bench.step(UnitsChanged(7, frozenset()))
    bench.answer(1, "a b")
    assert bench.core.deadline_ms() == bench.core.view().lease_ends_ms
    assert len(bench.calls) == 2


@pytest.mark.parametrize(("came_ms", "starts"), [(29_999, True), (30_000, False)])
def test_what_comes_when_the_lease_is_over_starts_nothing(came_ms: int, starts: bool) -> None:
    """Another worker may have the units in an instant."""
    bench = Bench()
    bench.now_ms = came_ms
    bench.answer(1, "a b")
    assert bool(bench.calls) == starts


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_removed_worker_loses_everything_and_joins_again_under_its_id(code: ErrorCode) -> None:
    """Scenario 60: nothing runs twice, and the process needs no restart."""
    bench = Bench()
    bench.answer(1, "a b", pending="c")
    bench.done()
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=code)
    assert bench.last_call == ("on_lost", ["a", "b"])
    assert Noted("fenced", {"error": code.name}) in bench.effects
    view = bench.core.view()
    assert (view.assignment, view.pending, view.lease_ends_ms) == ((), (), None)
    sent = len(bench.sent)
    bench.pass_time(60_000)
    assert len(bench.sent) == sent, "it joins when everything has stopped"

    bench.done()

    assert (bench.request().member_epoch, bench.request().member_id, bench.owned()) == (0, "m", [])
    assert len([call for call in bench.calls if call.kind.value == "on_lost"]) == 1
    assert len([effect for effect in bench.effects if isinstance(effect, StopNow)]) == 1


@pytest.mark.parametrize("busy_with", ["news", "a failed stop", "a stop", "a list of units", "a delay"])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_removed_worker_waits_for_on_lost_alone(busy_with: str, code: ErrorCode) -> None:
    """Its thread would step without end while a unit takes its time to stop."""
    bench = running(client_assignors=("own",), reads_units=True)
    bench.pass_time(INTERVAL_MS)
    if busy_with == "a list of units":
        _plan_at(bench, catalog_offset=8, units="a b c")
    elif busy_with == "a delay":
        _plan_at(bench, catalog_offset=0, units="a b", delay_ms=1)
    elif busy_with != "news":
        bench.answer(1, "a")
    if busy_with == "a failed stop":
        bench.done("b")
    bench.step(UnitsChanged(7, frozenset()))  # said at once, unless a heartbeat is under way
    sent = len(bench.sent)
    bench.answer(code=code)
    if busy_with == "a stop":
        bench.done()
        bench.step(CallbackDone(bench.calls[-2].call_id))  # it is no answer to on_lost
    bench.step(UnitsChanged(9, frozenset()))  # said with the join
    assert bench.last_call[0] == "on_lost"
    assert (len(bench.sent), bench.core.deadline_ms()) == (sent, None)


def test_a_removed_worker_that_closes_has_nothing_to_leave() -> None:
    """It would ask a coordinator that has forgotten it, and wait for the answer."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert bench.core.view().state is MemberState.RELEASING_ASSIGNMENT
    bench.step(CloseRequested(deadline_ms=60_000))
    bench.done()
    assert bench.effects[-1] == Left()


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (ErrorCode.INVALID_REQUEST, "a catalogue conflict", CatalogConflictError),
        (ErrorCode.INVALID_REQUEST, "other", BrokerError),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "a catalogue conflict", BrokerError),
    ],
)
def test_a_refusal_says_whether_the_list_of_units_is_at_fault(code: int, message: str, kind: type[BrokerError]) -> None:
    """An application that catches `CatalogConflictError` waits for a newer list."""
    bench = Bench()
    bench.answer(code=code, message=message)
    failed = bench.effects[-1]
    assert isinstance(failed, WorkerFailed)
    assert isinstance(failed.error, BrokerError)
    assert (isinstance(failed.error, CatalogConflictError), failed.error.fatal) == (kind is CatalogConflictError, True)
    assert bench.core.view().error is failed.error


def test_a_removed_worker_without_units_has_nothing_to_stop() -> None:
    """A runner would be told to stop what it does not run."""
    bench = Bench()
    bench.answer(1)
    assert bench.core.view().lease_ends_ms is None
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert (bench.request().member_epoch, bench.calls) == (0, [])
    assert not any(isinstance(effect, StopNow) for effect in bench.effects)


@pytest.mark.parametrize(("code", "joins"), [("UNKNOWN_MEMBER_ID", True), ("GROUP_ID_NOT_FOUND", False)])
def test_a_join_into_a_group_of_another_kind_is_final(code: str, joins: bool) -> None:
    """The name of a consumer group stays refused, and the application must hear of it."""
    bench = Bench()
    bench.answer(code=ErrorCode[code])
    assert bench.core.view().state is (MemberState.UNJOINED if joins else MemberState.FATAL)
    assert [type(effect) for effect in bench.effects[-1:]] == [Send if joins else WorkerFailed]


@pytest.mark.parametrize(
    ("interval_ms", "pauses_ms"),
    [(INTERVAL_MS, [100, 200, 400, 800, 1_000, 1_000]), (150, [100, 150, 150])],
)
def test_each_failure_is_followed_by_a_longer_pause(interval_ms: int, pauses_ms: list[int]) -> None:
    """Workers must not flood a coordinator that is down, nor be silent for longer than their interval."""
    bench = Bench()
    for _ in range(2):  # an answer makes the pauses short again
        bench.answer(1, interval_ms=interval_ms)
        bench.pass_time(interval_ms)
        paused_ms = []
        for _ in pauses_ms:
            bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
            paused_ms.append((bench.core.deadline_ms() or 0) - bench.now_ms)
            bench.pass_time(paused_ms[-1])
        assert paused_ms == pauses_ms


def test_an_interval_of_nothing_does_not_make_the_worker_spin() -> None:
    """A coordinator with a mistake in its settings would keep a processor of every worker busy."""
    bench = Bench()
    bench.answer(1, interval_ms=0)
    assert bench.core.deadline_ms() == 1


@pytest.mark.parametrize(
    ("request_ms", "session_ms", "waits_ms"), [(30_000, 45_000, 15_000), (5_000, 45_000, 5_000), (5_000, 2, 1)]
)
def test_an_answer_is_awaited_so_long_that_another_try_fits_into_the_lease(
    request_ms: int, session_ms: int, waits_ms: int
) -> None:
    """W9: one lost answer would cost the units."""
    bench = Bench(request_timeout_ms=request_ms)
    assert bench.sent[0].timeout_ms == request_ms, "the session is not known yet"
    bench.answer(1, session_ms=session_ms)
    bench.pass_time(INTERVAL_MS)
    assert bench.sent[-1].timeout_ms == waits_ms


def test_what_the_coordinator_says_of_the_group_can_be_read() -> None:
    """An operator sees which units wait for others to stop, and that no worker can compute a plan."""
    bench = Bench()
    bench.answer(1, "a", pending="b", status=1)
    assert (bench.core.view().pending, bench.core.view().assignor_status) == ((Unit("b"),), 1)


@pytest.mark.parametrize("answered_first", [True, False])
def test_the_lease_ends_a_margin_before_the_session(answered_first: bool) -> None:
    """Scenarios 61 and 62: counted from when the last accepted heartbeat was sent, not from its answer."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    sent_ms = bench.now_ms
    bench.pass_time(4_000)
    bench.answer(1)  # the answer came 4 s later
    while bench.now_ms < sent_ms + 29_999:
        bench.pass_time(min(1_000, sent_ms + 29_999 - bench.now_ms))
        bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    assert bench.last_call[0] != "on_lost"

    bench.pass_time(1)

    assert (bench.now_ms, bench.core.view().lease_ends_ms) == (sent_ms + 30_000, None)
    assert bench.last_call == ("on_lost", ["a", "b"])
    assert bench.notes()[-1] == Noted("lease_ended", {"units": ["a", "b"]})
    assert any(isinstance(effect, StopNow) for effect in bench.effects)
    if answered_first:
        bench.answer(1, "a b")
        bench.done()
    else:
        bench.done()
        bench.answer(1, "a b")
    assert bench.last_call[0] == "on_lost", "W11: this heartbeat named what has stopped since"
    assert (bench.request().member_epoch, bench.owned()) == (1, []), "it comes back without joining anew"
    bench.answer(1, "a b")
    assert bench.last_call == ("on_assigned", ["a", "b"])


@pytest.mark.parametrize(
    ("timeout_ms", "margin_ms", "lease_ms"),
    [(20_000, None, 10_000), (60_000, None, 45_000), (600_000, None, 531_000), (600_000, 9_000, 535_500)],
)
def test_an_unacknowledged_revocation_ends_the_lease_before_the_coordinator_evicts(
    timeout_ms: int, margin_ms: int | None, lease_ms: int
) -> None:
    """Scenario 62: everything is lost 45 s after the heartbeat was sent; later with a longer rebalance timeout.

    In ten minutes clocks drift by a minute, and nine seconds remain to stop. Half of a short timeout remains to work.
    """
    bench = running(rebalance_timeout_ms=timeout_ms, fence_margin_ms=margin_ms)
    bench.pass_time(INTERVAL_MS)
    last_ms = bench.now_ms + lease_ms - 1
    bench.answer(1, "a")
    while bench.now_ms < last_ms:
        bench.pass_time(min(INTERVAL_MS, last_ms - bench.now_ms))
        bench.answer(1)
    assert bench.core.view().assignment

    bench.pass_time(1)

    assert bench.core.view().assignment == ()
    assert bench.core.view().state is MemberState.RELEASING_ASSIGNMENT
    assert any(isinstance(effect, StopNow) for effect in bench.effects)
    bench.done()  # the revocation, at last
    assert bench.last_call == ("on_lost", ["a"])


def test_the_coordinator_may_wait_since_a_heartbeat_whose_answer_was_lost() -> None:
    """Found by the simulation: counted from the answer that arrived, the units would run elsewhere before they stop."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    lost_ms = bench.now_ms
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.pass_time(1_000)
    bench.answer(1, "a")
    while bench.now_ms < lost_ms + 44_999:
        bench.pass_time(min(INTERVAL_MS, lost_ms + 44_999 - bench.now_ms))
        bench.answer(1)
    assert bench.core.view().assignment

    bench.pass_time(1)

    assert bench.core.view().assignment == ()


def test_a_first_round_that_took_longer_than_the_lease_costs_no_units() -> None:
    """W9: a fleet that starts waits for group.initial.rebalance.delay.ms, and for its slowest worker."""
    bench = Bench()
    bench.now_ms = SESSION_MS
    bench.step(Confirmed(bench.now_ms, settled=True))  # the SyncGroup of the join
    bench.answer(1, "a b")
    assert bench.last_call == ("on_assigned", ["a", "b"])
    bench.done()
    assert bench.core.view().lease_ends_ms == bench.now_ms + SESSION_MS - SESSION_MS // 3


def test_a_first_round_that_the_next_one_has_overtaken_counts_from_its_sync_group() -> None:
    """W18: the next round waits for this worker from then on, although its heartbeats are accepted."""
    bench = Bench()
    bench.step(Confirmed(bench.now_ms, settled=True))  # the SyncGroup of the join
    began_ms = bench.now_ms
    bench.now_ms += 100
    bench.step(Confirmed(bench.now_ms))  # REBALANCE_IN_PROGRESS
    bench.answer(1, "a b")
    bench.done()
    assert bench.core.view().lease_ends_ms == began_ms + SESSION_MS - SESSION_MS // 3


def test_a_worker_that_may_be_removed_by_a_round_stops_before() -> None:
    """W18: its JoinGroup may be lost although its heartbeats are answered; after the round's time it is removed."""
    bench = running(rebalance_timeout_ms=600_000)
    bench.pass_time(INTERVAL_MS)  # a heartbeat, without an answer from here on: it became a JoinGroup
    for _ in range(60):
        bench.step(Confirmed(bench.now_ms))
        bench.now_ms += INTERVAL_MS // 5
    assert bench.core.view().lease_ends_ms == 2 * SESSION_MS - (2 * SESSION_MS // 10 + SESSION_MS // 5)
    bench.step(Confirmed(bench.now_ms, settled=True))
    assert bench.core.view().lease_ends_ms == bench.now_ms + SESSION_MS - SESSION_MS // 3


def test_a_heartbeat_without_an_answer_may_have_asked_for_a_stop() -> None:
    """W10: a cut-off worker that was asked to stop a unit is removed by the rebalance timeout, before its session ends.

    The worker has not heard that it was asked.
    """
    bench = running(rebalance_timeout_ms=30_000)
    bench.pass_time(INTERVAL_MS)
    bench.answer(1, "a b")
    assert bench.core.view().lease_ends_ms == INTERVAL_MS + SESSION_MS - 15_000
    bench.pass_time(INTERVAL_MS)
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.pass_time(1_000)  # the next try is under way
    assert bench.core.view().lease_ends_ms == 2 * INTERVAL_MS + 30_000 - 15_000


def test_a_failure_is_followed_by_a_heartbeat_with_every_field() -> None:
    """It is unknown which fields of an unanswered request the coordinator has taken."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.pass_time(1_000)

    assert (bench.owned(), bench.request().rebalance_timeout_ms) == (["a", "b"], 60_000)
    assert bench.request().catalog is not None


def test_a_callback_that_ended_before_does_not_end_the_present_one() -> None:
    """A unit would count as stopped while it still runs, and another worker would start it."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, "a")
    assert bench.last_call == ("on_revoked", ["b"])
    bench.step(CallbackDone(bench.calls[0].call_id))
    bench.pass_time(INTERVAL_MS)
    assert bench.owned() != ["a"]
    bench.done()
    bench.step(CallbackDone(bench.calls[-1].call_id))  # nothing runs
    bench.answer(2)
    assert bench.owned() == ["a"]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_worker_looks_for_the_coordinator_that_moved_and_says_everything_to_it(code: ErrorCode) -> None:
    """A restart of one broker must not cost a worker its units."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=code)
    bench.pass_time(1_000)
    assert [send.anew for send in bench.sent] == [False, False, True]
    assert (bench.request().member_epoch, bench.owned(), bench.request().rebalance_timeout_ms) == (
        1,
        ["a", "b"],
        60_000,
    )
    assert bench.core.view().assignment
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    assert bench.sent[-1].anew is False


def test_closing_ends_at_its_deadline_whatever_still_runs() -> None:
    """A callback that hangs, or a coordinator that is gone, must not hang the process that wants to end."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.step(CloseRequested(deadline_ms=bench.now_ms + 3_000, for_a_while=False))
    bench.pass_time(2_999)
    assert not any(isinstance(effect, StopNow | Left) for effect in bench.effects)
    bench.pass_time(1)
    assert bench.core.deadline_ms() is None  # or the loop would step for ever while the callback hangs
    stop, left = bench.effects[-2:]
    assert isinstance(stop, StopNow)
    assert [str(owned.unit) for owned in stop.units] == ["a", "b"]
    assert isinstance(left, Left)

    assert bench.core.view().assignment == ()
    bench.answer(7)  # to the heartbeat that was under way
    assert (bench.core.view().member_epoch, bench.effects[-1]) == (0, left)


def test_a_worker_that_never_joined_leaves_once() -> None:
    """The host would hear of the end again and again."""
    core = WorkerCore(WorkerSettings(group_id="g", member_id="m", worker_id="w"), offset=0, units=[])
    assert core.view().state is MemberState.UNJOINED
    assert core.step(CloseRequested(deadline_ms=1_000), now_ms=0) == [Left()]
    assert core.step(WorkerTick(), now_ms=1) == []
    assert core.deadline_ms() is None


def test_a_stop_that_fails_is_tried_again_while_leaving() -> None:
    """A unit that may still run is not given to others before the deadline."""
    bench = running()
    bench.step(CloseRequested(deadline_ms=bench.now_ms + 60_000))
    bench.done("b")
    assert len(bench.calls) == 2
    bench.pass_time(INTERVAL_MS)
    assert [call.kind.value for call in bench.calls] == ["on_assigned", "on_revoked", "on_revoked"]


def test_a_worker_that_drains_stops_everything_and_stays_out() -> None:
    """Without assignors of its own it can only leave; the others would wait for its units."""
    bench = running()
    bench.step(DrainRequested())
    assert bench.last_call == ("on_revoked", ["a", "b"])
    bench.done()
    bench.pass_time(INTERVAL_MS)
    assert bench.request().member_epoch == -1
    bench.answer(-1)
    assert (bench.core.view().state, bench.core.deadline_ms()) == (MemberState.UNJOINED, None)


def test_a_worker_that_hands_over_runs_its_units_until_they_are_taken_away_and_then_leaves() -> None:
    """They would pause from now on until the others hear of it."""
    bench = running()
    bench.step(DrainRequested(in_group=True, then_close=True))
    assert (bench.owned(), len(bench.calls)) == (["a", "b"], 1)
    bench.answer(2, "")
    assert (bench.last_call, bench.calls[-1].reason) == (("on_revoked", ["a", "b"]), LossReason.CLOSED)
    bench.done()
    assert bench.owned() == []
    bench.answer(3)
    assert bench.request().member_epoch == -1
    bench.answer(-1)
    assert bench.effects[-1] == Left()


def test_a_callback_says_why_units_stop_and_until_when_they_may_act() -> None:
    """A job that has begun can see whether it may still finish."""
    bench = running()
    sent_ms = bench.now_ms
    bench.pass_time(INTERVAL_MS)
    bench.answer(2, "a")
    moved = bench.calls[-1]
    assert moved.reason is LossReason.MOVED
    assert sent_ms < moved.act_until_ms < bench.now_ms + SESSION_MS
    bench.done()
    confirmed_ms = bench.now_ms
    bench.answer(2)
    bench.pass_time(SESSION_MS)
    ended = bench.calls[-1]
    assert (ended.kind, ended.reason) == (CallbackKind.LOST, LossReason.LEASE_ENDED)
    assert confirmed_ms + 0.8 * SESSION_MS < ended.act_until_ms <= confirmed_ms + 0.9 * SESSION_MS

    removed = running()
    removed.pass_time(INTERVAL_MS)
    removed.answer(0, code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert (removed.calls[-1].reason, removed.calls[-1].act_until_ms) == (LossReason.REMOVED, removed.now_ms)


def test_a_heartbeat_without_an_answer_is_noted() -> None:
    """The log is all that tells why a worker waits."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    assert bench.effects[-1] == Noted("request_failed", {"error": "cut"})


# --- plans of the application's own assignors


def _offers(send: Send) -> list[tuple[int, int, bool]] | None:
    assert isinstance(send.request, ConnectGroupHeartbeatRequest)
    if send.request.client_assignors is None:
        return None
    metadata = [decode(WorkerMetadata, offer.metadata_bytes) for offer in send.request.client_assignors]
    return [
        (offer.reason, data.trigger_seq, data.draining)
        for offer, data in zip(send.request.client_assignors, metadata, strict=True)
    ]


@pytest.mark.parametrize(("event", "offer"), [(RebalanceRequested(), (2, 1, False)), (DrainRequested(), (3, 1, True))])
def test_a_wish_of_the_application_is_said_at_once_and_once(event: WorkerEvent, offer: tuple[int, int, bool]) -> None:
    """The coordinator would compute no plan, or a new one with every heartbeat."""
    bench = Bench(client_assignors=("own",))
    assert _offers(bench.sent[0]) == [(0, 0, False)]
    bench.answer(1)
    bench.step(event)
    assert _offers(bench.sent[-1]) == [offer]
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    assert _offers(bench.sent[-1]) == [(0, *offer[1:])]
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    assert _offers(bench.sent[-1]) is None


def test_a_wish_waits_for_the_heartbeat_that_says_it() -> None:
    """The answer to the heartbeat that was under way would take the wish back before anybody heard of it."""
    bench = Bench(client_assignors=("own",))
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    bench.step(RebalanceRequested())
    bench.answer(1)
    assert _offers(bench.sent[-1]) == [(2, 1, False)]


def _asked() -> Bench:
    """A worker that was asked for a plan, and has asked for the group."""
    bench = Bench(client_assignors=("own",))
    _ask(bench)
    assert isinstance(bench.sent[-1].request, ConnectGroupPrepareAssignmentRequest)
    return bench


def _ask(bench: Bench, *, code: int = 0) -> None:
    """Answer the last heartbeat: the coordinator wants a plan."""
    response = ConnectGroupHeartbeatResponse(
        error_code=code,
        member_epoch=1,
        heartbeat_interval_ms=INTERVAL_MS,
        session_timeout_ms=SESSION_MS,
        should_compute_assignment=True,
    )
    bench.step(Answered(bench.sent[-1].request_id, response))


def _prepared(bench: Bench, *, code: int = 0) -> list[WorkerEffect]:
    response = ConnectGroupPrepareAssignmentResponse(error_code=code, group_epoch=5, assignor_name="own")
    return bench.step(Answered(bench.sent[-1].request_id, response))


def test_a_plan_is_handed_in_for_the_group_that_it_was_computed_for() -> None:
    """A plan of another group epoch would be installed, or none would ever be."""
    bench = _asked()
    [plan] = _prepared(bench)
    assert isinstance(plan, Plan)
    assert (plan.plan_id, plan.assignor_name) == (1, "own")

    assert bench.step(Planned(99, WorkerPlan(units={}))) == [], "a plan that was given up"
    bench.step(Planned(1, WorkerPlan(units={"m": (Unit("a"),)})))

    install = bench.sent[-1].request
    assert isinstance(install, ConnectGroupInstallAssignmentRequest)
    assert (install.member_epoch, install.group_epoch, install.error) == (1, 5, 0)
    assert [(member.member_id, [unit.name for unit in member.units]) for member in install.members] == [("m", ["a"])]
    sent = len(bench.sent)
    bench.step(Answered(bench.sent[-1].request_id, ConnectGroupInstallAssignmentResponse()))
    assert len(bench.sent) == sent + 1, "the new assignment is asked for at once"


def test_an_assignor_is_given_the_group_and_its_plan_is_handed_in_whole() -> None:
    """A lost part of a plan would move units without need, or be missing for the next worker that plans."""
    bench = Bench(client_assignors=("own",), worker_url="http://w")
    _ask(bench)
    drains = encode(WorkerMetadata(draining=True))
    said = (
        ("m", 0, drains),
        ("classic", -1, drains),
        ("odd", 0, b"\xff"),
        ("new", 0, b""),
    )
    prepared = ConnectGroupPrepareAssignmentResponse(
        group_epoch=5,
        assignor_name="own",
        members=tuple(
            PreparedMember(
                member_id=member_id,
                worker_id=f"w-{member_id}",
                reconciled=member_id == "m",
                metadata_version=version,
                metadata_bytes=data,
                target=(UnitsOfName(name="b", indexes=(-1, 0)),) if member_id == "m" else (),
            )
            for member_id, version, data in said
        ),
        catalog=Catalog(offset=3, units=(UnitsOfName(name="a", indexes=(-1,)), UnitsOfName(name="b", indexes=(-1, 0)))),
        assignor_state=b"state",
        state_version=1,
        state_age_ms=70,
    )

    (plan,) = bench.step(Answered(bench.sent[-1].request_id, prepared))
    units = {"m": (Unit("b", 0), Unit("b")), "classic": ()}
    bench.step(Planned(1, WorkerPlan(units, frozenset({Unit("a")}), delay_ms=9, state=b"next", state_version=2)))

    assert plan == Plan(
        1,
        "own",
        WorkerGroup(
            (
                WorkerSpec("m", "w-m", (Unit("b"), Unit("b", 0)), reconciled=True, draining=True),
                *(WorkerSpec(one, f"w-{one}", (), reconciled=False) for one in ("classic", "odd", "new")),
            ),
            frozenset({Unit("a"), Unit("b"), Unit("b", 0)}),
            b"state",
            1,
            70,
        ),
    )
    told = encode(PlanMetadata(leader="m", leader_url="http://w", catalog_offset=3, delay_ms=9))
    assert bench.sent[-1].request == ConnectGroupInstallAssignmentRequest(
        group_id="g",
        member_id="m",
        member_epoch=1,
        group_epoch=5,
        members=(
            InstalledMember("m", (UnitsOfName(name="b", indexes=(-1, 0)),), 0, told),
            InstalledMember("classic", (), 0, b""),
        ),
        deferred=(UnitsOfName(name="a", indexes=(-1,)),),
        assignor_state=b"next",
        state_version=2,
    )


@pytest.mark.parametrize("moment", ["asked", "planning"])
def test_one_plan_is_computed_at_a_time(moment: str) -> None:
    """The coordinator asks with every heartbeat until it has a plan; an assignor may take long."""
    bench = _asked()
    if moment == "planning":
        _prepared(bench)
    sent = len(bench.sent)
    bench.pass_time(INTERVAL_MS)
    _ask(bench)
    assert len(bench.sent) == sent + 1


@pytest.mark.parametrize(("version", "data", "waits"), [(0, None, True), (1, None, False), (0, b"\xff", False)])
def test_what_another_assignor_says_of_its_plan_is_not_read(version: int, data: bytes | None, waits: bool) -> None:
    """The bytes of an assignor of the application's own may look like anything."""
    bench = Bench(client_assignors=("own",))
    said = encode(PlanMetadata(leader="m", delay_ms=1)) if data is None else data
    told = Assignment(metadata_version=version, metadata_bytes=said)
    response = ConnectGroupHeartbeatResponse(
        member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS, assignment=told
    )
    bench.step(Answered(bench.sent[-1].request_id, response))
    assert bench.core.deadline_ms() == (1 if waits else INTERVAL_MS)


@pytest.mark.parametrize("failed", ["prepare", "install"])
def test_a_plan_that_is_refused_is_noted_and_asked_for_again_by_the_coordinator(failed: str) -> None:
    """The log is all that tells why units stay where they are."""
    bench = _asked()
    if failed == "prepare":
        effects = _prepared(bench, code=ErrorCode.FENCED_MEMBER_EPOCH)
        assert effects == [Noted("not_prepared", {"error": "FENCED_MEMBER_EPOCH"})]
    else:
        _prepared(bench)
        bench.step(Planned(1, None))
        install = bench.sent[-1].request
        assert isinstance(install, ConnectGroupInstallAssignmentRequest)
        assert install.error == 1
        refusal = ConnectGroupInstallAssignmentResponse(error_code=ErrorCode.INVALID_ASSIGNMENT, error_message="twice")
        effects = bench.step(Answered(bench.sent[-1].request_id, refusal))
        assert effects == [Noted("not_installed", {"error": "twice"})]
    bench.pass_time(INTERVAL_MS)
    _ask(bench)
    assert isinstance(bench.sent[-1].request, ConnectGroupPrepareAssignmentRequest)


def test_a_question_without_an_answer_is_asked_again_when_the_coordinator_wants_a_plan() -> None:
    """One lost answer, and this worker would never compute a plan again."""
    bench = _asked()
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.pass_time(INTERVAL_MS)
    _ask(bench)
    assert isinstance(bench.sent[-1].request, ConnectGroupPrepareAssignmentRequest)


def test_a_removed_worker_forgets_the_plan_that_it_computes() -> None:
    """Its group has gone on without it, so an old plan must not be installed."""
    bench = _asked()
    _prepared(bench)
    bench.pass_time(INTERVAL_MS)
    bench.answer(code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert _offers(bench.sent[-1]) == [(0, 0, False)]
    assert bench.step(Planned(1, WorkerPlan(units={}))) == []
    _ask(bench)
    assert isinstance(bench.sent[-1].request, ConnectGroupPrepareAssignmentRequest)


def test_a_later_plan_replaces_the_delay_of_an_earlier_one() -> None:
    """A worker would ask for a plan because of a delay that is over."""
    bench = Bench(client_assignors=("own",))
    for delay_ms in (9_000, 0):
        told = Assignment(metadata_bytes=encode(PlanMetadata(leader="m", delay_ms=delay_ms)))
        response = ConnectGroupHeartbeatResponse(
            member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS, assignment=told
        )
        bench.step(Answered(bench.sent[-1].request_id, response))
        bench.pass_time(INTERVAL_MS)
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    assert [_offers(send) for send in bench.sent[1:]] == [None, None, None]


def test_a_leave_without_an_answer_is_a_leave() -> None:
    """The coordinator removes the worker after its session; the process need not wait for that."""
    bench = running()
    bench.step(CloseRequested(deadline_ms=bench.now_ms + 30_000, for_a_while=False))
    bench.done()
    assert bench.request().member_epoch == -1
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    assert isinstance(bench.effects[-1], Left)


@pytest.mark.parametrize(("leader", "due_ms"), [("m", 9_000), ("other", 9_000 + SESSION_MS)])
def test_the_delay_of_a_plan_ends_with_one_request(leader: str, due_ms: int) -> None:
    """Scenarios 52 and 53: the worker that planned asks for the next plan, the others only if it does not."""
    bench = Bench(client_assignors=("cooperative",))
    metadata = encode(PlanMetadata(leader=leader, delay_ms=9_000))
    told = Assignment(metadata_bytes=metadata)
    bench.step(
        Answered(
            bench.sent[-1].request_id,
            ConnectGroupHeartbeatResponse(
                member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS, assignment=told
            ),
        )
    )

    def offered() -> list[tuple[int, int]]:
        requests = [send.request for send in bench.sent[1:]]
        return [
            (offer.reason, decode(WorkerMetadata, offer.metadata_bytes).trigger_seq)
            for request in requests
            if isinstance(request, ConnectGroupHeartbeatRequest)
            for offer in request.client_assignors or ()
        ]

    while bench.now_ms < due_ms - 1:
        bench.pass_time(min(INTERVAL_MS, due_ms - 1 - bench.now_ms))
        bench.answer(1)
    assert offered() == []
    bench.pass_time(1)
    assert offered() == [(1, 1)]
    bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("cut")))
    bench.pass_time(1_000)
    assert offered() == [(1, 1), (1, 1)]  # sent again as it was: one bump
    bench.answer(1)
    bench.pass_time(INTERVAL_MS)
    assert offered() == [(1, 1), (1, 1), (0, 1)]


def test_closing_stops_everything_then_leaves() -> None:
    """Other workers get the units at once, and only after they have stopped."""
    bench = running(instance_id="i")
    bench.pass_time(INTERVAL_MS)
    bench.step(CloseRequested(deadline_ms=bench.now_ms + 30_000, for_a_while=True))
    assert (bench.last_call, bench.core.view().state) == (("on_revoked", ["a", "b"]), MemberState.RECONCILING)
    bench.done()
    bench.answer(1)  # the heartbeat that was under way
    assert bench.request().member_epoch == -2
    bench.answer(-2)
    assert isinstance(bench.effects[-1], Left)


@pytest.mark.parametrize("answered", [True, False])
def test_an_error_that_no_retry_cures_releases_everything_and_stops(answered: bool) -> None:
    """The application hears of it once, after its units were stopped."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    if answered:
        bench.answer(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    else:
        bench.step(NotAnswered(bench.sent[-1].request_id, ConnectionLostError("refused"), final=True))
    assert bench.last_call == ("on_lost", ["a", "b"])
    assert not any(isinstance(effect, WorkerFailed) for effect in bench.effects)

    bench.done()

    assert isinstance(bench.effects[-1], WorkerFailed)
    assert bench.core.view().state is MemberState.FATAL
    assert bench.core.deadline_ms() is None


def test_a_unit_waits_until_the_list_of_units_is_as_new_as_the_plan() -> None:
    """Scenario 65 and W16: a unit must not start on a process whose configuration does not know it yet."""
    bench = Bench(client_assignors=("cooperative",), reads_units=True)
    _plan_at(bench, catalog_offset=7)
    assert isinstance(bench.effects[-1], ReadUnits)
    assert bench.calls == []
    asked = len(bench.effects)
    bench.pass_time(2_999)
    assert {type(effect) for effect in bench.effects[asked:]} == {ReadUnits}

    assert bench.core.view().state is MemberState.RECONCILING

    bench.step(UnitsChanged(7, frozenset({Unit("a"), Unit("b")})))

    assert bench.last_call == ("on_assigned", ["a"])
    bench.done()
    assert bench.core.deadline_ms() == bench.core.view().lease_ends_ms, "nothing is asked for any more"


def test_a_new_list_of_units_is_said_at_once() -> None:
    """A unit that was added would wait for the next heartbeat."""
    bench = running()
    bench.pass_time(INTERVAL_MS)
    bench.answer(1)
    bench.step(UnitsChanged(7, frozenset({Unit("c")})))
    assert bench.request().catalog == Catalog(offset=7, units=(UnitsOfName(name="c", indexes=(-1,)),))


@pytest.mark.parametrize("becomes_known", [True, False])
def test_a_worker_whose_list_of_units_stays_behind_leaves_for_a_while(becomes_known: bool) -> None:
    """Scenario 65 and W16: other workers run its units meanwhile."""
    bench = Bench(client_assignors=("cooperative",), reads_units=True)
    _plan_at(bench, catalog_offset=7)
    if becomes_known:
        bench.step(UnitsChanged(1, frozenset()))
    bench.pass_time(3_000)
    assert bench.notes() == [Noted("units_behind", {"known": int(becomes_known)})]
    if becomes_known:
        assert bench.request().member_epoch == 1, "the heartbeat under way comes first"
        bench.answer(1)
    assert bench.request().member_epoch == -1
    assert bench.calls == []
    bench.answer(-1)
    assert bench.core.view().state is MemberState.UNJOINED
    bench.pass_time(299_999)
    assert bench.request().member_epoch == -1

    if becomes_known:
        bench.step(UnitsChanged(7, frozenset({Unit("a")})))
    else:
        bench.pass_time(1)

    assert (bench.request().member_epoch, bench.owned()) == (0, [])
    if becomes_known:
        _plan_at(bench, catalog_offset=7)
        assert bench.last_call == ("on_assigned", ["a"])


def _plan_at(bench: Bench, *, catalog_offset: int, units: str = "a", delay_ms: int = 0) -> None:
    """Answer the last heartbeat with a plan for the list of this version."""
    told = Assignment(
        assigned=tuple(AssignedUnits(name=name, indexes=(-1,), epochs=(1,)) for name in units.split()),
        metadata_bytes=encode(PlanMetadata(leader="other", catalog_offset=catalog_offset, delay_ms=delay_ms)),
    )
    joined = ConnectGroupHeartbeatResponse(
        member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS, assignment=told
    )
    bench.step(Answered(bench.sent[-1].request_id, joined))


def test_units_whose_answer_took_longer_than_the_lease_start_with_the_next_one() -> None:
    """A worker that joined while a round waited would leave its units idle for one more heartbeat interval."""
    bench = Bench()
    bench.pass_time(SESSION_MS)
    bench.answer(units="a")
    assert not bench.calls
    bench.answer()
    assert bench.last_call == ("on_assigned", ["a"])
    bench.done()
    assert len(bench.sent) == 2
