"""Joining, seen from the coordinator: which requests come, when, and with what in them."""

from __future__ import annotations

import re
import uuid

import pytest

from kip848_client import MemberState, SubscriptionPattern
from kip848_client.errors import ConfigError, UnsupportedGroupProtocolError
from kip848_client.wire.api_keys import ApiKey
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import FIND, HEARTBEAT, HOLD, ScriptedCoordinator, without_heartbeats
from tests.support.waiting import assert_stays

pytestmark = pytest.mark.interop


def test_nothing_is_sent_before_the_first_poll(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """A program that subscribes early and works late must not own partitions that it does not read."""
    member = watch().subscribe()
    assert_stays(lambda: scripted.of(HEARTBEAT) == [], 0.2)
    member.drive_to("join")
    assert scripted.heartbeats[0].member_epoch == 0


def test_the_member_id_is_made_by_the_client_and_stays(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    member.consumer.close()
    ids = {request.member_id for request in scripted.heartbeats}
    assert len(ids) == 1
    assert uuid.UUID(ids.pop()).version == 4


def test_an_id_of_the_coordinator_is_taken_over(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    scripted.member_id = "m1"
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    assert [request.member_id for request in scripted.heartbeats][:2] == ["", "m1"]
    assert member.consumer.member_id == "m1"
    assert without_heartbeats(scripted.story) == ["join", "assigned orders-0", "report 1 orders-0"]


def test_a_static_member_is_named_in_every_heartbeat(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(group_instance_id="i1").subscribe().drive_to("report 1 orders-0", "heartbeat 1", "heartbeat 1")
    member.consumer.close()
    assert {request.instance_id for request in scripted.heartbeats} == {"i1"}
    assert scripted.story[-1] == "leave -2"


def test_assignor_and_rack_are_said_once(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    watch(group_remote_assignor="range", client_rack="r1").subscribe().drive_to("report 1 orders-0", "heartbeat 1")
    first, second, *_ = scripted.heartbeats
    assert (first.server_assignor, first.rack_id, first.topic_partitions) == ("range", "r1", ())
    assert first.rebalance_timeout_ms == 300_000
    assert (second.server_assignor, second.rack_id, second.rebalance_timeout_ms) == (None, None, -1)


def test_an_unanswered_join_is_not_repeated(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.script(HEARTBEAT, HOLD)
    member = watch().subscribe().drive_to("join").drive_for(0.3)
    assert len(scripted.heartbeats) == 1
    scripted.held(HEARTBEAT).answer(scripted.heartbeat(scripted.heartbeats[0]))
    member.drive_to("assigned nothing", "report 1 nothing")


def test_a_join_that_brings_nothing_is_acknowledged(scripted: ScriptedCoordinator, watch: Watch) -> None:
    member = watch().subscribe().drive_to("report 1 nothing")
    assert scripted.story[:3] == ["join", "assigned nothing", "report 1 nothing"]
    assert member.consumer.state is MemberState.STABLE


def test_a_join_that_brings_nothing_is_acknowledged_without_a_listener(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    member = watch()
    member.consumer.subscribe(["orders"])
    member.drive_to("report 1 nothing")
    assert scripted.story[:2] == ["join", "report 1 nothing"]
    assert member.consumer.state is MemberState.STABLE


def test_a_join_answered_without_an_assignment_is_joined(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.interval_ms = 600_000
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, assignment=None))
    member = watch().subscribe().drive_to("join")
    member.drive(lambda: member.consumer.state is MemberState.STABLE).drive_for(0.2)
    assert scripted.story == ["join"]
    assert member.told == []


def test_an_unknown_coordinator_is_looked_up_and_joined_at_once(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.script(FIND, HOLD)
    member = watch(retry_backoff_ms=150_000, retry_backoff_max_ms=300_000).subscribe()
    member.drive(lambda: scripted.of(FIND)).drive_for(0.2)
    assert scripted.heartbeats == []
    held = scripted.held(FIND)
    held.answer(scripted.model(held.request))
    member.drive_to("join")


def test_a_changed_subscription_is_said_once(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.broker.create_topic("more", 1)
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    seen = len(scripted.heartbeats)
    member.subscribe("more", "orders").drive(lambda: len(scripted.heartbeats) >= seen + 3)
    said = [request.subscribed_topic_names for request in scripted.heartbeats[seen:] if request.subscribed_topic_names]
    assert said == [("more", "orders")]
    seen = len(scripted.heartbeats)
    member.subscribe("orders", "more").drive(lambda: len(scripted.heartbeats) >= seen + 2)
    assert {request.subscribed_topic_names for request in scripted.heartbeats[seen:]} == {None}


def test_names_and_pattern_travel_together(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch().subscribe(SubscriptionPattern("ord.*")).drive_to("report 1 orders-0")
    join = scripted.heartbeats[0]
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ((), "ord.*")
    seen = len(scripted.heartbeats)
    member.subscribe("orders").drive(lambda: len(scripted.heartbeats) >= seen + 3)
    later = [(r.subscribed_topic_names, r.subscribed_topic_regex) for r in scripted.heartbeats[seen:]]
    assert [pair for pair in later if pair != (None, None)] == [(("orders",), "")]


def test_a_pattern_needs_version_1(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    member = watch().subscribe(SubscriptionPattern("ord.*")).drive(lambda: scripted.story)
    (error,) = member.errors
    assert isinstance(error, UnsupportedGroupProtocolError)
    assert re.search(r"regular expression.*ord\.\*", str(error))
    assert member.consumer.state is MemberState.FATAL


def test_a_pattern_after_names_needs_version_1_too(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """The member is in the group already when its pattern turns out to be impossible."""
    scripted.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    scripted.member_id = "m1"
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    member.subscribe(SubscriptionPattern("ord.*")).drive_to("lost orders-0", "raised UnsupportedGroupProtocolError")
    assert member.consumer.state is MemberState.FATAL


@pytest.mark.parametrize("topics", [None, [""], ["  "], [None], "orders"], ids=repr)
def test_what_is_no_subscription_is_refused_before_anything_changes(watch: Watch, topics: object) -> None:
    member = watch()
    with pytest.raises(ConfigError):
        member.consumer.subscribe(topics)  # type: ignore[arg-type]  # that is the mistake
    assert member.consumer.state is MemberState.UNJOINED


def test_a_coordinator_without_the_protocol_is_fatal_and_says_what_to_do(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    scripted.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = None
    member = watch().subscribe().drive(lambda: scripted.story)
    assert "group.protocol=classic" in str(member.errors[0])
    member.consumer.close()
    assert scripted.heartbeats == []


@pytest.mark.parametrize("epoch", [0, -1, -2, -2147483648])
def test_an_answer_with_an_impossible_epoch_is_no_membership(
    scripted: ScriptedCoordinator, watch: Watch, epoch: int
) -> None:
    """A coordinator that is replaced in the middle of an answer, or a fake: nothing may be read because of it."""
    scripted.start_with({"orders": [0]})
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, member_epoch=epoch))
    member = watch().subscribe().drive_to("join", "join", "assigned orders-0", "report 1 orders-0")
    assert member.told == ["assigned orders-0"]


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_an_interval_that_makes_no_sense_floods_nobody(
    scripted: ScriptedCoordinator, watch: Watch, interval_ms: int
) -> None:
    scripted.start_with({"orders": [0]})
    scripted.interval_ms = interval_ms
    watch().subscribe().drive_to("report 1 orders-0").drive_for(0.3)
    assert len(scripted.heartbeats) == 2


def test_the_longest_interval_there_is_can_still_be_left(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """2**31 - 1 ms are 24 days: a timer that overflows would fire at once, or never again."""
    scripted.start_with({"orders": [0]})
    scripted.interval_ms = 2**31 - 1
    member = watch().subscribe().drive_to("report 1 orders-0").drive_for(0.2)
    member.consumer.close(timeout_s=2)
    assert scripted.story == ["join", "assigned orders-0", "report 1 orders-0", "revoked orders-0", "leave -1"]
