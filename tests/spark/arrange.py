"""What the tests of the Spark source share: records to read, options, and what was read, counted."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Producer, TopicPartition

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.spark.source.fetch import read_ranges
from kip848_client.spark.source.stream import Stream
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.spark.values.options import SourceOptions, parse_options
from tests.support.waiting import wait_until

GROUP = "spark-group"
MARCH_2026_MS = 1_772_323_200_000
_silent = logging.getLogger("tests.spark.producer")


def produce(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    partitions: int = 1,
    first: int = 0,
    timestamp_ms: int = 0,
    headers: list[tuple[str, str | bytes | None]] | None = None,
    secured: Mapping[str, str] | None = None,
) -> None:
    """Produce *count* records to each of the first *partitions* partitions; values are ``partition:number``."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "logger": _silent, **(secured or {})})
    failures: list[object] = []
    for partition in range(partitions):
        for number in range(first, first + count):
            producer.produce(
                topic,
                f"{partition}:{number}".encode(),
                f"k{number}".encode(),
                partition,
                timestamp=timestamp_ms + number if timestamp_ms else 0,
                headers=headers,
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
    assert producer.flush(120) == 0
    assert not failures, failures


def options(
    broker_address: str, changed: Mapping[str, object] | None = None, *, streaming: bool = True
) -> dict[str, str]:
    """Options of a query over ``orders`` from the beginning; *changed* replaces, and takes away what is None there."""
    chosen: dict[str, str] = {"kafka.bootstrap.servers": broker_address, "subscribe": "orders"}
    if streaming:
        chosen |= {"kafka.group.id": GROUP, "auto.offset.reset": "earliest", "firstAssignmentTimeout": "60s"}
    for name, content in (changed or {}).items():
        if content is None:
            chosen.pop(name, None)
        else:
            chosen[name] = str(content).lower() if isinstance(content, bool) else str(content)
    return chosen


class Driver:
    """Calls a `Stream` in Spark's order, and reads what it plans; a batch counts when `finish` was called."""

    def __init__(self, address: str, changed: Mapping[str, object], *, start: dict[str, Any] | None) -> None:
        self.options: SourceOptions = parse_options(options(address, changed), streaming=True)
        self.stream = Stream(self.options)
        self.offset: dict[str, Any] = start or StreamOffset().to_json()
        self.rows: Counter[tuple[str, int, int]] = Counter()
        self._end: dict[str, Any] | None = None

    def plan(self) -> bool:
        """Ask for a batch once. Returns whether there is one."""
        assert self._end is None
        end = self.stream.latest(self.offset, rows_max=self.options.rows_max)
        self._end = end if end is not self.offset else None
        return self._end is not None

    @property
    def planned(self) -> dict[str, Any]:
        """The end of the batch in flight."""
        assert self._end is not None
        return self._end

    def finish(self) -> None:
        """Read the batch, and let it be written down; the source hears of it with the next `plan`."""
        assert self._end is not None
        self.replay(self._end)
        self._end = None

    def replay(self, end: dict[str, Any]) -> None:
        """Read the batch that ends at *end*, as after a restart."""
        for task in self.stream.tasks(end):
            for batch in read_ranges(task, self.options):
                columns = batch.select(["topic", "partition", "offset"]).to_pydict()
                self.rows.update(zip(*columns.values(), strict=True))
        self.offset = end

    def run(self, rows: int, *, timeout_s: float = 120.0) -> None:
        """Run triggers until so many rows were read in all, and the last batch was reported as complete."""
        try:
            wait_until(lambda: not self.turn() and self.rows.total() >= rows, timeout_s, every_s=0)
        except AssertionError as error:
            raise AssertionError(f"{self.rows.total()} of {rows} rows were read in {timeout_s} s") from error

    def turn(self) -> bool:
        """Run one trigger, with its batch if there is one. Returns whether there was."""
        if not self.plan():
            return False
        self.finish()
        return True

    def drain(self) -> None:
        """Run triggers until one has nothing to read."""
        wait_until(lambda: not self.turn(), 120.0, "a trigger with nothing to read", every_s=0)


@contextlib.contextmanager
def driving(
    address: str, dotted: Mapping[str, object] | None = None, *, start: dict[str, Any] | None = None, **changed: object
) -> Iterator[Driver]:
    """A `Driver` that leaves the group at the end."""
    driver = Driver(address, {**(dotted or {}), **changed}, start=start)
    try:
        yield driver
    finally:
        driver.stream.close()


def everything(count: int, *, partitions: int, topic: str = "orders") -> Counter[tuple[str, int, int]]:
    """Every record of a topic, once."""
    return Counter((topic, partition, offset) for partition in range(partitions) for offset in range(count))


def committed(broker: EmbeddedBroker, topic: str = "orders", group: str = GROUP) -> Mapping[int, int]:
    """Committed offsets of a group by partition."""
    return {tp.partition: offset for tp, offset in broker.groups.committed(group).items() if tp.topic == topic}


def consumer(address: str, **changed: str) -> Consumer:
    """A plain consumer in the query's group, which commits only when told to."""
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "client.id": "plain",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **changed,
        }
    )


def consumed(messages: list[Any]) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of messages."""
    return [(message.topic(), message.partition(), message.offset()) for message in messages]


def take(plain: Consumer, seen: Counter[tuple[str, int, int]], count: int = 100) -> int:
    """Let *plain* consume at most *count* of what comes, and keep it in *seen*. Returns how much that has in all."""
    seen.update(consumed(plain.consume(count, 0.02)))
    return seen.total()


def partition(number: int, topic: str = "orders") -> NamedPartition:
    """A partition."""
    return NamedPartition(topic, number)


def public(number: int, topic: str = "orders") -> TopicPartition:
    """A partition as confluent_kafka has it."""
    return TopicPartition(topic, number)
