"""Joining, seen from the coordinator: what configuration and versions make of the first requests."""

from __future__ import annotations

import re
import uuid

import pytest

from kip848_client import MemberState, SubscriptionPattern
from kip848_client.errors import ConfigError, UnsupportedGroupProtocolError
from kip848_client.wire.api_keys import ApiKey
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import ScriptedCoordinator, without_heartbeats

pytestmark = pytest.mark.interop


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


def test_assignor_and_rack_are_said_once(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    watch(group_remote_assignor="range", client_rack="r1").subscribe().drive_to("report 1 orders-0", "heartbeat 1")
    first, second, *_ = scripted.heartbeats
    assert (first.server_assignor, first.rack_id, first.topic_partitions) == ("range", "r1", ())
    assert first.rebalance_timeout_ms == 300_000
    assert (second.server_assignor, second.rack_id, second.rebalance_timeout_ms) == (None, None, -1)


def test_a_join_that_brings_nothing_is_acknowledged_without_a_listener(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    member = watch()
    member.consumer.subscribe(["orders"])
    member.drive_to("report 1 nothing")
    assert scripted.story[:2] == ["join", "report 1 nothing"]
    assert member.consumer.state is MemberState.STABLE


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


def test_the_longest_interval_there_is_can_still_be_left(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """2**31 - 1 ms are 24 days: a timer that overflows would fire at once, or never again."""
    scripted.start_with({"orders": [0]})
    scripted.interval_ms = 2**31 - 1
    member = watch().subscribe().drive_to("report 1 orders-0").drive_for(0.2)
    member.consumer.close(timeout_s=2)
    assert scripted.story == ["join", "assigned orders-0", "report 1 orders-0", "revoked orders-0", "leave -1"]
