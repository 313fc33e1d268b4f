"""The rules of docs/protocol.md, section States."""

from __future__ import annotations

import random

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import IllegalStateError
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import CommitDone, MetadataUpdated, StateChanged
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.core.states import PHASE_ROWS, MemberState, Phase
from tests.spec.arrange import ONE, TWO, calls, fence, joining, stable, unresolved
from tests.support.member_harness import MAX_POLL_MS, MemberHarness, positions


def test_r1_a_new_member_asks_for_nothing() -> None:
    """A consumer that is only constructed must cost the cluster nothing."""
    member = MemberHarness()
    member.advance(3_600_000)
    assert member.state() is MemberState.UNJOINED
    assert not member.effects
    assert member.member.deadline_ms() is None


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_r2_only_the_moves_of_the_table_are_possible(phase: Phase) -> None:
    """A silent illegal move would let a removed member go on as if it were one."""
    possible = {row.trigger for row in PHASE_ROWS if row.source is phase}
    for trigger in sorted({row.trigger for row in PHASE_ROWS} - possible):
        context = Context(MemberConfig(group_id="g", member_id="m"), random.Random(0))
        context.phase = phase
        with pytest.raises(IllegalStateError, match=phase.name):
            context.move(trigger)
        assert context.phase is phase
        assert not context.effects


def test_r3_subscribe_joins_and_what_follows_waits_for_poll() -> None:
    """Programs subscribe, look whether they are members, and poll then; their callbacks run where they expect it."""
    member = MemberHarness()
    member.subscribe("t")
    member.expect_heartbeat(epoch=0)
    member.answer_heartbeat(epoch=1, assignment=ONE)
    member.advance(MAX_POLL_MS)
    assert member.state() is MemberState.RECONCILING
    assert calls(member) == []
    member.poll()
    assert calls(member) == ["assigned(t-0)"]


def test_r4_another_assignment_begins_a_reconciliation() -> None:
    """The state is what operators and tests wait for."""
    member = stable()
    member.assign_more(TWO)
    assert member.state() is MemberState.RECONCILING


def test_r5_stable_begins_when_the_acknowledgement_is_built() -> None:
    """The member has everything; a slow answer must not look like a slow rebalance."""
    member = MemberHarness()
    member.join(TWO)
    member.reconcile()
    member.expect_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE


def test_r5_acknowledging_a_part_of_the_target_is_not_the_end() -> None:
    """STABLE would promise partitions that are still missing."""
    member = unresolved({"t": [0], "u": [0]})
    member.expect_heartbeat(epoch=2)
    assert member.state() is MemberState.RECONCILING
    member.answer_heartbeat(epoch=2)
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}))
    member.reconcile()
    assert member.state() is MemberState.STABLE


def test_r6_leaving_ends_when_the_leave_heartbeat_is_built() -> None:
    """From then on nothing that the coordinator says can give the member partitions again."""
    member = stable()
    member.leave()
    assert member.state() is MemberState.RECONCILING
    member.finish_call("revoked", "t-0")
    member.expect_heartbeat(epoch=-1)
    assert member.state() is MemberState.UNJOINED


def test_r7_nothing_leads_out_of_fatal() -> None:
    """A member that comes back by itself after a fatal error hides the error."""
    member = stable()
    fence(member, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.finish_call("lost", "t-0")
    member.subscribe("u")
    member.poll()
    member.commit(positions(t_0=1))
    member.advance(MAX_POLL_MS * 10)
    assert member.state() is MemberState.FATAL
    assert not member.sent


def test_r8_the_answer_to_a_heartbeat_of_an_earlier_life_changes_nothing() -> None:
    """Taken for the answer to the join, it would bring an old epoch and an old assignment."""
    member = stable()
    member.advance(MAX_POLL_MS + 1)
    member.poll()
    member.finish_call("lost", "t-0")
    before = member.member.snapshot()
    member.answer_heartbeat(epoch=9, assignment={"t": [5]})
    assert member.member.snapshot() == before


def test_r8_the_answer_to_a_call_that_ended_changes_nothing() -> None:
    """An answer after the time-out must not complete the next call."""
    member = stable()
    call = member.commit(positions(t_0=1), timeout_ms=100)
    member.advance(100)
    member.answer_commit()
    assert [done.commit_id for done in member.emitted(CommitDone)] == [call]


def test_r9_each_change_of_state_is_reported_once() -> None:
    """Logs, metrics and tests are made from these reports."""
    member = joining()
    member.answer_heartbeat(assignment={"t": [0]})
    member.reconcile()
    moves = [(change.old, change.new, change.trigger) for change in member.emitted(StateChanged)]
    assert moves == [
        (MemberState.UNJOINED, MemberState.RECONCILING, "assignment_received"),
        (MemberState.RECONCILING, MemberState.STABLE, "acknowledged"),
    ]
