"""The rules of docs/protocol.md, section Listeners that fail."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.states import MemberState
from tests.spec.arrange import ONE, TWO, answer_heartbeats, assigning, calls, fence, fenced, revoking, stable
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions

NO = ValueError("not now")


@pytest.mark.parametrize("error", [NO, KeyboardInterrupt(), SystemExit()], ids=lambda error: type(error).__name__)
def test_r84_a_revocation_that_fails_is_repeated_by_the_next_poll(error: BaseException) -> None:
    """An application that could not flush must get another chance before others read its records."""
    member = revoking()
    member.finish_call("revoked", "t-1", error=error)
    member.expect_no_heartbeat()
    assert member.readable == ["t-0"]
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == ONE


def test_r85_who_never_lets_go_loses_everything() -> None:
    """A member whose listener keeps failing is removed in time, so that others get its partitions."""
    member = revoking()
    member.finish_call("revoked", "t-1", error=NO)
    fence(member, ErrorCode.UNKNOWN_MEMBER_ID)
    assert calls(member) == ["lost(t-0,t-1)"]


def test_r86_an_assignment_that_fails_is_repeated_with_what_is_new() -> None:
    """A retry with an empty list would leave partitions that the application never set up."""
    member = assigning()
    member.finish_call("assigned", "t-1", error=NO)
    assert member.readable == ["t-0"]
    member.expect_no_heartbeat()
    member.assign_more({"t": [0, 1, 2]}, epoch=3)
    member.poll()
    member.finish_call("assigned", "t-1", "t-2")
    assert member.readable == ["t-0", "t-1", "t-2"]


def test_r265_what_was_revoked_before_it_failed_is_acknowledged() -> None:
    """Others wait for the revoked partition until the rebalance timeout, and the callback may raise for ever."""
    member = revoking()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned", error=NO)
    assert member.reported(member.expect_heartbeat()) == ONE
    member.answer_heartbeat()
    assert member.readable == ["t-0"]
    member.poll()
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == ONE


def test_r87_what_was_refused_can_be_revoked() -> None:
    """The application saw it, and may have opened something for it."""
    member = assigning()
    member.finish_call("assigned", "t-1", error=NO)
    member.assign_more(ONE, epoch=3)
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.owned == ["t-0"]


def test_r88_a_partition_that_comes_back_is_readable_again() -> None:
    """Its revocation failed, then the coordinator changed its mind: it must not stay paused for ever."""
    member = stable(TWO)
    member.assign_more(ONE)
    member.poll(positions(t_0=3, t_1=7))
    member.finish_call("revoked", "t-1", error=NO)
    member.assign_more(TWO, epoch=3)
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)  # the full heartbeat that follows is no reason to wait: nothing is added
    member.poll(positions(t_0=3, t_1=7))
    member.finish_call("assigned")
    assert member.readable == ["t-0", "t-1"]
    assert member.history[-1] == "fetch(t-1@7)"


def test_r89_a_fenced_member_comes_back_all_the_same() -> None:
    """The partitions are gone, also if the application's callback raises."""
    member = fenced()
    member.finish_call("lost", "t-0", error=NO)
    member.expect_heartbeat(epoch=0, full=True)


def test_r89_a_fatal_member_keeps_nothing() -> None:
    """assignment() must not name partitions of a dead member."""
    member = fenced(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.finish_call("lost", "t-0", error=NO)
    assert member.owned == []
    assert member.state() is MemberState.FATAL


def test_r196_a_listener_that_raises_for_ever_is_called_less_and_less_often() -> None:
    """It was called 3,623 times in 2 s, and its error logged as often."""
    member = revoking()
    member.finish_call("revoked", "t-1", error=NO)
    begun = []
    for now_ms in range(0, 2_000, 10):
        member.advance(10)
        answer_heartbeats(member)
        if member.member.view().poll_wanted:
            member.poll()
            begun.append(now_ms)
            member.finish_call("revoked", "t-1", error=NO)
    assert begun[0] == 0
    assert 3 <= len(begun) <= 7


def test_r196_the_first_failure_of_a_membership_costs_no_wait() -> None:
    """A listener that fails seldom must not delay its partitions."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    for _ in range(2):
        member.answer_heartbeat(epoch=1, assignment=ONE)
        member.poll()
        member.finish_call("assigned", "t-0", error=NO)
        assert member.member.view().poll_wanted
        fence(member)
        member.finish_call("lost", "t-0")


def test_r196_one_that_returned_has_its_failures_forgotten() -> None:
    """A hiccup now and another in an hour are no reason to wait."""
    member = revoking()
    for _ in range(2):
        member.finish_call("revoked", "t-1", error=NO)
        member.advance(1_000)
        member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_heartbeat(epoch=2)
    member.assign_more(TWO, epoch=3)
    for wait_ms in (0, 100):
        member.poll()
        member.finish_call("assigned", "t-1", error=NO)
        member.advance(wait_ms)
        assert member.member.view().poll_wanted
