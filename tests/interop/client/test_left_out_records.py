"""Records that librdkafka leaves out of a batch without an error: the application hears of them."""

from __future__ import annotations

import zlib
from typing import Any, NoReturn, cast

import pytest

from kip848_client import EmbeddedBroker
from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.addresses import BootstrapServer
from kip848_client.common.model import NamedPartition
from kip848_client.consumer.records.checks.gap_check import Gap, GapCheck, left_out
from kip848_client.errors import ConnectionLostError, ProtocolError
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.record_batch import HEADER_SIZE, Record, build_batch, crc32c, keep_records
from tests.interop.client.conftest import MakeConsumer
from tests.support.driving import drive

pytestmark = pytest.mark.interop

P0 = NamedPartition("orders", 0)
CRC_AT, CHECKED_FROM, ATTRIBUTES_AT = 17, 21, 21


def zipped(content: bytes) -> bytes:
    """One member of a gzip file."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(content) + packer.flush()


def in_two_members(count: int, cut: int) -> bytes:
    """A batch of *count* records whose gzip has two members; the first has *cut* records."""
    records = [Record(b"%d" % number, timestamp=number) for number in range(count)]
    plain, first = build_batch(records), build_batch(records[:cut])
    content, cut_at = plain[HEADER_SIZE:], len(first) - HEADER_SIZE
    packed = zipped(content[:cut_at]) + zipped(content[cut_at:])
    batch = bytearray(plain[:HEADER_SIZE] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = b"\0\1"
    batch[CRC_AT:CHECKED_FROM] = crc32c(bytes(batch[CHECKED_FROM:])).to_bytes(4, "big")
    return bytes(batch)


def test_the_second_member_of_a_gzip_batch_is_not_lost_in_silence(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Kafka takes such a batch and Java reads it; librdkafka reads half of it and goes on behind it."""
    with RawConnection(broker.bootstrap_servers) as raw:
        for batch in (in_two_members(400, 203), build_batch([Record(b"next", timestamp=400)])):
            data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
            answer = raw.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == 0
    consumer = make_consumer(auto_offset_reset="earliest").subscribe("orders")

    with pytest.raises(ProtocolError, match="records 203 to 399 of orders-0 exist and were not delivered"):
        drive(consumer, until=lambda: False)

    # If one read brought both batches, the error comes ahead of the records before the gap.
    drive(consumer, until=lambda: len(consumer.delivered) >= 204)
    assert len(consumer.delivered) == 204
    assert len(broker.records("orders", 0)) == 401
    (found,) = consumer.raw.offsets_for_times([PublicPartition("orders", 0, 300)], 60.0)
    assert found.offset == 300, "the broker finds it by its time"


def test_a_broker_that_goes_away_during_a_check_is_no_news() -> None:
    """The check runs in a thread of its own: what it does not catch is a traceback in the log of the application."""

    async def gone(**_: Any) -> NoReturn:
        raise ConnectionLostError("the broker stopped")

    reported: list[Exception] = []
    check = GapCheck(cast("Any", gone), [BootstrapServer("127.0.0.1", 9092)], report=reported.append)
    check._check(Gap(P0, 4, 7, delivered=True))
    assert not reported


@pytest.mark.parametrize(
    ("attributes", "kept", "gap", "found"),
    [
        (0, 10, Gap(P0, 4, 7, delivered=True), True),
        (0, 10, Gap(P0, 4, 20, delivered=False), True),
        (0, 10, Gap(P0, 10, 20, delivered=True), False),
        (0, 9, Gap(P0, 4, 7, delivered=True), False),
        (0x10, 10, Gap(P0, 4, 20, delivered=True), True),
        (0x10, 10, Gap(P0, 0, 20, delivered=True), False),
        (0x10, 10, Gap(P0, 4, 20, delivered=False), False),
        (0x30, 10, Gap(P0, 4, 7, delivered=True), False),
    ],
    ids=["inside", "read from inside", "behind", "compacted", "committed", "aborted", "begun in aborted", "marker"],
)
def test_other_gaps_are_as_they_should_be(attributes: int, kept: int, gap: Gap, found: bool) -> None:
    """A false alarm would stop programs that read compacted topics or transactions."""
    batch = build_batch([Record(b"%d" % number) for number in range(10)], attributes=attributes)
    batch = keep_records(batch, lambda record: record.offset < kept)
    assert (left_out(gap, batch) is not None) is found
