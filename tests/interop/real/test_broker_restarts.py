"""The broker goes away and comes back: in good order, killed, and while something is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kip848_client import KafkaError, MemberState
from kip848_client.errors import RequestTimeoutError
from tests.interop.conftest import create_topic, require_kafka, unique_name
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger
from tests.interop.real.members import Feed, assert_read_once, everything_is_read, settled, take_turns
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow]

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
def topic(broker: KafkaBroker) -> str:
    """A topic of the test's own."""
    name = unique_name("topic")
    create_topic(
        AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}), name, partitions=PARTITIONS
    )
    return name


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
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger, group_id: str, disturb: Disturb
) -> None:
    """Upgrades of brokers are routine: same members, same partitions, nothing lost, nothing twice, commits go on."""
    feed, administrator = Feed(broker.bootstrap_servers), Administrator(broker.bootstrap_servers)
    members = [ours(name, at=broker.bootstrap_servers, auto_commit_interval_ms=200).subscribe(topic) for name in "ab"]
    feed.write(topic, 50, partitions=PARTITIONS)
    take_turns(*members, until=settled(administrator, group_id, *members), what="two stable members")
    take_turns(*members, until=everything_is_read(ledger, feed), what="all records")
    before = administrator.group(group_id)
    quiet_since = [len(member.told) for member in members]

    with meanwhile(lambda: disturb(broker)) as restarting:
        take_turns(*members, until=lambda: not restarting.is_alive(), what="the broker")
    feed.write(topic, 50, partitions=PARTITIONS)
    take_turns(*members, until=everything_is_read(ledger, feed), what="all records")
    take_turns(*members, until=settled(administrator, group_id, *members), what="two stable members")
    for member in members:
        member.consumer.commit(asynchronous=False)

    after = administrator.group(group_id)
    assert {one.member_id: one.assigned for one in after.members} == {
        one.member_id: one.assigned for one in before.members
    }
    assert [member.told[since:] for member, since in zip(members, quiet_since, strict=True)] == [[], []]
    assert administrator.committed(group_id, feed.written) == feed.written
    assert_read_once(ledger, feed)


def test_a_commit_that_waits_through_a_restart_is_done_when_it_returns(
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger, group_id: str
) -> None:
    """commit(asynchronous=False) either stands or raises; an absence of two seconds is no reason to."""
    feed, administrator = Feed(broker.bootstrap_servers), Administrator(broker.bootstrap_servers)
    member = ours("a", at=broker.bootstrap_servers, enable_auto_commit=False).subscribe(topic)
    feed.write(topic, 10, partitions=PARTITIONS)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")
    broker.stop()

    with meanwhile(broker.start):
        member.consumer.commit(asynchronous=False, timeout_s=40)

    assert administrator.committed(group_id, feed.written) == feed.written


def test_while_no_broker_is_there_calls_end_in_time_and_say_why(
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger, group_id: str
) -> None:
    """A service must be able to report its state during an outage, and go on after it without being restarted."""
    feed, administrator = Feed(broker.bootstrap_servers), Administrator(broker.bootstrap_servers)
    member = ours("a", at=broker.bootstrap_servers, enable_auto_commit=False).subscribe(topic)
    feed.write(topic, 10, partitions=PARTITIONS)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")
    heard: list[KafkaError | None] = []
    broker.stop()

    assert member.consumer.poll(0.2) is None
    with pytest.raises(RequestTimeoutError, match=r"-0.*not confirmed in time"):
        member.consumer.commit(asynchronous=False, timeout_s=0.5)
    member.consumer.commit(on_commit=lambda error, _: heard.append(error))
    state = member.consumer.state
    broker.start()
    take_turns(member, until=lambda: heard, what="the answer to the asynchronous commit")
    member.consumer.commit(asynchronous=False)
    feed.write(topic, 10, partitions=PARTITIONS)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    assert state is MemberState.STABLE
    assert administrator.committed(group_id, feed.written) == dict.fromkeys(feed.written, 10)
    assert_read_once(ledger, feed)


def test_a_consumer_that_is_started_before_its_broker_joins_when_it_is_there(
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger
) -> None:
    """Everything starts at once after a power failure, in whatever order."""
    feed = Feed(broker.bootstrap_servers)
    feed.write(topic, 10, partitions=PARTITIONS)
    broker.stop()
    member = ours("a", at=broker.bootstrap_servers).subscribe(topic)

    assert member.take() == 0
    with meanwhile(broker.start) as starting:
        take_turns(member, until=lambda: not starting.is_alive(), what="the broker")
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    assert_read_once(ledger, feed)


def test_a_broker_that_is_killed_in_the_middle_of_a_rebalance_costs_no_record(
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger, group_id: str
) -> None:
    """Half a handover is in the coordinator's log when it comes back; it must go on from there."""
    feed, administrator = Feed(broker.bootstrap_servers), Administrator(broker.bootstrap_servers)
    first = ours("first", at=broker.bootstrap_servers).subscribe(topic)
    feed.write(topic, 30, partitions=PARTITIONS)
    take_turns(first, until=everything_is_read(ledger, feed), what="all records")
    second = ours("second", at=broker.bootstrap_servers).subscribe(topic)
    take_turns(second, until=lambda: administrator.group(group_id).state == "Reconciling", what="a rebalance")
    broker.kill()

    with meanwhile(broker.start) as starting:
        take_turns(first, second, until=lambda: not starting.is_alive(), what="the broker")
    take_turns(first, second, until=settled(administrator, group_id, first, second), what="two stable members")
    feed.write(topic, 30, partitions=PARTITIONS)
    take_turns(first, second, until=everything_is_read(ledger, feed), what="all records")

    assert len(first.partitions) == len(second.partitions) == 2
    assert_read_once(ledger, feed)


@pytest.mark.parametrize("disturb", [restart, kill_and_start])
def test_a_topic_that_is_created_again_after_a_restart_is_read(
    broker: KafkaBroker, topic: str, ours: MakeOurs, ledger: Ledger, disturb: Disturb
) -> None:
    """Its leader epochs begin at 0 again; librdkafka refuses what is below the old topic's, and would never read it."""
    member = ours("a", at=broker.bootstrap_servers).subscribe(topic)
    feed = Feed(broker.bootstrap_servers)
    feed.write(topic, 10, partitions=PARTITIONS)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")
    with meanwhile(lambda: disturb(broker)) as restarting:
        take_turns(member, until=lambda: not restarting.is_alive(), what="the broker")
    feed.write(topic, 10, partitions=PARTITIONS)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result()
    create_topic(admin, topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"new", partition=partition)
    assert producer.flush(60) == 0

    new: list[tuple[int | None, int | None]] = []

    def take_new() -> bool:
        new.extend((one.partition(), one.offset()) for one in member.consumer.consume(100, 0.05))
        return len(new) == PARTITIONS

    wait_until(take_new, 60.0, "the records of the new topic")
    assert sorted(new) == [(partition, 0) for partition in range(PARTITIONS)]
    assert len(member.journal.named("data_plane_renewed")) == 1
