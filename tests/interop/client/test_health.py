"""health(): what a liveness probe is told; on the embedded broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from kip848_client import Consumer, ConsumerHealth, EmbeddedBroker, MemberState
from kip848_client.common.clock import ManualClock
from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import GroupAuthorizationError
from kip848_client.testing.faults.actions import error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce
from tests.support.driving import QUIET, drive
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop


def probed(consumer: Consumer) -> ConsumerHealth:
    """What health() tells another thread."""
    found: list[ConsumerHealth] = []
    thread = threading.Thread(target=lambda: found.append(consumer.health()))
    thread.start()
    thread.join(TIMEOUT_S)
    return found[0]


def test_a_probe_sees_state_assignment_and_lag(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """An operator sees whether the consumer reads, and how far it is behind, without a client of the group."""
    watched = make_consumer()
    before = probed(watched.raw)
    assert (before.state, before.live, before.ready) == (MemberState.UNJOINED, True, False)
    assert (before.heartbeat_answered_s, before.polled_s, before.lag_s, before.assignment) == (None, None, None, ())

    watched.subscribe("orders")
    produce("orders", 5)
    drive(watched, until=lambda: len(watched.delivered) == 20)
    drive(watched, until=lambda: {partition.lag for partition in probed(watched.raw).assignment} == {0})
    health = probed(watched.raw)

    assert (health.state, health.live, health.ready) == (MemberState.STABLE, True, True)
    assert [(partition.topic, partition.partition) for partition in health.assignment] == [
        ("orders", index) for index in range(4)
    ]
    assert (health.member_id, health.member_epoch) == (watched.raw.member_id, watched.raw.member_epoch)
    assert None not in (health.heartbeat_answered_s, health.polled_s, health.lag_s)
    assert msgspec.json.decode(msgspec.json.encode(health), type=ConsumerHealth) == health


def test_the_lag_is_that_of_the_poll_after_a_probe(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A probe must not ask librdkafka, which would let it wait for the polling thread."""
    watched = make_consumer()
    watched.subscribe("orders")
    produce("orders", 50)
    while watched.raw.poll(30.0) is None:
        pass
    assert {partition.lag for partition in probed(watched.raw).assignment} == {None}

    watched.raw.poll(30.0)
    measured = probed(watched.raw).assignment

    assert any(partition.lag for partition in measured)
    assert probed(watched.raw).assignment == measured


def test_an_application_that_does_not_poll_is_not_live(
    broker: EmbeddedBroker, closing: Callable[[Consumer], Consumer]
) -> None:
    """A process that hangs in its work is restarted."""
    clock = ManualClock()
    conf = {**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "max.poll.interval.ms": 60_000}
    consumer = closing(Consumer(conf, clock=clock))
    consumer.subscribe(["orders"])
    consumer.poll(0)
    clock.advance(60_000)
    assert probed(consumer).live
    clock.advance(1)
    late = probed(consumer)
    assert (late.live, late.polled_s) == (False, 60.001)


def test_a_member_that_failed_is_not_live_and_says_why(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """The reason is what an operator looks for first."""
    watched = make_consumer()
    watched.subscribe("orders")
    broker.faults.on("ConsumerGroupHeartbeat", error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(GroupAuthorizationError):
        watched.raw.poll(30.0)
    health = probed(watched.raw)
    assert (health.state, health.live, health.ready) == (MemberState.FATAL, False, False)
    assert health.last_error is not None
    assert health.last_error.startswith("GroupAuthorizationError: ")


def test_a_cluster_that_is_away_leaves_a_consumer_live(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Restarting every consumer of a cluster that is down would not bring it back."""
    watched = make_consumer()
    watched.subscribe("orders")
    drive(watched, until=lambda: len(watched.partitions) == 4)
    broker.stop()
    drive(watched, until=lambda: probed(watched.raw).last_error is not None)
    assert probed(watched.raw).live


def test_a_closed_consumer_is_not_live(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """A process that goes on without its consumer does nothing useful."""
    watched = make_consumer()
    watched.raw.close()
    assert not probed(watched.raw).live
