"""Topics whose timestamps are the broker's: ``message.timestamp.type=LogAppendTime``."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, Producer, TopicPartition

from kip848_client import EmbeddedBroker
from tests.support.waiting import wait_until

CONFIGS = {"message.timestamp.type": "LogAppendTime"}
LONG_AGO_MS = 1_000


def test_records_get_the_time_at_which_the_broker_appended_them() -> None:
    """Clients whose own tests rely on it run here; the time that a producer names does not count, however old it is."""
    with EmbeddedBroker() as broker:
        broker.topics.create("orders", 1, configs=CONFIGS)
        delivered: list[Message] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "gzip"})
        for value in (b"a" * 500, b"b" * 500):
            producer.produce(
                "orders", value, timestamp=LONG_AGO_MS, on_delivery=lambda _, message: delivered.append(message)
            )
        producer.flush(30)
        written = broker.produce("orders", b"c", timestamp_ms=LONG_AGO_MS)

        kept = [record.timestamp_ms for record in broker.records("orders")]
        read: list[Message] = []
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])

        def has_all() -> bool:
            message = consumer.poll(0.1)
            read.extend([message] if message is not None and message.error() is None else ())
            return len(read) == 3

        wait_until(has_all, 30)
        consumer.close()

    assert min(kept) > LONG_AGO_MS
    assert [message.timestamp() for message in read] == [(TIMESTAMP_LOG_APPEND_TIME, each) for each in kept]
    assert [message.timestamp() for message in delivered] == [message.timestamp() for message in read[:2]]
    assert written.timestamp_ms == kept[2]
