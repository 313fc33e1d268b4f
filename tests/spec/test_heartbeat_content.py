"""The rules of docs/protocol.md, section Fields of a heartbeat."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.events import CoordinatorDisconnected, FailureKind
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import ONE, TWO, assigning, fence, joining, revoking, stable
from tests.support.member_harness import GROUP, INTERVAL_MS, MAX_POLL_MS, MEMBER_ID, MemberHarness


def test_r39_without_news_a_heartbeat_says_who_is_there() -> None:
    """Most heartbeats are of this kind; any further field costs the brokers work in each of them."""
    member = stable()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER_ID, member_epoch=1
    )


def _removed(member: MemberHarness) -> None:
    fence(member)
    member.finish_call("lost", "t-0")


REASONS: dict[str, Callable[[MemberHarness], object]] = {
    "loading": lambda member: fence(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    "moved": lambda member: fence(member, ErrorCode.NOT_COORDINATOR),
    "no permission": lambda member: fence(member, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "timed out": lambda member: member.fail_heartbeat(FailureKind.TIMED_OUT),
    "disconnected": lambda member: member.fail_heartbeat(FailureKind.DISCONNECTED),
    "removed": _removed,
}


@pytest.mark.parametrize("reason", REASONS)
def test_r40_after_anything_but_a_success_the_heartbeat_is_full(reason: str) -> None:
    """The coordinator may or may not have got the last heartbeat; a full one is right in both cases."""
    member = stable()
    member.advance(INTERVAL_MS)
    REASONS[reason](member)
    member.advance(100)
    heartbeat = member.expect_heartbeat(full=True)
    assert heartbeat.rebalance_timeout_ms == MAX_POLL_MS
    assert heartbeat.subscribed_topic_names == ("t",)


def test_r40_another_connection_is_told_everything() -> None:
    """The new coordinator may never have got the old changes."""
    member = stable()
    member.step(CoordinatorDisconnected(node_id=1))
    member.advance(INTERVAL_MS)
    assert member.reported(member.expect_heartbeat(full=True)) == ONE


def test_r41_rack_and_assignor_are_said_in_full_heartbeats_only() -> None:
    """Repeating them costs bytes in every heartbeat; leaving them out of the join ignores the configuration."""
    member = joining(rack_id="eu-1", server_assignor="range")
    member.answer_heartbeat()
    member.advance(INTERVAL_MS)
    quiet = member.expect_heartbeat(full=False)
    assert (quiet.rack_id, quiet.server_assignor) == (None, None)
    member.fail_heartbeat()
    member.advance(100)
    repeated = member.expect_heartbeat(full=True)
    assert (repeated.rack_id, repeated.server_assignor) == ("eu-1", "range")


@pytest.mark.parametrize(("arrange", "reconciled"), [(assigning, ONE), (revoking, TWO)])
def test_r42_a_heartbeat_reports_what_was_reconciled(
    arrange: Callable[[], MemberHarness], reconciled: dict[str, list[int]]
) -> None:
    """Reporting the target would free partitions that the listener is still working on."""
    member = arrange()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    assert member.reported(member.expect_heartbeat(full=True)) == reconciled


def test_r43_an_assignment_that_comes_back_is_acknowledged_again() -> None:
    """The coordinator waits for the answer to the second one until it evicts the member."""
    member = stable(ONE)
    member.assign_more(TWO)
    member.assign_more(ONE, epoch=3)
    assert member.reported(member.expect_heartbeat(epoch=3)) == ONE
    assert member.state() is MemberState.STABLE
    assert not member.calls


def test_r43_what_was_reported_is_not_reported_again() -> None:
    """Ten thousand partitions in every heartbeat are not quiet."""
    member = assigning()
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) == TWO
    member.answer_heartbeat(epoch=2)
    member.advance(INTERVAL_MS)
    assert member.reported(member.expect_heartbeat()) is None


def test_r44_a_member_without_partitions_says_so() -> None:
    """Null would mean "no news", and the coordinator would refuse a previous epoch."""
    member = stable({})
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    assert member.expect_heartbeat(full=True).topic_partitions == ()


def test_r45_a_lost_epoch_does_not_get_the_member_fenced() -> None:
    """The coordinator went from 1 to 2 and the answer was lost: it accepts epoch 1 only with the partitions."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    assert member.reported(member.expect_heartbeat(epoch=1)) == ONE
    member.answer_heartbeat(epoch=2, assignment=ONE)
    assert member.member.view().member_epoch == 2
    assert member.state() is MemberState.STABLE


def test_r46_the_leave_heartbeat_says_who_goes() -> None:
    """The coordinator must accept it, also if it would refuse another field."""
    member = stable(instance_id="host-1")
    member.leave()
    member.finish_call("revoked", "t-0")
    assert member.expect_heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER_ID, member_epoch=-2, instance_id="host-1"
    )
