"""Joining, being removed and leaving: cases that no rule of docs/protocol.md names."""

from __future__ import annotations

from kip848_client.error_codes import ErrorCode
from kip848_client.member.events import CallAbandoned, CoordinatorConnected, LeaveDone
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import TWO, fenced, revoking, stable
from tests.support.member_harness import INTERVAL_MS, MAX_POLL_MS, MemberHarness


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
    """There is no membership any more."""
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
