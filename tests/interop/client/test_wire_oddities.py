"""Coordinators that behave oddly: late, repeated, malformed, moved, silent, or against the rules."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.client import coordinator_manager
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import BrokerError, GroupAuthorizationError, Kip848Error
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
    COMMIT,
    FETCH,
    FIND,
    HEARTBEAT,
    HOLD,
    Heard,
    ScriptedCoordinator,
    without_heartbeats,
)
from tests.interop.client.watched import Watched, in_order
from tests.support.waiting import SOON_S, wait_until

pytestmark = pytest.mark.interop


def hold_one(scripted: ScriptedCoordinator, member: Watched) -> Heard:
    """The next heartbeat, unanswered."""
    scripted.always(HEARTBEAT, HOLD)
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) > seen)
    scripted.always(HEARTBEAT, None)
    return scripted.of(HEARTBEAT)[-1]


# ------------------------------------------------------------------------------------------------------ late answers


def test_a_fence_that_comes_while_a_version_0_leave_waits_for_its_name(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    scripted.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    scripted.script(HEARTBEAT, HOLD)
    member = watch().subscribe().drive_to("join")
    threading.Timer(0.1, lambda: scripted.held(HEARTBEAT).answer(25)).start()
    began_s = time.monotonic()
    member.consumer.close(timeout_s=60)
    assert time.monotonic() - began_s < SOON_S
    assert scripted.story == ["join"]


# ------------------------------------------------------------------------------------------------- answers that are odd


def test_a_new_target_with_the_answer_before_the_acknowledgement(
    scripted: ScriptedCoordinator, member: Watched
) -> None:
    """Two reports: of what was done, at once, and of what is done then."""

    def during_the_callback(_: Any) -> None:
        member.hooks.clear()
        scripted.script(HEARTBEAT, HOLD)
        seen = len(scripted.heartbeats)
        wait_until(lambda: len(scripted.heartbeats) > seen)

    member.hooks["assigned"] = during_the_callback
    scripted.give({"orders": [0, 1]})
    member.drive(lambda: member.told[-1] == "assigned orders-1").drive_for(0.05)
    held = scripted.held(HEARTBEAT)
    scripted.give({"orders": [0, 1, 2]})
    held.answer(scripted.heartbeat(held.request))
    member.drive_to("report 3 orders-0 orders-1", "assigned orders-2", "report 3 orders-0 orders-1 orders-2")


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


@pytest.mark.parametrize(
    ("code", "conf", "told"),
    [(30, {}, "group 'g'"), (35, {}, "group.protocol"), (69, {}, "group 'g'"), (112, {}, "group.remote.assignor")],
)
def test_what_a_fatal_error_says(
    scripted: ScriptedCoordinator, watch: Watch, code: int, conf: dict[str, str], told: str
) -> None:
    scripted.script(HEARTBEAT, code)
    member = watch(**conf).subscribe().drive(lambda: scripted.story[-1:] and scripted.story[-1].startswith("raised"))
    assert told in str(member.errors[0])
    assert "words of the coordinator" in str(member.errors[0])


def test_a_fatal_error_that_nobody_heard_is_raised_by_close(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    wait_until(lambda: member.consumer.state is MemberState.FATAL)
    with pytest.raises(GroupAuthorizationError):
        member.consumer.close(timeout_s=2)
    assert scripted.story[-1] == "lost orders-0"


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


def test_a_commit_finds_the_coordinator_that_moved(
    scripted: ScriptedCoordinator, member: Watched, broker: EmbeddedBroker
) -> None:
    with ScriptedCoordinator(broker) as other:
        other.topic_id("orders")
        other.start_with({"orders": [0]})
        scripted.always(FIND, other.model)
        scripted.script(COMMIT, int(ErrorCode.NOT_COORDINATOR))
        member.consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        assert other.committed == {Name("orders", 0): 1}
        member.consumer.close()


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


def test_a_lookup_that_is_refused_is_told_once_and_goes_on(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    scripted.always(FIND, int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    member = watch().subscribe().drive(lambda: len(scripted.of(FIND)) >= 4)
    assert [type(error) for error in member.errors] == [GroupAuthorizationError]
    assert not getattr(member.errors[0], "fatal", True)
    began_s = time.monotonic()
    with pytest.raises(GroupAuthorizationError):
        member.consumer.committed([TopicPartition("orders", 0)], timeout=60.0)
    assert time.monotonic() - began_s < SOON_S
    scripted.always(FIND, None)
    member.drive_to("join", "assigned orders-0")


def test_cut_off_from_the_coordinator_the_records_go_on(
    scripted: ScriptedCoordinator, member: Watched, produce: Produce
) -> None:
    """The client has no session time-out of its own: it learns of its removal from the first answer that it gets."""
    scripted.always(HEARTBEAT, HOLD)
    produce("orders", 5, partitions=[0])
    member.drive(lambda: len(member.records) == 5).drive_for(0.3)
    produce("orders", 5, partitions=[0])
    member.drive(lambda: len(member.records) == 10)
    assert member.told == ["assigned orders-0"]


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


# ------------------------------------------------------------------------------------------------------ static members


def test_a_static_member_whose_slot_is_taken_is_told(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.always(HEARTBEAT, int(ErrorCode.UNRELEASED_INSTANCE_ID))
    member = watch(group_instance_id="i").subscribe().drive(lambda: member_failed(scripted))
    assert isinstance(member.errors[0], BrokerError)
    assert member.consumer.state is MemberState.FATAL
    assert scripted.story.count("join") == 1


def member_failed(scripted: ScriptedCoordinator) -> bool:
    return any(words.startswith("raised") for words in scripted.story)


def test_a_static_member_comes_back_with_what_it_had(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    first = watch(group_instance_id="i").subscribe().drive_to("report 1 orders-0")
    first.consumer.close()
    second = watch(group_instance_id="i").subscribe()
    second.drive(lambda: scripted.story.count("report 1 orders-0") == 2)
    assert without_heartbeats(scripted.story)[3:] == [
        "revoked orders-0",
        "leave -2",
        "join",
        "assigned orders-0",
        "report 1 orders-0",
    ]
