"""The rules of docs/protocol.md, section Reconciliation."""

from __future__ import annotations

from uuid import UUID

import pytest

from kip848_client.member.core.events import (
    AssignPartitions,
    FailureKind,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
    RevokePartitions,
)
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.spec.arrange import (
    ONE,
    TWO,
    assigning,
    auto_committing,
    calls,
    commits,
    fence,
    fetches,
    pass_time,
    revoking,
    stable,
    unresolved,
)
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def test_r64_a_run_waits_for_poll() -> None:
    """At any other moment the application may be in the middle of a record, and its position a lie."""
    member = stable(TWO)
    member.assign_more(ONE)
    member.advance(500)
    assert not member.calls
    assert member.readable == ["t-0", "t-1"]
    assert member.member.view().poll_wanted
    member.poll()
    assert calls(member) == ["revoked(t-1)"]


def test_r65_a_target_that_arrives_in_a_run_is_for_the_next_one() -> None:
    """A run that changes its mind would tell the application two stories."""
    member = revoking()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3, assignment={"t": [2]})
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat(epoch=3)) == ONE
    member.answer_heartbeat(epoch=3)
    member.reconcile()
    assert member.reported(member.expect_heartbeat(epoch=3)) == {"t": [2]}


def test_r65_a_name_that_arrives_in_a_run_is_for_the_next_one() -> None:
    """A topic name that becomes known during a run must not change the partitions of that run."""
    member = unresolved({"t": [1], "u": [0]})
    member.poll()
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}))
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) == {"t": [1]}
    member.answer_heartbeat(epoch=2)
    member.poll()
    assert calls(member) == ["assigned(u-0)"]


def test_r66_a_topic_created_again_is_another_topic() -> None:
    """Its offsets start at zero; going on at the old position would skip everything."""
    member = stable()
    member.topic_ids["t"] = UUID(int=77)
    member.assign_more(ONE)
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-0")
    assert fetches(member) == [["t-0"]]


def test_r67_pause_commit_revoked_assigned_acknowledged() -> None:
    """Every other order loses records or reads them twice."""
    member = auto_committing()
    member.assign_more({"t": [1]})
    member.forget_history()
    member.poll(positions(t_0=42))
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    assert member.history[:5] == ["pause(t-0)", "commit(2)", "revoked(t-0)", "assigned(t-1)", "heartbeat(2)"]


def test_r68_nothing_of_a_revoked_partition_is_read_once_its_run_began() -> None:
    """A record delivered after the position was read is delivered again by the next owner."""
    member = auto_committing(TWO)
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=9))
    assert member.readable == ["t-1"]
    assert member.history.index("pause(t-0)") < member.history.index("commit(2)")
    assert commits(member) == [(2, {"t-0": 9})]


def test_r69_kept_partitions_are_left_alone() -> None:
    """That they go on being read is the point of the protocol."""
    member = stable(TWO)
    member.assign_more({"t": [1, 2]})
    member.poll()
    assert member.readable == ["t-1"]
    member.finish_call("revoked", "t-0")
    assert member.readable == ["t-1"]
    member.finish_call("assigned", "t-2")
    assert member.readable == ["t-1", "t-2"]
    assert fetches(member) == [["t-2"]]


def test_r69_a_slow_commit_does_not_stop_them() -> None:
    """The coordinator may be away for minutes. What goes has no reader, so poll() waits for a while."""
    member = auto_committing(TWO)
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=9))
    assert member.member.view().awaiting_app
    pass_time(member, 20)
    assert (member.member.view().awaiting_app, member.readable) == (False, ["t-1"])
    member.answer_commit()
    assert member.member.view().awaiting_app
    member.finish_call("revoked", "t-0")


def test_r69_without_partitions_that_stay_poll_waits_for_the_commit() -> None:
    """There is nothing to read meanwhile."""
    member = auto_committing()
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=9))
    pass_time(member, 5_000)
    assert member.member.view().awaiting_app


def test_r70_revoked_and_lost_are_never_called_with_nothing() -> None:
    """Applications flush and close in these callbacks, which an empty list should not cause."""
    member = MemberHarness()
    member.join(TWO)
    member.reconcile()
    member.answer_heartbeat(epoch=2, assignment={})
    member.reconcile()
    fence(member)
    assert not {"revoked()", "lost()"} & set(member.history)


def test_r71_added_partitions_wait_for_the_listener() -> None:
    """A listener that seeks must be faster than the fetcher."""
    member = assigning()
    member.advance(500)
    assert fetches(member) == []
    assert member.readable == ["t-0"]
    member.finish_call("assigned", "t-1")
    assert fetches(member) == [["t-1"]]
    assert member.readable == ["t-0", "t-1"]


def test_r72_revocation_is_acknowledged_at_once() -> None:
    """Others wait for the partition, and the rebalance timeout runs."""
    member = revoking()
    member.finish_call("revoked", "t-1")
    member.expect_no_heartbeat()
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat(epoch=2)) == ONE


def test_r72_the_acknowledgement_carries_the_newest_epoch() -> None:
    """With the epoch of the run's beginning it would be fenced."""
    member = assigning()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=3)
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat(epoch=3)) == TWO


def test_r73_the_same_assignment_changes_nothing() -> None:
    """The coordinator repeats it to every full heartbeat."""
    member = stable()
    member.assign_more(ONE, epoch=1)
    member.poll()
    assert member.history == ["heartbeat(1)"]
    assert member.state() is MemberState.STABLE


def test_r74_the_known_part_goes_ahead() -> None:
    """One topic that the metadata does not show yet must not stop the others."""
    member = unresolved({"t": [0, 1], "u": [0]})
    member.poll()
    member.finish_call("assigned", "t-1")
    assert member.reported(member.expect_heartbeat()) == TWO
    member.answer_heartbeat(epoch=2)
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}))
    member.poll()
    member.finish_call("assigned", "u-0")
    assert member.reported(member.expect_heartbeat()) == {"t": [0, 1], "u": [0]}


def test_r74_others_do_not_wait_for_a_topic_that_only_we_miss() -> None:
    """A member gives partitions up even if it does not know the names of those that it gets."""
    member = unresolved({"u": [0]})
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {}


def test_r74_a_name_that_belongs_to_another_topic_now_is_taken_from_the_old_one() -> None:
    """The old topic is gone: to go on under its name would read the new topic with the offsets of the old one."""
    member = stable()
    old, new = member.topic_ids["t"], UUID(int=77)
    member.metadata_answered = False
    member.step(MetadataUpdated({new: "t"}))  # says nothing about what the member was given
    assert not member.waiting
    member.topic_ids |= {"new t": new, "u": UUID(int=2)}
    member.assign_more({"t": [0], "new t": [0], "u": [0]})
    asked = member.take_waiting(RequestMetadata)
    assert asked.topic_ids == {new, UUID(int=2)}
    member.step(MetadataUpdated({new: "t", UUID(int=2): "u"}, asked.request_id))
    member.poll()
    (revoked,) = member.emitted(RevokePartitions)
    assert {tip.topic_id for tip in revoked.partitions} == {old}
    member.finish_call("revoked", "t-0")
    (added,) = [call for call in member.emitted(AssignPartitions) if call.partitions][-1:]
    assert {(tip.topic, tip.topic_id) for tip in added.partitions} == {("t", new), ("u", UUID(int=2))}


def test_r75_unknown_ids_are_asked_for_once_per_backoff() -> None:
    """Metadata requests in a loop bring down brokers."""
    member = unresolved({"t": [0], "u": [0]})
    for wait_ms in (100, 200, 400):
        member.advance(wait_ms - 1)
        assert not member.waiting
        member.advance(1)
        request = member.take_waiting(RequestMetadata)
        assert request.topic_ids == {member.topic_ids["u"]}
        member.step(MetadataUpdated({}, request.request_id))


def test_r75_new_ids_do_not_wait_for_the_backoff_of_others() -> None:
    """A topic that was just created would start a second late because another one has no name."""
    member = unresolved({"t": [0], "u": [0]})
    for wait_ms in (100, 200, 400):
        member.advance(wait_ms)
        member.step(MetadataUpdated({}, member.take_waiting(RequestMetadata).request_id))
    member.advance(300)
    member.answer_heartbeat(epoch=3, assignment={"t": [0], "u": [0], "v": [0]})
    assert member.take_waiting(RequestMetadata).topic_ids == {member.topic_ids["u"], member.topic_ids["v"]}


def test_r75_withdrawn_ids_are_not_asked_for() -> None:
    """A topic that was deleted before its name was known needs no more requests."""
    member = unresolved({"t": [0], "u": [0]})
    member.answer_heartbeat(epoch=2)
    member.assign_more(ONE, epoch=3)
    member.waiting.clear()
    member.advance(5000)
    assert not member.waiting
    assert not member.calls
    assert member.state() is MemberState.STABLE


def test_r75_names_are_asked_for_again_after_a_removal() -> None:
    """A topic may have been deleted meanwhile, and its name given to another one."""
    member = stable()
    fence(member)
    member.finish_call("lost", "t-0")
    member.metadata_answered = False
    member.answer_heartbeat(epoch=5, assignment=ONE)
    assert member.take_waiting(RequestMetadata).topic_ids == {member.topic_ids["t"]}


def test_r76_a_question_that_failed_is_an_answer() -> None:
    """Partitions whose names are known must not wait for a broker that is down."""
    member = stable()
    member.metadata_answered = False
    member.assign_more({"t": [0, 1], "u": [0]})
    assert not member.member.view().poll_wanted
    member.step(RequestFailed(member.take_waiting(RequestMetadata).request_id, FailureKind.TIMED_OUT, "scripted"))
    assert member.member.view().poll_wanted


def test_r76_a_target_waits_for_the_first_answer_about_its_names() -> None:
    """Otherwise every first assignment would come in two steps, the first of them empty."""
    member = MemberHarness(metadata_answered=False)
    member.join(ONE)
    member.poll()
    assert not member.calls
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({member.topic_ids["t"]: "t"}, request.request_id))
    member.poll()
    assert calls(member) == ["assigned(t-0)"]


def test_r76_a_broker_that_does_not_answer_holds_nothing_back_for_long() -> None:
    """Revocations must not wait for a broker that is down."""
    member = stable()
    member.metadata_answered = False
    member.assign_more({"u": [0]})
    assert member.member.deadline_ms() == member.now_ms + 1000
    member.advance(999)
    assert not member.member.view().poll_wanted
    member.advance(1)
    assert member.member.view().poll_wanted


@pytest.mark.parametrize("late", ["answer", "failure"])
def test_r76_a_target_waits_for_its_names_again_after_a_removal(late: str) -> None:
    """A topic name that was unknown before the removal may be known by now."""
    member = unresolved({"u": [0]})
    member.advance(100)
    asked_before = member.take_waiting(RequestMetadata)
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={"u": [0]})
    if late == "answer":
        member.step(MetadataUpdated({}, asked_before.request_id))
    else:
        member.step(RequestFailed(asked_before.request_id, FailureKind.TIMED_OUT, "scripted"))
    member.poll()
    assert not member.calls
    member.advance(100)
    member.step(MetadataUpdated({member.topic_ids["u"]: "u"}, member.take_waiting(RequestMetadata).request_id))
    member.poll()
    assert calls(member) == ["assigned(u-0)"]


def test_r77_an_unknown_topic_alone_is_acknowledged_once() -> None:
    """Repeating the same acknowledgement would flood the coordinator."""
    member = unresolved({"t": [0], "u": [0]})
    assert member.reported(member.expect_heartbeat(epoch=2)) == ONE
    member.answer_heartbeat(epoch=2)
    member.poll()
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()
    assert not member.calls
    assert member.state() is MemberState.RECONCILING


def test_r78_a_late_name_brings_back_nothing_that_was_withdrawn() -> None:
    """The partition belongs to another member by now and would be read twice."""
    member = unresolved({"u": [0]}, {})
    member.assign_more(ONE, epoch=3)
    member.step(MetadataUpdated({member.topic_ids["u"]: "u", member.topic_ids["t"]: "t"}))
    member.reconcile()
    assert member.owned == ["t-0"]
    assert "assigned(u-0)" not in member.history


def test_r79_revoking_needs_no_metadata() -> None:
    """A deleted topic has none, and its partitions must go."""
    member = stable(TWO)
    member.metadata_answered = False
    member.topic_ids.pop("u")
    member.assign_more({})
    member.poll()
    assert calls(member) == ["revoked(t-0,t-1)"]
    assert not member.waiting


def test_r80_an_acknowledgement_that_is_due_is_sent_before_the_next_run() -> None:
    """The coordinator still waits for the first revocation, and others for its partition."""
    member = revoking()
    member.finish_call("revoked", "t-1")
    member.advance(INTERVAL_MS)
    member.finish_call("assigned")
    member.answer_heartbeat(epoch=3, assignment={"t": [0, 2]})
    assert member.reported(member.expect_heartbeat(epoch=3)) == ONE
    assert member.state() is MemberState.RECONCILING


def short_of_one() -> MemberHarness:
    """It acknowledged t-0; while that is under way, its target is t-0 and t-1."""
    member = revoking()
    member.advance(INTERVAL_MS)
    member.finish_call("revoked", "t-1")
    member.answer_heartbeat(epoch=2, assignment=TWO)
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == ONE
    return member


def test_r81_nothing_is_added_while_its_absence_is_being_reported() -> None:
    """Two members would read one partition, should the target move before the report arrives."""
    member = short_of_one()
    member.poll()
    assert not member.calls
    member.answer_heartbeat(epoch=2)
    member.poll()
    assert calls(member) == ["assigned(t-1)"]


def test_r81_what_the_answer_takes_away_is_never_added() -> None:
    """It went to another member meanwhile; our application must not hear of it."""
    member = short_of_one()
    member.answer_heartbeat(epoch=3, assignment=ONE)
    member.poll()
    assert member.owned == ["t-0"]
    assert "assigned(t-1)" not in member.history


def test_r81_a_report_that_failed_may_have_arrived() -> None:
    """Whose the partition is, only the answer to a later one tells."""
    member = short_of_one()
    member.fail_heartbeat()
    member.poll()
    member.advance(100)
    member.poll()
    assert not member.calls
    member.answer_heartbeat(epoch=2, assignment=TWO)
    member.poll()
    assert calls(member) == ["assigned(t-1)"]


def test_r81_a_run_that_adds_nothing_does_not_wait() -> None:
    """Other members wait for the partitions that it gives up."""
    member = stable({"t": [0, 1, 2]})
    member.assign_more(TWO)
    member.poll()
    member.advance(INTERVAL_MS)
    member.finish_call("revoked", "t-2")
    member.answer_heartbeat(epoch=2, assignment=ONE)
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == TWO
    member.poll()
    assert calls(member) == ["revoked(t-1)"]


def contradicted(member: MemberHarness) -> MemberHarness:
    """A heartbeat fails during its run, and the next, full one reports only what was reconciled before."""
    member.advance(INTERVAL_MS)
    member.fail_heartbeat()
    member.advance(100)
    member.expect_heartbeat(full=True)
    return member


def test_r82_a_run_that_was_contradicted_starts_over_before_it_adds() -> None:
    """The coordinator may have given the new partition away by now."""
    member = stable()
    member.assign_more({"t": [1]})
    member.poll()
    contradicted(member)
    member.finish_call("revoked", "t-0")
    member.poll()
    assert not member.calls
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    member.poll()
    assert calls(member) == ["assigned(t-1)"]


def test_r82_what_was_added_already_waits_for_the_answer() -> None:
    """Its callback ran, but it is not read before the coordinator has answered."""
    member = contradicted(assigning())
    member.finish_call("assigned", "t-1")
    assert member.readable == ["t-0"]
    assert fetches(member) == []
    member.answer_heartbeat(epoch=3, assignment={"t": [1]})
    assert member.readable == ["t-0", "t-1"], "the other one is read until it is revoked"
    assert fetches(member) == [["t-1"]]


def test_r82_a_run_that_adds_nothing_is_not_contradicted() -> None:
    """Partitions that were given up stay given up; starting over would keep others waiting."""
    member = contradicted(revoking())
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    member.answer_heartbeat(epoch=2, assignment=ONE)
    assert member.reported(member.expect_heartbeat()) == ONE


def test_r82_a_heartbeat_that_failed_settles_nothing() -> None:
    """It may have arrived: whose the partition is, only the answer to a later one tells."""
    member = contradicted(assigning())
    member.finish_call("assigned", "t-1")
    member.fail_heartbeat()
    assert member.readable == ["t-0"]
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2, assignment=TWO)
    assert member.readable == ["t-0", "t-1"]


def test_r82_a_second_call_of_the_listener_waits_too() -> None:
    """The first on_partitions_assigned raised; a full heartbeat without the partition left in between."""
    member = contradicted(assigning())
    member.finish_call("assigned", "t-1", error=RuntimeError("no"))
    member.poll()
    assert not member.calls
    member.answer_heartbeat(epoch=2, assignment=TWO)
    member.poll()
    member.finish_call("assigned", "t-1")
    assert member.readable == ["t-0", "t-1"]


def test_r82_a_run_that_follows_waits_too() -> None:
    """It revokes another partition, and must not make readable what may be another member's."""
    member = assigning()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    contradicted(member)
    member.finish_call("assigned", "t-1")
    member.fail_heartbeat()
    member.advance(INTERVAL_MS)
    member.expect_heartbeat(full=True)
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    assert member.readable == []
    member.answer_heartbeat(epoch=3, assignment={"t": [1]})
    assert member.readable == ["t-1"]


def test_r82_an_answer_during_the_run_that_follows_is_heeded_after_it() -> None:
    """The answer gave the partition away. The run was begun for the target before, and would make it readable."""
    member = assigning()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    contradicted(member)
    member.finish_call("assigned", "t-1")
    member.fail_heartbeat()
    member.advance(INTERVAL_MS)
    member.expect_heartbeat(full=True)
    member.poll()
    member.answer_heartbeat(epoch=3, assignment={"t": [2]})
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    assert member.readable == []
    member.answer_heartbeat(epoch=3)
    member.poll()
    assert calls(member) == ["revoked(t-1)"]


@pytest.mark.parametrize("callback_returns_first", [True, False])
def test_r82_what_the_answer_leaves_out_is_not_read(callback_returns_first: bool) -> None:
    """It was given to another member while the callback was running, or the answer on its way."""
    member = contradicted(assigning())
    if callback_returns_first:
        member.finish_call("assigned", "t-1")
    member.answer_heartbeat(epoch=3, assignment=ONE)
    if not callback_returns_first:
        member.finish_call("assigned", "t-1")
    assert member.readable == ["t-0"]
    member.poll()
    assert calls(member) == ["revoked(t-1)"]


def test_r83_a_commit_of_a_dead_run_starts_nothing() -> None:
    """The member has joined again since: the late answer belongs to another life."""
    member = auto_committing()
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=5))
    late = member.take(OffsetCommitRequest)
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={"t": [2]})
    before = member.member.snapshot()
    member.sent.append(late)
    member.answer_commit()
    assert member.member.snapshot() == before
    assert not member.calls


def test_r83_a_listener_of_a_dead_run_acknowledges_nothing() -> None:
    """A callback that ends after a leave must not confirm an assignment that is no longer valid."""
    member = assigning()
    member.leave()
    member.finish_call("assigned", "t-1")
    assert "heartbeat(2)" not in member.history
    member.finish_call("revoked", "t-0", "t-1")
    member.expect_heartbeat(epoch=-1)
