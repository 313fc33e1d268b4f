"""Test a service against everything that can go wrong between it and Kafka.

    pytest examples/faults.py

The service books payments. Its tests let answers get lost, take the coordinator away, remove the member behind its
back, and at last let one request of five go wrong: each payment has to be booked, and booked once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, Kip848Error
from kip848_client.errors import ErrorCode
from kip848_client.testing import ALWAYS, GROUP_APIS, close, coordinator_not_here, delay, duplicate, error, lose_reply

# --- the service that is to be tested


class Bookkeeper:
    """Books each payment once, however often it arrives: what is booked is remembered by (partition, offset)."""

    def __init__(self, servers: str) -> None:
        self.arrivals: Counter[tuple[int | None, int | None]] = Counter()
        self.booked: dict[tuple[int | None, int | None], str] = {}
        self.changed = threading.Condition()
        self._conf = {
            "bootstrap.servers": servers,
            "group.id": "books",
            "client.id": "bookkeeper",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "request.timeout.ms": 500,
        }
        self._stop = threading.Event()

    def run(self) -> None:
        with Consumer(self._conf) as consumer:
            consumer.subscribe(["payments"])
            while not self._stop.is_set():
                try:
                    message = consumer.poll(0.1)
                    if message is None:
                        continue
                    with self.changed:
                        place = (message.partition(), message.offset())
                        self.arrivals[place] += 1
                        self.booked.setdefault(place, (message.value() or b"").decode())
                        self.changed.notify_all()
                    consumer.commit(message, asynchronous=False, timeout_s=5)
                except Kip848Error as failure:
                    if getattr(failure, "fatal", False):
                        raise
                    # Not committed: the payment comes again, to us or to another consumer, and is in the books already.

    @contextmanager
    def running(self) -> Iterator[Bookkeeper]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def wait_for(self, count: int) -> list[str]:
        """Wait until *count* payments are booked, and return them all."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.booked) >= count, timeout=20)
            return sorted(self.booked.values())


# --- its tests


def pay(broker: EmbeddedBroker, *payments: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for payment in payments:
        producer.produce("payments", value=payment, partition=0)
    assert producer.flush(10) == 0


@pytest.fixture
def broker(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    kip848_broker.topics.create("payments")
    return kip848_broker


def test_a_commit_whose_answer_is_lost_was_done(broker: EmbeddedBroker) -> None:
    lost = broker.faults.on("OffsetCommit", lose_reply(), group="books")
    with Bookkeeper(broker.bootstrap_servers).running() as bookkeeper:
        pay(broker, "ann 5", "ben 7")
        assert bookkeeper.wait_for(2) == ["ann 5", "ben 7"]
        lost.wait()
    assert set(bookkeeper.arrivals.values()) == {1}
    assert broker.groups.committed("books") == {("payments", 0): 2}


def test_without_a_coordinator_booking_waits_and_goes_on(broker: EmbeddedBroker) -> None:
    with Bookkeeper(broker.bootstrap_servers).running() as bookkeeper:
        pay(broker, "ann 5")
        bookkeeper.wait_for(1)
        with broker.faults.on(GROUP_APIS, coordinator_not_here(), group="books", times=ALWAYS) as outage:
            pay(broker, "ben 7", "eve 9")
            outage.wait(hits=5)
        assert bookkeeper.wait_for(3) == ["ann 5", "ben 7", "eve 9"]


def test_a_payment_that_comes_again_is_not_booked_again(broker: EmbeddedBroker) -> None:
    refused = broker.faults.on("OffsetCommit", error(ErrorCode.UNKNOWN_MEMBER_ID), group="books")
    with Bookkeeper(broker.bootstrap_servers).running() as bookkeeper:
        pay(broker, "ann 5")
        refused.wait()
        broker.groups.remove_member("books", "bookkeeper")  # its next heartbeat is refused, too: it joins anew
        broker.requests.wait_for("OffsetCommit", count=2, answered=True)
        assert bookkeeper.wait_for(1) == ["ann 5"]
    assert bookkeeper.arrivals == {(0, 0): 2}


def test_each_payment_is_booked_once_with_every_fault(broker: EmbeddedBroker) -> None:
    broker.faults.seed(1)  # the same dice in every run
    chaos = broker.faults.on(
        GROUP_APIS,
        close(),
        lose_reply(),
        delay(20),
        duplicate(after_ms=5),
        coordinator_not_here(),
        error(ErrorCode.UNKNOWN_MEMBER_ID),
        times=ALWAYS,
        probability=0.2,
    )
    payments = [f"customer {number:02}" for number in range(50)]
    with Bookkeeper(broker.bootstrap_servers).running() as bookkeeper:
        pay(broker, *payments)
        assert bookkeeper.wait_for(50) == payments
        chaos.cancel()
    assert chaos.hits > 5
