"""A GroupMember with its threads, against a scripted coordinator: order, threads, deadlines, and ways out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kip848_client.common.clock import ManualClock
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import OffsetAndMetadata, Subscription
from kip848_client.consumer.group.app_thread import QUIET_SLICE_S, SLICE_S
from kip848_client.errors import (
    IllegalStateError,
    Kip848Error,
    ListenerError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from kip848_client.member.core.events import MemberEffect, MemberEvent, MemberView
from kip848_client.member.core.states import MemberState
from kip848_client.member.core.statistics import Statistics
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.waiting import SOON_S, wait_until
from tests.threads.bench import P0, Bench, ScriptedCoordinator, closing, poll_until

ORDERS = Subscription(frozenset({"orders"}))


@pytest.fixture
def coordinator() -> ScriptedCoordinator:
    return ScriptedCoordinator()


@pytest.fixture
def bench(coordinator: ScriptedCoordinator) -> Iterator[Bench]:
    with closing(Bench(coordinator)) as bench:
        yield bench


def join(bench: Bench) -> Bench:
    """Subscribe and poll until everything is assigned and acknowledged."""
    bench.member.subscribe(ORDERS, bench.callbacks)
    poll_until(bench, lambda: bench.member.view.state is MemberState.STABLE and "start" in bench.records.names())
    return bench


def test_subscribe_joins_and_listeners_wait_for_poll(bench: Bench) -> None:
    """A program that looks for its member after subscribe() alone waited for ever; callbacks stay in its own thread."""
    assert not [thread for thread in threading.enumerate() if thread.name == "kip848-heartbeat-test"], "not before"
    bench.member.subscribe(ORDERS, bench.callbacks)
    wait_until(lambda: bench.member.view.state is MemberState.RECONCILING)
    assert bench.callbacks.calls == []

    poll_until(bench, lambda: bench.callbacks.calls == [("assigned", [0, 1])])


def test_a_rebalance_runs_in_the_order_of_the_protocol(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """Pause, commit, revoke, let go, assign: another order loses or doubles records."""
    join(bench)
    bench.records.calls.clear()
    bench.callbacks.act = lambda name: bench.records.calls.append((name, None))

    coordinator.partitions = (1,)
    poll_until(bench, lambda: "assigned" in bench.callbacks.calls[-1][0] and len(bench.callbacks.calls) == 3)

    assert bench.callbacks.calls == [("assigned", [0, 1]), ("revoked", [0]), ("assigned", [])]
    assert bench.records.names() == ["hold", "revoked", "stop", "warm", "assigned"]
    assert bench.records.calls[0] == ("hold", [0])


def test_listeners_run_on_the_thread_that_polls(bench: Bench) -> None:
    """Applications do not lock what their listeners touch."""
    threads: list[threading.Thread] = []
    bench.callbacks.act = lambda _: threads.append(threading.current_thread())

    join(bench)
    bench.close()

    assert set(threads) == {threading.current_thread()}


def test_heartbeats_keep_to_the_members_clock(coordinator: ScriptedCoordinator) -> None:
    """The thread sleeps until the member's deadline: with the clock standing still, nothing is sent."""
    clock = ManualClock()
    coordinator.interval_ms = 5_000
    with closing(Bench(coordinator, clock=clock)) as bench:
        join(bench)
        sent = len(coordinator.heartbeats())

        clock.advance(4_999)
        bench.manager.poke()
        bench.member.poll(0.05)
        early = len(coordinator.heartbeats())
        clock.advance(1)
        bench.manager.poke()
        wait_until(lambda: len(coordinator.heartbeats()) > early)

    assert early == sent


def test_a_steady_heartbeat_wakes_the_thread_twice(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """Once for the timer, once for the answer; anything more is paid by every idle consumer."""
    coordinator.interval_ms = 20
    join(bench)
    first, wakes = len(coordinator.heartbeats()), bench.manager.wake_ups

    wait_until(lambda: len(coordinator.heartbeats()) >= first + 10)
    beats = len(coordinator.heartbeats()) - first

    assert bench.manager.wake_ups - wakes <= 2 * (beats + 1)


def test_an_idle_member_is_not_woken_for_its_automatic_commits(coordinator: ScriptedCoordinator) -> None:
    """Each woke both threads, to find that nothing was to be committed: more CPU than the heartbeats."""
    with closing(Bench(coordinator, auto_commit_interval_ms=20)) as bench:
        join(bench)

        def read_until(offset: int) -> None:
            bench.records.processed = {P0: OffsetAndMetadata(offset)}
            poll_until(bench, lambda: committed() == offset and bench.member.view.positions_only)

        def committed() -> int | None:
            sent = [request for request in coordinator.sent if isinstance(request, OffsetCommitRequest)]
            return sent[-1].topics[0].partitions[0].committed_offset if sent else None

        read_until(5)
        processed = bench.manager.processed
        for _ in range(3):
            bench.member.poll(0)
        assert (bench.manager.processed, len(bench.manager._inbox)) == (processed, 0)
        read_until(6)


def test_a_poll_waits_for_long_only_while_nothing_can_come(coordinator: ScriptedCoordinator) -> None:
    """An idle consumer that looks every 50 ms uses four times as much CPU; one that does not would revoke late."""
    clock = ManualClock()
    coordinator.interval_ms = 5_000
    with closing(Bench(coordinator, clock=clock)) as bench:
        join(bench)
        wait_until(lambda: bench.thread.slice_s() == QUIET_SLICE_S)

        clock.advance(4_900)
        assert SLICE_S < bench.thread.slice_s() < QUIET_SLICE_S, "until a little after the heartbeat"

        coordinator.silent.add(ConsumerGroupHeartbeatRequest)
        sent = len(coordinator.heartbeats())
        clock.advance(100)
        bench.manager.poke()
        wait_until(lambda: len(coordinator.heartbeats()) > sent)
        assert bench.thread.slice_s() == SLICE_S, "an answer is awaited"


def test_close_returns_by_its_deadline_although_the_leave_is_not_answered(
    bench: Bench, coordinator: ScriptedCoordinator
) -> None:
    """A silent coordinator: the leave is written, the application goes on."""
    join(bench)
    coordinator.silent = {ConsumerGroupHeartbeatRequest}

    began = time.monotonic()
    errors = bench.close(timeout_s=2.0)

    assert time.monotonic() - began < SOON_S
    assert errors == []
    assert coordinator.heartbeats()[-1].member_epoch == -1
    assert bench.callbacks.calls[-1] == ("revoked", [0, 1])
    assert bench.released
    assert coordinator.closed


def test_a_silent_commit_does_not_eat_the_time_of_the_leave(coordinator: ScriptedCoordinator) -> None:
    """Otherwise the group waits a session for a member that is gone (KAFKA-19357)."""
    with closing(Bench(coordinator, auto_commit_interval_ms=60_000)) as bench:
        join(bench)
        bench.records.processed = {P0: OffsetAndMetadata(12)}
        coordinator.silent = {OffsetCommitRequest}

        began = time.monotonic()
        bench.close(timeout_s=4.0)

        assert time.monotonic() - began < SOON_S
    assert any(isinstance(request, OffsetCommitRequest) for request in coordinator.sent)
    assert coordinator.heartbeats()[-1].member_epoch == -1


def test_a_commit_of_the_listener_does_not_eat_the_time_of_the_leave_either(
    bench: Bench, coordinator: ScriptedCoordinator
) -> None:
    """Most listeners commit when partitions are revoked; close() keeps its deadline all the same."""
    join(bench)
    coordinator.silent = {OffsetCommitRequest}
    bench.callbacks.act = lambda _: bench.member.commit_sync({P0: OffsetAndMetadata(1)}, timeout_ms=60_000)

    began = time.monotonic()
    errors = bench.close(timeout_s=4.0)

    assert time.monotonic() - began < SOON_S
    assert [type(error) for error in errors] == [ListenerError]
    assert coordinator.heartbeats()[-1].member_epoch == -1


def test_close_does_not_wait_for_a_commit_once_no_coordinator_is_found(coordinator: ScriptedCoordinator) -> None:
    """KAFKA-19357: the cluster went first; there is nothing to wait for, however much time there is."""
    with closing(Bench(coordinator, auto_commit_interval_ms=60_000)) as bench:
        join(bench)
        bench.records.processed = {P0: OffsetAndMetadata(12)}
        coordinator.gone = True

        began = time.monotonic()
        bench.close(timeout_s=60.0)

        assert time.monotonic() - began < SOON_S


def test_close_commits_then_revokes_then_leaves(coordinator: ScriptedCoordinator) -> None:
    """The order of Kafka's own consumer: the listener sees a committed position, the leave comes last."""
    with closing(Bench(coordinator, auto_commit_interval_ms=60_000)) as bench:
        join(bench)
        bench.records.processed = {P0: OffsetAndMetadata(12)}
        order: list[str] = []
        bench.callbacks.act = lambda name: order.append(
            f"{name} after commit: {any(isinstance(one, OffsetCommitRequest) for one in coordinator.sent)}"
        )
        assert bench.close() == []

    assert order == ["revoked after commit: True"]
    assert coordinator.heartbeats()[-1].member_epoch == -1
    assert bench.close() == [], "a second close does nothing"


def test_a_failing_listener_is_reported_and_the_leave_is_sent(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """KAFKA-16933: a bug in a callback must not leave a ghost in the group."""
    join(bench)

    def act(name: str) -> None:
        raise OSError("disk full")

    bench.callbacks.act = act
    errors = bench.close()

    assert [type(error) for error in errors] == [ListenerError]
    assert coordinator.heartbeats()[-1].member_epoch == -1


@pytest.mark.parametrize(
    ("way_out", "raised"),
    [*((each, each) for each in (KeyboardInterrupt, SystemExit, GeneratorExit)), (OSError, ListenerError)],
)
def test_every_way_out_of_a_listener_is_reported(
    bench: Bench, way_out: type[BaseException], raised: type[BaseException]
) -> None:
    """KAFKA-18160: a member that does not hear of the end reconciles for ever. The next poll() calls it again."""
    ways = [way_out()]

    def act(name: str) -> None:
        if ways:
            raise ways.pop()

    bench.callbacks.act = act
    with pytest.raises(raised):
        join(bench)
    poll_until(bench, lambda: bench.member.view.state is MemberState.STABLE)

    assert bench.callbacks.calls == [("assigned", [0, 1]), ("assigned", [0, 1])]
    assert not bench.thread.errors


def test_of_two_errors_one_is_raised_and_the_other_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An exception can carry one story; the other one must not vanish without a trace."""
    denied = TopicAuthorizationError("DESCRIBE is missing on orders")
    failures = [OSError("disk full")]

    def act(_: str) -> None:
        if failures:
            bench.thread.errors.append(denied)
            raise failures.pop()

    bench.callbacks.act = act
    bench.member.subscribe(ORDERS, bench.callbacks)
    with caplog.at_level(logging.WARNING), pytest.raises(TopicAuthorizationError) as raised:
        poll_until(bench, lambda: False)

    assert raised.value is denied
    (dropped,) = [record for record in caplog.records if LogEvent.ERROR_DROPPED in record.getMessage()]
    assert "disk full" in dropped.getMessage()


def test_errors_that_say_the_same_are_logged_in_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """When a broker goes, hundreds of asynchronous commits fail at once."""
    bench.thread.errors.extend(TopicAuthorizationError("DESCRIBE is missing on orders") for _ in range(400))
    with caplog.at_level(logging.WARNING), pytest.raises(TopicAuthorizationError):
        bench.thread.raise_due()

    (dropped,) = [record for record in caplog.records if LogEvent.ERROR_DROPPED in record.getMessage()]
    assert "times=399" in dropped.getMessage()


def test_calls_that_wait_end_at_their_deadline(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """Every call returns by its deadline plus one slice, whatever the coordinator does."""
    join(bench)
    coordinator.silent = {OffsetCommitRequest, OffsetFetchRequest}

    calls: list[Callable[[], object]] = [
        lambda: bench.member.commit_sync({P0: OffsetAndMetadata(1)}, timeout_ms=150),
        lambda: bench.member.committed([P0], timeout_ms=150),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            call()
        assert 0.1 < time.monotonic() - began < SOON_S


def test_an_asynchronous_commit_is_not_waited_for(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """Its callback runs later, on this thread; a synchronous commit lets it go first."""
    join(bench)
    heard: list[str] = []

    bench.member.commit_async({P0: OffsetAndMetadata(1)}, lambda error, offsets: heard.append("async"))
    at_once = list(heard)
    bench.member.commit_sync({P0: OffsetAndMetadata(2)}, timeout_ms=2_000)
    heard.append("sync")

    assert at_once == []
    assert heard == ["async", "sync"]


def test_a_fatal_error_is_raised_from_every_call_but_close(bench: Bench, coordinator: ScriptedCoordinator) -> None:
    """A consumer that cannot go on must not look like one that has nothing to do."""
    coordinator.answers[ConsumerGroupHeartbeatRequest] = lambda _: ConsumerGroupHeartbeatResponse(
        error_code=30, error_message="not allowed"
    )
    bench.member.subscribe(ORDERS, bench.callbacks)

    with pytest.raises(Kip848Error, match="GROUP_AUTHORIZATION_FAILED"):
        poll_until(bench, lambda: False)
    assert bench.member.view.assigned == frozenset(), "the lost listener ran, so nothing is left"
    with pytest.raises(Kip848Error, match="GROUP_AUTHORIZATION_FAILED"):
        bench.member.poll(0)
    with pytest.raises(Kip848Error, match="GROUP_AUTHORIZATION_FAILED"):
        bench.member.subscribe(ORDERS, None)
    sent = len(coordinator.sent)

    assert bench.close() == [], "it was raised already"
    assert len(coordinator.sent) == sent, "nothing is sent after FATAL"


def test_close_logs_what_poll_would_have_raised(
    bench: Bench, coordinator: ScriptedCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """close() stands in ``finally``: it would hide the exception that ended the program."""
    join(bench)
    coordinator.answers[ConsumerGroupHeartbeatRequest] = lambda _: ConsumerGroupHeartbeatResponse(
        error_code=30, error_message="not allowed"
    )
    wait_until(lambda: bench.member.view.state is MemberState.FATAL)

    errors = bench.close()

    assert errors == []
    (dropped,) = [record for record in caplog.records if LogEvent.ERROR_DROPPED in record.getMessage()]
    assert "GROUP_AUTHORIZATION_FAILED" in dropped.getMessage()
    assert bench.callbacks.calls[-1] == ("lost", [0, 1])


class BrokenMember:
    """A member with a bug: its second step raises."""

    def __init__(self) -> None:
        self.steps = 0
        self.statistics = Statistics()

    def step(self, event: MemberEvent, *, now_ms: int) -> list[MemberEffect]:
        self.steps += 1
        if self.steps == 2:
            raise ZeroDivisionError("a bug")
        return []

    def deadline_ms(self) -> int | None:
        return None

    def view(self) -> MemberView:
        return MemberView(
            version=self.steps,
            state=MemberState.UNJOINED,
            readable=frozenset(),
            assigned=frozenset(),
            poll_wanted=True,
            awaiting_app=False,
            member_id="m",
            member_epoch=-1,
        )


def test_a_bug_on_the_background_thread_is_raised_and_close_works(coordinator: ScriptedCoordinator) -> None:
    """A consumer whose thread died silently would poll for ever and never hear of a rebalance."""
    bench = Bench(coordinator, member=BrokenMember())
    bench.member.subscribe(ORDERS, None)

    with pytest.raises(Kip848Error, match=r"heartbeat thread .* died of ZeroDivisionError"):
        poll_until(bench, lambda: False)

    wait_until(lambda: isinstance(bench.manager.crashed, ZeroDivisionError))
    began = time.monotonic()
    bench.close()
    assert time.monotonic() - began < SOON_S
    with pytest.raises(IllegalStateError, match="closed"):
        bench.member.poll(0)
