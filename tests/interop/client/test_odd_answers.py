"""Coordinators that behave oddly: malformed, moved, throttling, or older than they should be."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.errors import ErrorCode, Kip848Error
from kip848_client.network import coordinator_manager
from kip848_client.network.coordinator_manager import CoordinatorManager
from kip848_client.testing.faults import ALWAYS, answer, drop, error, rewrite
from kip848_client.testing.faults.actions import Action
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.api_versions import ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import HEARTBEAT, Produce, is_our_lookup
from tests.support.driving import drive
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop

HOUR_MS = 3_600_000


def assigning(*partitions: int) -> Action:
    """An answer with these partitions of ``orders``, the topic named twice over."""

    def change(response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        assert response.assignment is not None
        topic = TopicPartitions(topic_id=response.assignment.topic_partitions[0].topic_id, partitions=partitions)
        return replace(response, assignment=Assignment(topic_partitions=(topic, topic)))

    return rewrite(change)


@pytest.mark.parametrize(("listed", "owned"), [((0, 0, 1, 1), [0, 1]), ((3, 1, 2), [1, 2, 3])], ids=str)
def test_partitions_in_any_order_and_number(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, listed: tuple[int, ...], owned: list[int]
) -> None:
    """A listener that is told of a partition twice opens its resources twice."""
    broker.faults.on(HEARTBEAT, assigning(*listed))
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: consumer.calls)
    assert consumer.calls[0] == ("assigned", owned)


def test_a_partition_that_the_topic_does_not_have_hurts_no_other(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """The coordinator knows of new partitions before the others do."""
    produce("orders", 3, partitions=[0])
    broker.faults.on(HEARTBEAT, assigning(0, 50))
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 3)
    assert consumer.raw.state is not MemberState.FATAL


def test_an_error_code_without_words(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """The name of the code says it where the coordinator does not."""
    broker.faults.on(HEARTBEAT, answer(ConsumerGroupHeartbeatResponse(error_code=42, error_message=None)))
    consumer = make_consumer().subscribe("orders")
    with pytest.raises(Kip848Error, match="INVALID_REQUEST"):
        drive(consumer, until=lambda: False)


def at(host: str, port: int, node_id: int = 5) -> Action:
    found = Coordinator(key="g", node_id=node_id, host=host, port=port)
    return answer(FindCoordinatorResponse(coordinators=(found,)))


LOOKUPS = {
    "none": answer(FindCoordinatorResponse(coordinators=())),
    "no node": at("", -1, node_id=-1),
    "a closed port": at("127.0.0.1", 1),
    "unknown host": at("nowhere.invalid", 9092),
    "impossible port": at("127.0.0.1", 70000),
    "long name": at("x" * 70 + ".invalid", 9092),
    "NUL in the name": at("nul\0.invalid", 9092),
    "not available": error(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "silence": drop(),
}


@pytest.mark.parametrize("action", LOOKUPS.values(), ids=LOOKUPS)
def test_a_lookup_that_leads_nowhere_is_repeated(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, action: Action
) -> None:
    """A coordinator that cannot be reached now can be in a moment; no answer may end the membership."""
    broker.faults.on("FindCoordinator", action, when=is_our_lookup)
    consumer = make_consumer(request_timeout_ms=1_000).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    assert consumer.raw.state is not MemberState.FATAL


def throttling(ms: int) -> Action:
    return rewrite(lambda response: replace(response, throttle_time_ms=ms))


def test_a_coordinator_that_wants_a_pause_gets_it(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """KIP-219: the broker does not read from a throttled connection; what is written meanwhile only times out."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4 and consumer.raw.state is MemberState.STABLE)
    broker.faults.on(HEARTBEAT, throttling(400))
    throttled = broker.requests.wait_for(
        HEARTBEAT, answered=True, when=lambda logged: getattr(logged.response, "throttle_time_ms", 0) == 400
    )
    following = broker.requests.wait_for(HEARTBEAT, since=throttled.number)
    assert following.ts_ms - throttled.ts_ms >= 390


@pytest.mark.parametrize(("automatic", "commits"), [(True, 2), (False, 1)])
def test_a_pause_does_not_keep_the_commits_and_the_leave_of_close(
    broker: EmbeddedBroker,
    make_consumer: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    automatic: bool,
    commits: int,
) -> None:
    """A shutdown during a quota's pause would lose its commits, and the group would wait for the end of the session."""
    monkeypatch.setattr(coordinator_manager, "THROTTLE_MS_MAX", HOUR_MS)
    paused = threading.Event()
    answered = CoordinatorManager.answered

    def answered_and_told(manager: CoordinatorManager, response: Any) -> None:
        answered(manager, response)
        if response.throttle_time_ms:
            paused.set()

    monkeypatch.setattr(CoordinatorManager, "answered", answered_and_told)
    consumer = make_consumer(enable_auto_commit=automatic, auto_commit_interval_ms=HOUR_MS).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4 and broker.requests.of("Fetch"))
    broker.faults.on(HEARTBEAT, throttling(HOUR_MS))
    assert paused.wait(TIMEOUT_S)
    consumer.raw.commit(offsets=[TopicPartition("orders", 0, 0)])
    consumer.raw.close(timeout_s=60)

    assert [one.errors for one in broker.requests.of("OffsetCommit")] == [()] * commits
    leave: Any = broker.requests.of(HEARTBEAT)[-1].request
    assert leave.member_epoch == -1


@pytest.mark.parametrize("throttle_ms", [-1, -(2**31), 2**31 - 1])
def test_a_pause_that_makes_no_sense(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, throttle_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No quota of Kafka's pauses a client for more than seconds; an absurd one must not end the membership."""
    monkeypatch.setattr(coordinator_manager, "THROTTLE_MS_MAX", 300)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    broker.faults.on(HEARTBEAT, throttling(throttle_ms)).wait()
    broker.requests.wait_for(HEARTBEAT, since=broker.requests.mark(), count=2)


def test_the_longest_interval_there_is_can_still_be_left(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """2**31 - 1 ms are 24 days: a timer that overflows would fire at once, or never again."""
    longest = rewrite(lambda response: replace(response, heartbeat_interval_ms=2**31 - 1))
    broker.faults.on(HEARTBEAT, longest, times=ALWAYS)
    consumer = make_consumer(heartbeat_early_enable=False).subscribe("orders")
    drive(consumer, until=lambda: consumer.raw.state is MemberState.STABLE)
    consumer.take(0.2)
    assert len(broker.requests.of(HEARTBEAT)) == 2, "a join and its acknowledgement"
    consumer.raw.close(timeout_s=2)
    broker.wait_for_group("g", members=0)


def offering(api: ApiKey, versions: tuple[int, int] | None) -> Action:
    """ApiVersions with other versions of one API, or without it."""

    def change(response: ApiVersionsResponse) -> ApiVersionsResponse:
        kept = [each for each in response.api_keys if each.api_key != api or versions is not None]
        changed = [
            replace(each, min_version=versions[0], max_version=versions[1])
            if versions and each.api_key == api
            else each
            for each in kept
        ]
        return replace(response, api_keys=tuple(changed))

    return rewrite(change)


@pytest.mark.parametrize(("api", "first"), [(ApiKey.OFFSET_COMMIT, 2), (ApiKey.OFFSET_FETCH, 1)], ids=str)
def test_a_broker_that_speaks_offsets_in_version_9_only(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, api: ApiKey, first: int
) -> None:
    """Offsets by name, as brokers before topic ids in these requests take them."""
    produce("orders", 5, partitions=[0])
    broker.faults.on("ApiVersions", offering(api, (first, 9)), times=ALWAYS)
    for expected in (5, 0):  # the second one begins where the first one committed
        consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
        drive(consumer, until=lambda: len(consumer.partitions) == 4)  # noqa: B023  used before the next round
        drive(consumer, until=lambda: len(consumer.delivered) == expected)  # noqa: B023
        consumer.raw.commit(asynchronous=False)
        consumer.raw.close()
    assert max(logged.version for logged in broker.requests.of(api)) == 9
    assert broker.groups.committed("g") == {("orders", 0): 5, ("orders", 1): 0, ("orders", 2): 0, ("orders", 3): 0}


def test_a_broker_without_a_fitting_commit_says_so(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """The API that is missing has a name; the membership is not concerned."""
    broker.faults.on("ApiVersions", offering(ApiKey.OFFSET_COMMIT, None), times=ALWAYS)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: consumer.raw.state is MemberState.STABLE)
    with pytest.raises(Kip848Error, match="OffsetCommit"):
        consumer.raw.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    assert consumer.raw.state is MemberState.STABLE
