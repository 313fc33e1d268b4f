"""Records of ranges of partitions, for readers that know the offsets beforehand. No group, no positions.

One of the few homes of confluent_kafka. A batch of records is handed on as librdkafka delivers it; what end of a range
means when its last records were compacted away or belong to aborted transactions is decided here.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from typing import Final

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, OffsetRange
from kip848_client.config import ConfigValue
from kip848_client.consumer.records.data_plane import (
    PASSING_CODES,
    KafkaError,
    KafkaException,
    Message,
    create_record_consumer,
    is_refused_lookup,
    list_topics,
    public,
    translate,
)
from kip848_client.errors import Kip848Error, RequestTimeoutError

CHUNK_RECORDS: Final = 2_048
"""Records handed on at once at most. Four times as many, of 1 KiB, take a third more CPU: memory is mapped anew."""

AHEAD_RECORDS: Final = 8_192
"""Records that librdkafka reads ahead of them, from one range or from several small ones."""

READER_DEFAULTS: Final[Mapping[str, int]] = {
    # A fetch that waits at the end of one range holds up the first fetch of the next: half a second at 500.
    "fetch.wait.max.ms": 10,
    # Records that librdkafka reads ahead beyond the end of a range are thrown away.
    "queued.min.messages": AHEAD_RECORDS,
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
    """Records that a range covers are not there: retention, deletion of records or of the topic, a log cut short.

    Args:
        message: what was seen.
        where: the range.
    """

    def __init__(self, message: str, where: OffsetRange) -> None:
        super().__init__(message)
        self.where: Final = where


class RangeReader:
    """Reads ranges, on one thread: large ones one after the other, small ones together.

    Args:
        conf: a data plane's configuration.
        poll_timeout_ms: how long to wait for a record that must come.
    """

    def __init__(self, conf: Mapping[str, ConfigValue], *, poll_timeout_ms: int) -> None:
        self._poll_timeout_s: Final = poll_timeout_ms / 1_000
        self._plane = create_record_consumer({**READER_DEFAULTS, **conf, **_FIXED})
        self._warm: set[str] = set()

    def read(self, ranges: Iterable[OffsetRange]) -> Generator[tuple[OffsetRange, list[Message]], None, None]:
        """Read the records of *ranges*, in lists that are not empty; those of one partition in order.

        Raises:
            RecordsGoneError: a log begins after the start of a range or ends before its end, or the topic is gone.
            RequestTimeoutError: no record came for the time-out.
            Kip848Error: the broker refuses.
        """
        opened: dict[NamedPartition, _Opened] = {}
        try:
            yield from self._read(deque(each for each in ranges if each.rows), opened)
        except KafkaException as error:
            raise translate(error, what=f"reading {_some(opened)}") from error
        finally:
            self._close(opened, list(opened))

    def close(self) -> None:
        """Close connections."""
        self._plane.close()

    def _read(
        self, waiting: deque[OffsetRange], opened: dict[NamedPartition, _Opened]
    ) -> Generator[tuple[OffsetRange, list[Message]], None, None]:
        deadline_s = time.monotonic() + self._poll_timeout_s
        while waiting or opened:
            self._open(waiting, opened)
            taken = [
                (each, each.take(messages)) for each, messages in _by_range(self._consume(opened), opened) if messages
            ]
            short = [each for each, _ in taken if each.ended is not None and not each.complete]
            self._close(opened, [name for name, each in opened.items() if each.complete])
            came = False
            for each, messages in taken:
                if messages:
                    came = True
                    yield each.range, messages
            for each in short:
                # The end of a replica that lags, as one does after a change of the leader: the records come yet.
                self._check_end(each)
            if came:
                deadline_s = time.monotonic() + self._poll_timeout_s
            elif opened and time.monotonic() >= deadline_s:
                silent = next(iter(opened.values()))
                raise RequestTimeoutError(
                    f"{silent.range.partition}: no record from offset {silent.position} on came in "
                    f"{self._poll_timeout_s:g} s, although the range goes to {silent.range.end}; see "
                    "kafkaConsumer.pollTimeoutMs"
                )

    def _open(self, waiting: deque[OffsetRange], opened: dict[NamedPartition, _Opened]) -> None:
        """Open ranges until there is enough to read ahead."""
        left = sum(each.left for each in opened.values())
        begun: list[_Opened] = []
        while waiting and left < AHEAD_RECORDS and waiting[0].partition not in opened:
            each = _Opened(waiting.popleft())
            opened[each.range.partition] = each
            begun.append(each)
            left += each.left
        if begun:
            for topic in sorted({each.range.partition.topic for each in begun}):
                self._learn(topic)
            self._plane.incremental_assign(
                [public(each.range.partition, OffsetAndMetadata(each.position)) for each in begun]
            )

    def _close(self, opened: dict[NamedPartition, _Opened], names: Collection[NamedPartition]) -> None:
        """Read *names* no further: their fetches would keep the broker busy, and their records come in between."""
        if names:
            self._plane.incremental_unassign([public(each) for each in names])
            for each in names:
                del opened[each]

    def _consume(self, opened: Mapping[NamedPartition, _Opened]) -> list[Message]:
        wanted = min(CHUNK_RECORDS, sum(each.left for each in opened.values()))
        batch = self._plane.consume(wanted, 0)
        if not batch:
            batch = self._plane.consume(1, _WAIT_S)
            if batch and wanted > 1:
                batch += self._plane.consume(wanted - 1, 0)
        return batch

    def _check_end(self, short: _Opened) -> None:
        """Ask the leader whether there is anything up to the end; a log can be cut short, and topics be made anew."""
        partition, end = short.range.partition, short.range.end
        try:
            _, last = self._plane.get_watermark_offsets(public(partition), timeout=_ASK_TIMEOUT_S)
        except KafkaException:
            return  # unknown now; the timeout decides
        if last < end:
            raise RecordsGoneError(
                f"{partition} was read up to {short.position} and ends at {last}, although it went to {end}",
                short.range,
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


class _Opened:
    """A range that is being read."""

    def __init__(self, of: OffsetRange) -> None:
        self.range: Final = of
        self.position = of.start
        self.ended: int | None = None
        """The end of the log, if the last records came with it: as the replica has it that was asked."""

    @property
    def left(self) -> int:
        """How many records may come."""
        return self.range.end - self.position

    @property
    def complete(self) -> bool:
        """Whether nothing is left to read: missing records were compacted away, or never committed."""
        return self.position >= self.range.end or (self.ended is not None and self.ended >= self.range.end)

    def take(self, messages: list[Message]) -> list[Message]:
        """The records of the range in *messages*, which are of its partition."""
        self.ended = None
        # map and any stay in C: 25 ns a record, where a loop costs 60.
        if any(map(Message.error, messages)):
            messages, self.ended = _without_events(messages, self.range, position=self.position)
        if messages:
            last = _offset(messages[-1])
            if last >= self.range.end:
                messages = [message for message in messages if _offset(message) < self.range.end]
            self.position = last + 1
        return messages


def _some(partitions: Collection[NamedPartition]) -> str:
    """*partitions* for people, whether one or a hundred."""
    first = next(iter(partitions), "partitions")
    return str(first) if len(partitions) < 2 else f"{first} and {len(partitions) - 1} more"


def _by_range(
    batch: list[Message], opened: Mapping[NamedPartition, _Opened]
) -> Iterator[tuple[_Opened, list[Message]]]:
    """Split *batch* by range. Events that belong to no partition go to every range."""
    if len(opened) == 1:
        yield next(iter(opened.values())), batch
        return
    found: dict[_Opened, list[Message]] = {}
    names = zip(map(Message.topic, batch), map(Message.partition, batch), strict=True)
    for (topic, number), run in itertools.groupby(zip(names, batch, strict=True), operator.itemgetter(0)):
        partition = NamedPartition(topic or "", number)
        messages = [message for _, message in run]
        for each in opened.values() if topic is None else [opened[partition]] if partition in opened else []:
            found.setdefault(each, []).extend(messages)
    yield from found.items()


def _without_events(batch: list[Message], of: OffsetRange, *, position: int) -> tuple[list[Message], int | None]:
    """The records in *batch*, and the end of the log if that was reached."""
    partition = of.partition
    records: list[Message] = []
    ended: int | None = None
    for message in batch:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended = _offset(message)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RecordsGoneError(f"{partition}: offset {position} is not in the log any more: {error.str()}", of)
        elif error.code() in _GONE:
            raise RecordsGoneError(f"{partition} does not exist any more: {error.str()}", of)
        elif error.code() not in PASSING_CODES and not is_refused_lookup(error):
            raise translate(error, what=f"reading {partition}")
    return records, ended


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
