"""unsubscribe() of a whole consumer, on the embedded broker: what it commits before it goes."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, TopicPartition


@pytest.mark.parametrize(("auto_commit", "expected"), [(True, 1), (False, -1001)])
def test_unsubscribing_commits_what_was_handed_out_if_commits_are_automatic(auto_commit: bool, expected: int) -> None:
    """An unsubscribe between two automatic commits would cause up to five seconds of records to be read again."""
    with EmbeddedBroker({"orders": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for _ in range(2):
            producer.produce("orders", b"order")
        producer.flush(5)
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": auto_commit,
            "auto.commit.interval.ms": 60_000,
            "log_level": 0,
        }
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            assert consumer.poll(10) is not None

            consumer.unsubscribe()

            [committed] = consumer.committed([TopicPartition("orders", 0)])
        assert committed.offset == expected
