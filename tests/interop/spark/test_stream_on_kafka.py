"""The Spark source's driver side on a real Kafka broker: transactions, other members, growth, deletion. No Spark."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kip848_client.spark.values.data_loss import DataLossError
from tests.interop.conftest import CreateTopic, create_topic, unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.spark.arrange import consumer, driving, everything, produce, take
from tests.support.driving import DrivenConsumer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture
def address(kafka_broker: KafkaBroker | ExternalKafka) -> str:
    return kafka_broker.bootstrap_servers


@functools.cache
def administrator(address: str) -> AdminClient:
    """One for all questions: each client has threads of its own."""
    settings: dict[str, Any] = {"bootstrap.servers": address, "logger": logging.getLogger("tests.spark.admin")}
    return AdminClient(settings)


def committed(address: str, group: str) -> dict[int, int]:
    answer = administrator(address).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    return {tp.partition: tp.offset for tp in answer.topic_partitions}


def members(address: str, group: str) -> int:
    return len(administrator(address).describe_consumer_groups([group])[group].result(10).members)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_consumer_takes_half_and_gives_it_back(
    address: str, kafka_topic: CreateTopic, kafka_group: Callable[[], str], protocol: str
) -> None:
    """Hand-over in both directions with records, on Kafka's own coordinator."""
    topic, group = kafka_topic(partitions=4), kafka_group()
    produce(address, topic, 500, partitions=4)
    seen: Counter[tuple[str, int, int]] = Counter()
    changed = {"kafka.group.id": group, "kafka.group.protocol": protocol}
    with driving(address, changed, subscribe=topic, maxOffsetsPerTrigger=100) as driver:
        assert driver.plan()
        driver.finish()
        with consumer(address, **{"group.id": group, "group.protocol": protocol}) as plain:
            plain.subscribe([topic])
            wait_until(lambda: (driver.turn(), take(plain, seen, 50), len(plain.assignment()))[-1] == 2)
            produce(address, topic, 500, partitions=4, first=500)

            def half_is_read() -> bool:
                driver.turn()
                return take(plain, seen, 50) >= 200

            wait_until(half_is_read)
            plain.commit(asynchronous=False)
        driver.run(4_000 - seen.total())

    assert len({number for _, number, _ in seen}) in {1, 2}
    assert driver.rows + seen == everything(1_000, partitions=4, topic=topic)


def test_transactions_are_read_when_they_are_committed(
    address: str, kafka_topic: CreateTopic, kafka_group: Callable[[], str]
) -> None:
    """Control records and aborted records leave gaps, also at the end of a range; a task must not wait for them."""
    topic, group = kafka_topic(), kafka_group()
    producer = Producer({"bootstrap.servers": address, "transactional.id": unique_name("spark")})
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        for index in range(10):
            producer.produce(topic, f"{number}:{index}".encode())
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)
    changed = {"kafka.group.id": group, "kafkaConsumer.pollTimeoutMs": 5_000}
    with driving(address, changed, subscribe=topic, maxOffsetsPerTrigger=7) as driver:
        driver.run(20)
        assert not driver.plan(), "an open transaction is not read"
    producer.abort_transaction(20)

    # Ten records and one control record each.
    assert sorted(offset for _, _, offset in driver.rows) == [*range(10), *range(22, 32)]
    assert max(driver.rows.values()) == 1


def test_a_deleted_topic_fails_the_query(address: str, kafka_group: Callable[[], str]) -> None:
    """With ``failOnDataLoss`` a query must stop when Kafka has deleted its topic."""
    admin = administrator(address)
    topic, group = unique_name("deleted"), kafka_group()
    create_topic(admin, topic)
    produce(address, topic, 10)
    with driving(address, {"kafka.group.id": group}, subscribe=topic) as driver:
        driver.run(10)
        for answer in admin.delete_topics([topic]).values():
            answer.result(20)
        with pytest.raises(DataLossError, match=topic):
            wait_until(driver.plan, timeout_s=60)


@pytest.mark.slow
def test_available_now_reads_what_a_dead_member_held(
    address: str, kafka_topic: CreateTopic, kafka_group: Callable[[], str]
) -> None:
    """A job that crashed is retried at once: Kafka keeps its old member's partitions for a session."""
    topic, group = kafka_topic(partitions=4), kafka_group()
    longer = ConfigEntry("consumer.session.timeout.ms", "20000", incremental_operation=AlterConfigOpType.SET)
    changed_group = ConfigResource(ResourceType.GROUP, group, incremental_configs=[longer])
    for altered in administrator(address).incremental_alter_configs([changed_group]).values():
        altered.result(20)
    produce(address, topic, 300, partitions=4)
    dead = DrivenConsumer(consumer(address, **{"group.id": group})).subscribe(topic)
    wait_until(lambda: dead.take() and len(dead.partitions) == 4)
    dead.vanish()
    changed = {"kafka.group.id": group, "firstAssignmentTimeout": None}
    with driving(address, changed, subscribe=topic) as driver:
        driver.stream.bound()
        driver.drain()
    dead.raw.close()

    assert driver.rows == everything(300, partitions=4, topic=topic)
