"""What heartbeats contain: everything after a failure, otherwise what changed."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.member.events import FailureKind
from kip848_client.member.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.member_harness import GROUP, INTERVAL_MS, MEMBER_ID, MemberHarness


def stable(assignment: dict[str, list[int]] | None = None) -> MemberHarness:
    member = MemberHarness()
    member.become_stable({"t": [0]} if assignment is None else assignment)
    return member


def test_a_quiet_heartbeat_says_nothing_but_who_is_there() -> None:
    """The group's traffic is made of these."""
    member = stable()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER_ID, member_epoch=1
    )


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_a_retry_after_an_error_says_everything(code: int) -> None:
    """The coordinator accepts a member's previous epoch only together with its partitions."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=code)
    member.advance(100)
    retry = member.expect_heartbeat(epoch=1, full=True)
    assert retry.subscribed_topic_names == ("t",)
    assert retry.rebalance_timeout_ms == member.config.rebalance_timeout_ms
    assert member.reported(retry) == {"t": [0]}


def test_a_lost_acknowledgement_is_repeated() -> None:
    """Otherwise the coordinator waits for it until it evicts the member."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.reconcile()
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1]}
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    member.advance(100)
    assert member.reported(member.expect_heartbeat(full=True)) == {"t": [0, 1]}


def test_an_assignment_that_comes_back_is_acknowledged_again() -> None:
    """A, B, A: the coordinator waits for the answer to the second A (KAFKA-16185)."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [0]}
    assert member.state() is MemberState.STABLE
    assert not member.calls


def test_a_full_heartbeat_of_a_member_without_partitions_says_so() -> None:
    """Null means "no news", an empty list means "nothing": a full request needs the second."""
    member = stable({})
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    assert member.expect_heartbeat(full=True).topic_partitions == ()


def test_a_member_that_was_fenced_joins_with_nothing() -> None:
    """A join that names partitions is INVALID_REQUEST, which is fatal."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.finish_call("lost", "t-0")
    assert member.expect_heartbeat(epoch=0, full=True).topic_partitions == ()


def test_a_lost_epoch_bump_does_not_get_the_member_fenced() -> None:
    """The coordinator went from 1 to 2 and the answer was lost: the retry must say what we own, with epoch 1."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(FailureKind.TIMED_OUT)
    member.advance(100)
    retry = member.expect_heartbeat(epoch=1, full=True)
    assert member.reported(retry) == {"t": [0]}
    member.answer_heartbeat(epoch=2, assignment={"t": [0]})
    assert member.state() is MemberState.STABLE
    assert member.member.view().member_epoch == 2


def test_another_connection_is_told_everything() -> None:
    """Whoever is the coordinator now may never have heard the old deltas."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.NOT_COORDINATOR)
    member.expect_heartbeat(full=True)


def test_the_leave_heartbeat_is_bare() -> None:
    """It must be accepted whatever the coordinator thinks of the rest."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    assert member.expect_heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER_ID, member_epoch=-1
    )


def test_a_full_heartbeat_in_a_run_reports_what_was_reconciled() -> None:
    """The target is a plan; what the member has is what it acknowledged last."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [1, 2]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    assert member.reported(member.expect_heartbeat(full=True)) == {"t": [0, 1]}
