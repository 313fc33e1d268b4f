"""Joining: nothing before the first poll, everything in the first heartbeat."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import UnsupportedGroupProtocolError
from kip848_client.member.events import CoordinatorConnected, Fail
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.member_harness import GROUP, INTERVAL_MS, MEMBER_ID, MemberHarness


def test_nothing_is_sent_before_the_first_poll() -> None:
    """A member that joins before it polls would be given partitions that nobody reads."""
    member = MemberHarness()
    member.subscribe("t")
    member.advance(60_000)
    assert not member.sent
    assert member.state() is MemberState.UNJOINED
    member.poll()
    member.expect_heartbeat(epoch=0, full=True)


def test_the_client_makes_the_member_id_and_keeps_it() -> None:
    """With an id of the server's making, a join whose answer is lost leaves a ghost in the group (KIP-1082)."""
    member = MemberHarness()
    member.join({"t": [0]})
    assert member.member.view().member_id == MEMBER_ID
    member.reconcile()
    assert member.expect_heartbeat(epoch=1).member_id == MEMBER_ID


def test_with_version_0_the_coordinator_makes_the_member_id() -> None:
    """A version 0 coordinator refuses an id that it did not give."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat(epoch=0).member_id == ""
    member.answer_heartbeat(epoch=1, assignment={"t": [0]}, member_id="m1")
    member.reconcile()
    assert member.expect_heartbeat(epoch=1).member_id == "m1"
    assert member.member.view().member_id == "m1"


def test_a_static_member_names_its_instance_in_every_heartbeat() -> None:
    """Without it the coordinator would take a restarted process for a new member."""
    member = MemberHarness(settings={"instance_id": "host-1"})
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat().instance_id == "host-1"
    member.answer_heartbeat(assignment={})
    member.reconcile()
    assert member.expect_heartbeat().instance_id == "host-1"


def test_assignor_and_rack_are_said_once() -> None:
    """Repeating them costs bytes in every heartbeat; leaving them out of the join ignores the configuration."""
    member = MemberHarness(settings={"server_assignor": "range", "rack_id": "eu-1"})
    member.subscribe("t")
    member.poll()
    join = member.expect_heartbeat(epoch=0, full=True)
    assert (join.server_assignor, join.rack_id) == ("range", "eu-1")
    member.answer_heartbeat(assignment={})
    member.reconcile()
    delta = member.expect_heartbeat(epoch=1)
    assert (delta.server_assignor, delta.rack_id) == (None, None)


def test_a_join_under_way_is_not_repeated() -> None:
    """Two joins at once can be applied in either order."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    for _ in range(10):
        member.advance(100)
    member.expect_heartbeat(epoch=0)


def test_an_empty_first_assignment_is_reconciled_and_acknowledged() -> None:
    """The application must hear that it has nothing, and the coordinator that this arrived."""
    member = MemberHarness()
    member.join({})
    assert member.phase() is Phase.PENDING
    member.poll()
    member.finish_call("assigned")
    assert member.reported(member.expect_heartbeat(epoch=1)) == {}
    assert member.state() is MemberState.STABLE


def test_a_first_assignment_goes_through_the_listener_to_stable() -> None:
    """The ordinary start of every consumer."""
    member = MemberHarness()
    member.join({"t": [0]})
    assert member.state() is MemberState.RECONCILING
    member.poll()
    assert member.readable == []
    member.finish_call("assigned", "t-0")
    assert member.reported(member.expect_heartbeat(epoch=1)) == {"t": [0]}
    assert member.state() is MemberState.STABLE
    assert member.readable == ["t-0"]


def test_an_answer_without_assignment_makes_the_member_stable() -> None:
    """A member that stayed joining would ask the coordinator in a loop."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE
    member.advance(INTERVAL_MS - 1)
    member.expect_no_heartbeat()


def test_the_coordinator_is_looked_up_first() -> None:
    """A heartbeat to any other broker is refused."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.poll()
    member.expect_no_heartbeat()
    assert [request.coordinator_keys for request in member.requests(FindCoordinatorRequest)] == [(GROUP,)]
    member.find_coordinator()
    member.expect_heartbeat(epoch=0, full=True)


def test_a_changed_subscription_is_sent_at_once_and_only_once() -> None:
    """Users wait for partitions of the topic that they just added."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.subscribe("t", "u")
    assert member.expect_heartbeat().subscribed_topic_names == ("t", "u")
    member.answer_heartbeat(epoch=1)
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat().subscribed_topic_names is None


def test_the_same_subscription_is_not_sent_again() -> None:
    """Applications call subscribe() in loops."""
    member = MemberHarness()
    member.join({}, topics=("t", "u"))
    member.reconcile()
    member.answer_heartbeat()
    member.subscribe("u", "t")
    member.expect_no_heartbeat()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat().subscribed_topic_names is None


def test_names_and_pattern_travel_together() -> None:
    """A coordinator that is told only the names keeps the old pattern, and the member gets topics it left."""
    member = MemberHarness()
    member.subscribe(pattern="t.*")
    member.poll()
    join = member.expect_heartbeat(epoch=0)
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ((), "t.*")
    member.answer_heartbeat(assignment={})
    member.reconcile()
    member.answer_heartbeat()
    member.subscribe("t")
    changed = member.expect_heartbeat()
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == (("t",), "")
    member.answer_heartbeat()
    member.advance(INTERVAL_MS)
    quiet = member.expect_heartbeat()
    assert (quiet.subscribed_topic_names, quiet.subscribed_topic_regex) == (None, None)


def test_a_pattern_needs_version_1() -> None:
    """Without this check the pattern would be left out, and the member would wait for partitions for ever."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe(pattern="t.*")
    member.poll()
    (failure,) = member.emitted(Fail)
    assert isinstance(failure.error, UnsupportedGroupProtocolError)
    assert "regular expression" in str(failure.error)
    assert "t.*" in str(failure.error)
    assert member.state() is MemberState.FATAL


def test_a_cluster_without_the_protocol_is_a_clear_error() -> None:
    """An old cluster must say so at the first poll, not time out."""
    member = MemberHarness(heartbeat_version=None)
    member.subscribe("t")
    member.poll()
    (failure,) = member.emitted(Fail)
    assert failure.error.args
    assert "group.protocol=classic" in str(failure.error)
    member.expect_no_heartbeat()


def test_a_version_0_request_carries_no_pattern_field() -> None:
    """Version 0 cannot encode the field; setting it would make every heartbeat fail."""
    member = MemberHarness(heartbeat_version=0)
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat().subscribed_topic_regex is None


def test_a_static_member_may_wait_for_its_former_self() -> None:
    """With the setting, a process that crashed and came back outlives the old session instead of failing."""
    member = MemberHarness(settings={"instance_id": "host-1", "unreleased_instance_retry_ms": 1000})
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert member.state() is MemberState.UNJOINED
    member.advance(100)
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    member.advance(900)
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert member.state() is MemberState.FATAL


def test_an_answer_that_is_no_membership_is_not_taken_for_one() -> None:
    """An epoch below 1 in the answer to a join is no membership; asking again at once would be a loop."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=-1)
    member.expect_no_heartbeat()
    member.advance(100)
    member.expect_heartbeat(epoch=0, full=True)


def test_a_late_connection_is_ignored() -> None:
    """A number that nobody waits for must not replace the coordinator."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.poll()
    member.step(CoordinatorConnected(999, member.versions))
    assert not member.requests(ConsumerGroupHeartbeatRequest)


@pytest.mark.parametrize("topics", [("t",), ("t", "u")])
def test_the_join_names_every_topic_sorted(topics: tuple[str, ...]) -> None:
    """Equal subscriptions give equal bytes, which makes transcripts comparable."""
    member = MemberHarness()
    member.subscribe(*reversed(topics))
    member.poll()
    assert member.expect_heartbeat().subscribed_topic_names == topics


def test_a_static_member_frees_the_slot_that_it_holds_itself() -> None:
    """Its join was applied and the answer lost: the coordinator refuses the repeated join although it is ours."""
    member = MemberHarness(settings={"instance_id": "host-1"})
    member.subscribe("t")
    member.poll()
    member.fail_heartbeat()
    member.advance(200)
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    leave, join = member.requests(ConsumerGroupHeartbeatRequest)
    assert (leave.member_epoch, leave.instance_id, leave.member_id) == (-2, "host-1", MEMBER_ID)
    assert join.member_epoch == 0
    member.answer_heartbeat(epoch=-2)
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    assert member.state() is MemberState.RECONCILING


def test_a_static_member_that_was_fenced_frees_its_slot_too() -> None:
    """Without this a fenced static member is dead for good."""
    member = MemberHarness(settings={"instance_id": "host-1"})
    member.become_stable({})
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert [item.member_epoch for item in member.requests(ConsumerGroupHeartbeatRequest)] == [-2, 0]


def test_a_slot_of_somebody_else_is_final_after_one_attempt() -> None:
    """The coordinator refused our leave, because another process holds the slot."""
    member = MemberHarness(settings={"instance_id": "host-1"})
    member.subscribe("t")
    member.poll()
    member.fail_heartbeat()
    member.advance(200)
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    member.answer_heartbeat(error=ErrorCode.FENCED_INSTANCE_ID)
    assert member.state() is MemberState.UNJOINED
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert member.state() is MemberState.FATAL


def test_a_slot_of_somebody_else_is_final_for_a_newcomer() -> None:
    """A second process with the same group.instance.id must not push the first one out."""
    member = MemberHarness(settings={"instance_id": "host-1"})
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert member.state() is MemberState.FATAL
    member.expect_no_heartbeat()
