"""Produce: batches of clients with a fault get the answer that Apache Kafka gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import produce
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.wire.messages.produce import PartitionProduceResponse
from kip848_client.wire.record_batch import batches_of, parse_batch_header, records_of
from tests.broker.storage.harness import a_broker, answer_of
from tests.support.damaged_batches import damaged_batches, kafka_answers

DIFFERENCES: Final = {
    # Kafka clears the bit.
    "log append time": ErrorCode.INVALID_TIMESTAMP,
    "a producer without an epoch": ErrorCode.INVALID_RECORD,
    # Kafka ignores a compressed record's length if that is positive, and so appends what no reader can read.
    "gzip: the last record with a length of 0 and its bytes": ErrorCode.INVALID_RECORD,
    "gzip: the last record with a length one too short": ErrorCode.INVALID_RECORD,
    "gzip: the last record with a length one too long": ErrorCode.INVALID_RECORD,
    # So it does with the checksum and the size of a whole LZ4 frame; librdkafka does not read such a batch.
    "lz4: a wrong checksum": ErrorCode.UNKNOWN_SERVER_ERROR,
    "lz4: a wrong size": ErrorCode.UNKNOWN_SERVER_ERROR,
    # An exception in Kafka, which leaves it as UNKNOWN_SERVER_ERROR.
    "length of 2 GiB": ErrorCode.INVALID_RECORD,
    "plain: the last record with a length in 6 bytes": ErrorCode.INVALID_RECORD,
    "plain: the last record with a length in 11 bytes": ErrorCode.INVALID_RECORD,
    "plain: bytes that are no records": ErrorCode.INVALID_RECORD,
}
"""What docs/differences.md says in one line."""


def produced(batches: Sequence[bytes]) -> tuple[Sequence[PartitionLog], Sequence[PartitionProduceResponse]]:
    """Send each batch to a partition of its own: the logs and the answers."""
    broker = a_broker({"t": len(batches)})
    partitions = [{"index": number, "records": batch} for number, batch in enumerate(batches)]
    request = {"acks": -1, "topic_data": [{"name": "t", "partition_data": partitions}]}
    (answer,) = answer_of(broker, produce, request, version=11).responses
    (topic,) = broker.topics
    return topic.partitions, answer.partition_responses


def test_damaged_batches_are_answered_as_by_kafka() -> None:
    """Broken: a codec or client with a fault passes its tests here; its records cannot be read, or its batches get
    offsets twice, and on Kafka it is refused."""
    batches = damaged_batches()
    logs, results = produced(list(batches.values()))
    codes = {name: ErrorCode(result.error_code) for name, result in zip(batches, results, strict=True)}
    assert codes == {name: ErrorCode(code) for name, code in kafka_answers().items()} | DIFFERENCES
    ends = {name: log.log_end_offset for name, log in zip(batches, logs, strict=True)}
    assert ends == {name: 0 if code else 4 for name, code in codes.items()}
    for name, log in zip(batches, logs, strict=True):
        for stored in log.batches():
            assert len(records_of(stored)) == 4, f"{name}: cannot be read"


def test_a_latest_timestamp_that_no_record_has_is_set_right() -> None:
    """Broken: a search by time misses the records of a client that fills in the header wrongly."""
    (log, *_), _ = produced([damaged_batches()["latest timestamp too early"]])
    (stored,) = log.batches()
    assert parse_batch_header(stored).max_timestamp == records_of(stored)[-1].timestamp
    assert [header for _, header in batches_of(stored, check_crc=True)]
