"""Listeners that raise: nothing is acknowledged that did not happen, and nobody is stuck."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.member.states import MemberState, Phase
from tests.support.member_harness import INTERVAL_MS, MemberHarness


def revoking() -> MemberHarness:
    member = MemberHarness()
    member.become_stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    return member


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit()], ids=lambda e: type(e).__name__)
def test_a_revoked_callback_that_raises_is_repeated_by_the_next_poll(error: BaseException) -> None:
    """An application that could not flush must get another chance before others read its records (KAFKA-18160)."""
    member = revoking()
    member.finish_call("revoked", "t-1", error=error)
    assert member.state() is MemberState.RECONCILING
    assert member.readable == ["t-0"]
    member.expect_no_heartbeat()
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {"t": [0]}


def test_a_member_that_never_lets_go_is_evicted_and_loses_everything() -> None:
    """The rebalance timeout protects the others."""
    member = revoking()
    member.finish_call("revoked", "t-1", error=ValueError("no"))
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.finish_call("lost", "t-0", "t-1")
    member.expect_heartbeat(epoch=0)


def test_an_assigned_callback_that_raises_gets_the_same_partitions_again() -> None:
    """A retry with an empty list would leave partitions that the application never set up."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.finish_call("assigned", "t-1", error=ValueError("no"))
    assert member.phase() is Phase.PENDING
    assert member.readable == ["t-0"]
    member.expect_no_heartbeat()
    member.poll()
    member.finish_call("assigned", "t-1")
    assert member.readable == ["t-0", "t-1"]
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1]}


def test_partitions_that_were_never_confirmed_can_be_revoked() -> None:
    """The coordinator took them back while the application still could not set them up."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.finish_call("assigned", "t-1", error=ValueError("no"))
    member.assign_more({"t": [0]}, epoch=3)
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.owned == ["t-0"]
    assert member.reported(member.expect_heartbeat()) == {"t": [0]}


def test_a_lost_callback_that_raises_does_not_keep_the_member_out() -> None:
    """The partitions are gone whatever the application thinks of it."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.finish_call("lost", "t-0", error=ValueError("no"))
    member.expect_heartbeat(epoch=0, full=True)


def test_a_lost_callback_that_raises_in_fatal_still_clears_the_assignment() -> None:
    """assignment() must not name partitions of a dead member."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.finish_call("lost", "t-0", error=ValueError("no"))
    assert member.owned == []
    assert member.phase() is Phase.FATAL_DONE


def test_a_revoked_callback_that_raises_does_not_prevent_the_leave() -> None:
    """Otherwise a broken listener keeps its partitions until the session ends (KAFKA-16933)."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.leave(closing=True)
    member.finish_call("revoked", "t-0", error=ValueError("no"))
    member.expect_heartbeat(epoch=-1)
    member.answer_heartbeat(epoch=-1)
    assert member.history[-1] == "left"


def test_the_end_of_an_unknown_call_is_ignored() -> None:
    """The application's thread may report twice when it is interrupted."""
    member = revoking()
    call = member.calls[0]
    member.finish_call("revoked", "t-1")
    member.calls.insert(0, call)
    member.finish_call("revoked", "t-1")
    assert [item.kind for item in member.calls] == ["assigned"]
