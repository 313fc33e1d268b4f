"""Joining, seen from the coordinator: what configuration and versions make of the first requests."""

from __future__ import annotations

import uuid

import pytest

from kip848_client import MemberState
from kip848_client.errors import ConfigError
from kip848_client.wire.api_keys import ApiKey
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import ScriptedCoordinator

pytestmark = pytest.mark.interop


def test_the_member_id_is_made_by_the_client_and_stays(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    member.consumer.close()
    ids = {request.member_id for request in scripted.heartbeats}
    assert len(ids) == 1
    assert uuid.UUID(ids.pop()).version == 4


def test_assignor_and_rack_are_said_once(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    watch(group_remote_assignor="range", client_rack="r1").subscribe().drive_to("report 1 orders-0", "heartbeat 1")
    first, second, *_ = scripted.heartbeats
    assert (first.server_assignor, first.rack_id, first.topic_partitions) == ("range", "r1", ())
    assert first.rebalance_timeout_ms == 300_000
    assert (second.server_assignor, second.rack_id, second.rebalance_timeout_ms) == (None, None, -1)


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
