"""Removed by the coordinator: everything is lost, then the member joins again with the same id."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import CommitFailedError
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MEMBER_ID, MemberHarness, positions

FENCING = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH]


def fenced(code: int = ErrorCode.FENCED_MEMBER_EPOCH, **settings: object) -> MemberHarness:
    """A member that owned t-0 and t-1 and was just told that it does not."""
    member = MemberHarness(settings=settings)
    member.become_stable({"t": [0, 1]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=code)
    return member


@pytest.mark.parametrize("code", FENCING)
def test_a_member_fenced_while_joining_joins_again_without_a_callback(code: int) -> None:
    """There is nothing to lose yet, and no reason to wait."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=code)
    assert not member.calls
    assert member.expect_heartbeat(epoch=0, full=True).member_id == MEMBER_ID


def test_a_member_fenced_by_its_acknowledgement_comes_back() -> None:
    """The whole way: join, acknowledge, fenced, join, acknowledge, leave."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.reconcile()
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.finish_call("lost", "t-0")
    assert member.expect_heartbeat(epoch=0).member_id == MEMBER_ID
    member.answer_heartbeat(epoch=4, assignment={"t": [0]})
    member.reconcile()
    member.answer_heartbeat(epoch=4)
    member.leave()
    member.finish_call("revoked", "t-0")
    heartbeats = [word for word in member.history if word.startswith("heartbeat")]
    assert heartbeats == ["heartbeat(0)", "heartbeat(1)", "heartbeat(0)", "heartbeat(4)", "heartbeat(-1)"]


@pytest.mark.parametrize("code", FENCING)
def test_a_fenced_member_is_silent_until_its_lost_callback_ends(code: int) -> None:
    """A member that joins while it still processes its old partitions reads them twice at once (KAFKA-16251)."""
    member = fenced(code)
    assert member.state() is MemberState.RELEASING_ASSIGNMENT
    assert member.readable == []
    member.advance(5 * INTERVAL_MS)
    member.expect_no_heartbeat()
    member.finish_call("lost", "t-0", "t-1")
    member.expect_heartbeat(epoch=0, full=True)
    assert member.state() is MemberState.UNJOINED


def test_a_member_fenced_while_it_leaves_has_left() -> None:
    """A leave heartbeat of a member that is gone is noise; close() must not wait for it."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.history[-1] == "left"
    assert member.phase() is Phase.IDLE
    member.commit(positions(t_0=1))
    (commit,) = member.requests(OffsetCommitRequest)
    assert commit.generation_id_or_member_epoch == -1
    member.finish_call("revoked", "t-0")
    assert member.phase() is Phase.IDLE
    member.expect_no_heartbeat()


def test_a_member_of_version_0_fenced_before_its_leave_has_left() -> None:
    """It waited to hear its own name; now there is nobody to leave."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    member.leave()
    assert member.phase() is Phase.LEAVE_DUE
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.phase() is Phase.IDLE
    assert member.history[-1] == "left"
    member.expect_no_heartbeat()


def test_a_fenced_answer_after_leaving_is_ignored() -> None:
    """The answer to a heartbeat that was under way when the member left."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    assert member.phase() is Phase.IDLE
    assert "left" not in member.history
    member.answer_heartbeat(epoch=-1)
    assert member.history[-1] == "left"


def test_unsubscribe_during_a_slow_lost_callback_returns_at_once_and_stays_out() -> None:
    """The member must not come back when the callback ends later."""
    member = fenced()
    member.leave()
    assert member.history[-1] == "left"
    assert member.phase() is Phase.IDLE
    member.finish_call("lost", "t-0", "t-1")
    assert member.phase() is Phase.IDLE
    member.advance(INTERVAL_MS)
    member.expect_no_heartbeat()


def test_unsubscribe_inside_a_listener_that_a_removal_waits_for_does_not_hang() -> None:
    """The removal waits for the listener, and the listener for unsubscribe(): one of them has to go first."""
    member = MemberHarness()
    member.become_stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.leave()
    assert member.history[-2:] == ["lost(t-0)", "left"]
    assert member.phase() is Phase.IDLE


def test_commits_of_a_fenced_member_fail() -> None:
    """They would overwrite what the new owner commits."""
    member = fenced()
    call = member.commit(positions(t_0=5))
    assert isinstance(member.commit_error(call), CommitFailedError)
    assert not member.requests(OffsetCommitRequest)
    assert member.member.view().member_epoch == -1


def test_a_fenced_member_keeps_its_new_subscription() -> None:
    """subscribe() in on_partitions_lost is what the rejoin carries."""
    member = fenced()
    member.subscribe("u")
    member.finish_call("lost", "t-0", "t-1")
    assert member.expect_heartbeat(epoch=0).subscribed_topic_names == ("u",)


def test_a_poll_during_the_release_starts_nothing() -> None:
    """The member owns nothing that could be reconciled."""
    member = fenced()
    before = member.member.snapshot()
    member.poll()
    assert member.member.snapshot() == before


def test_only_one_heartbeat_is_in_flight_after_a_rejoin() -> None:
    """The in-flight mark of the old life must not silence the new one (KAFKA-16178)."""
    member = fenced()
    member.finish_call("lost", "t-0", "t-1")
    assert len(member.requests(ConsumerGroupHeartbeatRequest)) == 1
    member.answer_heartbeat(epoch=3, assignment={"t": [1]})
    member.reconcile()
    member.expect_heartbeat(epoch=3)


def test_unsubscribe_inside_the_listener_that_revokes_the_rest_loses_nothing() -> None:
    """Everything was being revoked already: there is no second callback."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.assign_more({})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.leave()
    assert member.history[-1] == "left"
    assert [call.kind for call in member.calls] == ["revoked"]
    assert member.phase() is Phase.IDLE
    member.finish_call("revoked", "t-0")
    assert member.phase() is Phase.IDLE
