"""unsubscribe() and close(): the listener first, then the leave heartbeat, and nothing keeps the member."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import CommitFailedError
from kip848_client.member.events import CallAbandoned, CommitKind, LeaveDone, LeaveMode
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def stable(**settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable({"t": [0]})
    return member


def test_unsubscribe_revokes_then_leaves_then_returns() -> None:
    """The coordinator hands the partitions over the moment it reads the leave."""
    member = stable()
    member.leave()
    assert member.readable == []
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert member.history == ["pause(t-0)", "revoked(t-0)", "heartbeat(-1)", "left"]
    assert member.owned == []
    assert member.member.view().member_epoch == -1
    assert member.state() is MemberState.UNJOINED


def test_a_member_without_partitions_leaves_without_a_callback() -> None:
    """There is nothing to revoke."""
    member = MemberHarness()
    member.become_stable({})
    member.leave()
    assert member.history == ["heartbeat(-1)"]


def test_a_static_member_keeps_its_place_unless_told_otherwise() -> None:
    """Restarts of static members must not rebalance the group; a decommissioned one must."""
    for mode, epoch in ((LeaveMode.DEFAULT, -2), (LeaveMode.REMAIN_IN_GROUP, -2), (LeaveMode.LEAVE_GROUP, -1)):
        member = stable(instance_id="host-1")
        member.leave(mode=mode, closing=True)
        member.finish_call("revoked", "t-0")
        member.expect_heartbeat(epoch=epoch)


def test_two_callers_wait_for_one_leave() -> None:
    """close() after unsubscribe() in another thread."""
    member = stable()
    member.leave()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.leave()
    member.expect_heartbeat(epoch=-1)
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 3


def test_a_second_unsubscribe_returns_at_once() -> None:
    """There is no membership any more."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    member.leave()
    assert member.history[-2:] == ["left", "left"]
    member.expect_no_heartbeat()


def test_without_a_coordinator_the_leave_is_given_up() -> None:
    """close() during an outage must not hang; the session ends by itself."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.leave()
    member.finish_call("revoked", "t-0")
    assert member.history[-1] == "left"
    member.expect_no_heartbeat()


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_MEMBER_ID, 9999])
def test_any_answer_to_the_leave_ends_it(code: int) -> None:
    """A refused leave is no reason to keep a closing consumer."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(error=code)
    assert member.history[-1] == "left"
    assert member.phase() is Phase.IDLE


def test_a_failed_leave_ends_it_too() -> None:
    """The connection broke: nobody will answer."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.fail_heartbeat()
    assert member.history[-1] == "left"


def test_a_leave_without_an_answer_ends_at_its_deadline() -> None:
    """unsubscribe(timeout) keeps its word."""
    member = stable()
    member.leave(timeout_ms=700)
    member.finish_call("revoked", "t-0")
    member.advance(699)
    assert "left" not in member.history
    member.advance(1)
    assert member.history[-1] == "left"


def test_an_ordinary_answer_does_not_complete_the_leave() -> None:
    """Matched by state instead of by request, close() would return before the leave arrived."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=1)
    assert "left" not in member.history
    member.answer_heartbeat(epoch=-1)
    assert member.history[-1] == "left"


def test_a_leaving_member_takes_the_epoch_and_not_the_assignment() -> None:
    """The last commits, in the revoked callback, need the newest epoch."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(epoch=8, assignment={"t": [0, 1]})
    member.commit(positions(t_0=4))
    (commit,) = member.requests(OffsetCommitRequest)
    assert commit.generation_id_or_member_epoch == 8
    assert member.owned == ["t-0"]


def test_a_slow_revoked_callback_keeps_its_membership() -> None:
    """Heartbeats go on with the real epoch, or the coordinator would evict while the listener still commits."""
    member = stable()
    member.leave()
    member.advance(INTERVAL_MS)
    member.expect_heartbeat(epoch=1)


def test_quick_changes_of_mind_end_in_the_last_wish() -> None:
    """subscribe, unsubscribe, subscribe, unsubscribe, with and without a poll between them."""
    for polled in (False, True):
        member = MemberHarness()
        for _ in range(2):
            member.subscribe("t")
            if polled:
                member.poll()
            member.leave()
            while member.requests(ConsumerGroupHeartbeatRequest):
                member.answer_heartbeat(epoch=-1)
        assert member.phase() is Phase.IDLE
        assert len(member.emitted(LeaveDone)) == 2


def test_a_subscription_made_while_leaving_starts_after_the_leave() -> None:
    """The leave must not be overtaken by the join, and the join must not be forgotten."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.subscribe("u")
    assert not member.member.view().poll_wanted
    member.answer_heartbeat(epoch=-1)
    assert member.phase() is Phase.WAIT_FIRST_POLL
    member.poll()
    assert member.expect_heartbeat(epoch=0, full=True).subscribed_topic_names == ("u",)


def test_unsubscribe_takes_back_a_subscription_made_while_leaving() -> None:
    """The last call counts."""
    member = stable()
    member.leave()
    member.subscribe("u")
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert member.phase() is Phase.IDLE


def test_close_commits_then_revokes_then_leaves() -> None:
    """Any other order loses the position or the permission to commit it."""
    member = stable(auto_commit_interval_ms=5000)
    member.commit(positions(t_0=30), kind=CommitKind.AUTO_CLOSE)
    member.answer_commit()
    member.leave(closing=True)
    member.finish_call("revoked", "t-0")
    assert member.history == ["commit(1)", "pause(t-0)", "revoked(t-0)", "heartbeat(-1)"]
    member.subscribe("t")
    member.answer_heartbeat(epoch=-1)
    member.poll()
    assert member.phase() is Phase.IDLE


def test_close_without_time_still_sends_the_leave() -> None:
    """close(0) frees the partitions at once instead of after a session timeout."""
    member = stable()
    member.leave(timeout_ms=0, closing=True)
    member.finish_call("revoked", "t-0")
    assert member.history[-2:] == ["heartbeat(-1)", "left"]


def test_close_without_a_coordinator_fails_queued_commits() -> None:
    """Waiting for a coordinator that nobody looks for is waiting for ever (KAFKA-19357)."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    call = member.commit(positions(t_0=1), kind=CommitKind.ASYNC)
    member.leave(closing=True)
    assert isinstance(member.commit_error(call), CommitFailedError)
    member.finish_call("revoked", "t-0")
    assert member.history[-1] == "left"


def test_close_of_a_fatal_member_sends_nothing() -> None:
    """The coordinator refused us for good."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.finish_call("lost", "t-0")
    member.leave(closing=True)
    assert member.history[-1] == "left"
    assert not member.sent


def test_a_group_that_is_gone_does_not_disturb_a_leave_that_was_sent() -> None:
    """GROUP_ID_NOT_FOUND is fatal for a member, and nothing to somebody who left."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(error=ErrorCode.GROUP_ID_NOT_FOUND)
    assert member.phase() is Phase.IDLE
    assert not [word for word in member.history if word.endswith("Error")]


def test_unsubscribe_before_the_first_poll_sends_nothing() -> None:
    """Nobody knows the member yet."""
    member = MemberHarness()
    member.subscribe("t")
    member.leave()
    assert member.history == ["left"]
    assert not member.member.view().poll_wanted


def test_a_member_of_version_0_waits_to_hear_its_name_before_it_leaves() -> None:
    """Without the id the leave cannot name the member, and a ghost stays until its session ends (KAFKA-17116)."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    member.leave()
    member.expect_heartbeat(epoch=0)
    member.answer_heartbeat(epoch=1, assignment={"t": [0]}, member_id="m1")
    assert member.expect_heartbeat(epoch=-1).member_id == "m1"


def test_a_member_of_version_0_that_never_hears_its_name_gives_up() -> None:
    """The coordinator did not answer: there is nobody to name."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    member.leave()
    member.fail_heartbeat()
    assert member.history[-1] == "left"
    member.expect_no_heartbeat()


def test_unsubscribe_inside_a_revoked_callback_revokes_the_rest() -> None:
    """The listener that calls it is still running: what it revokes must not be revoked twice."""
    member = MemberHarness()
    member.become_stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.leave()
    assert [(call.kind, call.partitions) for call in member.calls] == [("revoked", ("t-1",)), ("revoked", ("t-0",))]
    inner = member.calls.pop()
    outer = member.calls.pop()
    member.calls = [inner, outer]
    member.finish_call("revoked", "t-0")
    member.finish_call("revoked", "t-1")
    member.expect_heartbeat(epoch=-1)


def test_close_inside_an_assigned_callback_gives_nothing_up_before_the_revoked_one() -> None:
    """A heartbeat without the new partitions would hand them over while the application still lets go of them."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.leave()
    member.advance(INTERVAL_MS)
    assert member.reported(member.expect_heartbeat(epoch=2)) == {"t": [0, 1]}


def test_a_caller_that_stopped_waiting_is_not_told() -> None:
    """Its number may belong to somebody else by then."""
    member = stable()
    member.leave()
    member.step(CallAbandoned(member._call_number))
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert not member.emitted(LeaveDone)
    assert member.phase() is Phase.IDLE


def test_leaving_while_joining_is_a_leave() -> None:
    """The join may have been applied."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.leave()
    assert [request.member_epoch for request in member.requests(ConsumerGroupHeartbeatRequest)] == [0, -1]
    member.answer_heartbeat(epoch=1, assignment={"t": [0]})
    assert member.phase() is Phase.IDLE
    assert member.owned == []


def test_a_member_of_version_0_that_is_refused_gives_up_too() -> None:
    """The coordinator is loading: it will not tell us our name in time."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    member.leave()
    member.answer_heartbeat(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.history[-1] == "left"
    assert member.phase() is Phase.IDLE


def test_a_member_that_leaves_starts_no_partition() -> None:
    """The committed offset arrives while the revoked callback runs."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.reconcile()
    member.leave()
    member.answer_fetch({"t-0": 5})
    assert "fetch(t-0@5)" not in member.history
