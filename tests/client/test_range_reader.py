"""Reading [start, end) of one partition: exactly that, in order, whatever the log looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.config import parse_consumer_config
from kip848_client.consumer.records.range_reader import RangeReader, RecordsGoneError
from kip848_client.errors import RequestTimeoutError
from kip848_client.testing.faults import rewrite
from kip848_client.wire.messages.fetch import FetchResponse
from tests.spark.arrange import produce

ORDERS = NamedPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2}) as broker:
        produce(broker.bootstrap_servers, "orders", 20_000)
        yield broker


def reader_of(broker: EmbeddedBroker, *, poll_timeout_ms: int = 60_000) -> RangeReader:
    conf = parse_consumer_config({"bootstrap.servers": broker.bootstrap_servers, "group.id": "any"}).data_plane
    return RangeReader(conf, poll_timeout_ms=poll_timeout_ms)


@pytest.fixture
def reader(broker: EmbeddedBroker) -> Iterator[RangeReader]:
    with closing(reader_of(broker)) as reader:
        yield reader


def offsets(reader: RangeReader, partition: NamedPartition, start: int, end: int) -> list[int | None]:
    return [message.offset() for _, batch in reader.read([OffsetRange(partition, start, end)]) for message in batch]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 20_000), (9_999, 10_001), (19_999, 20_000), (5, 5)])
def test_a_range_is_read_from_its_start_to_before_its_end(reader: RangeReader, start: int, end: int) -> None:
    """Neither the record before nor the one after; in order; across the size of a batch."""
    assert offsets(reader, ORDERS, start, end) == list(range(start, end))


def test_ranges_follow_each_other_on_one_reader(reader: RangeReader) -> None:
    """A worker reads many; what was read ahead for one must not be in the next."""
    found = [offsets(reader, ORDERS, start, start + 10) for start in (500, 0, 510, 0)]
    assert found == [list(range(start, start + 10)) for start in (500, 0, 510, 0)]


def test_small_ranges_are_read_together(broker: EmbeddedBroker, reader: RangeReader) -> None:
    """A task that read fifty of them one by one waited for the end of a fetch after each: ten milliseconds."""
    for topic in ("invoices", "payments"):
        broker.topics.create(topic, 25)
        produce(broker.bootstrap_servers, topic, 20, partitions=25)
    names = [NamedPartition(topic, number) for topic in ("invoices", "payments") for number in range(25)]
    ranges = [OffsetRange(name, start, start + 8) for start in (3, 11) for name in names]
    found: dict[OffsetRange, list[int | None]] = {}
    for each, messages in reader.read(ranges):
        assert {(message.topic(), message.partition()) for message in messages} == {each.partition}
        found.setdefault(each, []).extend(message.offset() for message in messages)

    assert found == {each: list(range(each.start, each.end)) for each in ranges}
    assert len(broker.requests.of("fetch")) < len(names)


def test_a_reader_that_was_given_up_can_be_used_again(reader: RangeReader) -> None:
    """A task that fails in mid-range leaves its reader to the next task."""
    batches = reader.read([OffsetRange(ORDERS, 0, 20_000)])
    next(batches)
    batches.close()

    assert offsets(reader, ORDERS, 3, 6) == [3, 4, 5]


def test_a_log_that_ends_before_the_range_is_an_error(reader: RangeReader) -> None:
    """It was cut short, or the topic made anew, since the range was planned; half a range would look like a whole."""
    batches = reader.read([OffsetRange(ORDERS, 19_990, 25_000)])
    assert [message.offset() for message in next(batches)[1]] == list(range(19_990, 20_000))
    with pytest.raises(
        RecordsGoneError, match="orders-0 was read up to 20000 and ends at 20000, although it went to 25"
    ):
        next(batches)


def test_a_replica_that_lags_does_not_end_a_range(broker: EmbeddedBroker) -> None:
    """After a change of the leader the new one does not know for a moment that its last records are committed.

    What a task left out then would be counted as read, and would never be read.
    """
    asked: list[int] = []

    def lagging(response: FetchResponse) -> FetchResponse:
        asked.append(len(asked))
        topics = []
        for topic in response.responses:
            behind = tuple(
                replace(each, high_watermark=100, last_stable_offset=100, records=None) for each in topic.partitions
            )
            topics.append(replace(topic, partitions=behind))
        return replace(response, responses=tuple(topics))

    with closing(reader_of(broker)) as reader, broker.faults.on("fetch", rewrite(lagging), times=5):
        found = offsets(reader, ORDERS, 100, 200)

    assert len(asked) == 5
    assert found == list(range(100, 200))


def test_records_that_are_gone_are_an_error(broker: EmbeddedBroker, reader: RangeReader) -> None:
    """Retention was faster; whether that matters is for the caller to say."""
    broker.topics.delete_records("orders", 0, 100)
    with pytest.raises(RecordsGoneError, match=r"orders-0: offset 50 is not in the log"):
        offsets(reader, ORDERS, 50, 200)


def test_a_topic_that_is_gone_is_an_error(broker: EmbeddedBroker) -> None:
    """A deleted topic must not look like a time-out."""
    broker.topics.delete("orders")
    with closing(reader_of(broker, poll_timeout_ms=500)) as reader:
        with pytest.raises((RecordsGoneError, RequestTimeoutError), match="orders-0"):
            offsets(reader, ORDERS, 0, 10)
