"""Stories that no single rule tells: several things go wrong, or change, at once."""

from __future__ import annotations

from kip848_client.error_codes import ErrorCode
from kip848_client.member.events import LeaveDone, MetadataUpdated, RequestMetadata, SurfaceError
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness, positions


def committing() -> MemberHarness:
    """It owned t-0, is to have t-1 and u-0, and commits; the name of u is not known yet."""
    member = MemberHarness(settings={"auto_commit_interval_ms": 5000})
    member.become_stable({"t": [0]})
    member.metadata_answered = False
    member.assign_more({"t": [1], "u": [0]})
    member.step(MetadataUpdated({}, member.take_waiting(RequestMetadata).request_id))
    member.poll(positions(t_0=5))
    assert member.phase() is Phase.COMMITTING
    return member


def test_names_that_arrive_while_a_run_commits_are_for_the_next_run() -> None:
    """The commit covers what the application has now, not what a name would add in between."""
    member = committing()
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}))
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) == {"t": [1]}
    member.answer_heartbeat(epoch=2)
    member.poll()
    member.finish_call("assigned", "u-0")
    assert member.reported(member.expect_heartbeat()) == {"t": [1], "u": [0]}


def test_a_fatal_error_while_a_run_commits_loses_everything_and_revokes_nothing() -> None:
    """The commit was not confirmed: a revoked callback would promise that it was."""
    member = committing()
    late = member.take(OffsetCommitRequest)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.INVALID_REQUEST)
    member.finish_call("lost", "t-0")
    member.sent.append(late)
    member.answer_commit()
    assert not [word for word in member.history if word.startswith("revoked")]
    assert member.phase() is Phase.FATAL_DONE


def test_leaving_while_a_run_commits_revokes_everything_once() -> None:
    """close() in the middle of a rebalance."""
    member = committing()
    member.leave(closing=True)
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.expect_heartbeat(epoch=-1)
    assert [word for word in member.history if word.startswith("revoked")] == ["revoked(t-0)"]


def test_quick_changes_of_mind_without_a_cluster_cause_no_error() -> None:
    """A unit test of an application, or a start during an outage: no broker answers."""
    member = MemberHarness(coordinator_found=False)
    for topic in ("t", "u", "t"):
        member.subscribe(topic)
        member.poll()
        member.advance(10)
        member.leave()
    assert len(member.emitted(LeaveDone)) == 3
    assert not member.emitted(SurfaceError)
    assert not member.requests(ConsumerGroupHeartbeatRequest)
    assert member.phase() is Phase.IDLE


def test_the_coordinator_moves_in_the_middle_of_a_rebalance() -> None:
    """Listeners do not hear of it; commit and acknowledgement go to the new coordinator."""
    member = MemberHarness(settings={"auto_commit_interval_ms": 5000})
    member.become_stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll(positions(t_0=5, t_1=6))
    member.coordinator_found = False
    member.answer_commit(ErrorCode.NOT_COORDINATOR)
    member.find_coordinator(node_id=2)
    member.advance(100)
    member.answer_commit()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    heartbeat = member.expect_heartbeat(epoch=2, full=True)
    assert member.reported(heartbeat) == {"t": [0]}
    assert member.history.count("revoked(t-1)") == 1


def test_a_member_that_is_late_twice_comes_back_twice() -> None:
    """A nightly job that blocks the loop every night."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    for epoch in (4, 9):
        member.advance(MAX_POLL_MS + 1)
        member.sent.clear()
        member.poll()
        member.finish_call("lost", "t-0")
        member.answer_heartbeat(epoch=epoch, assignment={"t": [0]})
        member.reconcile()
        member.answer_heartbeat(epoch=epoch)
        assert member.state() is MemberState.STABLE
        assert member.owned == ["t-0"]


def test_removed_again_before_it_is_back_loses_nothing_twice() -> None:
    """The coordinator forgets the join as well: there is nothing left to lose."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.advance(100)
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    member.reconcile()
    assert member.history.count("lost(t-0)") == 1
    assert member.state() is MemberState.STABLE


def test_everything_at_once_while_the_member_acknowledges() -> None:
    """An acknowledgement is lost, the epoch moves, and the subscription changes: one full heartbeat says it all."""
    member = MemberHarness()
    member.become_stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.reconcile()
    member.subscribe("t", "u")
    member.fail_heartbeat()
    member.advance(100)
    heartbeat = member.expect_heartbeat(epoch=2, full=True)
    assert heartbeat.subscribed_topic_names == ("t", "u")
    assert member.reported(heartbeat) == {"t": [0]}
    member.answer_heartbeat(epoch=3, assignment={"t": [0], "u": [0]})
    member.reconcile()
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [0], "u": [0]}
