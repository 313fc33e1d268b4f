"""Coordinators that behave oddly: late, repeated, malformed, moved, silent, or against the rules."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.client import coordinator_manager
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import Kip848Error
from kip848_client.model import TopicPartition as Name
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tests.interop.client.conftest import Watch
from tests.interop.client.drive import Produce
from tests.interop.client.scripted import (
    FETCH,
    FIND,
    HEARTBEAT,
    HOLD,
    Heard,
    ScriptedCoordinator,
)
from tests.interop.client.watched import Watched, in_order
from tests.support.waiting import SOON_S

pytestmark = pytest.mark.interop


def hold_one(scripted: ScriptedCoordinator, member: Watched) -> Heard:
    """The next heartbeat, unanswered."""
    scripted.always(HEARTBEAT, HOLD)
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) > seen)
    scripted.always(HEARTBEAT, None)
    return scripted.of(HEARTBEAT)[-1]


# ------------------------------------------------------------------------------------------------- answers that are odd


def test_an_epoch_that_goes_back_is_taken_as_it_comes(scripted: ScriptedCoordinator, member: Watched) -> None:
    """A coordinator that was restored: it decides, and fences us if it must."""
    scripted.epoch = 7
    member.drive_to("heartbeat 7")
    scripted.epoch = 3
    member.drive_to("heartbeat 3")
    assert member.told == ["assigned orders-0"]


PARTS = [
    ((0, 0, 1, 1), [0, 1]),
    ((3, 1, 2), [1, 2, 3]),
]


@pytest.mark.parametrize(("listed", "owned"), PARTS, ids=str)
def test_partitions_in_any_order_and_number(
    scripted: ScriptedCoordinator, watch: Watch, listed: tuple[int, ...], owned: list[int]
) -> None:
    def join(request: Any) -> Any:
        once = TopicPartitions(topic_id=scripted.topic_id("orders"), partitions=listed)
        return scripted.heartbeat(request, assignment=Assignment(topic_partitions=(once, once)))

    scripted.script(HEARTBEAT, join)
    names = " ".join(f"orders-{number}" for number in owned)
    member = watch().subscribe().drive_to("join", f"assigned {names}", f"report 1 {names}")
    assert member.assigned == owned


def test_a_partition_that_the_topic_does_not_have_hurts_no_other(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce
) -> None:
    """The coordinator knows of new partitions before the others do."""
    produce("orders", 3, partitions=[0])
    scripted.start_with({"orders": [0, 50]})
    member = watch().subscribe()
    member.drive(lambda: len(member.records) == 3)
    assert member.consumer.state is MemberState.STABLE


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40], ids=["empty", "short", "noise"])
def test_an_answer_that_cannot_be_read_costs_a_connection_and_nothing_else(
    scripted: ScriptedCoordinator, member: Watched, garbage: bytes
) -> None:
    held = hold_one(scripted, member)
    before = len(scripted.story)
    held.connection.write(held.correlation_id.to_bytes(4) + garbage)
    member.drive(lambda: in_order(scripted.story[before:], ("report 1 orders-0", "heartbeat 1")))
    assert len(scripted.of(FIND)) == 2
    # Where the name of the topic takes long, the listener hears first of an assignment of nothing.
    assert [told for told in member.told if told != "assigned nothing"] == ["assigned orders-0"]


def test_an_error_code_without_words(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, ConsumerGroupHeartbeatResponse(error_code=42, error_message=None))
    member.drive(lambda: member.errors)
    assert "INVALID_REQUEST" in str(member.errors[0])


# ------------------------------------------------------------------------------------------------ the coordinator moves


def test_the_group_moves_to_another_coordinator(
    scripted: ScriptedCoordinator, member: Watched, broker: EmbeddedBroker
) -> None:
    """Everything is said again to the new one; nothing goes to the old one; the application notices nothing."""
    with ScriptedCoordinator(broker) as other:
        other.topic_id("orders")
        other.start_with({"orders": [0]})
        scripted.always(FIND, other.model)
        scripted.script(HEARTBEAT, int(ErrorCode.NOT_COORDINATOR))
        member.drive(lambda: len(other.heartbeats) >= 3)
        seen = len(scripted.heartbeats)
        member.drive_for(0.1)
        assert len(scripted.heartbeats) == seen
        first = other.heartbeats[0]
        assert (first.member_epoch, other.names(first.topic_partitions)) == (1, "orders-0")
        assert first.subscribed_topic_names == ("orders",)
        member.consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        assert len(other.commits) == 1
        member.consumer.close()
        assert other.story[-1] == "leave -1"
    assert member.told == ["assigned orders-0", "revoked orders-0"]


LOOKUPS: list[Any] = [
    FindCoordinatorResponse(coordinators=()),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=-1, host="", port=-1),)),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=5, host="127.0.0.1", port=1),)),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=5, host="nowhere.invalid", port=9092),)),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=5, host="127.0.0.1", port=70000),)),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=5, host="x" * 70 + ".invalid", port=9092),)),
    FindCoordinatorResponse(coordinators=(Coordinator(key="g", node_id=5, host="nul\0.invalid", port=9092),)),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    HOLD,
]


@pytest.mark.parametrize("answer", LOOKUPS, ids=lambda answer: str(answer)[:90])
def test_a_lookup_that_leads_nowhere_is_repeated(scripted: ScriptedCoordinator, watch: Watch, answer: Any) -> None:
    scripted.start_with({"orders": [0]})
    scripted.script(FIND, answer)
    member = watch(request_timeout_ms=1_000).subscribe().drive_to("join", "assigned orders-0")
    assert member.consumer.state is not MemberState.FATAL


def test_a_coordinator_that_wants_a_pause_gets_it(scripted: ScriptedCoordinator, member: Watched) -> None:
    """KIP-219: the broker does not read from a throttled connection; what is written meanwhile only times out."""
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, throttle_time_ms=400))
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) >= seen + 3)
    throttled, following, _ = scripted.of(HEARTBEAT)[seen : seen + 3]
    assert following.at_s - throttled.at_s > 0.39


def test_a_pause_does_not_keep_the_leave(
    scripted: ScriptedCoordinator, member: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_manager, "THROTTLE_MS_MAX", 60_000)
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, throttle_time_ms=60_000))
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) > seen)
    began_s = time.monotonic()
    member.consumer.close(timeout_s=60)
    assert time.monotonic() - began_s < SOON_S
    assert scripted.story[-1] == "leave -1"


@pytest.mark.parametrize("throttle_ms", [-1, -(2**31), 2**31 - 1])
def test_a_pause_that_makes_no_sense(
    scripted: ScriptedCoordinator, member: Watched, throttle_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No quota of Kafka's pauses a client for more than seconds; an absurd one must not end the membership."""
    monkeypatch.setattr(coordinator_manager, "THROTTLE_MS_MAX", 300)
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, throttle_time_ms=throttle_ms))
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) >= seen + 2)


# ------------------------------------------------------------------------------------------------------ older brokers


@pytest.mark.parametrize("api", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH], ids=str)
def test_a_broker_that_speaks_offsets_in_version_9_only(
    scripted: ScriptedCoordinator, watch: Watch, produce: Produce, api: ApiKey
) -> None:
    produce("orders", 5, partitions=[0])
    scripted.versions[api] = (1 if api is ApiKey.OFFSET_FETCH else 2, 9)
    scripted.start_with({"orders": [0]})
    scripted.committed[Name("orders", 0)] = 3
    member = watch().subscribe().drive(lambda: len(scripted.of(FETCH)) >= 1)
    member.drive(lambda: len(member.records) == 2)
    member.consumer.commit(asynchronous=False)
    assert scripted.committed[Name("orders", 0)] == 5


def test_a_broker_without_a_fitting_commit_says_so(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.versions[ApiKey.OFFSET_COMMIT] = None
    scripted.start_with({"orders": [0]})
    member = watch().subscribe().drive_to("report 1 orders-0")
    with pytest.raises(Kip848Error, match="OffsetCommit"):
        member.consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False, timeout_s=2)
    assert member.consumer.state is MemberState.STABLE
