"""Records as Arrow rows, whatever is in them; and the readers that a worker process keeps between tasks."""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.consumer.records.range_reader import RangeReader
from kip848_client.spark.source import fetch
from kip848_client.spark.source.fetch import read_ranges
from kip848_client.spark.source.reading import TaskPartition, read_partition
from kip848_client.spark.values.options import parse_options
from tests.spark.arrange import options


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderedDict[tuple[object, ...], RangeReader]]:
    """What a new worker process has: none."""
    kept: OrderedDict[tuple[object, ...], RangeReader] = OrderedDict()
    monkeypatch.setattr(fetch, "_readers", kept)
    yield kept
    for reader in kept.values():
        reader.close()


def test_what_a_record_lacks_is_null(broker: EmbeddedBroker) -> None:
    """A tombstone has no value, most records no headers, and a header may be a name alone."""
    broker.topics.create("far", configs={"message.timestamp.after.max.ms": str(2**62)})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "logger": logging.getLogger("tests.spark")})
    headers: list[tuple[str, str | bytes | None]] = [("twice", b"1"), ("twice", b"2"), ("empty", b""), ("alone", None)]
    producer.produce("far", None, None, 0, timestamp=1)
    producer.produce("far", b"", b"", 0, timestamp=253_402_300_799_999)  # the last millisecond that Python has
    producer.produce("far", bytes(range(256)), b"\xff\x00", 0, timestamp=1, headers=headers)
    assert producer.flush(60) == 0
    chosen = parse_options(
        options(broker.bootstrap_servers, {"includeHeaders": True, "includeLeaderEpoch": True}, streaming=False),
        streaming=False,
    )
    (batch,) = read_ranges([OffsetRange(NamedPartition("far", 0), 0, 3)], chosen)
    rows = batch.to_pylist()

    assert [(row["key"], row["value"]) for row in rows] == [(None, None), (b"", b""), (b"\xff\x00", bytes(range(256)))]
    assert [row["headers"] for row in rows] == [None, None, [{"key": key, "value": value} for key, value in headers]]
    assert [row["timestamp"].isoformat() for row in rows] == [
        "1970-01-01T00:00:00.001000+00:00",
        "9999-12-31T23:59:59.999000+00:00",
        "1970-01-01T00:00:00.001000+00:00",
    ]
    assert [row["timestampType"] for row in rows] == [0, 0, 0]
    assert [row["leaderEpoch"] for row in rows] == [0, 0, 0]


def read(address: str, **changed: object) -> int:
    """How many records a task finds with these options."""
    chosen = parse_options(options(address, changed, streaming=False), streaming=False)
    ranges = [OffsetRange(NamedPartition("orders", number), 0, 5) for number in range(2)]
    return sum(batch.num_rows for batch in read_ranges(ranges, chosen))


def test_what_is_gone_of_one_range_is_left_out_and_the_others_are_whole(
    broker: EmbeddedBroker, address: str, readers: OrderedDict[tuple[object, ...], RangeReader]
) -> None:
    """With failOnDataLoss=false a task that meets a gap reads what is left, and nothing twice."""
    broker.topics.delete_records("orders", 1, 40)
    chosen = parse_options(options(address, {"failOnDataLoss": False}, streaming=False), streaming=False)
    ranges = [OffsetRange(NamedPartition("orders", number), 20, 60) for number in range(4)]
    found = [(row["partition"], row["offset"]) for batch in read_ranges(ranges, chosen) for row in batch.to_pylist()]

    assert sorted(found) == [(number, at) for number in range(4) for at in range(40 if number == 1 else 20, 60)]


def test_records_are_not_searched_for_garbage_while_a_task_reads(
    address: str, readers: OrderedDict[tuple[object, ...], RangeReader]
) -> None:
    """The search takes twice as long as reading. It must be on again when the worker does other work."""
    chosen = parse_options(options(address, streaming=False), streaming=False)
    ranges = tuple(OffsetRange(NamedPartition("orders", number), 0, 5) for number in range(2))
    try:
        found = [(batch.num_rows, gc.isenabled()) for batch in read_partition(TaskPartition(ranges), chosen)]
    finally:
        gc.unfreeze()

    assert sum(rows for rows, _ in found) == 10
    assert not any(searched for _, searched in found)
    assert gc.isenabled()


def test_tasks_of_one_query_share_a_reader(address: str, readers: OrderedDict[tuple[object, ...], RangeReader]) -> None:
    """A new connection for each task would take longer than the task."""
    assert [read(address), read(address)] == [10, 10]
    assert len(readers) == 1


def test_each_query_waits_for_as_long_as_it_was_told(
    address: str, readers: OrderedDict[tuple[object, ...], RangeReader]
) -> None:
    """Two queries of one cluster differ in it, and run in the same worker processes."""
    read(address, **{"kafkaConsumer.pollTimeoutMs": 1_000})
    read(address, **{"kafkaConsumer.pollTimeoutMs": 2_000})
    assert len(readers) == 2


def test_a_worker_that_outlives_many_queries_keeps_few_readers(
    address: str, readers: OrderedDict[tuple[object, ...], RangeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has threads and connections of its own, for as long as the process lives."""
    closed: list[RangeReader] = []
    close = RangeReader.close

    def noted(reader: RangeReader) -> None:
        closed.append(reader)
        close(reader)

    monkeypatch.setattr(RangeReader, "close", noted)
    made = []
    for number in range(6):
        assert read(address, **{"kafka.client.id": f"query-{number}"}) == 10
        made.append(next(reversed(readers.values())))
    assert read(address, **{"kafka.client.id": "query-2"}) == 10

    assert closed == made[:2]
    assert list(readers.values()) == [*made[3:], made[2]]
