"""Produce: what a topic's configuration demands of single records."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import produce
from kip848_client.wire.messages.produce import (
    PartitionProduceResponse,
)
from kip848_client.wire.record_batch import Record, build_batch
from tests.broker.storage.harness import QuietBroker, a_broker, answer_of
from tests.support.damaged_batches import sealed

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
GZIP = 1


def a_topic(**configs: str) -> QuietBroker:
    broker = a_broker({"t": 1})
    broker.topics.set_configs("t", {name.replace("_", "."): value for name, value in configs.items()})
    return broker


def batch(*records: tuple[bytes | None, int], attributes: int = 0) -> bytes:
    """Records of (key, timestamp)."""
    return build_batch([Record(b"v", key, timestamp=time) for key, time in records], attributes=attributes)


def produced(broker: QuietBroker, records: bytes) -> PartitionProduceResponse:
    topic = {"name": "t", "partition_data": [{"records": records}]}
    answer = answer_of(broker, produce, {"acks": -1, "topic_data": [topic]}, version=12)
    (result,) = answer.responses[0].partition_responses
    assert isinstance(result, PartitionProduceResponse)
    return result


@pytest.mark.parametrize("attributes", [0, GZIP], ids=["plain", "gzip"])
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_takes_no_record_without_a_key(policy: str, attributes: int) -> None:
    """Broken: a program that forgets its keys passes its tests and fails on Kafka."""
    broker = a_topic(cleanup_policy=policy)
    refused = produced(broker, batch((b"k", NOW_MS), (None, NOW_MS), attributes=attributes))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert refused.log_start_offset == 0
    assert produced(broker, batch((b"", NOW_MS), attributes=attributes)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("timestamp", "error"),
    [
        (NOW_MS - HOUR_MS + 1000, ErrorCode.NONE),
        (NOW_MS - HOUR_MS - 1000, ErrorCode.INVALID_TIMESTAMP),
        (NOW_MS * 1000, ErrorCode.INVALID_TIMESTAMP),  # microseconds
        (-1, ErrorCode.NONE),  # left out
    ],
)
def test_a_record_of_a_time_that_the_topic_does_not_allow_is_refused(timestamp: int, error: ErrorCode) -> None:
    """Broken: message.timestamp.before.max.ms and .after.max.ms protect in production and not in tests."""
    broker = a_topic(message_timestamp_before_max_ms=str(HOUR_MS))
    assert produced(broker, batch((b"k", NOW_MS), (b"k", timestamp))).error_code == error


def test_the_future_is_told_by_the_machine_where_the_brokers_clock_is_moved_by_hand() -> None:
    """Broken: a broker with a ManualClock, which stands at a time long ago, refuses every real producer."""
    broker = a_broker({"t": 1})  # its clock says 2023
    assert produced(broker, batch((b"k", NOW_MS + 300 * 24 * HOUR_MS))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(codec: int) -> None:
    """Broken: a batch that no client can open is stored, and every reader of the partition stops at it."""
    records = bytearray(batch((b"k", NOW_MS)))
    records[22] = codec
    assert produced(a_topic(), sealed(records)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
