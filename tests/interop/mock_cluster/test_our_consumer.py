"""Our consumer on librdkafka's mock cluster, a broker of another make inside a producer (``test.mock.num.brokers``).

It is an older broker in a new one's clothes: it has the consumer group protocol, but its OffsetFetch ends at version 6,
its Metadata has a byte too many, and its answer to a newer ApiVersions mixes two layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer

from kip848_client import Consumer, TopicPartition
from tests.interop.client.drive import delivered_once, keys_of
from tests.support.driving import DrivenConsumer, drive, key, quiet, settings
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.interop

PARTITIONS = 4


class MockCluster(msgspec.Struct, frozen=True):
    """One mock broker, and the producer that it lives in."""

    producer: Producer
    bootstrap_servers: str

    def produce(self, count: int) -> None:
        """Write *count* records to each partition of ``orders``."""
        for number in range(count * PARTITIONS):
            self.producer.produce("orders", str(number).encode(), partition=number % PARTITIONS)
        assert self.producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def cluster() -> MockCluster:
    """A cluster with the topic ``orders`` of four partitions, which it makes when it is first asked for it."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    described = producer.list_topics("orders", timeout=TIMEOUT_S)
    assert len(described.topics["orders"].partitions) == PARTITIONS
    [broker] = described.brokers.values()
    return MockCluster(producer, f"{broker.host}:{broker.port}")


@pytest.fixture
def ours(cluster: MockCluster) -> Iterator[list[DrivenConsumer]]:
    """Two consumers of ours, not subscribed yet."""
    made = [DrivenConsumer(Consumer(quiet(settings(cluster.bootstrap_servers)))) for _ in range(2)]
    yield made
    for consumer in made:
        consumer.raw.close(timeout_s=2)


def test_it_reads_commits_and_goes_on_where_the_last_one_committed(
    cluster: MockCluster, ours: list[DrivenConsumer]
) -> None:
    """Users of this mock can test our consumer against it, too."""
    first, second = ours
    cluster.produce(10)
    first.subscribe("orders")
    drive(first, until=lambda: len(first.delivered) >= 40)
    committed = first.raw.commit(asynchronous=False)
    read_back = first.raw.committed([TopicPartition("orders", partition) for partition in range(PARTITIONS)])
    first.raw.close()

    cluster.produce(5)
    second.subscribe("orders")
    drive(second, until=lambda: len(second.delivered) >= 20)

    assert committed is not None
    assert [one.offset for one in committed] == [one.offset for one in read_back] == [10] * PARTITIONS
    assert delivered_once(ours) == keys_of("orders", 15)


def test_it_shares_a_group_with_librdkafkas_consumer(cluster: MockCluster, ours: list[DrivenConsumer]) -> None:
    """Two clients of different makes on a broker of a third one: what they agree on is the protocol."""
    our = ours[0].subscribe("orders")
    cluster.produce(10)
    drive(our, until=lambda: len(our.delivered) >= 40)
    their = LibrdkafkaConsumer(quiet(settings(cluster.bootstrap_servers, group_protocol="consumer")))
    their.subscribe(["orders"])
    their_keys = []

    def both_have_half() -> bool:
        message = their.poll(0.02)
        if message is not None and message.error() is None:
            their_keys.append(key(message))
        return len(our.partitions) == 2 and len(their.assignment()) == 2

    drive(our, until=both_have_half)
    cluster.produce(10)
    drive(our, until=lambda: both_have_half() and len(our.delivered) + len(their_keys) >= 80)
    their.close()

    assert len(our.delivered) + len(their_keys) == 80
    assert set(our.delivered) | set(their_keys) == keys_of("orders", 20)
