"""librdkafka on the topic and record APIs, where it asks for something special. The rest is in tests/interop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kip848_client.broker import EmbeddedBroker

pytestmark = pytest.mark.interop

TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2}) as running:
        yield running


def quiet(broker: EmbeddedBroker) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}


def test_all_topics_are_listed_although_librdkafka_sends_bytes_that_belong_to_nothing(broker: EmbeddedBroker) -> None:
    """Broken: list_topics() without a name loses its connection, again and again."""
    topics = AdminClient(quiet(broker)).list_topics(timeout=TIMEOUT_S).topics

    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"orders": 2}


def test_replays_by_time_begin_at_the_right_record(broker: EmbeddedBroker) -> None:
    """Broken: offsets_for_times() answers another place, and a replay misses records."""
    producer = Producer(quiet(broker) | {"linger.ms": 50})
    for value, timestamp in ((b"a", 1000), (b"b", 3000), (b"c", 2000)):
        producer.produce("orders", value, partition=0, timestamp=timestamp)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(quiet(broker) | {"group.id": "g"})

    by_time = [
        consumer.offsets_for_times([TopicPartition("orders", 0, at)], TIMEOUT_S)[0].offset
        for at in (999, 1000, 1001, 3000, 3001)
    ]
    consumer.close()

    assert by_time == [0, 0, 1, 1, -1]


@pytest.mark.parametrize("durable", [True, False])
def test_an_idempotent_producer_goes_on_after_a_crash_of_the_broker(tmp_path: Path, durable: bool) -> None:
    """Broken: after a restart the sequence numbers no longer fit, and the producer is fatally fenced."""
    failed: list[KafkaError] = []
    with EmbeddedBroker({"orders": 1}, data_dir=tmp_path if durable else None) as broker:
        producer = Producer(
            quiet(broker) | {"enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 100}
        )

        def send(*values: bytes) -> None:
            for value in values:
                producer.produce(
                    "orders", value, partition=0, on_delivery=lambda e, _m: failed.append(e) if e else None
                )

        send(b"before")
        assert producer.flush(TIMEOUT_S) == 0
        broker.crash()
        send(b"while", b"it was away")
        broker.start()
        send(b"after")
        assert producer.flush(TIMEOUT_S) == 0

        consumer = Consumer(quiet(broker) | {"group.id": "g", "check.crcs": True})
        consumer.list_topics("orders", TIMEOUT_S)
        consumer.assign([TopicPartition("orders", 0, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        values: list[bytes | None] = []
        while len(values) < 4 and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(4 - len(values), 0.1)]
        consumer.close()

    assert failed == []
    assert values == [b"before", b"while", b"it was away", b"after"]
