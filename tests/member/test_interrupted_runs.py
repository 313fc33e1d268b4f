"""What happens to a run when the coordinator, the cluster or the application does something else meanwhile."""

from __future__ import annotations

from uuid import UUID

from kip848_client.member.events import MetadataUpdated, RequestMetadata
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def stable(assignment: dict[str, list[int]], **settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable(assignment)
    return member


def auto_committing(assignment: dict[str, list[int]]) -> MemberHarness:
    return stable(assignment, auto_commit_interval_ms=5000)


def with_unknown_topic(assignment: dict[str, list[int]], owned: dict[str, list[int]]) -> MemberHarness:
    """A member that owns *owned* and was just given *assignment*, of which only t is known."""
    member = stable(owned)
    member.metadata_answered = False
    member.assign_more(assignment)
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({}, request.request_id))
    return member


def test_a_target_that_arrives_in_a_run_waits_for_the_next_one() -> None:
    """A run that changes its mind would tell the application two stories."""
    member = auto_committing({"t": [0]})
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5))
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3, assignment={"t": [2]})
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [1]}
    assert member.phase() is Phase.PENDING
    member.answer_heartbeat(epoch=3)
    member.reconcile()
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [2]}


def test_metadata_that_arrives_in_a_run_is_for_the_next_one() -> None:
    """The same, for names instead of targets."""
    member = with_unknown_topic({"t": [1], "u": [0]}, {"t": [0]})
    member.step(MetadataUpdated({UUID(int=1): "t"}))
    member.poll()
    member.step(MetadataUpdated({UUID(int=2): "u"}))
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    member.answer_heartbeat(epoch=2)
    member.poll()
    member.finish_call("assigned", "u-0")
    assert member.owned == ["t-1", "u-0"]


def test_a_commit_of_a_dead_run_changes_nothing() -> None:
    """The member was fenced and has joined again: the late answer belongs to another life."""
    member = auto_committing({"t": [0]})
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5))
    late = member.take(OffsetCommitRequest)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=110)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={"t": [2]})
    before = member.member.snapshot()
    member.sent.append(late)
    member.answer_commit()
    assert member.member.snapshot() == before
    member.reconcile()
    assert member.owned == ["t-2"]


def test_a_revoked_callback_that_outlives_its_run_is_waited_for() -> None:
    """What the listener has already let go of is not lost once more."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=110)
    assert member.state() is MemberState.RELEASING_ASSIGNMENT
    assert [call.kind for call in member.calls] == ["revoked"]
    member.finish_call("revoked", "t-1")
    member.finish_call("lost", "t-0")
    member.expect_heartbeat(epoch=0, full=True)


def test_a_revoked_callback_of_a_dead_run_that_raises_loses_everything() -> None:
    """What was not let go of is lost."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=110)
    member.finish_call("revoked", "t-1", error=ValueError("no"))
    member.finish_call("lost", "t-0", "t-1")


def test_an_assigned_callback_of_a_dead_run_is_followed_by_lost() -> None:
    """The application was told that it has them, so it must be told that it has not."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=110)
    member.finish_call("assigned", "t-1")
    member.finish_call("lost", "t-0", "t-1")
    member.expect_heartbeat(epoch=0)
    assert member.readable == []


def test_the_same_assignment_after_a_rejoin_is_a_full_run() -> None:
    """To the application the partitions were lost; to the coordinator the member is new."""
    member = stable({"t": [0]})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=25)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=7, assignment={"t": [0]})
    member.poll()
    member.finish_call("assigned", "t-0")
    assert member.reported(member.expect_heartbeat(epoch=7)) == {"t": [0]}


def test_heartbeats_go_on_during_a_run() -> None:
    """A listener that flushes for a minute must not cost the membership."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    for _ in range(3):
        member.advance(INTERVAL_MS)
        assert member.reported(member.expect_heartbeat(epoch=2)) is None
        member.answer_heartbeat(epoch=2)


def test_an_epoch_that_changes_in_a_run_is_used_by_its_acknowledgement() -> None:
    """An acknowledgement with the old epoch is fenced."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3)
    member.finish_call("assigned", "t-1")
    member.expect_heartbeat(epoch=3)


def test_a_new_target_does_not_swallow_an_acknowledgement_that_is_due() -> None:
    """The coordinator still waits for the earlier revocation, and others for its partition."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-1")
    member.advance(INTERVAL_MS)
    member.finish_call("assigned")
    assert member.phase() is Phase.ACK_DUE
    member.answer_heartbeat(epoch=3, assignment={"t": [0, 2]})
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [0]}
    assert member.phase() is Phase.PENDING


def test_a_commit_of_a_run_that_ended_is_not_retried() -> None:
    """close() interrupted the run: it commits by itself, and a late retry would overwrite that."""
    member = auto_committing({"t": [0]})
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5))
    member.answer_commit(14)
    member.leave()
    member.advance(500)
    assert not member.requests(OffsetCommitRequest)


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
