"""The rules of docs/protocol.md, section Being removed."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.states import MemberState
from tests.spec.arrange import FENCING, ONE, TWO, assigning, calls, fence, fenced, revoking, stable
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MEMBER_ID


@pytest.mark.parametrize("code", FENCING, ids=lambda code: code.name)
def test_r57_everything_is_lost_and_then_the_member_joins_again(code: int) -> None:
    """A member that joins while it still works on its old partitions reads them twice at once."""
    member = fenced(TWO, code)
    assert member.state() is MemberState.RELEASING_ASSIGNMENT
    assert member.readable == []
    member.advance(5 * INTERVAL_MS)
    member.expect_no_heartbeat()
    assert (member.member.view().member_epoch, member.member.snapshot().member_epoch) == (-1, 0)
    member.finish_call("lost", "t-0", "t-1")
    join = member.expect_heartbeat(epoch=0, full=True)
    assert (join.member_id, join.topic_partitions) == (MEMBER_ID, ())


@pytest.mark.parametrize("code", FENCING, ids=lambda code: code.name)
def test_r58_a_member_without_partitions_joins_again_at_once(code: int) -> None:
    """There is nothing to lose, and no reason to wait."""
    member = fenced({}, code)
    assert not member.calls
    member.expect_heartbeat(epoch=0, full=True)


def test_r59_what_is_being_revoked_is_not_lost_as_well() -> None:
    """Two callbacks for one partition would close its resources twice."""
    member = revoking()
    fence(member)
    assert calls(member) == ["revoked(t-1)"]
    member.finish_call("revoked", "t-1")
    member.finish_call("lost", "t-0")
    member.expect_heartbeat(epoch=0)


def test_r59_what_the_listener_failed_to_revoke_is_lost() -> None:
    """Its resources are still open, so the listener is called once more, with on_lost."""
    member = revoking()
    fence(member)
    member.finish_call("revoked", "t-1", error=ValueError("no"))
    assert calls(member) == ["lost(t-0,t-1)"]


def test_r60_what_was_just_announced_is_taken_back() -> None:
    """The application opened resources for these partitions and must be told to close them."""
    member = assigning()
    fence(member)
    assert calls(member) == ["assigned(t-1)"]
    member.finish_call("assigned", "t-1")
    assert calls(member) == ["lost(t-0,t-1)"]
    assert member.readable == []


@pytest.mark.parametrize("code", FENCING, ids=lambda code: code.name)
def test_r61_a_member_removed_while_it_leaves_has_left(code: int) -> None:
    """The coordinator has no such member, so a leave heartbeat would be refused."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(error=code)
    assert member.owned == []
    assert member.history[-1] == "left"
    member.finish_call("revoked", "t-0")
    assert not member.sent
    assert member.state() is MemberState.UNJOINED


@pytest.mark.parametrize("why", ["fenced", "late", "fatal"])
def test_r62_unsubscribe_during_the_lost_callback_is_final(why: str) -> None:
    """A member that comes back after unsubscribe() takes partitions that no member reads."""
    member = stable()
    match why:
        case "fenced":
            fence(member)
        case "late":
            member.advance(MAX_POLL_MS + 1)
            member.sent.clear()
        case _:
            fence(member, ErrorCode.INVALID_REQUEST)
    member.leave()
    assert member.history[-1] == "left"
    assert member.owned == []
    member.finish_call("lost", "t-0")
    member.poll()
    member.advance(INTERVAL_MS)
    assert not member.sent
    assert member.state() is (MemberState.FATAL if why == "fatal" else MemberState.UNJOINED)


def test_r63_the_same_partitions_again_are_a_whole_run() -> None:
    """They were lost, so the application must be told that they are back."""
    member = fenced()
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=7, assignment=ONE)
    member.poll()
    member.finish_call("assigned", "t-0")
    assert member.reported(member.expect_heartbeat(epoch=7)) == ONE
