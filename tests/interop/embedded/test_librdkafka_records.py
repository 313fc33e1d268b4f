"""librdkafka writes and reads records on the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kip848_client import EmbeddedBroker
from tests.support.driving import dotted, quiet
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kip848_broker(topics={"orders": 2})]


def a_producer(broker: EmbeddedBroker, **conf: object) -> Producer:
    return Producer(quiet({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1} | dotted(conf)))


@pytest.fixture
def reader(broker: EmbeddedBroker) -> Iterator[Consumer]:
    consumer = Consumer(
        quiet({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False})
    )
    consumer.list_topics("orders", timeout=TIMEOUT_S)
    yield consumer
    consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), 0.1)
    for message in messages:
        assert message.error() is None, message.error()
    assert len(messages) == count
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent_with_every_compression(
    broker: EmbeddedBroker, reader: Consumer, codec: str
) -> None:
    """The broker stores batches as they are; touching one byte too many breaks a checksum or a codec."""
    producer = a_producer(broker, compression_type=codec)
    sent: list[tuple[bytes, bytes, list[tuple[str, str | bytes | None]]]] = [
        (f"key-{n}".encode(), f"value-{n}".encode() * 20, [("header", str(n).encode())]) for n in range(500)
    ]
    for key, value, headers in sent:
        producer.produce("orders", value, key, partition=0, headers=headers)
    assert producer.flush(TIMEOUT_S) == 0
    reader.incremental_assign([TopicPartition("orders", 0, 0)])
    messages = read(reader, 500)
    assert [(m.key(), m.value(), m.headers()) for m in messages] == sent
    assert [m.offset() for m in messages] == list(range(500))


@pytest.mark.parametrize(("idempotence", "acks"), [(False, "1"), (False, "all"), (True, "all")])
def test_deliveries_report_the_offsets_under_which_records_are_found(
    broker: EmbeddedBroker, reader: Consumer, idempotence: bool, acks: str
) -> None:
    """Programs keep the reported offsets as a receipt."""
    producer = a_producer(broker, enable_idempotence=idempotence, acks=acks)
    receipts: dict[bytes | None, int | None] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        receipts[message.value()] = message.offset()

    for number in range(200):
        producer.produce("orders", str(number).encode(), partition=1, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    reader.incremental_assign([TopicPartition("orders", 1, 0)])
    assert {m.value(): m.offset() for m in read(reader, 200)} == receipts


def test_a_batch_above_the_limit_is_refused_and_the_next_one_is_not(broker: EmbeddedBroker, reader: Consumer) -> None:
    """message.max.bytes as in Kafka: an error for that batch, a working connection for the rest."""
    producer = a_producer(broker, message_max_bytes=4_000_000)
    errors: list[KafkaError | None] = []
    producer.produce("orders", bytes(2_000_000), partition=0, on_delivery=lambda error, _m: errors.append(error))
    producer.flush(TIMEOUT_S)
    producer.produce("orders", b"small", partition=0, on_delivery=lambda error, _m: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    reader.incremental_assign([TopicPartition("orders", 0, 0)])
    assert read(reader, 1)[0].value() == b"small"


def test_watermarks_and_timestamps_lead_to_offsets(broker: EmbeddedBroker, reader: Consumer) -> None:
    """Lag displays and seeks by time stand on ListOffsets."""
    producer = a_producer(broker)
    for number in range(10):
        producer.produce("orders", str(number).encode(), partition=0, timestamp=1_000_000 + number * 1000)
        producer.flush(TIMEOUT_S)
    for value, timestamp in ((b"a", 1000), (b"b", 3000), (b"c", 2000)):  # one batch, not in the order of time
        producer.produce("orders", value, partition=1, timestamp=timestamp)
    assert producer.flush(TIMEOUT_S) == 0
    assert reader.get_watermark_offsets(TopicPartition("orders", 0), timeout=TIMEOUT_S) == (0, 10)
    found = reader.offsets_for_times([TopicPartition("orders", 0, 1_000_000 + 4500)], timeout=TIMEOUT_S)
    assert found[0].offset == 5
    behind = reader.offsets_for_times([TopicPartition("orders", 0, 2_000_000_000_000)], timeout=TIMEOUT_S)
    assert behind[0].offset == -1
    by_time = [
        reader.offsets_for_times([TopicPartition("orders", 1, at)], TIMEOUT_S)[0].offset
        for at in (999, 1000, 1001, 3000, 3001)
    ]
    assert by_time == [0, 0, 1, 1, -1]


def test_a_topic_that_is_not_there_is_reported(broker: EmbeddedBroker) -> None:
    """auto.create.topics.enable is off: a misspelt topic must not come into being."""
    producer = a_producer(broker, topic_metadata_propagation_max_ms=0)
    errors: list[KafkaError | None] = []
    producer.produce("ordres", b"x", on_delivery=lambda error, _m: errors.append(error))
    wait_until(lambda: producer.poll(0.02) and errors, what="the delivery report")
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert broker.topics == {"orders": 2}
