"""The broker goes away and comes back: in good order, killed, and while something is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from kip848_client import KafkaError, MemberState
from kip848_client.errors import RequestTimeoutError
from tests.interop.conftest import require_kafka
from tests.interop.kafka_broker import START_TIMEOUT_S, STOP_TIMEOUT_S, KafkaBroker
from tests.interop.real.group import Group
from tests.support.driving import drive
from tests.support.waiting import wait_until

AWAY_S = STOP_TIMEOUT_S + START_TIMEOUT_S
"""A restart ends by then: the broker is back, or the reason was raised."""

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4
QUICK_RECOVERY = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""The controller forgets a killed broker after 3 s instead of 9 s."""

Disturb = Callable[[KafkaBroker], None]


@pytest.fixture(scope="module")
def shaken_broker() -> Iterator[KafkaBroker]:
    """A broker that these tests restart and kill; starting one for each of them would take longer than the tests."""
    require_kafka()
    with KafkaBroker(properties=QUICK_RECOVERY) as started:
        yield started


@pytest.fixture
def broker(shaken_broker: KafkaBroker) -> KafkaBroker:
    """The broker, running, whatever the test before did to it."""
    if not shaken_broker.is_running:
        shaken_broker.kill()
        shaken_broker.start()
    return shaken_broker


@pytest.fixture
def topic(group: Group) -> str:
    """A topic of the test's own."""
    return group.topic(partitions=PARTITIONS)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[threading.Thread]:
    """Run *act* on another thread during the block, and wait for its end."""
    thread = threading.Thread(target=act, name="meanwhile")
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


def restart(broker: KafkaBroker) -> None:
    broker.restart()


def kill_and_start(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("disturb", [restart, kill_and_start])
def test_members_live_on_through_a_restart_of_their_coordinator(
    group: Group, broker: KafkaBroker, topic: str, disturb: Disturb
) -> None:
    """Upgrades of brokers are routine: same members, same partitions, nothing lost, nothing twice, commits go on."""
    members = [group.ours(name, auto_commit_interval_ms=200).subscribe(topic) for name in "ab"]
    group.write(topic, 50, partitions=PARTITIONS)
    group.settle(*members)
    group.read_all(*members)
    before = group.shown()
    quiet_since = [len(member.told) for member in members]

    with meanwhile(lambda: disturb(broker)) as restarting:
        drive(*members, until=lambda: not restarting.is_alive(), what="the broker", timeout_s=AWAY_S)
    group.write(topic, 50, partitions=PARTITIONS)
    group.read_all(*members)
    group.settle(*members)
    for member in members:
        member.raw.commit(asynchronous=False)

    after = group.shown()
    assert {one.member_id: one.assigned for one in after.members} == {
        one.member_id: one.assigned for one in before.members
    }
    assert [member.told[since:] for member, since in zip(members, quiet_since, strict=True)] == [[], []]
    assert group.committed_all()
    group.assert_read_once()


def test_a_commit_that_waits_through_a_restart_is_done_when_it_returns(
    group: Group, broker: KafkaBroker, topic: str
) -> None:
    """commit(asynchronous=False) either stands or raises; an absence of two seconds is no reason to."""
    member = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.write(topic, 10, partitions=PARTITIONS)
    group.read_all(member)
    broker.stop()

    with meanwhile(broker.start):
        member.raw.commit(asynchronous=False, timeout_s=40)

    assert group.committed_all()


def test_while_no_broker_is_there_calls_end_in_time_and_say_why(group: Group, broker: KafkaBroker, topic: str) -> None:
    """A service must be able to report its state during an outage, and go on after it without being restarted."""
    member = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.write(topic, 10, partitions=PARTITIONS)
    group.read_all(member)
    heard: list[KafkaError | None] = []
    broker.stop()

    assert member.raw.poll(0.2) is None
    with pytest.raises(RequestTimeoutError, match=r"-0.*not confirmed in time"):
        member.raw.commit(asynchronous=False, timeout_s=0.5)
    member.raw.commit(on_commit=lambda error, _: heard.append(error))
    state = member.raw.state
    broker.start()
    drive(member, until=lambda: heard, what="the answer to the asynchronous commit")
    member.raw.commit(asynchronous=False)
    group.write(topic, 10, partitions=PARTITIONS)
    group.read_all(member)

    assert state is MemberState.STABLE
    assert group.committed(group.written) == dict.fromkeys(group.written, 10)
    group.assert_read_once()


def test_a_consumer_that_is_started_before_its_broker_joins_when_it_is_there(
    group: Group, broker: KafkaBroker, topic: str
) -> None:
    """Everything starts at once after a power failure, in whatever order."""
    group.write(topic, 10, partitions=PARTITIONS)
    broker.stop()
    member = group.ours("a").subscribe(topic)

    assert not member.take()
    with meanwhile(broker.start) as starting:
        drive(member, until=lambda: not starting.is_alive(), what="the broker", timeout_s=AWAY_S)
    group.read_all(member)

    group.assert_read_once()


def test_a_broker_that_is_killed_in_the_middle_of_a_rebalance_costs_no_record(
    group: Group, broker: KafkaBroker, topic: str
) -> None:
    """Half a handover is in the coordinator's log when it comes back; it must go on from there."""
    first = group.ours("first").subscribe(topic)
    group.write(topic, 30, partitions=PARTITIONS)
    group.read_all(first)
    second = group.ours("second").subscribe(topic)
    drive(second, until=lambda: group.shown().state == "Reconciling", what="a rebalance")
    broker.kill()

    with meanwhile(broker.start) as starting:
        drive(first, second, until=lambda: not starting.is_alive(), what="the broker", timeout_s=AWAY_S)
    group.settle(first, second)
    group.write(topic, 30, partitions=PARTITIONS)
    group.read_all(first, second)

    assert len(first.partitions) == len(second.partitions) == 2
    group.assert_read_once()


@pytest.mark.parametrize("disturb", [restart, kill_and_start])
def test_a_topic_that_is_created_again_after_a_restart_is_read(
    group: Group, broker: KafkaBroker, topic: str, disturb: Disturb
) -> None:
    """Its leader epochs begin at 0 again; librdkafka refuses what is below the old topic's, and would never read it."""
    member = group.ours("a").subscribe(topic)
    group.write(topic, 10, partitions=PARTITIONS)
    group.read_all(member)
    with meanwhile(lambda: disturb(broker)) as restarting:
        drive(member, until=lambda: not restarting.is_alive(), what="the broker", timeout_s=AWAY_S)
    group.write(topic, 10, partitions=PARTITIONS)
    group.read_all(member)

    group.delete_topic(topic)
    group.topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"new", partition=partition)
    assert producer.flush(60) == 0

    new: list[tuple[int | None, int | None]] = []

    def take_new() -> bool:
        new.extend((one.partition(), one.offset()) for one in member.raw.consume(100, 0.05))
        return len(new) == PARTITIONS

    wait_until(take_new, 60.0, "the records of the new topic")
    assert sorted(new) == [(partition, 0) for partition in range(PARTITIONS)]
    assert len(member.journal.named("data_plane_renewed")) == 1
