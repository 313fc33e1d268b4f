"""Records for consumers of the embedded broker, and which of them were delivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from confluent_kafka import Producer

from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.driving import DrivenConsumer, Key
from tests.support.waiting import TIMEOUT_S

HEARTBEAT: Final = ConsumerGroupHeartbeatRequest


class Produce(Protocol):
    """Writes *count* records to each partition and waits until they are there."""

    def __call__(self, topic: str, count: int, *, partitions: Iterable[int] = (0, 1, 2, 3)) -> None: ...


@contextmanager
def producer_for(bootstrap_servers: str) -> Iterator[Produce]:
    """A producer; values are the records' numbers, 0 for the first of each partition and call."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0, "linger.ms": 1})

    def produce(topic: str, count: int, *, partitions: Iterable[int] = (0, 1, 2, 3)) -> None:
        for partition in partitions:
            for number in range(count):
                producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0, "records were not written"

    yield produce
    producer.flush(1)


def delivered_once(consumers: Iterable[DrivenConsumer]) -> set[Key]:
    """Everything delivered by all; fails if something was delivered twice."""
    everything = [one for consumer in consumers for one in consumer.delivered]
    assert len(everything) == len(set(everything)), "a record was delivered twice"
    return set(everything)


def keys_of(topic: str, count: int, *, partitions: Iterable[int] = (0, 1, 2, 3)) -> set[Key]:
    """What `Produce` wrote, if it began with empty partitions."""
    return {(topic, partition, offset) for partition in partitions for offset in range(count)}


def is_our_lookup(request: FindCoordinatorRequest) -> bool:
    """Whether a member of ours looks for its coordinator, and not librdkafka, which only fetches for it."""
    return bool(request.coordinator_keys)
