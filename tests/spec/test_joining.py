"""The rules of docs/protocol.md, section Joining."""

from __future__ import annotations

import pytest

from kip848_client.errors import UnsupportedGroupProtocolError
from kip848_client.member.core.events import Fail
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from tests.spec.arrange import fence, heartbeats, joining, stable
from tests.support.member_harness import GROUP, INTERVAL_MS, MAX_POLL_MS, MEMBER_ID, MemberHarness, positions


def test_r10_the_join_says_everything() -> None:
    """Anything less is refused as INVALID_REQUEST, which is fatal."""
    member = MemberHarness(settings={"rack_id": "eu-1", "server_assignor": "range", "instance_id": "host-1"})
    member.subscribe("u", "t")
    member.poll()
    assert member.expect_heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MEMBER_ID,
        member_epoch=0,
        instance_id="host-1",
        rack_id="eu-1",
        rebalance_timeout_ms=MAX_POLL_MS,
        subscribed_topic_names=("t", "u"),
        subscribed_topic_regex="",
        server_assignor="range",
        topic_partitions=(),
    )


def test_r11_the_member_id_stays_the_same_for_life() -> None:
    """With another one after a removal, the old one would hold its partitions until its session ends."""
    member = stable()
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={})
    member.reconcile()
    member.answer_heartbeat(epoch=5)
    member.leave()
    member.answer_heartbeat(epoch=-1)
    member.subscribe("t")
    member.poll()
    assert [heartbeat.member_epoch for heartbeat in heartbeats(member)] == [1, 0, 5, -1, 0]
    assert {heartbeat.member_id for heartbeat in heartbeats(member)} == {MEMBER_ID}


def test_r12_a_version_0_coordinator_makes_the_member_id() -> None:
    """It refuses an id that it did not give."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat(epoch=0).member_id == ""
    member.answer_heartbeat(assignment={}, member_id="m1")
    member.reconcile()
    assert member.expect_heartbeat(epoch=1).member_id == "m1"
    assert member.member.view().member_id == "m1"


def test_r12_an_id_in_an_answer_is_taken_over() -> None:
    """The coordinator has the last word; a commit under another name is refused."""
    member = joining()
    member.answer_heartbeat(member_id="another")
    member.commit(positions(t_0=1))
    assert member.member.view().member_id == "another"
    assert [commit.member_id for commit in member.requests(OffsetCommitRequest)] == ["another"]


def test_r13_an_empty_first_assignment_is_reconciled() -> None:
    """The application must hear that it has nothing, and the coordinator that this arrived."""
    member = MemberHarness()
    member.join({})
    member.poll()
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat(epoch=1)) == {}
    assert member.state() is MemberState.STABLE


def test_r14_a_join_without_an_assignment_is_a_membership() -> None:
    """A member that went on joining would ask the coordinator in a loop."""
    member = joining()
    member.answer_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_r15_an_answer_with_no_epoch_is_no_membership(epoch: int) -> None:
    """Asking again at once would be a loop, and believing it a member without an epoch."""
    member = joining()
    member.answer_heartbeat(epoch=epoch, assignment={"t": [0]})
    assert member.state() is MemberState.UNJOINED
    member.advance(99)
    member.expect_no_heartbeat()
    member.advance(1)
    member.expect_heartbeat(epoch=0, full=True)


def test_r16_a_pattern_needs_version_1() -> None:
    """Left out silently, the member would wait for partitions for ever."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe(pattern="orders-.*")
    member.poll()
    (failure,) = member.emitted(Fail)
    assert isinstance(failure.error, UnsupportedGroupProtocolError)
    assert failure.error.fatal
    assert "orders-.*" in str(failure.error)
    member.expect_no_heartbeat()


def test_r17_a_cluster_without_the_protocol_is_a_clear_error() -> None:
    """The setting to change is in the message."""
    member = MemberHarness(heartbeat_version=None)
    member.subscribe("t")
    member.poll()
    (failure,) = member.emitted(Fail)
    assert "group.protocol=classic" in str(failure.error)
    member.expect_no_heartbeat()


def test_r18_a_changed_subscription_is_sent_at_once_and_once() -> None:
    """Users wait for partitions of the topic that they just added."""
    member = stable()
    member.subscribe("t", "u")
    assert member.expect_heartbeat().subscribed_topic_names == ("t", "u")
    member.answer_heartbeat(epoch=1)
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat().subscribed_topic_names is None


def test_r18_the_same_topics_are_not_sent_again() -> None:
    """Applications call subscribe() in loops; each call would otherwise cost a heartbeat."""
    member = MemberHarness()
    member.subscribe("t", "u")
    member.poll()
    member.answer_heartbeat()
    member.subscribe("u", "t")
    member.expect_no_heartbeat()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat().subscribed_topic_names is None


def test_r19_names_and_pattern_travel_together() -> None:
    """A coordinator that hears only the names keeps the old pattern, and the member gets topics it left."""
    member = MemberHarness()
    member.subscribe(pattern="t.*")
    member.poll()
    join = member.expect_heartbeat()
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ((), "t.*")
    member.answer_heartbeat()
    member.subscribe("t")
    change = member.expect_heartbeat()
    assert (change.subscribed_topic_names, change.subscribed_topic_regex) == (("t",), "")
    member.answer_heartbeat()
    member.advance(INTERVAL_MS)
    quiet = member.expect_heartbeat()
    assert (quiet.subscribed_topic_names, quiet.subscribed_topic_regex) == (None, None)


def test_r19_version_0_carries_no_pattern_field() -> None:
    """Version 0 cannot encode it; setting it would make every heartbeat fail."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat().subscribed_topic_regex is None
