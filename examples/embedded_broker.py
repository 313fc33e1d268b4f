"""Test a service against a Kafka broker that starts within the test: no Docker, no JVM, milliseconds.

    pytest examples/embedded_broker.py

The fixture `kip848_broker` comes with the package. Any Kafka client can connect to the broker; here the producer is
confluent-kafka's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker

# --- the service that is to be tested


class OrderCounter:
    """Counts orders by product."""

    def __init__(self, servers: str, name: str = "worker") -> None:
        self.counts: Counter[str] = Counter()
        self.counted = threading.Semaphore(0)
        self._conf = {
            "bootstrap.servers": servers,
            "group.id": "counters",
            "client.id": name,
            "auto.offset.reset": "earliest",
        }
        self._stop = threading.Event()

    def run(self) -> None:
        with Consumer(self._conf) as consumer:
            consumer.subscribe(["orders"])
            while not self._stop.is_set():
                for message in consumer.consume(100, timeout=0.1):
                    self.counts[(message.value() or b"").decode()] += 1
                    self.counted.release()

    @contextmanager
    def running(self) -> Iterator[OrderCounter]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()


# --- its tests


def order(servers: str, *products: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for product in products:
        producer.produce("orders", value=product, key=product)
    assert producer.flush(10) == 0


def test_orders_are_counted(kip848_broker: EmbeddedBroker) -> None:
    kip848_broker.topics.create("orders", partitions=6)
    order(kip848_broker.bootstrap_servers, "tea", "milk", "tea")
    with OrderCounter(kip848_broker.bootstrap_servers).running() as counter:
        for _ in range(3):
            assert counter.counted.acquire(timeout=10)
    assert counter.counts == {"tea": 2, "milk": 1}


def test_two_workers_share_the_partitions(kip848_broker: EmbeddedBroker) -> None:
    kip848_broker.topics.create("orders", partitions=6)
    servers = kip848_broker.bootstrap_servers
    with OrderCounter(servers, "one").running(), OrderCounter(servers, "two").running():
        group = kip848_broker.wait_for_group("counters", state="Stable", members=2)
    assert [len(group.member(name).assigned) for name in ("one", "two")] == [3, 3]


def test_counting_goes_on_after_the_broker_crashed(kip848_broker: EmbeddedBroker) -> None:
    kip848_broker.topics.create("orders", partitions=1)
    with OrderCounter(kip848_broker.bootstrap_servers).running() as counter:
        order(kip848_broker.bootstrap_servers, "tea")
        assert counter.counted.acquire(timeout=10)
        kip848_broker.crash()
        kip848_broker.start()
        order(kip848_broker.bootstrap_servers, "tea")
        assert counter.counted.acquire(timeout=20)
    assert counter.counts["tea"] == 2
