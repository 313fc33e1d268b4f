"""Records of [start, end) of one partition, for readers that know beforehand what they want. No group, no positions.

One of the few homes of confluent_kafka. A batch of records is handed on as librdkafka delivers it; what end of a range
means when its last records were compacted away or belong to aborted transactions is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Final

from kip848_client.client.data_plane import (
    PASSING_CODES,
    KafkaError,
    KafkaException,
    Message,
    create_record_consumer,
    list_topics,
    public,
    translate,
)
from kip848_client.config import ConfigValue
from kip848_client.errors import Kip848Error, RequestTimeoutError
from kip848_client.model import OffsetAndMetadata, TopicPartition

CHUNK_RECORDS: Final = 8_192
"""Records handed on at once at most."""

READER_DEFAULTS: Final[Mapping[str, int]] = {
    # A fetch that waits at the end of one range holds up the first fetch of the next: half a second at 500.
    "fetch.wait.max.ms": 10,
    # Records that librdkafka reads ahead beyond the end of a range are thrown away.
    "queued.min.messages": CHUNK_RECORDS,
    "fetch.queue.backoff.ms": 1,
    "fetch.message.max.bytes": 524_288,
}
"""Default settings for reading ranges."""

_FIXED: Final[Mapping[str, ConfigValue]] = {"enable.partition.eof": True, "enable.metrics.push": False}

_WAIT_S: Final = 0.1
_WARM_TIMEOUT_S: Final = 5.0
_ASK_TIMEOUT_S: Final = 5.0

_GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})


class RecordsGoneError(Kip848Error):
    """Records that a range covers are not there: retention, deletion of records or of the topic, a log cut short."""


class RangeReader:
    """Reads one range after the other, on one thread.

    Args:
        conf: a data plane's configuration.
        poll_timeout_ms: how long to wait for a record that must come.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, poll_timeout_ms: int) -> None:
        self._poll_timeout_s: Final = poll_timeout_ms / 1_000
        self._plane = create_record_consumer({**READER_DEFAULTS, **conf, **_FIXED})
        self._warm: set[str] = set()

    def read(self, partition: TopicPartition, *, start: int, end: int) -> Generator[list[Message], None, None]:
        """Read records with ``start <= offset < end``, in order, in lists that are not empty.

        Raises:
            RecordsGoneError: the log begins after *start* or ends before *end*, or the topic is gone.
            RequestTimeoutError: no record came for the time-out.
            Kip848Error: the broker refuses.
        """
        try:
            yield from self._read(partition, start, end)
        except KafkaException as error:
            raise translate(error, what=f"reading {partition}") from error

    def close(self) -> None:
        """Close connections."""
        self._plane.close()

    def _read(self, partition: TopicPartition, start: int, end: int) -> Generator[list[Message], None, None]:
        plane = self._plane
        self._learn(partition.topic)
        assigned = [public(partition, OffsetAndMetadata(start))]
        plane.incremental_assign(assigned)
        try:
            position = start
            deadline_s = time.monotonic() + self._poll_timeout_s
            while position < end:
                wanted = min(CHUNK_RECORDS, end - position)
                batch = plane.consume(wanted, 0)
                if not batch:
                    batch = plane.consume(1, _WAIT_S)
                    if batch and wanted > 1:
                        batch += plane.consume(wanted - 1, 0)
                ended: int | None = None
                # map and any stay in C: 25 ns a record, where a loop costs 60.
                if any(map(Message.error, batch)):
                    batch, ended = _without_events(batch, partition, start=position)
                if batch:
                    last = _offset(batch[-1])
                    if last >= end:
                        batch = [message for message in batch if _offset(message) < end]
                    if batch:
                        yield batch
                    position = last + 1
                    deadline_s = time.monotonic() + self._poll_timeout_s
                elif time.monotonic() >= deadline_s and (ended is None or ended < end):
                    raise RequestTimeoutError(
                        f"{partition}: no record from offset {position} on came in {self._poll_timeout_s:g} s, "
                        f"although the range goes to {end}; see kafkaConsumer.pollTimeoutMs"
                    )
                if ended is None or position >= end:
                    continue
                if ended >= end:
                    return  # what is missing was compacted away, or was never committed
                # The end of a replica that lags, as one does after a change of the leader: the records come yet.
                self._check_end(partition, position, end)
        finally:
            plane.incremental_unassign(assigned)

    def _check_end(self, partition: TopicPartition, position: int, end: int) -> None:
        """Ask the leader whether there is anything up to *end*; a log can be cut short, and topics be made anew."""
        try:
            _, last = self._plane.get_watermark_offsets(public(partition), timeout=_ASK_TIMEOUT_S)
        except KafkaException:
            return  # unknown now; the timeout decides
        if last < end:
            raise RecordsGoneError(
                f"{partition} was read up to {position} and ends at {last}, although it went to {end}"
            )

    def _learn(self, topic: str) -> None:
        if topic in self._warm:
            return
        try:
            # librdkafka waits 500 ms before the first fetch of a topic whose leader it does not know.
            list_topics(self._plane, topic, timeout=_WARM_TIMEOUT_S)
        except KafkaException:
            return  # reading works without; it only begins later
        self._warm.add(topic)


def _without_events(batch: list[Message], partition: TopicPartition, *, start: int) -> tuple[list[Message], int | None]:
    """The records in *batch*, and the end of the log if that was reached: as the replica has it that was asked."""
    records: list[Message] = []
    ended: int | None = None
    for message in batch:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended = _offset(message)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RecordsGoneError(f"{partition}: offset {start} is not in the log any more: {error.str()}")
        elif error.code() in _GONE:
            raise RecordsGoneError(f"{partition} does not exist any more: {error.str()}")
        elif error.code() not in PASSING_CODES:
            raise translate(error, what=f"reading {partition}")
    return records, ended


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
