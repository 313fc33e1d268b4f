"""The rules of docs/protocol.md, section Leaving."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.events import Fail, LeaveDone, LeaveMode, SurfaceError
from kip848_client.member.core.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import (
    TWO,
    assigning,
    auto_committing,
    calls,
    commits,
    fence,
    heartbeat_epochs,
    joining,
    revoking,
    stable,
    without_coordinator,
)
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def left(**settings: object) -> MemberHarness:
    """It owned t-0; its leave heartbeat is under way."""
    member = stable(**settings)
    member.leave()
    member.finish_call("revoked", "t-0")
    return member


def test_r131_pause_revoke_leave_answer() -> None:
    """The coordinator hands the partitions over the moment it reads the leave."""
    member = stable()
    member.leave()
    assert member.readable == []
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    assert member.history == ["pause(t-0)", "revoked(t-0)", "heartbeat(-1)", "left"]
    assert member.owned == []
    assert member.member.view().member_epoch == -1


def test_r131_without_partitions_there_is_no_callback() -> None:
    """A listener must not be called with an empty list when a member without partitions leaves."""
    member = stable({})
    member.leave()
    assert member.history == ["heartbeat(-1)"]


@pytest.mark.parametrize(
    ("instance_id", "mode", "epoch"),
    [
        (None, LeaveMode.DEFAULT, -1),
        (None, LeaveMode.LEAVE_GROUP, -1),
        (None, LeaveMode.REMAIN_IN_GROUP, None),
        ("host-1", LeaveMode.DEFAULT, -2),
        ("host-1", LeaveMode.LEAVE_GROUP, -1),
        ("host-1", LeaveMode.REMAIN_IN_GROUP, -2),
    ],
)
def test_r132_the_epoch_says_how_the_member_leaves(instance_id: str | None, mode: LeaveMode, epoch: int | None) -> None:
    """Restarts of static members must not rebalance the group; a decommissioned one must."""
    member = stable(instance_id=instance_id)
    member.leave(mode=mode, closing=True)
    member.finish_call("revoked", "t-0")
    assert heartbeat_epochs(member) == ([] if epoch is None else [epoch])
    assert member.member.snapshot().member_epoch == (epoch or -1)
    assert (member.history[-1] == "left") is (epoch is None)


def test_r133_the_leave_waits_for_nothing() -> None:
    """close() is often called because the coordinator is in trouble."""
    member = stable()
    fence(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.leave()
    member.finish_call("revoked", "t-0")
    assert heartbeat_epochs(member) == [-1]
    assert member.take(ConsumerGroupHeartbeatRequest).urgent
    busy = stable({})
    busy.advance(INTERVAL_MS)
    busy.leave()
    assert heartbeat_epochs(busy) == [1, -1]


ENDS: dict[str, Callable[[MemberHarness], object]] = {
    "answer": lambda member: member.answer_heartbeat(epoch=-1),
    "refusal": lambda member: member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED),
    "unknown": lambda member: member.answer_heartbeat(error=9999),
    "no answer": lambda member: member.fail_heartbeat(),
    "deadline": lambda member: member.advance(30_000),
}


@pytest.mark.parametrize("end", ENDS)
def test_r134_any_outcome_ends_the_leave(end: str) -> None:
    """A closing consumer is not kept by a coordinator."""
    member = left()
    assert not member.emitted(LeaveDone)
    ENDS[end](member)
    assert len(member.emitted(LeaveDone)) == 1
    assert not member.emitted(Fail)
    assert not member.emitted(SurfaceError)
    assert member.state() is MemberState.UNJOINED


def test_r134_without_a_coordinator_the_leave_is_given_up() -> None:
    """close() during an outage must not hang; the session ends by itself."""
    member = without_coordinator(stable())
    member.leave()
    member.finish_call("revoked", "t-0")
    assert member.history[-1] == "left"
    assert member.owned == []


def test_r134_the_first_deadline_ends_the_wait_of_all() -> None:
    """close() after unsubscribe() must not wait longer than it may."""
    member = left()
    member.leave(timeout_ms=5_000, closing=True)
    assert member.member.deadline_ms() == member.now_ms + 5_000
    member.advance(5_000)
    assert len(member.emitted(LeaveDone)) == 2


def test_r134_a_late_answer_does_not_end_the_next_leave() -> None:
    """close() would return before the coordinator has heard of it."""
    member = left()
    late = member.take(ConsumerGroupHeartbeatRequest)
    member.advance(30_000)
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=1, assignment={})
    member.leave()
    member.sent.insert(0, late)
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 1
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 2


def test_r134_without_time_it_is_sent_all_the_same() -> None:
    """close(0) frees the partitions at once instead of after a session timeout."""
    member = stable()
    member.leave(timeout_ms=0, closing=True)
    member.finish_call("revoked", "t-0")
    assert member.history[-2:] == ["heartbeat(-1)", "left"]


def test_r135_an_ordinary_answer_does_not_complete_the_leave() -> None:
    """close() would return before the coordinator heard of the leave."""
    member = stable({})
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(epoch=1)
    assert not member.emitted(LeaveDone)
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 1


def test_r135_all_calls_wait_for_the_one_leave() -> None:
    """unsubscribe() and then close() send one leave, and both return when it is answered."""
    member = stable()
    member.leave()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.leave(closing=True)
    assert heartbeat_epochs(member) == [-1]
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 3


def test_r136_the_epoch_is_taken_and_the_assignment_is_not() -> None:
    """The last commits, in the revoked callback, need the newest epoch."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(epoch=8, assignment=TWO)
    member.commit(positions(t_0=4))
    assert commits(member) == [(8, {"t-0": 4})]
    assert member.owned == ["t-0"]


def test_r137_a_subscription_made_while_leaving_starts_after_the_leave() -> None:
    """The leave must not be overtaken by the join, and the join must not be forgotten."""
    member = left()
    member.subscribe("u")
    member.poll()
    assert heartbeat_epochs(member) == [-1]
    member.answer_heartbeat(epoch=-1)
    member.poll()
    assert member.expect_heartbeat(epoch=0, full=True).subscribed_topic_names == ("u",)


def test_r137_unsubscribe_takes_it_back() -> None:
    """After subscribe() and unsubscribe() during a leave the member must not join again."""
    member = left()
    member.subscribe("u")
    member.leave()
    member.answer_heartbeat(epoch=-1)
    member.poll()
    assert not member.sent


def test_r138_a_listener_that_raises_does_not_prevent_the_leave() -> None:
    """Otherwise a broken listener keeps its partitions until the session ends."""
    member = stable()
    member.leave(closing=True)
    member.finish_call("revoked", "t-0", error=ValueError("no"))
    assert heartbeat_epochs(member) == [-1]
    assert member.owned == []


def test_r139_a_join_that_may_have_been_applied_is_taken_back() -> None:
    """A ghost would hold partitions until its session ends."""
    member = joining(early_heartbeats=True)
    member.leave()
    assert heartbeat_epochs(member) == [0, -1]
    member.answer_heartbeat(epoch=1, assignment=TWO)
    assert not member.member.view().news_expected
    assert member.state() is MemberState.UNJOINED
    assert member.owned == []


def test_r139_without_a_coordinator_there_is_nothing_to_leave() -> None:
    """A program that ends before any broker has answered must not wait for one."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.leave()
    member.poll()
    assert member.history == ["FindCoordinatorRequest", "left"]


def nameless() -> MemberHarness:
    """Its join to a version 0 coordinator is under way, and it wants to leave."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    member.leave()
    return member


def test_r140_a_member_waits_to_hear_its_name() -> None:
    """Without the id the leave cannot name the member, and a ghost stays."""
    member = nameless()
    assert heartbeat_epochs(member) == [0]
    member.answer_heartbeat(epoch=1, member_id="m1")
    assert member.expect_heartbeat(epoch=-1).member_id == "m1"


@pytest.mark.parametrize("code", [None, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_r140_a_member_that_never_hears_its_name_gives_up(code: int | None) -> None:
    """The member has no id that a leave could carry."""
    member = nameless()
    if code is None:
        member.fail_heartbeat()
    else:
        member.answer_heartbeat(error=code)
    assert (member.history[-1], member.phase()) == ("left", Phase.IDLE)
    assert not member.sent


def test_r141_unsubscribe_inside_revoked_revokes_the_rest() -> None:
    """The listener that calls it is still running: what it revokes must not be revoked twice."""
    member = revoking()
    member.leave()
    assert calls(member) == ["revoked(t-1)", "revoked(t-0)"]
    member.calls.reverse()  # the inner call returns first
    member.finish_call("revoked", "t-0")
    assert member.member.view().awaiting_app
    member.finish_call("revoked", "t-1")
    assert not member.member.view().awaiting_app
    assert heartbeat_epochs(member) == [-1]


def test_r141_unsubscribe_inside_assigned_revokes_everything() -> None:
    """Resources opened for the partitions that are just being assigned must be closed as well."""
    member = assigning()
    member.leave()
    assert calls(member) == ["assigned(t-1)", "revoked(t-0,t-1)"]


def test_r141_unsubscribe_inside_a_listener_of_a_removed_member_does_not_hang() -> None:
    """The removal waits for the listener, and the listener for unsubscribe(): one has to go first."""
    member = revoking()
    fence(member)
    member.leave()
    assert member.history[-2:] == ["lost(t-0)", "left"]
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=5, assignment={"t": [2]})
    member.poll()
    member.finish_call("revoked", "t-1")
    assert calls(member) == ["lost(t-0)", "assigned(t-2)"], "its end says nothing about the next membership"


def test_r142_after_close_nothing_starts_any_more() -> None:
    """A consumer that is being closed must not come back."""
    member = auto_committing()
    member.leave(closing=True)
    member.subscribe("u")
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    member.subscribe("t")
    member.advance(60_000)
    assert not member.member.view().poll_wanted
    member.poll(positions(t_0=9))
    assert not member.sent
