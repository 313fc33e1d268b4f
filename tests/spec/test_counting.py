"""The rules of docs/protocol.md, section Counting."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.events import MetadataUpdated
from tests.spec.arrange import assigning, fence, fenced, unresolved
from tests.support.member_harness import MemberHarness


def test_r150_a_rebalance_lasts_until_its_acknowledgement() -> None:
    """Operators alert on the rebalance time, which must include waiting for poll() and the listener."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.advance(30)
    member.poll()
    member.advance(20)
    member.finish_call("assigned", "t-0")
    snapshot = member.member.snapshot()
    assert (snapshot.rebalances, snapshot.last_rebalance_latency_ms) == (1, 50)
    assert (snapshot.rebalance_latency_total_ms, snapshot.rebalance_latency_max_ms) == (50, 50)
    assert snapshot.last_rebalance_ended_ms == member.now_ms


def test_r150_a_partial_acknowledgement_and_its_second_run_are_two() -> None:
    """The group saw two changes of this member, and so must the count of rebalances."""
    member = unresolved({"t": [0], "u": [0]})
    before = member.member.snapshot().rebalances
    member.answer_heartbeat(epoch=2)
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}))
    member.reconcile()
    assert member.member.snapshot().rebalances == before + 1 == 3


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_r151_a_removal_during_a_rebalance_is_a_failed_one(code: int) -> None:
    """Operators look at the ratio of the two."""
    member = assigning()
    fence(member, code)
    snapshot = member.member.snapshot()
    assert (snapshot.failed_rebalances, snapshot.rebalances) == (1, 1)


def test_r151_a_removal_that_interrupts_nothing_is_none() -> None:
    """The count of failed rebalances must not rise for a removal at rest or for a passing error."""
    assert fenced().member.snapshot().failed_rebalances == 0
    member = assigning()
    fence(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.member.snapshot().failed_rebalances == 0


def test_r152_heartbeats_are_counted_and_timed() -> None:
    """Zero for "never" would look like "just now"."""
    member = MemberHarness()
    assert member.member.snapshot().last_heartbeat_ms is None
    member.advance(40)
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat()
    member.leave()
    snapshot = member.member.snapshot()
    assert (snapshot.heartbeats, snapshot.last_heartbeat_ms) == (2, 40)
