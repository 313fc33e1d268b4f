"""The rules of docs/protocol.md, section Static members."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import UnreleasedInstanceIdError
from kip848_client.member.core.events import Fail
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.spec.arrange import FENCING, fence, heartbeat_epochs, heartbeats, joining, stable
from tests.support.member_harness import INTERVAL_MS, positions

UNRELEASED = ErrorCode.UNRELEASED_INSTANCE_ID


def test_r143_every_heartbeat_and_commit_names_the_instance() -> None:
    """Without it the coordinator would take a restarted process for a new member."""
    member = joining(instance_id="host-1")
    member.answer_heartbeat()
    member.commit(positions(t_0=1))
    member.advance(INTERVAL_MS)
    member.leave()
    assert [heartbeat.member_epoch for heartbeat in heartbeats(member)] == [0, 1, -2]
    assert {heartbeat.instance_id for heartbeat in heartbeats(member)} == {"host-1"}
    assert [commit.group_instance_id for commit in member.requests(OffsetCommitRequest)] == ["host-1"]


def test_r144_the_living_holder_stays() -> None:
    """Two processes with one identity: the one that is already at work goes on."""
    member = joining(instance_id="host-1")
    member.answer_heartbeat(error=UNRELEASED)
    assert [type(failure.error) for failure in member.emitted(Fail)] == [UnreleasedInstanceIdError]
    assert not member.sent


def test_r145_a_member_whose_join_got_lost_frees_its_own_slot() -> None:
    """The coordinator refuses the repetition of a join that it has applied, although it is ours."""
    member = joining(instance_id="host-1")
    member.fail_heartbeat()
    member.advance(200)
    member.answer_heartbeat(error=UNRELEASED)
    assert heartbeat_epochs(member) == [-2, 0]
    member.answer_heartbeat(epoch=-2)
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    assert member.state() is MemberState.RECONCILING


@pytest.mark.parametrize("code", FENCING, ids=lambda code: code.name)
def test_r145_a_member_that_was_fenced_does_so_too(code: int) -> None:
    """Without this a fenced static member is dead for good."""
    member = stable({}, instance_id="host-1")
    for _ in range(2):
        fence(member, code)
        member.answer_heartbeat(error=UNRELEASED)
        assert heartbeat_epochs(member) == [-2, 0]
        member.answer_heartbeat(epoch=-2)
        member.answer_heartbeat(epoch=3, assignment={})
        member.reconcile()
        member.answer_heartbeat(epoch=3)


def test_r145_a_member_that_left_before_does_so_too() -> None:
    """A copy of its join that came after the leave would keep it out for a session."""
    member = stable({}, instance_id="host-1")
    member.leave()
    member.answer_heartbeat(epoch=-2)
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=UNRELEASED)
    assert heartbeat_epochs(member) == [-2, 0]


def test_r145_it_is_tried_once() -> None:
    """If another member holds the slot, the second refusal is final."""
    member = stable({}, instance_id="host-1")
    fence(member)
    member.answer_heartbeat(error=UNRELEASED)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.answer_heartbeat(error=UNRELEASED)
    assert member.state() is MemberState.FATAL


def test_r146_a_newcomer_may_wait_out_its_former_self() -> None:
    """With the setting, a process that crashed and came back outlives the old session instead of failing."""
    member = joining(instance_id="host-1", unreleased_instance_retry_ms=1000)
    while member.now_ms < 1000:
        assert member.state() is MemberState.UNJOINED
        member.answer_heartbeat(error=UNRELEASED)
        while not member.sent:
            member.advance(100)
    member.answer_heartbeat(error=UNRELEASED)
    assert member.state() is MemberState.FATAL
