"""The rules of docs/protocol.md, section Manual assignment."""

from __future__ import annotations

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import AUTO_MS, commits, fetches, stable
from tests.support.member_harness import MemberHarness, positions

T0, T1, T2 = (NamedPartition("t", index) for index in range(3))


def test_r147_a_manual_assignment_makes_no_member() -> None:
    """It must not take partitions from members, and still use the group's offsets."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5), T1: None})
    assert "fetch(t-0@5)" in member.history
    assert fetches(member) == [["t-1"]]
    member.commit(positions(t_0=6))
    assert commits(member) == [(-1, {"t-0": 6})]
    member.advance(60_000)
    member.poll()
    assert not member.requests(ConsumerGroupHeartbeatRequest)
    assert member.state() is MemberState.UNJOINED
    assert member.readable == ["t-0", "t-1"]
    member.answer_fetch({"t-1": 8})
    assert member.history[-1] == "fetch(t-1@8)"


def test_r147_a_manual_assignment_commits_on_the_interval() -> None:
    """``enable.auto.commit`` also works for partitions given by assign()."""
    member = MemberHarness(settings={"auto_commit_interval_ms": AUTO_MS})
    member.assign({T0: OffsetAndMetadata(5)})
    member.advance(AUTO_MS)
    member.poll(positions(t_0=9))
    assert commits(member) == [(-1, {"t-0": 9})]


def test_r148_a_new_assignment_stops_only_what_it_leaves_out() -> None:
    """A partition that stays in the assignment is read on without a new position."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)})
    member.forget_history()
    member.assign({T1: None, T2: OffsetAndMetadata(7)})
    assert member.history == ["stop(t-0)", "fetch(t-2@7)"]


def test_r148_what_was_consumed_is_committed_first() -> None:
    """Auto-commit must not lose the partitions that are dropped."""
    for interval_ms, committed in ((AUTO_MS, [(-1, {"t-0": 9})]), (None, [])):
        member = MemberHarness(settings={"auto_commit_interval_ms": interval_ms})
        member.assign({T0: OffsetAndMetadata(5)})
        member.assign({T1: OffsetAndMetadata(1)}, consumed=positions(t_0=9))
        assert commits(member) == committed


def test_r149_a_subscription_ends_a_manual_assignment() -> None:
    """Both at once would read partitions that belong to another member."""
    member = MemberHarness()
    member.assign({T0: OffsetAndMetadata(5)})
    member.subscribe("t")
    assert member.owned == []
    assert member.history[-2:] == ["stop(t-0)", "heartbeat(0)"]


def test_r149_a_subscribed_consumer_ignores_assign() -> None:
    """The coordinator decides its partitions; reading others would read records twice in the group."""
    member = stable()
    member.assign({T1: OffsetAndMetadata(5)})
    assert member.owned == ["t-0"]
    assert member.history == []
