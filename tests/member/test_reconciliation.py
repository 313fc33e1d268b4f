"""From one assignment to the next: pause, commit, revoke, assign, acknowledge, in that order and one at a time."""

from __future__ import annotations

from uuid import UUID

from kip848_client.member.events import FailureKind, MetadataUpdated, RequestFailed, RequestMetadata
from kip848_client.member.states import MemberState
from tests.spec.arrange import stable
from tests.support.member_harness import INTERVAL_MS, MemberHarness


def test_an_assignment_that_came_back_during_a_run_needs_no_run_of_its_own() -> None:
    """Else the listener is called again with nothing, or not, as the next poll() happens to come."""
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
