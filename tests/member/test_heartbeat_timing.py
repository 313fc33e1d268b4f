"""When heartbeats go out: interval, at once, backoff, and never two at a time."""

from __future__ import annotations

import random

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.member.backoff import Backoff
from kip848_client.member.events import CoordinatorDisconnected, FailureKind, LeaveMode
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness


def stable(**settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable({"t": [0]})
    return member


def test_the_interval_runs_from_the_last_send() -> None:
    """Earlier costs the broker; later costs the session."""
    member = stable()
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=1, full=False)


def test_a_slow_answer_does_not_delay_the_next_heartbeat() -> None:
    """If the answer started the interval, a slow network would eat the session timeout."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.advance(300)
    member.answer_heartbeat()
    member.advance(INTERVAL_MS - 301)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat()


def test_a_changed_interval_starts_anew_with_its_answer() -> None:
    """Operators change group.consumer.heartbeat.interval.ms on running groups."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.advance(300)
    member.answer_heartbeat(interval_ms=2000)
    member.advance(1999)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat()


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_a_senseless_interval_is_ignored(interval_ms: int) -> None:
    """An interval of zero would make the member send in a loop."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(interval_ms=interval_ms)
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_a_coordinator_that_never_names_an_interval_is_not_flooded(interval_ms: int) -> None:
    """With an interval of zero from the first answer on, the member would send at the speed of the network."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=1, interval_ms=interval_ms)
    member.advance(4999)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=1)


def test_only_one_heartbeat_is_under_way() -> None:
    """Two could be applied in either order, and the member would be fenced for its own echo."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.advance(3 * INTERVAL_MS)
    member.expect_heartbeat()
    member.answer_heartbeat()
    member.expect_heartbeat()


def test_an_acknowledgement_does_not_wait_for_the_interval() -> None:
    """Other members wait for the partitions that it frees."""
    member = stable()
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.expect_no_heartbeat()
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat(epoch=2)) == {"t": [0, 1]}


def test_an_acknowledgement_follows_the_heartbeat_under_way() -> None:
    """It must neither overtake that heartbeat nor be forgotten."""
    member = stable()
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) is None
    member.answer_heartbeat(epoch=2)
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1]}


def test_the_leave_goes_beside_a_heartbeat_under_way() -> None:
    """close() must not wait for a coordinator that is slow to answer."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.finish_call("revoked", "t-0")
    assert [request.member_epoch for request in member.requests(ConsumerGroupHeartbeatRequest)] == [1, -1]
    member.advance(60_000)
    assert len(member.requests(ConsumerGroupHeartbeatRequest)) == 2


def test_a_loading_coordinator_is_asked_less_and_less_often() -> None:
    """Members that insist keep a restarting broker busy."""
    member = stable()
    member.advance(INTERVAL_MS)
    for wait_ms in (100, 200, 400):
        member.answer_heartbeat(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        member.advance(wait_ms - 1)
        member.expect_no_heartbeat()
        member.advance(1)
        member.expect_heartbeat(full=True)
    member.answer_heartbeat()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.advance(100)
    member.expect_heartbeat(full=True)


def test_no_wait_is_longer_than_the_limit() -> None:
    """Jitter on top of the limit would stretch retries past what users configured."""
    backoff = Backoff(initial_ms=100, max_ms=1000, rng=random.Random(7))
    waits = [backoff.wait_ms(failures) for failures in range(200)]
    assert max(waits) <= 1000
    assert min(waits) >= 80


@pytest.mark.parametrize(("initial_ms", "max_ms", "wait_ms"), [(500, 100, 100), (100, 100, 100), (0, 0, 1), (0, 5, 1)])
def test_odd_limits_still_give_a_wait(initial_ms: int, max_ms: int, wait_ms: int) -> None:
    """A wait of zero after a failure is a core at 100 %."""
    assert Backoff(initial_ms=initial_ms, max_ms=max_ms, rng=random.Random(7)).wait_ms(3) == wait_ms


def test_a_timed_out_heartbeat_is_repeated_in_full_after_the_backoff() -> None:
    """Nobody knows whether it was applied; only a full one is right in both cases."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    member.advance(99)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=1, full=True)


def test_a_late_answer_changes_nothing() -> None:
    """An old epoch taken for a new one gets the member fenced."""
    member = stable()
    member.advance(INTERVAL_MS)
    late = member.take(ConsumerGroupHeartbeatRequest)
    member.sent.append(late)
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    member.advance(100)
    member.sent.insert(0, late)
    before = member.member.snapshot()
    member.answer_heartbeat(epoch=9, assignment={})
    assert member.member.snapshot() == before


def test_a_lost_connection_means_looking_for_the_coordinator_again() -> None:
    """The coordinator may have moved together with the broken connection."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.DISCONNECTED)
    member.advance(100)
    member.expect_no_heartbeat()
    assert member.requests(FindCoordinatorRequest)
    member.find_coordinator()
    member.expect_heartbeat(epoch=1, full=True)


def test_an_idle_connection_that_breaks_is_noticed() -> None:
    """Otherwise the next heartbeat is spent on finding out."""
    member = stable()
    member.coordinator_found = False
    member.advance(500)
    member.step(CoordinatorDisconnected(node_id=1))
    assert member.requests(FindCoordinatorRequest)
    member.find_coordinator(node_id=2)
    member.advance(INTERVAL_MS)
    member.expect_heartbeat(full=True)


def test_another_brokers_connection_does_not_matter() -> None:
    """Data connections break all the time."""
    member = stable()
    member.step(CoordinatorDisconnected(node_id=2))
    assert not member.requests(FindCoordinatorRequest)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_hears_from_the_member_at_once(code: int) -> None:
    """After a failover the session is already running; a backoff would eat it."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=code)
    member.expect_heartbeat(epoch=1, full=True)


def test_brokers_that_disagree_are_not_asked_in_a_loop() -> None:
    """Each says the other is the coordinator: the member must keep a distance between lookups."""
    member = stable()
    member.advance(INTERVAL_MS)
    lookups = 0
    for _ in range(20):
        if member.requests(ConsumerGroupHeartbeatRequest):
            lookups += 1
            member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
        member.advance(10)
    assert lookups <= 4


def test_a_phase_that_sends_nothing_asks_for_no_tick() -> None:
    """A wait of zero here was a core at 100 % in another client (KAFKA-20426)."""
    idle = MemberHarness()
    assert idle.member.deadline_ms() is None
    idle.subscribe("t")
    assert idle.member.deadline_ms() is None
    fatal = stable()
    fatal.advance(INTERVAL_MS)
    fatal.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert fatal.state() is MemberState.FATAL
    assert fatal.member.deadline_ms() is None
    late = stable()
    late.advance(11_000)
    late.poll()
    assert late.phase() is Phase.STALE_RELEASE
    late.fail_heartbeat()
    assert late.member.deadline_ms() is None


def test_a_quiet_member_sends_few_heartbeats() -> None:
    """Join, acknowledgement and the interval are all there is."""
    member = MemberHarness(listeners_finish=True)
    member.subscribe("t")
    sent = 0
    for _ in range(200):
        member.poll()
        if member.requests(ConsumerGroupHeartbeatRequest):
            sent += 1
            member.answer_heartbeat(epoch=1, assignment={"t": [0]} if sent == 1 else None)
        member.advance(10)
    assert 3 <= sent <= 5


def test_a_heartbeat_does_not_wait_longer_than_a_session_allows() -> None:
    """With request.timeout.ms of 30 s one lost answer would end a session of 45 s."""
    member = stable()
    member.advance(INTERVAL_MS)
    assert member.take(ConsumerGroupHeartbeatRequest).timeout_ms == 5000
    slow = MemberHarness()
    slow.join({"t": [0]})
    slow.reconcile()
    slow.answer_heartbeat(interval_ms=8000)
    slow.poll()
    slow.advance(8000)
    assert slow.take(ConsumerGroupHeartbeatRequest).timeout_ms == 8000


def test_a_member_that_is_removed_again_and_again_slows_down() -> None:
    """A coordinator that forgets every join must not be asked at the speed of the network."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.expect_no_heartbeat()
    member.advance(100)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.advance(199)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=0, full=True)


def test_a_dynamic_member_that_remains_sends_no_leave() -> None:
    """close(REMAIN_IN_GROUP) is for restarts within one session."""
    member = stable()
    member.leave(mode=LeaveMode.REMAIN_IN_GROUP, closing=True)
    member.finish_call("revoked", "t-0")
    assert member.history[-1] == "left"
    member.expect_no_heartbeat()
