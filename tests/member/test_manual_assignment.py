"""assign(): fetching without membership, with committed offsets and commits of the group."""

from __future__ import annotations

from kip848_client.member.events import PositionSet
from kip848_client.member.states import MemberState, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.member_harness import MemberHarness, positions

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def test_explicit_positions_start_at_once_and_others_at_the_committed_offset() -> None:
    """No coordinator is needed for the first kind."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5), T1: None})
    assert "fetch(t-0@5)" in member.history
    member.answer_fetch({"t-1": 8})
    assert member.history[-1] == "fetch(t-1@8)"
    assert member.readable == ["t-0", "t-1"]
    assert member.state() is MemberState.UNJOINED


def test_a_manual_assignment_never_heartbeats() -> None:
    """It is not a member, and must not take partitions from members."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5)})
    member.advance(60_000)
    member.poll()
    assert not member.requests(ConsumerGroupHeartbeatRequest)


def test_a_new_assignment_stops_only_what_it_leaves_out() -> None:
    """Kept partitions go on undisturbed."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)})
    member.forget_history()
    member.assign({T1: None, T2: OffsetAndMetadata(7)})
    assert member.history == ["stop(t-0)", "fetch(t-2@7)"]


def test_a_kept_partition_with_a_new_position_starts_there() -> None:
    """assign() with offsets means those offsets."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5)})
    member.forget_history()
    member.assign({T0: OffsetAndMetadata(50)})
    assert member.history == ["stop(t-0)", "fetch(t-0@50)"]


def test_a_changed_assignment_commits_what_was_consumed_first() -> None:
    """Auto-commit must not lose the partitions that are dropped."""
    member = MemberHarness(settings={"auto_commit_interval_ms": 5000})
    member.assign({T0: OffsetAndMetadata(5)})
    member.assign({T1: OffsetAndMetadata(1)}, consumed=positions(t_0=9))
    (commit,) = member.requests(OffsetCommitRequest)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, "")
    assert commit.topics[0].partitions[0].committed_offset == 9


def test_a_manual_assignment_auto_commits_on_the_interval() -> None:
    """enable.auto.commit holds for assign() as well."""
    member = MemberHarness(settings={"auto_commit_interval_ms": 5000})
    member.assign({T0: OffsetAndMetadata(5)})
    member.advance(5000)
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=12))
    assert member.requests(OffsetCommitRequest)


def test_unassign_and_unsubscribe_stop_everything() -> None:
    """Nothing is fetched for nobody."""
    for end in ("unassign", "unsubscribe"):
        member = MemberHarness()
        member.assign({T0: OffsetAndMetadata(5), T1: None})
        if end == "unassign":
            member.assign({})
        else:
            member.leave()
            assert member.history[-1] == "left"
        assert "stop(t-0,t-1)" in member.history
        assert member.owned == []
        if member.requests(OffsetFetchRequest):
            member.answer_fetch({"t-1": 5})
        assert "fetch(t-1@5)" not in member.history


def test_a_subscription_replaces_a_manual_assignment() -> None:
    """Both at once would fetch partitions outside the group's assignment."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5)})
    member.subscribe("t")
    assert member.history[-1] == "stop(t-0)"
    assert member.phase() is Phase.WAIT_FIRST_POLL


def test_assign_of_a_subscribed_member_is_ignored() -> None:
    """The shell refuses the call; a race must not mix the two."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.assign({T1: OffsetAndMetadata(5)})
    assert member.owned == ["t-0"]
    assert member.history == []


def test_a_seek_after_assign_is_the_position() -> None:
    """assign(), then seek(), before the committed offset is known."""
    member = MemberHarness()
    member.assign({T0: None})
    member.step(PositionSet(T0, OffsetAndMetadata(33)))
    assert member.history[-1] == "fetch(t-0@33)"
