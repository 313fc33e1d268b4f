"""The rules of docs/protocol.md, section When a heartbeat is sent."""

from __future__ import annotations

import random

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.events import ProcessResumed
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import TWO, assigning, fence, fenced, heartbeat_epochs, joining, looking_up, stable
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness, positions

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_r27_the_interval_runs_from_the_last_send() -> None:
    """If the answer started it, a slow network would eat the session."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.advance(300)
    member.answer_heartbeat()
    member.advance(INTERVAL_MS - 301)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=1, full=False)


def test_r28_a_changed_interval_begins_anew_with_its_answer() -> None:
    """An operator who changes the interval of a running group sees it used from the next heartbeat on."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.advance(300)
    member.answer_heartbeat(interval_ms=2000)
    member.advance(1999)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat()


@pytest.mark.parametrize(
    ("interval_ms", "member_ms", "newcomer_ms"), [(0, INTERVAL_MS, 5000), (-1, INTERVAL_MS, 5000), (1, 1, 1)]
)
def test_r28_a_senseless_interval_is_ignored(interval_ms: int, member_ms: int, newcomer_ms: int) -> None:
    """An interval of zero would send heartbeats at the speed of the network, from the first answer on."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(interval_ms=interval_ms)
    assert member.member.snapshot().heartbeat_interval_ms == member_ms
    newcomer = joining()
    newcomer.answer_heartbeat(interval_ms=interval_ms)
    assert newcomer.member.snapshot().heartbeat_interval_ms == newcomer_ms


def test_r29_never_two_heartbeats_are_under_way() -> None:
    """Two can be applied in either order, and the member is fenced for its own echo."""
    member = stable()
    member.advance(3 * INTERVAL_MS)
    member.subscribe("t", "u")
    member.expect_heartbeat(epoch=1)


def test_r29_the_leave_goes_out_beside_another() -> None:
    """close() must not wait for a coordinator that is slow to answer."""
    member = stable({})
    member.advance(INTERVAL_MS)
    member.leave()
    assert heartbeat_epochs(member) == [1, -1]


def test_r30_join_acknowledgement_and_subscription_do_not_wait() -> None:
    """Users and other members wait for each of them."""
    assert heartbeat_epochs(joining()) == [0]
    member = assigning()
    member.finish_call("assigned", "t-1")
    assert heartbeat_epochs(member) == [2]
    member.answer_heartbeat(epoch=2)
    member.subscribe("t", "u")
    assert heartbeat_epochs(member) == [2]


def test_r30_what_is_due_during_a_heartbeat_follows_its_answer() -> None:
    """It must neither overtake that heartbeat nor be forgotten."""
    member = assigning()
    member.advance(INTERVAL_MS)
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) is None
    member.answer_heartbeat(epoch=2)
    assert member.reported(member.expect_heartbeat()) == TWO


def test_r31_at_once_never_skips_the_backoff() -> None:
    """A coordinator in trouble is not helped by members that insist."""
    member = assigning()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=LOADING)
    member.finish_call("assigned", "t-1")
    member.advance(99)
    member.expect_no_heartbeat()
    member.advance(1)
    assert member.reported(member.expect_heartbeat()) == TWO


def test_r31_a_join_waits_for_the_backoff_too() -> None:
    """A thousand members that join a restarting coordinator in a loop keep it from starting."""
    again = stable({})
    fence(again, LOADING)
    again.advance(100)
    fence(again)
    for member in (joining(), again):
        member.answer_heartbeat(error=LOADING)
        member.advance(99)
        member.expect_no_heartbeat()
        member.advance(1)
        member.expect_heartbeat(epoch=0)


def test_r32_only_the_backoff_delays_a_repetition() -> None:
    """The session goes on running while the member waits."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    member.expect_heartbeat(epoch=1)


def test_r33_it_doubles_and_starts_over_with_a_success() -> None:
    """Members that insist keep a restarting broker busy."""
    member = stable(max_poll_interval_ms=60_000)
    for waits in ((100, 200, 400, 800, 1000, 1000), (100,)):
        member.advance(INTERVAL_MS)
        for wait_ms in waits:
            member.answer_heartbeat(error=LOADING)
            member.advance(wait_ms - 1)
            member.expect_no_heartbeat()
            member.advance(1)
        member.answer_heartbeat()


def test_r33_jitter_never_exceeds_the_limit() -> None:
    """Users configured the limit; and equal waits would bring all members back at the same moment."""
    backoff = Backoff(initial_ms=100, max_ms=1000, rng=random.Random(7))
    for failures, base_ms in enumerate((100, 200, 400, 800, 1000, 1000)):
        waits = {backoff.wait_ms(failures) for _ in range(200)}
        assert min(waits) >= 0.8 * base_ms
        assert max(waits) <= min(1000, 1.2 * base_ms)
        assert len(waits) > 20


def test_r34_removals_in_a_row_slow_the_member_down() -> None:
    """A coordinator that forgets every join would be asked at the speed of the network."""
    member = joining()
    for wait_ms in (0, 100, 200, 400):
        fence(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if wait_ms:
            member.advance(wait_ms - 1)
            member.expect_no_heartbeat()
            member.advance(1)
        member.expect_heartbeat(epoch=0)


def test_r34_a_join_that_works_does_not_end_the_row() -> None:
    """A coordinator that forgets each member right after its join would see it join in a loop."""
    member = joining()
    for wait_ms in (0, 100, 200):
        member.answer_heartbeat(epoch=1, assignment={})
        member.reconcile()
        fence(member)
        member.advance(wait_ms)
        member.expect_heartbeat(epoch=0)
        if wait_ms:
            assert member.member.statistics.last_heartbeat_ms == member.now_ms


def test_r34_a_heartbeat_that_works_ends_the_row() -> None:
    """A member that is removed once a day joins at once each time."""
    member = fenced({})
    member.answer_heartbeat(epoch=2, assignment={})
    member.reconcile()
    member.answer_heartbeat(epoch=2)
    fence(member)
    member.expect_heartbeat(epoch=0)


@pytest.mark.parametrize(("interval_ms", "timeout_ms"), [(INTERVAL_MS, 5000), (8000, 8000), (40_000, 30_000)])
def test_r35_one_lost_answer_does_not_end_a_session(interval_ms: int, timeout_ms: int) -> None:
    """With request.timeout.ms alone it can: no other heartbeat goes out meanwhile."""
    member = joining(max_poll_interval_ms=300_000)
    assert member.take(ConsumerGroupHeartbeatRequest).timeout_ms == 5000
    member = joining(max_poll_interval_ms=300_000)
    member.answer_heartbeat(interval_ms=interval_ms)
    member.advance(interval_ms)
    assert member.take(ConsumerGroupHeartbeatRequest).timeout_ms == timeout_ms


def test_r36_heartbeats_go_on_during_a_run() -> None:
    """A listener that flushes for a minute must not cost the membership."""
    member = assigning()
    for _ in range(3):
        member.advance(INTERVAL_MS)
        member.expect_heartbeat(epoch=2, full=False)
        member.answer_heartbeat(epoch=2)
    assert member.state() is MemberState.RECONCILING


def test_r36_heartbeats_go_on_while_a_leaving_member_revokes() -> None:
    """Evicted in the middle of its last commit, it would lose that commit."""
    member = stable()
    member.leave()
    member.advance(INTERVAL_MS)
    assert member.reported(member.expect_heartbeat(epoch=1)) is None, "it owns what it owned"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_r37_a_refused_commit_asks_the_coordinator_why(code: int) -> None:
    """Waiting for the interval would delay the cure by seconds."""
    member = stable()
    member.commit(positions(t_0=1))
    member.answer_commit(code)
    member.expect_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_r37_a_refused_offset_fetch_does_too(code: int) -> None:
    """The partition cannot start before the epoch is known."""
    member = looking_up()
    member.answer_fetch(error=code)
    member.expect_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE


def test_r38_a_phase_that_sends_nothing_asks_for_no_wake_up() -> None:
    """A wait of zero is a core at 100 %."""
    idle = MemberHarness()
    assert idle.member.deadline_ms() is None
    releasing = fenced()
    assert releasing.member.deadline_ms() is None
    late = stable()
    late.advance(MAX_POLL_MS + 1)
    late.fail_heartbeat()
    late.fail_heartbeat()
    assert late.member.deadline_ms() is None
    fatal = stable()
    fence(fatal, ErrorCode.INVALID_REQUEST)
    assert fatal.member.deadline_ms() is None


def test_r277_a_process_that_was_stopped_sends_a_heartbeat_at_once() -> None:
    """The member may have been removed: records wait for the answer (`tests/threads/test_any_thread.py`)."""
    member = stable()
    member.forget_history()
    member.step(ProcessResumed())
    member.expect_heartbeat(epoch=1)
