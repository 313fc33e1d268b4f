"""Records for tests, without a client: write records into a partition's log, and read its content.

Both bypass the network: they need no login, meet no fault rule, and are not in the request log.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.common.typed import whole_number
from kip848_client.errors import BrokerError, ErrorCode, MessageValueError, ProtocolError
from kip848_client.testing.broker.metadata.topic_configs import LOG_APPEND_TIME, TIMESTAMP_TYPE, config_of
from kip848_client.testing.broker.topics.append_watchers import Watch
from kip848_client.testing.broker.topics.registry import Topic, TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.partitions.producer_batches import RecordRules
from kip848_client.wire.record_batch import Record, batches_of, build_batch, records_of

Content: TypeAlias = bytes | str | None
"""A key or value; text is written as UTF-8, None is a key that is not there or a tombstone."""

Headers: TypeAlias = Mapping[str, Content] | Iterable[tuple[str, Content]]

_ALL_BYTES: Final = 1 << 62


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is in a partition.

    Attributes:
        timestamp_ms: milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class NewRecord(msgspec.Struct, frozen=True):
    """A record to write: what `EmbeddedBroker.produce` takes, as one value."""

    value: Content
    key: Content = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def append_records(
    topics: TopicRegistry, topic: Topic, new: Iterable[NewRecord], *, wall_ms: int
) -> tuple[BrokerRecord, ...]:
    """Write records to the partitions that their keys choose, each partition's as one batch.

    Raises:
        BrokerError: there is no such partition; or the topic refuses a batch. Batches of other partitions are written.
        MessageValueError: a key, value or header is neither bytes nor text.
    """
    rows = tuple(new)
    placed: dict[int, list[tuple[int, Record]]] = {}
    count, spread = topic.partition_count, sum(log.log_end_offset for log in topic.partitions)
    for row, each in enumerate(rows):
        record = Record(
            _bytes(each.value, "value"),
            _bytes(each.key, "key"),
            tuple((name, _bytes(content, f"header {name!r}")) for name, content in _pairs(each.headers)),
            wall_ms if each.timestamp_ms is None else each.timestamp_ms,
        )
        partition = each.partition
        if partition is None:
            partition = (spread + row) % count if record.key is None else partition_for(record.key, count)
        if not 0 <= whole_number(partition, name="partition") < count:
            raise BrokerError(
                f"topic {topic.name!r} has the partitions 0 to {count - 1}, not {partition}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        placed.setdefault(partition, []).append((row, record))
    written: dict[int, BrokerRecord] = {}
    append_time_ms = wall_ms if config_of(topic.in_force, TIMESTAMP_TYPE) == LOG_APPEND_TIME else None
    for partition, entries in placed.items():
        batch = build_batch([record for _, record in entries])
        appended = topics.append(topic, partition, batch, rules=RecordRules(append_time_ms=append_time_ms))
        for offset, (row, record) in enumerate(entries, start=appended.base_offset):
            timestamp = record.timestamp if append_time_ms is None else append_time_ms
            kept = msgspec.structs.replace(record, offset=offset, timestamp=timestamp)
            written[row] = _as_kept(topic.name, partition, kept)
    return tuple(written[row] for row in range(len(rows)))


def read_records(topic: Topic, partition: int | None = None, *, committed: bool = True) -> tuple[BrokerRecord, ...]:
    """Read all records of a topic, or of one partition, by partition and offset.

    Args:
        committed: leave out those of open and aborted transactions.

    Raises:
        ProtocolError: the records of a batch are damaged.
    """
    partitions = range(topic.partition_count) if partition is None else (partition,)
    return tuple(
        _as_kept(topic.name, number, record)
        for number in partitions
        for record in _records_in(topic.partitions[number], committed=committed)
    )


def watch_records(
    topics: TopicRegistry,
    name: str,
    count: int,
    partition: int | None,
    *,
    committed: bool,
    future: concurrent.futures.Future[tuple[BrokerRecord, ...]],
) -> Watch:
    """Give all records of a topic, or of one partition, to *future* as soon as there are *count*.

    Returns:
        What watches the logs; cancel it at the end.

    Raises:
        BrokerError: there is no such topic or partition.
    """
    topic = topics.find(name, partition)
    logs = topic.partitions if partition is None else topic.partitions[partition : partition + 1]

    def look(_size_bytes: int = 0) -> None:
        if not future.done() and sum(log.log_end_offset - log.log_start_offset for log in logs) >= count:
            try:
                records = read_records(topic, partition, committed=committed)
            except ProtocolError as error:
                future.set_exception(error)
            else:
                if len(records) >= count:
                    future.set_result(records)

    watch = topics.watchers.watch(logs, on_append=look, on_gone=look)
    look()
    return watch


def partition_for(key: bytes, count: int) -> int:
    """The partition that the Java client's producer chooses for *key*.

    librdkafka's chooses another, unless ``partitioner`` is ``murmur2_random``.

    Source:
        Kafka's ``BuiltInPartitioner.partitionForKey``, ``Utils.murmur2``.
    """
    return (_murmur2(key) & 0x7FFFFFFF) % count


def _records_in(log: PartitionLog, *, committed: bool) -> Iterator[Record]:
    start = log.log_start_offset
    data = log.read(start, _ALL_BYTES, committed=committed)
    aborted = log.aborted_between(start, log.log_end_offset) if committed else ()
    for position, header in batches_of(data):
        if header.is_control or (
            header.is_transactional
            and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
        ):
            continue
        yield from (record for record in records_of(data, position) if record.offset >= start)


def _as_kept(topic: str, partition: int, record: Record) -> BrokerRecord:
    return BrokerRecord(
        topic=topic,
        partition=partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp_ms=record.timestamp,
    )


def _pairs(headers: Headers) -> Iterable[tuple[str, Content]]:
    given: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise MessageValueError(f"the headers have {pair!r}; give pairs (name, value), or a dictionary")
        yield pair[0], pair[1]


def _bytes(content: Content, what: str) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    if content is None or isinstance(content, bytes):
        return content
    raise MessageValueError(f"the {what} is {type(content).__name__}; give bytes, text or None")


def _murmur2(data: bytes) -> int:
    """Kafka's variant, as an unsigned number of 32 bits."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * factor & mask
        part = (part ^ part >> 24) * factor & mask
        value = value * factor & mask ^ part
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15
