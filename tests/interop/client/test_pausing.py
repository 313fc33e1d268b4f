"""pause() and rebalances: a kept partition stays paused, one that goes and comes back does not."""

from __future__ import annotations

import pytest

from kip848_client import EmbeddedBroker, TopicPartition
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once, keys_of
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def test_a_kept_partition_stays_paused_and_keeps_its_position(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A rebalance of others must neither wake a partition that the application holds back, nor move it."""
    produce("orders", 10)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 40)
    paused = [TopicPartition("orders", index) for index in range(4)]
    consumer.raw.pause(paused)
    produce("orders", 10)

    other = make_consumer().subscribe("orders")
    drive(consumer, other, until=lambda: len(consumer.partitions) == 2 and len(other.partitions) == 2)
    drive(consumer, other, until=lambda: len(other.delivered) == 20)

    kept = consumer.numbers
    assert len(consumer.delivered) == 40
    assert [partition.partition for partition in consumer.raw.paused()] == kept
    assert {p.partition: p.offset for p in consumer.raw.position(consumer.raw.assignment())} == dict.fromkeys(kept, 10)
    consumer.raw.resume(consumer.raw.assignment())
    drive(consumer, other, until=lambda: len(consumer.delivered) == 60)
    assert delivered_once([consumer, other]) == keys_of("orders", 20)


def test_a_partition_that_comes_back_is_not_paused(make_consumer: MakeConsumer, produce: Produce) -> None:
    """It is another assignment: a forgotten pause would stop the partition for ever."""
    produce("orders", 10)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 40)
    consumer.raw.pause([TopicPartition("orders", index) for index in range(4)])

    other = make_consumer().subscribe("orders")
    drive(consumer, other, until=lambda: len(consumer.partitions) == 2 and len(other.partitions) == 2)
    came_back = set(other.numbers)
    other.raw.close()
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    produce("orders", 10)
    drive(consumer, until=lambda: len(consumer.delivered) >= 60)

    assert {key[1] for key in consumer.delivered[40:]} == came_back
    assert {partition.partition for partition in consumer.raw.paused()} == {0, 1, 2, 3} - came_back


def test_records_of_a_resumed_partition_keep_their_order(make_consumer: MakeConsumer, produce: Produce) -> None:
    """More is prefetched than one poll() returns; a record that falls behind another would be lost."""
    produce("orders", 300)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    paused: list[TopicPartition] = []
    for _ in range(4):
        consumer.poll()
        paused.append(TopicPartition("orders", consumer.delivered[-1][1]))
        consumer.raw.pause(paused[-1:])
    consumer.raw.resume(paused)
    while len(consumer.delivered) < 1_200:
        consumer.raw.commit(asynchronous=False)  # so that poll() looks at the group again
        consumer.poll()

    for partition in range(4):
        assert [offset for _, one, offset in consumer.delivered if one == partition] == list(range(300))
