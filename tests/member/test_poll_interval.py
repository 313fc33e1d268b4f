"""max.poll.interval.ms: a consumer that hangs gives its partitions to others, and comes back when it polls again."""

from __future__ import annotations

import pytest

from kip848_client.errors import CommitFailedError, MaxPollExceededError
from kip848_client.member.events import SurfaceError, Tick
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness, positions


def stable(**settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable({"t": [0]})
    return member


def be_silent(member: MemberHarness, ms: int = MAX_POLL_MS + 1) -> None:
    """Do not poll for *ms*, while the coordinator answers."""
    for _ in range(ms // 100):
        member.advance(100)
        if member.state() is MemberState.RELEASING_ASSIGNMENT:
            break
        while member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat(epoch=member.member.snapshot().member_epoch)
    member.advance(ms % 100)


@pytest.mark.parametrize(("settings", "epoch"), [({}, -1), ({"instance_id": "host-1"}, -2)])
def test_a_silent_application_leaves_the_group(settings: dict[str, object], epoch: int) -> None:
    """Otherwise its partitions stand still for as long as it hangs."""
    member = stable(**settings)
    be_silent(member)
    assert member.phase() is Phase.STALE_RELEASE
    member.expect_heartbeat(epoch=epoch)
    assert member.readable == []
    member.advance(60_000)
    member.expect_heartbeat(epoch=epoch)


def test_the_next_poll_loses_everything_and_joins_again() -> None:
    """The application comes back by itself: nobody has to restart it."""
    member = stable()
    be_silent(member)
    member.answer_heartbeat(epoch=-1)
    assert member.member.view().poll_wanted
    member.poll()
    member.finish_call("lost", "t-0")
    assert member.expect_heartbeat(epoch=0, full=True).topic_partitions == ()
    member.answer_heartbeat(epoch=9, assignment={"t": [0]})
    member.reconcile()
    assert member.owned == ["t-0"]
    assert member.state() is MemberState.STABLE


def test_the_application_is_told_why() -> None:
    """The message names the limit: it is the first thing to change."""
    member = stable()
    be_silent(member)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, MaxPollExceededError)
    assert str(MAX_POLL_MS) in str(surfaced.error)


def test_a_poll_before_the_callback_ended_joins_when_it_ends() -> None:
    """The join must not carry partitions of the old life."""
    member = stable()
    be_silent(member)
    member.poll()
    member.advance(500)
    member.expect_heartbeat(epoch=-1)
    member.finish_call("lost", "t-0")
    assert [request.member_epoch for request in member.requests(ConsumerGroupHeartbeatRequest)] == [-1, 0]


def test_without_a_poll_the_member_stays_out() -> None:
    """A member that joins although nobody polls would be given partitions again."""
    member = stable()
    be_silent(member)
    member.finish_call("lost", "t-0")
    assert member.phase() is Phase.AWAITING_POLL
    assert member.state() is MemberState.UNJOINED
    member.advance(60_000)
    member.expect_heartbeat(epoch=-1)
    member.poll()
    assert member.phase() is Phase.JOINING


def test_a_member_that_never_finished_joining_can_be_late_too() -> None:
    """Its join may have been applied: it leaves, without a callback."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.advance(MAX_POLL_MS + 1)
    assert member.phase() is Phase.AWAITING_POLL
    assert not member.calls
    assert [request.member_epoch for request in member.requests(ConsumerGroupHeartbeatRequest)] == [0, -1]


def test_a_listener_that_is_too_slow_is_out_of_the_group() -> None:
    """It runs inside poll(), which does not return; lost follows on the same thread."""
    member = stable()
    member.assign_more({"t": [0, 1]})
    member.poll()
    be_silent(member)
    member.expect_heartbeat(epoch=-1)
    member.finish_call("assigned", "t-1")
    member.finish_call("lost", "t-0", "t-1")
    assert member.phase() is Phase.AWAITING_POLL


def test_an_acknowledgement_that_cannot_be_sent_does_not_stop_the_timer() -> None:
    """The heartbeat before it is unanswered, and the application hangs."""
    member = stable()
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.finish_call("assigned", "t-1")
    assert member.phase() is Phase.ACK_DUE
    member.advance(MAX_POLL_MS)
    assert member.phase() is Phase.STALE_RELEASE
    assert not member.member.snapshot().ack_due


def test_a_member_that_leaves_is_not_late() -> None:
    """A slow revoked callback in close() is no reason to lose instead (KAFKA-16165)."""
    member = stable()
    member.leave(timeout_ms=100_000)
    be_silent(member, 2 * MAX_POLL_MS)
    assert member.phase() is Phase.LEAVE_REVOKING
    member.finish_call("revoked", "t-0")
    assert member.requests(ConsumerGroupHeartbeatRequest)[-1].member_epoch == -1


def test_polling_in_time_keeps_the_member() -> None:
    """The limit is between two polls, not in total."""
    member = stable()
    for _ in range(5):
        be_silent(member, MAX_POLL_MS - 1000)
        member.poll()
    assert member.state() is MemberState.STABLE


def test_a_poll_that_waits_long_counts_as_polling() -> None:
    """poll(timeout=60) with no records is a healthy application (KAFKA-16026)."""
    member = stable()
    for _ in range(600):
        member.clock.advance(100)
        member.step(Tick(member.now_ms))
        while member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat()
    assert member.state() is MemberState.STABLE


def test_without_a_coordinator_the_partitions_are_given_up_all_the_same() -> None:
    """The coordinator will end the session; the application must not go on with records of others."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(MAX_POLL_MS)
    assert member.phase() is Phase.STALE_RELEASE
    member.expect_no_heartbeat()
    assert member.requests(FindCoordinatorRequest)


def test_commits_of_a_late_member_fail() -> None:
    """Its partitions may have a new owner already."""
    member = stable()
    be_silent(member)
    call = member.commit(positions(t_0=3))
    assert isinstance(member.commit_error(call), CommitFailedError)


def test_unsubscribe_of_a_late_member_returns_at_once_and_stays_out() -> None:
    """The lost callback still runs, but nothing joins after it."""
    member = stable()
    be_silent(member)
    member.leave()
    assert member.history[-1] == "left"
    member.finish_call("lost", "t-0")
    assert member.phase() is Phase.IDLE
    member.poll()
    member.expect_heartbeat(epoch=-1)


def test_unsubscribe_inside_the_lost_callback_leaves_nothing_owned() -> None:
    """unsubscribe() or close() has returned by then: assignment() must not name what was taken away already."""
    member = stable()
    be_silent(member)
    member.leave()
    assert member.owned == []
    member.finish_call("lost", "t-0")
    assert member.phase() is Phase.IDLE


def test_a_leave_answer_that_comes_late_does_not_disturb_the_rejoin() -> None:
    """Elsewhere it wiped the wish to rejoin, and the next heartbeat was refused for good."""
    member = stable()
    be_silent(member)
    member.poll()
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert member.phase() is Phase.JOINING
    member.expect_heartbeat(epoch=0, full=True)
