"""Our consumers on a real Apache Kafka broker: the peer that decides what is right."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer

from kip848_client import Consumer, MemberState, SubscriptionPattern, TopicPartition
from kip848_client.config import ConfigValue
from kip848_client.errors import InvalidRegularExpressionError, UnsupportedAssignorError
from tests.interop.client.conftest import QUIET
from tests.interop.client.drive import ConsumerUnderTest, Produce, delivered_once, drive, key, keys_of, producer_for
from tests.interop.conftest import CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

Broker = KafkaBroker | ExternalKafka


@pytest.fixture
def kafka_produce(kafka_broker: Broker) -> Iterator[Produce]:
    """Write records to the shared broker."""
    with producer_for(kafka_broker.bootstrap_servers) as produce:
        yield produce


@pytest.fixture
def kafka_consumer(kafka_broker: Broker, closing: Callable[[Consumer], Consumer]) -> Callable[..., ConsumerUnderTest]:
    """Make consumers of the shared broker; underscores in names of settings stand for dots."""

    def make(group_id: str, **conf: ConfigValue) -> ConsumerUnderTest:
        settings: dict[str, ConfigValue] = {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
        }
        settings.update({name.replace("_", "."): value for name, value in conf.items()})
        return ConsumerUnderTest(closing(Consumer({**QUIET, **settings})))

    return make


@pytest.fixture
def group_id() -> str:
    """A group that no other test uses."""
    return f"ours-{uuid.uuid4()}"


def test_members_come_and_go_and_every_record_is_read_once(
    kafka_topic: CreateTopic, kafka_produce: Produce, kafka_consumer: Callable[..., ConsumerUnderTest], group_id: str
) -> None:
    """The whole of a consumer's life, against the coordinator that everybody uses."""
    topic = kafka_topic(partitions=4)
    kafka_produce(topic, 100)
    first = kafka_consumer(group_id).subscribe(topic)
    drive(first, until=lambda: len(first.delivered) >= 400)
    second = kafka_consumer(group_id).subscribe(topic)
    drive(first, second, until=lambda: len(first.partitions) == len(second.partitions) == 2)
    kafka_produce(topic, 50)
    drive(first, second, until=lambda: len(first.delivered) + len(second.delivered) >= 600)

    first.raw.close()
    kafka_produce(topic, 50)
    drive(second, until=lambda: len(first.delivered) + len(second.delivered) >= 800)

    assert delivered_once([first, second]) == keys_of(topic, 200)
    assert "lost" not in first.listener.names() + second.listener.names()


def test_a_restarted_consumer_goes_on_at_the_committed_offset(
    kafka_topic: CreateTopic, kafka_produce: Produce, kafka_consumer: Callable[..., ConsumerUnderTest], group_id: str
) -> None:
    """OffsetCommit and OffsetFetch with member epoch, as a real coordinator checks them."""
    topic = kafka_topic(partitions=2)
    kafka_produce(topic, 20, partitions=[0, 1])
    first = kafka_consumer(group_id, enable_auto_commit=False).subscribe(topic)
    drive(first, until=lambda: len(first.delivered) >= 40)
    first.raw.commit(asynchronous=False)
    first.raw.close()

    kafka_produce(topic, 5, partitions=[0, 1])
    second = kafka_consumer(group_id, enable_auto_commit=False).subscribe(topic)
    drive(second, until=lambda: len(second.delivered) >= 10)

    assert delivered_once([first, second]) == keys_of(topic, 25, partitions=[0, 1])


def test_it_shares_a_group_with_librdkafka(
    kafka_broker: Broker,
    kafka_topic: CreateTopic,
    kafka_produce: Produce,
    kafka_consumer: Callable[..., ConsumerUnderTest],
    group_id: str,
) -> None:
    """Migrations are rolled out one process at a time: both clients must understand each other's commits and epochs."""
    topic = kafka_topic(partitions=4)
    ours = kafka_consumer(group_id).subscribe(topic)
    drive(ours, until=lambda: len(ours.partitions) == 4)
    theirs = PlainConsumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    theirs.subscribe([topic])
    their_keys = []

    def both_have_half() -> bool:
        message = theirs.poll(0.02)
        if message is not None and message.error() is None:
            their_keys.append(key(message))
        return len(ours.partitions) == 2 and len(theirs.assignment()) == 2

    drive(ours, until=both_have_half)
    kafka_produce(topic, 20)
    drive(ours, until=lambda: both_have_half() and len(ours.delivered) + len(their_keys) >= 80)
    theirs.close()
    drive(ours, until=lambda: len(ours.partitions) == 4)

    assert set(ours.delivered) | set(their_keys) == keys_of(topic, 20)
    assert len(ours.delivered) == len(set(ours.delivered))


def test_a_pattern_is_matched_by_the_real_coordinator(
    kafka_topic: CreateTopic, kafka_produce: Produce, kafka_consumer: Callable[..., ConsumerUnderTest], group_id: str
) -> None:
    """Regular expressions travel as they are; the coordinator matches whole names, and refuses what is none."""
    topic = kafka_topic(partitions=1)
    kafka_produce(topic, 3, partitions=[0])
    consumer = kafka_consumer(group_id)
    consumer.raw.subscribe(SubscriptionPattern(f".*{topic[-12:]}"))
    drive(consumer, until=lambda: len(consumer.delivered) >= 3)
    broken = kafka_consumer(f"{group_id}-broken")
    broken.raw.subscribe(SubscriptionPattern("([unclosed"))

    with pytest.raises(InvalidRegularExpressionError, match=r"\(\[unclosed"):
        drive(broken, until=lambda: False)

    assert set(consumer.delivered) == keys_of(topic, 3, partitions=[0])


def test_an_assignor_that_the_cluster_lacks_is_fatal(
    kafka_topic: CreateTopic, kafka_consumer: Callable[..., ConsumerUnderTest], group_id: str
) -> None:
    """A misspelt group.remote.assignor must be said at once, and close() must still work."""
    consumer = kafka_consumer(group_id, group_remote_assignor="nobody").subscribe(kafka_topic())

    with pytest.raises(UnsupportedAssignorError):
        drive(consumer, until=lambda: False)

    assert consumer.raw.state is MemberState.FATAL


def test_offsets_can_be_sent_in_a_transaction(
    kafka_broker: Broker,
    kafka_topic: CreateTopic,
    kafka_produce: Produce,
    kafka_consumer: Callable[..., ConsumerUnderTest],
    group_id: str,
) -> None:
    """Exactly once: the producer commits our offsets with our member id and epoch, and the coordinator accepts them."""
    source, sink = kafka_topic(partitions=1), kafka_topic(partitions=1)
    kafka_produce(source, 5, partitions=[0])
    consumer = kafka_consumer(group_id, enable_auto_commit=False).subscribe(source)
    drive(consumer, until=lambda: len(consumer.delivered) >= 5)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": group_id, "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(sink, b"sum", partition=0)
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 5)], consumer.raw.group_metadata(), 20)
    producer.commit_transaction(20)

    [committed] = consumer.raw.committed([TopicPartition(source, 0)])
    assert committed.offset == 5


def test_a_transaction_of_a_member_that_left_is_refused(
    kafka_broker: Broker,
    kafka_topic: CreateTopic,
    kafka_produce: Produce,
    kafka_consumer: Callable[..., ConsumerUnderTest],
    group_id: str,
) -> None:
    """A zombie that still produces must not commit offsets of partitions that others own now."""
    source = kafka_topic(partitions=1)
    kafka_produce(source, 5, partitions=[0])
    zombie = kafka_consumer(group_id, enable_auto_commit=False).subscribe(source)
    drive(zombie, until=lambda: len(zombie.delivered) >= 5)
    metadata = zombie.raw.group_metadata()
    zombie.raw.unsubscribe()
    successor = kafka_consumer(group_id, enable_auto_commit=False).subscribe(source)
    drive(successor, until=lambda: len(successor.partitions) == 1)
    producer = Producer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": group_id, "log_level": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()

    with pytest.raises(Exception, match=r"(?i)member|fenced|stale|generation"):
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 5)], metadata, 20)

    producer.abort_transaction(20)
