"""Driving consumers in tests: what was told and delivered is written down, and time passes only inside poll()."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from confluent_kafka import Producer

from kip848_client import Consumer, ConsumerRebalanceListener, Message, TopicPartition
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.waiting import TIMEOUT_S

SLICE_S: Final = 0.02

HEARTBEAT: Final = ConsumerGroupHeartbeatRequest

Key = tuple[str, int, int]
"""(topic, partition, offset) of a record."""


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


class Recorder(ConsumerRebalanceListener):
    """Writes down every call as (``assigned`` | ``revoked`` | ``lost``, partition numbers)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", [partition.partition for partition in partitions]))

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", [partition.partition for partition in partitions]))

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", [partition.partition for partition in partitions]))

    def names(self) -> list[str]:
        """The kinds of the calls, in order."""
        return [name for name, _ in self.calls]

    def count(self, name: str) -> int:
        """How many calls of one kind there were."""
        return self.names().count(name)


class ConsumerUnderTest:
    """A consumer, and what it delivered in the order it did."""

    def __init__(self, consumer: Consumer) -> None:
        self.raw: Final = consumer
        self.listener: Final = Recorder()
        self.delivered: Final[list[Key]] = []

    def subscribe(self, *topics: str) -> ConsumerUnderTest:
        """Subscribe with the recording listener."""
        self.raw.subscribe(list(topics), self.listener)
        return self

    def take(self, timeout_s: float = SLICE_S) -> list[Key]:
        """Consume once; return what came."""
        keys = [key(message) for message in self.raw.consume(500, timeout_s)]
        self.delivered.extend(keys)
        return keys

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions that it has."""
        return [partition.partition for partition in self.raw.assignment()]

    def kill(self) -> None:
        """Stop heartbeats as a crash would: no leave, no commit."""
        manager = self.raw._manager
        manager.stop(timeout_s=5)


def key(message: Message) -> Key:
    """Where a record is."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def drive(
    *consumers: ConsumerUnderTest, until: Callable[[], object], timeout_s: float = TIMEOUT_S, what: str = ""
) -> None:
    """Let the consumers poll in turns until *until* holds.

    Raises:
        AssertionError: it did not come about.
    """
    deadline_s = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline_s, f"{what or 'the condition'} did not come about; " + "; ".join(
            f"{consumer.raw!r} has {consumer.partitions}, {len(consumer.delivered)} delivered, "
            f"told {consumer.listener.calls}"
            for consumer in consumers
        )
        for consumer in consumers:
            consumer.take()


def delivered_once(consumers: Iterable[ConsumerUnderTest]) -> set[Key]:
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
