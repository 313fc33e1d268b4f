"""Joining, reconciling, being removed and leaving: cases that no rule of docs/protocol.md names."""

from __future__ import annotations

from uuid import UUID

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.events import (
    CallAbandoned,
    CoordinatorConnected,
    FailureKind,
    LeaveDone,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
    Tick,
)
from kip848_client.member.core.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.spec.arrange import TWO, fenced, revoking, stable
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness, positions


def test_a_late_connection_is_ignored() -> None:
    """A number that no call waits for must not replace the coordinator."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.poll()
    member.step(CoordinatorConnected(999, member.versions))
    assert not member.requests(ConsumerGroupHeartbeatRequest)


def test_a_fenced_member_keeps_its_new_subscription() -> None:
    """subscribe() in on_partitions_lost is what the rejoin carries."""
    member = fenced(TWO)
    member.subscribe("u")
    member.finish_call("lost", "t-0", "t-1")
    assert member.expect_heartbeat(epoch=0).subscribed_topic_names == ("u",)


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


def test_a_lost_callback_of_a_former_life_takes_nothing_from_the_next() -> None:
    """The application unsubscribed inside it, and is a member again by the time that its end is reported."""
    member = stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=110)
    (lost,) = member.calls
    member.leave()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=4, assignment={"t": [1]})
    member.calls.clear()
    member.reconcile()
    member.calls.append(lost)
    member.finish_call("lost", "t-0")
    assert member.owned == ["t-1"]
    assert member.state() is MemberState.STABLE


def test_the_end_of_an_unknown_call_is_ignored() -> None:
    """The application's thread may report twice when it is interrupted."""
    member = revoking()
    call = member.calls[0]
    member.finish_call("revoked", "t-1")
    member.calls.insert(0, call)
    member.finish_call("revoked", "t-1")
    assert [item.kind for item in member.calls] == ["assigned"]


def test_a_second_unsubscribe_returns_at_once() -> None:
    """There is no membership left to end, so the call must not wait for a heartbeat."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    member.leave()
    assert member.history[-2:] == ["left", "left"]
    member.expect_no_heartbeat()


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
    """Its number may belong to another member by then."""
    member = stable()
    member.leave()
    member.step(CallAbandoned(member._call_number))
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert not member.emitted(LeaveDone)
    assert member.phase() is Phase.IDLE


def test_a_member_that_leaves_starts_no_partition() -> None:
    """The committed offset arrives while the revoked callback runs."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.reconcile()
    member.leave()
    member.answer_fetch({"t-0": 5})
    assert "fetch(t-0@5)" not in member.history


def test_an_assignment_that_came_back_during_a_run_needs_no_run_of_its_own() -> None:
    """A listener would be called again with nothing, depending on when poll() happens to come."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    for epoch, assignment in ((3, {"t": [0]}), (4, {"t": [0, 1]})):
        member.advance(INTERVAL_MS)
        member.answer_heartbeat(epoch=epoch, assignment=assignment)
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1]}
    assert not member.member.view().poll_wanted
    member.answer_heartbeat()
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1]}
    assert member.state() is MemberState.STABLE


def test_a_failed_metadata_request_is_repeated() -> None:
    """Partitions of a topic without a name would never start."""
    member = MemberHarness(metadata_answered=False)
    member.join({"t": [0]})
    request = member.take_waiting(RequestMetadata)
    member.step(RequestFailed(request.request_id, FailureKind.DISCONNECTED, "scripted"))
    member.advance(100)
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({UUID(int=1): "t"}, request.request_id))
    member.poll()
    member.finish_call("assigned", "t-0")


def test_new_names_do_not_wait_for_the_backoff_of_old_ones() -> None:
    """A target that arrives while the cluster is asked about another topic is asked about next."""
    member = MemberHarness(metadata_answered=False)
    member.join({"u": [0]}, topics=("u",))
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2, assignment={"u": [0], "v": [0]})
    first = member.take_waiting(RequestMetadata)
    assert first.topic_ids == {UUID(int=2)}
    member.step(MetadataUpdated({}, first.request_id))
    assert member.take_waiting(RequestMetadata).topic_ids == {UUID(int=2), UUID(int=3)}


def test_positions_that_are_still_looked_up_do_not_start_a_paused_partition() -> None:
    """The lookup ends while the partition is being revoked: fetching it then would deliver records of others."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.reconcile()
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    member.poll()
    member.answer_fetch({"t-0": 5, "t-1": 6})
    assert member.history[-1] == "fetch(t-1@6)"


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
    """close() in the middle of a rebalance must not call the listener twice for a partition."""
    member = committing()
    member.leave(closing=True)
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.expect_heartbeat(epoch=-1)
    assert [word for word in member.history if word.startswith("revoked")] == ["revoked(t-0)"]


def test_the_view_is_the_same_object_while_nothing_changes() -> None:
    """Consumers compare its version once per batch: a new one each time would filter every batch."""
    member = MemberHarness()
    view = member.member.view()
    member.tick()
    assert member.member.view() is view
    member.become_stable({"t": [0]})
    view = member.member.view()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat()
    assert member.member.view() is view
    member.assign_more({"t": [0, 1]})
    assert member.member.view().version == view.version + 1


def test_a_heartbeat_is_due_an_interval_after_the_one_before() -> None:
    """How late a heartbeat is tells an operator how near its member came to be removed."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    statistics = member.member.statistics
    acknowledged_ms = statistics.last_heartbeat_ms
    assert acknowledged_ms is not None
    member.member.step(Tick(), now_ms=acknowledged_ms + INTERVAL_MS + 300)  # the process stood still
    assert (statistics.last_heartbeat_due_ms, statistics.last_heartbeat_ms) == (
        acknowledged_ms + INTERVAL_MS,
        acknowledged_ms + INTERVAL_MS + 300,
    )


def test_a_failed_heartbeat_does_not_move_what_the_next_one_is_due_at() -> None:
    """The coordinator heard nothing: for it the member has been silent since the last answered heartbeat."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    sent_ms = member.member.statistics.last_heartbeat_ms
    assert sent_ms is not None
    member.fail_heartbeat()
    member.advance(3 * INTERVAL_MS)
    assert member.member.statistics.last_heartbeat_due_ms == sent_ms + INTERVAL_MS


def test_a_join_is_due_at_no_time() -> None:
    """A member outside the group has no heartbeat that could be late."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    assert member.member.statistics.heartbeats == 1
    assert member.member.statistics.last_heartbeat_due_ms is None
