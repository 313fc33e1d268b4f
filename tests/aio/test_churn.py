"""Tasks that join, leave, are cancelled anywhere and commit at random: nothing is lost, and what is done is done."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker, Message, TopicPartition
from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener
from kip848_client.errors import IllegalStateError
from tests.aio.world import new_consumer
from tests.support.driving import key
from tests.support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.kip848_broker(topics={"orders": 4}), pytest.mark.interop, pytest.mark.slow, pytest.mark.anyio]

PARTITIONS = 6
MEMBERS = 3
CHURN_S = 3.0


class Member(AsyncConsumerRebalanceListener):
    """One life of a member. Its listeners take time, so that cancellation meets them, too."""

    def __init__(self, churn: Churn, rng: random.Random) -> None:
        self.churn = churn
        self.rng = rng
        self.owned: set[int] = set()
        self.in_hand: list[tuple[int, int]] = []

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep(self.rng.choice([0, 0.001, 0.01]))  # a listener that takes time
        self.owned.update(partition.partition for partition in partitions)

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep(self.rng.choice([0, 0.001, 0.01]))  # a listener that takes time
        if self.rng.random() < 0.3:
            await consumer.commit(asynchronous=False)
        self.owned.difference_update(partition.partition for partition in partitions)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        self.churn.violations.append(f"lost {[partition.partition for partition in partitions]}")

    def take(self, messages: list[Message]) -> None:
        """These were handed out."""
        if messages:
            self.in_hand = [key(message)[1:] for message in messages]
        for partition, offset in (key(message)[1:] for message in messages):
            self.churn.delivered[partition, offset] += 1
            if partition not in self.owned:
                self.churn.violations.append(f"read {partition}-{offset} without owning it")

    async def act(self, consumer: AsyncConsumer) -> None:
        """Something, which may be cancelled in the middle of it."""
        rng = self.rng
        with anyio.move_on_after(rng.choice([0.0005, 0.002, 0.01, 0.1])):
            choice = rng.random()
            if choice < 0.4:
                message = await consumer.poll(rng.choice([0, 0.01, -1]))
                self.take([] if message is None else [message])
            elif choice < 0.9:
                self.take(await consumer.consume(rng.choice([1, 5, 100]), rng.choice([0, 0.01, 0.1, -1])))
            elif assigned := await consumer.assignment():
                with suppress(IllegalStateError):  # a listener that ended with its poll() cancelled may still take some
                    await rng.choice([consumer.pause, consumer.resume])(assigned[:2])
                await consumer.commit(asynchronous=rng.random() < 0.5)


class Churn:
    """What all tasks of one run share; everything random comes from the seed."""

    def __init__(self, broker: EmbeddedBroker, seed: int) -> None:
        self.broker = broker
        self.seed = seed
        self.delivered: Counter[tuple[int, int]] = Counter()
        self.interrupted: set[tuple[int, int]] = set()
        """Records that a member had in hand when it was cancelled."""
        self.written = [0] * PARTITIONS
        self.violations: list[str] = []
        self.lives = 0
        self.over = False

    async def write(self) -> None:
        """Produce until it is over."""
        rng = random.Random(self.seed)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 1, "log_level": 0})
        while not self.over:
            partition = rng.randrange(PARTITIONS)
            for _ in range(rng.randrange(1, 40)):
                producer.produce("orders", b"x", partition=partition)
                self.written[partition] += 1
            producer.poll(0)
            await anyio.sleep(0.002)  # this is the rate
        assert await anyio.to_thread.run_sync(producer.flush, 10) == 0

    async def work(self, number: int) -> None:
        """One member after the other, each of them ended in another way."""
        rng = random.Random(self.seed * 100 + number)
        while not self.over:
            self.lives += 1
            with anyio.move_on_after(rng.uniform(0.2, 1.0)):
                async with new_consumer(
                    self.broker, client_id=f"member-{number}", auto_commit_interval_ms=50
                ) as consumer:
                    member = Member(self, rng)
                    await consumer.subscribe(["orders"], member)
                    leave_s = time.monotonic() + rng.uniform(0.2, 1.0)
                    try:
                        while time.monotonic() < leave_s and not self.over:
                            await member.act(consumer)
                    except anyio.get_cancelled_exc_class():
                        self.interrupted.update(member.in_hand)
                        raise


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_record_is_handled_exactly_once(broker: EmbeddedBroker, seed: int) -> None:
    """Auto-commit before every hand-over and clean leaves, whatever is cancelled: the strongest promise there is.

    Only what a member had in hand when it was cancelled is delivered again.
    """
    broker.topics.add_partitions("orders", PARTITIONS)
    churn = Churn(broker, seed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(churn.write)
        for number in range(MEMBERS):
            tasks.start_soon(churn.work, number)
        await anyio.sleep(CHURN_S)  # so long members come and go
        churn.over = True
    async with new_consumer(broker) as rest:
        await rest.subscribe(["orders"])
        with anyio.move_on_after(TIMEOUT_S):
            while len(churn.delivered) < sum(churn.written):
                churn.delivered.update((key(one)[1], key(one)[2]) for one in await rest.consume(500, 0.1))

    assert churn.violations == []
    assert {one for one, count in churn.delivered.items() if count > 1} <= churn.interrupted
    assert set(churn.delivered) == {(p, offset) for p in range(PARTITIONS) for offset in range(churn.written[p])}
    assert churn.lives > MEMBERS
    assert sum(churn.written) > 100, "too little was written to prove anything"
