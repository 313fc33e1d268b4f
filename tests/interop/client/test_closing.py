"""Calls that end a membership: what they promise when something is odd."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kip848_client import Consumer, EmbeddedBroker, IllegalStateError, KafkaError, MemberState, TopicPartition
from kip848_client.errors import ErrorCode, TopicAuthorizationError
from kip848_client.testing.faults import ALWAYS, close, drop, error
from kip848_client.testing.faults.actions import Action
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import HEARTBEAT, Produce, is_our_lookup
from tests.support.driving import QUIET, drive, settings
from tests.support.waiting import SOON_S, outlast

pytestmark = pytest.mark.interop


def test_subscribing_to_nothing_is_unsubscribing(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Programs that compute their topics end up with an empty list; the member must not stay in the group."""
    produce("orders", 1)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    consumer.raw.subscribe([])
    assert consumer.kinds == ["assigned", "revoked"]
    assert consumer.raw.state is MemberState.UNJOINED
    broker.wait_for_group("g", state="Empty")


def test_a_second_close_does_nothing(make_consumer: MakeConsumer, produce: Produce) -> None:
    """`with` blocks, atexit hooks and finally clauses meet."""
    produce("orders", 1)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    consumer.raw.close()
    consumer.raw.close()
    assert consumer.kinds == ["assigned", "revoked"]


@pytest.mark.parametrize("end", ["close", "unsubscribe", "hand over, and close"])
def test_the_end_says_that_every_automatic_commit_was_refused(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, end: str
) -> None:
    """A program without a right ended as if all was well, and began with the same records each time."""
    broker.faults.on("OffsetCommit", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), group="g", times=ALWAYS)
    produce("orders", 1)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    if end.startswith("hand over"):
        consumer.raw.hand_over(0)
        drive(consumer, until=lambda: consumer.raw.handed_over)
    with pytest.raises(TopicAuthorizationError, match="READ"):
        (consumer.raw.unsubscribe if end == "unsubscribe" else consumer.raw.close)()
    broker.wait_for_group("g", state="Empty")
    consumer.raw.close()


def test_on_commit_has_told_of_a_refusal(broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce) -> None:
    """What the application has heard and dealt with is not raised once more, and what has passed is not raised."""
    broker.faults.on("OffsetCommit", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), group="g", times=1)
    told: list[object] = []
    produce("orders", 1)
    consumer = make_consumer(auto_commit_interval_ms=50, on_commit=lambda failure, _: told.append(failure))
    consumer.subscribe("orders")
    drive(consumer, until=lambda: len(told) >= 2)
    consumer.raw.close()
    assert (told[0] is None, told[1]) == (False, None)


def lose_the_coordinator(broker: EmbeddedBroker, action: Action) -> None:
    """Take its connection away, and do *action* to every lookup of it."""
    lookups = broker.faults.on("FindCoordinator", action, when=is_our_lookup, times=ALWAYS)
    broker.faults.on(HEARTBEAT, close(), times=ALWAYS)
    lookups.wait()


def seconds(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


def test_unsubscribe_without_a_coordinator_returns(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """A program that changes its subscription during an outage must not hang."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    lose_the_coordinator(broker, drop())
    assert seconds(consumer.raw.unsubscribe) < SOON_S
    assert consumer.calls[-1] == ("revoked", [0, 1, 2, 3])


def test_close_with_asynchronous_commits_and_no_coordinator(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Each commit that waits is told that it failed; close() returns in its time."""
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    lose_the_coordinator(broker, error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    told: list[object] = []
    for offset in range(3):
        consumer.raw.commit(
            offsets=[TopicPartition("orders", 0, offset)], on_commit=lambda error, _: told.append(error)
        )
    assert seconds(lambda: consumer.raw.close(timeout_s=1)) < SOON_S
    assert len(told) == 3
    assert all(isinstance(error, KafkaError) for error in told)


def test_a_slow_revoked_callback_at_close_keeps_its_place_in_the_group(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Heartbeats with the epoch go on while it runs, and the leave follows, though the time of close() is over."""
    consumer = make_consumer()
    epochs: list[int] = []

    def slow(_: Consumer, __: list[TopicPartition]) -> None:
        outlast(0.4)
        mark = broker.requests.mark()
        broker.requests.wait_for(HEARTBEAT, since=mark, count=3)
        epochs.extend(beat.request.member_epoch for beat in broker.requests.of(HEARTBEAT, since=mark))  # type: ignore[attr-defined]

    consumer.raw.subscribe(["orders"], on_revoke=slow)
    drive(consumer, until=lambda: len(consumer.partitions) == 4 and consumer.raw.state is MemberState.STABLE)
    consumer.raw.close(timeout_s=0.2)
    broker.wait_for_group("g", members=0)
    assert epochs
    assert set(epochs) == {1}


def test_a_closed_consumer_says_that_it_is(make_consumer: MakeConsumer) -> None:
    """A call after close() that did nothing would look like an empty topic."""
    consumer = make_consumer().raw
    consumer.close()
    for call in (consumer.poll, lambda: consumer.subscribe(["x"]), consumer.commit):
        with pytest.raises(IllegalStateError):
            call()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("lookups", [0, 2])
def test_close_finds_a_coordinator_for_the_commits_that_wait_for_one(
    broker: EmbeddedBroker, produce: Produce, protocol: str, lookups: int
) -> None:
    """A short job reads what it was told to, commits, and ends: the next run read all of it again.

    A new cluster says for a while that the coordinator is not available.
    """
    produce("orders", 1)
    if lookups:
        broker.faults.on("FindCoordinator", error(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=lookups)
    consumer = Consumer(
        {**QUIET, **settings(broker.bootstrap_servers, enable_auto_commit=False, group_protocol=protocol)}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    while consumer.poll(0.2) is None:
        pass
    consumer.commit()
    consumer.close()
    assert broker.groups.committed("g") == {("orders", 0): 1}
