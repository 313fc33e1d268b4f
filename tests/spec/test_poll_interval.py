"""The rules of docs/protocol.md, section max.poll.interval.ms."""

from __future__ import annotations

import pytest

from kip848_client.errors import MaxPollExceededError
from kip848_client.member.core.events import FailureKind, SurfaceError, Tick
from kip848_client.member.core.states import MemberState
from tests.spec.arrange import (
    ONE,
    answer_heartbeats,
    assigning,
    calls,
    heartbeat_epochs,
    joining,
    pass_time,
    revoking,
    stable,
    without_coordinator,
)
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness


def late(**settings: object) -> MemberHarness:
    """It owned t-0, and its application has not polled in time; its leave is under way."""
    member = stable(**settings)
    pass_time(member, MAX_POLL_MS + 1)
    return member


def test_r125_the_time_runs_from_the_subscription() -> None:
    """An application that subscribes and then hangs keeps partitions that no member reads."""
    member = MemberHarness()
    member.advance(MAX_POLL_MS + 1)  # it is made long before it is used
    member.subscribe("t")
    member.answer_heartbeat(epoch=1, assignment=ONE)
    pass_time(member, MAX_POLL_MS)
    assert member.state() is MemberState.RECONCILING
    pass_time(member, 1)
    assert heartbeat_epochs(member)[-1] == -1
    assert member.state() is MemberState.UNJOINED
    member.answer_heartbeat(epoch=-1)
    member.poll()
    member.expect_heartbeat(epoch=0)


def test_r126_a_subscription_is_no_poll() -> None:
    """The member would be given partitions again that its application does not read."""
    member = late()
    member.answer_heartbeat(epoch=-1)
    member.finish_call("lost", "t-0")
    member.subscribe("u")
    member.expect_no_heartbeat()


def test_r125_a_poll_during_one_release_says_nothing_about_the_next() -> None:
    """An application that hangs would join again and again, and stop the others each time."""
    member = late()
    member.poll()
    for assignment in (ONE, None):
        member.sent.clear()
        member.finish_call("lost", "t-0")
        assert heartbeat_epochs(member) == ([0] if assignment else [])
        if assignment:
            member.answer_heartbeat(epoch=3, assignment=assignment)
            member.reconcile()
            pass_time(member, MAX_POLL_MS + 1)


def test_r125_the_failure_of_an_older_heartbeat_is_ignored() -> None:
    """It would stop the member that has joined again since."""
    member = stable({})
    member.advance(MAX_POLL_MS + 1)
    member.poll()
    assert heartbeat_epochs(member) == [1, -1, 0]
    member.fail_heartbeat(FailureKind.UNSUPPORTED_VERSION)
    assert member.state() is MemberState.UNJOINED


@pytest.mark.parametrize(("settings", "epoch"), [({}, -1), ({"instance_id": "host-1"}, -2)])
def test_r125_a_silent_application_gives_everything_up(settings: dict[str, object], epoch: int) -> None:
    """Otherwise its partitions stand still for as long as it hangs."""
    member = late(**settings)
    assert member.state() is MemberState.RELEASING_ASSIGNMENT
    assert heartbeat_epochs(member) == [epoch]
    assert member.member.snapshot().member_epoch == epoch
    assert calls(member) == ["lost(t-0)"]
    assert member.readable == []
    member.advance(60_000)
    assert heartbeat_epochs(member) == [epoch]


def test_r125_without_a_coordinator_it_gives_up_all_the_same() -> None:
    """The coordinator will end the session; the application must not go on with records of others."""
    member = without_coordinator(stable())
    member.advance(MAX_POLL_MS)
    assert calls(member) == ["lost(t-0)"]
    assert heartbeat_epochs(member) == []


def test_r126_the_next_poll_joins_again() -> None:
    """An application that was too slow recovers by its next poll(), without a restart."""
    member = late()
    member.answer_heartbeat(epoch=-1)
    member.poll()
    member.expect_no_heartbeat()
    member.finish_call("lost", "t-0")
    assert member.expect_heartbeat(epoch=0, full=True).topic_partitions == ()


def test_r126_without_a_poll_the_member_stays_out() -> None:
    """A member that joins without a poll would get partitions that it does not read."""
    member = late()
    member.answer_heartbeat(epoch=-1)
    member.finish_call("lost", "t-0")
    member.advance(60_000)
    assert not member.sent
    assert member.state() is MemberState.UNJOINED
    member.poll()
    member.expect_heartbeat(epoch=0)


@pytest.mark.parametrize("answered", [True, False])
def test_r126_the_end_of_the_leave_does_not_disturb_the_join(answered: bool) -> None:
    """If the wish to join again were lost, the next heartbeat would be refused for good."""
    member = late()
    member.poll()
    member.finish_call("lost", "t-0")
    if answered:
        member.answer_heartbeat(epoch=-1)
    else:
        member.fail_heartbeat()
    member.expect_heartbeat(epoch=0, full=True)
    member.answer_heartbeat(epoch=4, assignment=ONE)
    assert member.state() is MemberState.RECONCILING


def test_r127_exactly_the_limit_is_in_time() -> None:
    """An application that polls exactly at ``max.poll.interval.ms`` must not be removed."""
    member = stable()
    pass_time(member, MAX_POLL_MS)
    member.poll()
    pass_time(member, MAX_POLL_MS)
    assert member.state() is MemberState.STABLE
    pass_time(member, 1)
    assert member.state() is MemberState.RELEASING_ASSIGNMENT


def test_r127_waiting_inside_poll_is_polling() -> None:
    """An application inside ``poll(timeout=60)`` is healthy, even if no record arrives."""
    member = stable()
    for _ in range(600):
        member.clock.advance(100)
        member.step(Tick(member.now_ms))
        answer_heartbeats(member)
    assert member.state() is MemberState.STABLE


def test_r128_a_member_that_joins_can_be_late() -> None:
    """Its join may have been applied: it leaves, and there is nothing to lose."""
    member = joining()
    member.advance(MAX_POLL_MS + 1)
    assert heartbeat_epochs(member) == [0, -1]
    assert not member.calls
    assert member.state() is MemberState.UNJOINED


def test_r128_a_listener_that_is_too_slow_ends_its_run() -> None:
    """It runs inside poll(), which did not return; what it revokes is not lost as well."""
    member = revoking()
    pass_time(member, MAX_POLL_MS + 1)
    assert heartbeat_epochs(member) == [-1]
    member.finish_call("revoked", "t-1")
    assert calls(member) == ["lost(t-0)"]
    assert "assigned()" not in member.history


def test_r128_an_assigned_callback_that_is_too_slow_is_taken_back() -> None:
    """The acknowledgement of a member that left would be refused."""
    member = assigning()
    pass_time(member, MAX_POLL_MS + 1)
    member.finish_call("assigned", "t-1")
    assert calls(member) == ["lost(t-0,t-1)"]
    assert heartbeat_epochs(member) == [-1]


def test_r129_a_member_that_leaves_is_not_late() -> None:
    """A slow revoked callback in close() is no reason to lose instead."""
    member = stable()
    member.leave(timeout_ms=100_000)
    pass_time(member, 2 * MAX_POLL_MS)
    assert calls(member) == ["revoked(t-0)"]
    member.advance(INTERVAL_MS)
    assert heartbeat_epochs(member) == [1]


def test_r130_the_error_names_the_limit_and_the_time() -> None:
    """The limit is the first thing to change."""
    member = late()
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, MaxPollExceededError)
    assert f"{MAX_POLL_MS + 1} ms" in str(surfaced.error)
    assert f"max.poll.interval.ms is {MAX_POLL_MS}:" in str(surfaced.error)
