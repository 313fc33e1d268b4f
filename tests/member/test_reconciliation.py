"""From one assignment to the next: pause, commit, revoke, assign, acknowledge, in that order and one at a time."""

from __future__ import annotations

from uuid import UUID

from kip848_client.member.events import FailureKind, MetadataUpdated, PositionSet, RequestFailed, RequestMetadata
from kip848_client.member.states import MemberState, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions


def stable(assignment: dict[str, list[int]], **settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable(assignment)
    return member


def auto_committing(assignment: dict[str, list[int]]) -> MemberHarness:
    return stable(assignment, auto_commit_interval_ms=5000)


# ------------------------------------------------------------------------------------------------------- the algebra


def test_a_first_assignment_revokes_nothing() -> None:
    """A revoked callback without partitions confuses applications that flush in it."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.reconcile()
    assert "revoked()" not in member.history
    assert "assigned(t-0,t-1)" in member.history


def test_added_partitions_leave_the_others_alone() -> None:
    """Kept partitions go on being fetched: that is the point of the protocol."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    assert member.readable == ["t-0"]
    member.finish_call("assigned", "t-1")
    assert member.history == ["heartbeat(1)", "assigned(t-1)", "heartbeat(2)", "fetch offsets"]
    assert member.readable == ["t-0", "t-1"]


def test_a_smaller_assignment_revokes_and_then_assigns_nothing() -> None:
    """The empty assigned callback tells the application that the rebalance is over."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-1")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {"t": [0]}
    assert member.owned == ["t-0"]


def test_the_order_is_pause_commit_revoked_assigned_acknowledged() -> None:
    """Every other order loses records or reads them twice."""
    member = auto_committing({"t": [0]})
    member.assign_more({"t": [1]})
    member.poll(positions(t_0=42))
    member.answer_commit()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-1")
    assert member.history == [
        "heartbeat(1)",
        "pause(t-0)",
        "commit(2)",
        "revoked(t-0)",
        "assigned(t-1)",
        "heartbeat(2)",
        "fetch offsets",
    ]


def test_an_empty_assignment_revokes_everything() -> None:
    """A group with more members than partitions leaves some with none."""
    member = stable({"t": [0]})
    member.assign_more({})
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {}
    assert member.owned == []


def test_the_same_assignment_changes_nothing() -> None:
    """The coordinator repeats it to every full request."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0]}, epoch=1)
    assert not member.member.view().poll_wanted
    assert member.state() is MemberState.STABLE
    member.expect_no_heartbeat()
    assert member.history == ["heartbeat(1)"]


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


def test_a_topic_created_again_under_its_name_is_revoked_and_assigned_afresh() -> None:
    """Its offsets start at zero again; going on at the old position would skip everything."""
    member = stable({"t": [0]})
    member.topic_ids["t"] = UUID(int=77)
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-0")
    assert member.readable == []
    member.finish_call("assigned", "t-0")
    assert member.reported(member.expect_heartbeat()) == {"t": [0]}
    assert member.requests(OffsetFetchRequest)


# ------------------------------------------------------------------------------------------------------------- names


def test_the_known_part_of_an_assignment_goes_ahead() -> None:
    """One topic that the metadata does not show yet must not stop the others."""
    member = MemberHarness()
    del member.topic_ids["u"]
    member.subscribe("t", "u")
    member.poll()
    member.topic_ids["u"] = UUID(int=2)
    member.metadata_answered = False
    member.answer_heartbeat(assignment={"t": [0], "u": [0]})
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({member.topic_ids["t"]: "t"}, request.request_id))
    member.reconcile()
    assert member.reported(member.expect_heartbeat()) == {"t": [0]}
    assert member.phase() is Phase.PENDING
    member.advance(100)
    assert member.take_waiting(RequestMetadata).topic_ids == {UUID(int=2)}


def with_unknown_topic(assignment: dict[str, list[int]], owned: dict[str, list[int]]) -> MemberHarness:
    """A member that owns *owned* and was just given *assignment*, of which only t is known."""
    member = stable(owned)
    member.metadata_answered = False
    member.assign_more(assignment)
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({}, request.request_id))
    return member


def test_the_rest_follows_when_its_name_is_known() -> None:
    """Partitions of a new topic start without another rebalance."""
    member = with_unknown_topic({"t": [0], "u": [0]}, {"t": [0]})
    member.answer_heartbeat(epoch=2)
    member.step(MetadataUpdated({UUID(int=2): "u"}))
    member.poll()
    member.finish_call("assigned", "u-0")
    assert member.reported(member.expect_heartbeat()) == {"t": [0], "u": [0]}
    assert member.state() is MemberState.STABLE


def test_an_unknown_topic_alone_causes_one_acknowledgement_and_no_callback() -> None:
    """Repeating the same acknowledgement on every turn floods the coordinator (KAFKA-20145)."""
    member = with_unknown_topic({"t": [0], "u": [0]}, {"t": [0]})
    assert member.reported(member.expect_heartbeat(epoch=2)) == {"t": [0]}
    assert member.phase() is Phase.PENDING
    assert not member.calls
    member.answer_heartbeat(epoch=2)
    member.poll()
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()


def test_an_unknown_topic_that_is_withdrawn_is_forgotten() -> None:
    """A topic that was deleted before anybody saw it is no rebalance for the application."""
    member = with_unknown_topic({"t": [0], "u": [0]}, {"t": [0]})
    member.answer_heartbeat(epoch=2)
    member.assign_more({"t": [0]}, epoch=3)
    assert not member.calls
    assert member.state() is MemberState.STABLE


def test_only_the_newest_target_is_assigned() -> None:
    """A name that arrives late must not bring back a partition that was withdrawn (KAFKA-16198)."""
    member = with_unknown_topic({"u": [0]}, {})
    member.assign_more({"t": [0]}, epoch=3)
    member.step(MetadataUpdated({UUID(int=2): "u", UUID(int=1): "t"}))
    member.reconcile()
    assert member.owned == ["t-0"]
    assert "assigned(u-0)" not in member.history


def test_partitions_are_revoked_although_the_new_ones_are_unknown() -> None:
    """Somebody else waits for them."""
    member = with_unknown_topic({"u": [0]}, {"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {}
    member.answer_heartbeat(epoch=2)
    member.step(MetadataUpdated({UUID(int=2): "u"}))
    member.poll()
    member.finish_call("assigned", "u-0")
    assert member.owned == ["u-0"]


def test_revoking_needs_no_metadata() -> None:
    """A topic that was deleted has none."""
    member = stable({"t": [0, 1]})
    member.metadata_answered = False
    member.topic_ids.pop("u")
    member.assign_more({"t": [0]})
    member.poll()
    member.finish_call("revoked", "t-1")


def test_unknown_topics_are_asked_for_once_per_backoff() -> None:
    """Metadata requests in a loop bring down brokers."""
    member = MemberHarness(metadata_answered=False)
    member.join({"u": [0]}, topics=("u",))
    asked = 0
    for _ in range(90):
        while member.waiting:
            asked += 1
            request = member.take_waiting(RequestMetadata)
            member.step(MetadataUpdated({}, request.request_id))
        member.advance(10)
    assert 3 <= asked <= 5
    member.poll()
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat()) == {}
    assert member.phase() is Phase.PENDING


def test_a_first_assignment_waits_for_the_first_metadata_answer() -> None:
    """Otherwise the application would be assigned nothing first, and its partitions one round trip later."""
    member = MemberHarness(metadata_answered=False)
    member.join({"t": [0]})
    assert not member.member.view().poll_wanted
    member.advance(10)
    request = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({UUID(int=1): "t"}, request.request_id))
    assert member.member.view().poll_wanted
    member.poll()
    member.finish_call("assigned", "t-0")


def test_a_silent_metadata_broker_holds_nothing_back_for_long() -> None:
    """Revocations must not wait for a broker that is down."""
    member = stable({"t": [0]})
    member.metadata_answered = False
    member.assign_more({"u": [0]})
    assert not member.member.view().poll_wanted
    member.advance(1000)
    assert member.member.view().poll_wanted


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


# --------------------------------------------------------------------------------------------------------- data plane


def test_fetching_stops_before_positions_are_read() -> None:
    """Records that arrive between the two would be delivered, and again by the next owner (KAFKA-16460)."""
    member = auto_committing({"t": [0]})
    member.assign_more({})
    member.poll(positions(t_0=9))
    assert member.history.index("pause(t-0)") < member.history.index("commit(2)")
    (commit,) = member.requests(OffsetCommitRequest)
    assert commit.topics[0].partitions[0].committed_offset == 9


def test_nothing_of_a_revoked_partition_is_read_once_its_run_began() -> None:
    """The commit is on its way; another record would be delivered twice."""
    member = auto_committing({"t": [0, 1]})
    member.assign_more({"t": [1]})
    assert member.readable == ["t-0", "t-1"]
    member.poll(positions(t_0=9))
    assert member.readable == ["t-1"]


def test_positions_of_added_partitions_wait_for_the_listener() -> None:
    """A listener that seeks must be faster than the fetcher."""
    member = stable({"t": [0]})
    member.assign_more({"t": [0, 1]})
    member.poll()
    member.advance(500)
    assert not member.requests(OffsetFetchRequest)
    assert member.readable == ["t-0"]
    member.finish_call("assigned", "t-1")
    (fetch,) = member.requests(OffsetFetchRequest)
    assert fetch.groups[0].topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in fetch.groups[0].topics] == [("t", (1,))]


def test_a_seek_in_the_assigned_callback_is_the_position() -> None:
    """Applications that keep their own offsets do it there."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.poll()
    member.step(PositionSet(TopicPartition("t", 0), OffsetAndMetadata(500)))
    member.finish_call("assigned", "t-0", "t-1")
    assert "fetch(t-0@500)" in member.history
    (fetch,) = member.requests(OffsetFetchRequest)
    assert fetch.groups[0].topics is not None
    assert fetch.groups[0].topics[0].partition_indexes == (1,)


def test_positions_that_are_still_looked_up_do_not_start_a_paused_partition() -> None:
    """The lookup ends while the partition is being revoked: fetching it then would deliver records of others."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.reconcile()
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    member.poll()
    member.answer_fetch({"t-0": 5, "t-1": 6})
    assert member.history[-1] == "fetch(t-1@6)"


def test_a_partition_that_returns_before_it_was_let_go_goes_on_where_it_was() -> None:
    """Its listener raised, then the coordinator changed its mind: no record is skipped or read twice."""
    member = stable({"t": [0, 1]})
    member.assign_more({"t": [0]})
    member.poll(positions(t_0=3, t_1=7))
    member.finish_call("revoked", "t-1", error=ValueError("not now"))
    member.assign_more({"t": [0, 1]}, epoch=3)
    assert member.readable == ["t-0"]
    member.poll(positions(t_0=3, t_1=7))
    member.finish_call("assigned")
    assert member.readable == ["t-0", "t-1"]
    assert member.history[-2:] == ["heartbeat(3)", "fetch(t-1@7)"]


def test_two_incarnations_of_a_topic_are_never_owned_together() -> None:
    """The coordinator still lists the deleted one: fetching both under one name would mix their records."""
    member = stable({"t": [0]})
    member.topic_ids["new t"] = UUID(int=77)
    member.metadata_answered = False
    member.assign_more({"t": [0], "new t": [0]})
    member.step(MetadataUpdated({UUID(int=77): "t"}, member.take_waiting(RequestMetadata).request_id))
    member.poll()
    member.finish_call("revoked", "t-0")
    member.finish_call("assigned", "t-0")
    assert [item.topic_id for item in member.member.view().assigned] == [UUID(int=77)]
