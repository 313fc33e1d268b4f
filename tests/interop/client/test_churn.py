"""Members that come, go, pause and commit at random while records are written: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, Message, TopicPartition
from tests.interop.client.conftest import QUIET, MakeConsumer
from tests.interop.client.drive import drive, key

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PARTITIONS = 6
CHURN_S = 4.0


class Churn:
    """Shared by the threads of one run; everything random comes from the seed."""

    def __init__(self, bootstrap_servers: str, seed: int) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.seed = seed
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.delivered: Counter[tuple[int, int]] = Counter()
        self.produced = [0] * PARTITIONS
        self.violations: list[str] = []

    def write(self) -> None:
        """Produce until stopped."""
        rng = random.Random(self.seed)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 1, "log_level": 0})
        while not self.stop.wait(0.002):
            partition = rng.randrange(PARTITIONS)
            for _ in range(rng.randrange(1, 40)):
                producer.produce("orders", b"x", partition=partition)
                self.produced[partition] += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def work(self, number: int) -> None:
        """Be a member for a while, leave, and come back, until stopped."""
        rng = random.Random(self.seed * 100 + number)
        while not self.stop.is_set():
            try:
                self._be_a_member(number, rng)
            except Exception as error:  # the test fails with it
                self.violations.append(f"member {number}: {error!r}")

    def _be_a_member(self, number: int, rng: random.Random) -> None:
        owned: set[int] = set()

        def gone(_: Consumer, partitions: list[TopicPartition]) -> None:
            owned.difference_update(partition.partition for partition in partitions)

        conf = {"bootstrap.servers": self.bootstrap_servers, "group.id": "g", "client.id": f"member-{number}"}
        with Consumer({**QUIET, **conf, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 50}) as consumer:
            consumer.subscribe(
                ["orders"],
                on_assign=lambda _, partitions: owned.update(partition.partition for partition in partitions),
                on_revoke=gone,
                on_lost=lambda _, partitions: self.violations.append(f"member {number} lost {partitions}"),
            )
            leave_s = time.monotonic() + rng.uniform(0.2, 1.5)
            while time.monotonic() < leave_s and not self.stop.is_set():
                for message in self._act(consumer, rng):
                    _, partition, offset = key(message)
                    with self.lock:
                        self.delivered[partition, offset] += 1
                        if partition not in owned:
                            self.violations.append(f"member {number} read {partition}-{offset} without owning it")

    def _act(self, consumer: Consumer, rng: random.Random) -> list[Message]:
        choice = rng.random()
        if choice < 0.4:
            message = consumer.poll(rng.choice([0, 0.01, 0.1]))
            return [] if message is None else [message]
        if choice < 0.95:
            return list(consumer.consume(rng.choice([1, 5, 100, 500]), rng.choice([0, 0.01, 0.1])))
        assigned = consumer.assignment()
        if assigned:
            rng.choice([consumer.pause, consumer.resume])(assigned[:2])
            consumer.commit(asynchronous=rng.random() < 0.5)
        return []


@pytest.mark.parametrize("seed", [1, 2])
def test_every_record_is_delivered_exactly_once(seed: int, broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Auto-commit before every hand-over, and clean leaves: the strongest promise that a consumer can keep."""
    broker.add_partitions("orders", PARTITIONS)
    churn = Churn(broker.bootstrap_servers, seed)
    threads = [threading.Thread(target=churn.write)]
    threads += [threading.Thread(target=churn.work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    churn.stop.wait(CHURN_S)
    churn.stop.set()
    for thread in threads:
        thread.join()
    rest = make_consumer().subscribe("orders")
    drive(rest, until=lambda: len(churn.delivered) + len(rest.delivered) >= sum(churn.produced))
    churn.delivered.update((partition, offset) for _, partition, offset in rest.delivered)

    assert churn.violations == []
    assert [one for one, count in churn.delivered.items() if count > 1] == []
    assert set(churn.delivered) == {(p, offset) for p in range(PARTITIONS) for offset in range(churn.produced[p])}
    assert sum(churn.produced) > 100, "too little was written to prove anything"
