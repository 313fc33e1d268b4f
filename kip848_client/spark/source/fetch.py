"""Reads ranges of partitions as Arrow record batches, on executors. Knows neither group nor query."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from kip848_client.common.model import OffsetRange
from kip848_client.config import ConfigValue, parse_consumer_config
from kip848_client.config.security import check_data_plane
from kip848_client.consumer.records.data_plane import Message
from kip848_client.consumer.records.range_reader import READER_DEFAULTS, RangeReader, RecordsGoneError
from kip848_client.spark.group.log_offsets import LogOffsets
from kip848_client.spark.values.data_loss import data_loss
from kip848_client.spark.values.options import SourceOptions
from kip848_client.spark.values.schema import arrow_records

NO_GROUP: Final = "kip848-spark-batch"
"""librdkafka wants a group.id even of a consumer that is in no group."""

_READERS_MAX: Final = 4
_readers: OrderedDict[tuple[object, ...], RangeReader] = OrderedDict()
"""One for each recently used configuration; worker processes live longer than tasks and queries.

The process id guards against forks.
"""


def data_plane(options: SourceOptions) -> Mapping[str, ConfigValue]:
    """librdkafka's configuration for *options*.

    Raises:
        ConfigError: a key or value is wrong, or librdkafka would send a secret in clear text.
    """
    config = parse_consumer_config({**READER_DEFAULTS, "group.id": NO_GROUP, **options.client})
    check_data_plane(config.security)
    return config.data_plane


def check_settings(options: SourceOptions) -> None:
    """Let librdkafka check its settings before a batch is planned, not only when the first task reads.

    Raises:
        ConfigError: it refuses a key or a value.
    """
    RangeReader(data_plane(options), poll_timeout_ms=options.poll_timeout_ms).close()


def log_offsets(options: SourceOptions) -> LogOffsets:
    """The client that asks brokers about offsets and topics.

    Raises:
        ConfigError: a key or value is wrong.
    """
    return LogOffsets(options.client, timeout_ms=options.lookup_timeout_ms)


def read_ranges(ranges: Iterable[OffsetRange], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Read *ranges*; records of one partition are in order.

    Raises:
        DataLossError: records are gone, and failOnDataLoss is on.
        Kip848Error: they could not be read.
    """
    schema = arrow_records(include_headers=options.include_headers, include_leader_epoch=options.include_leader_epoch)
    reader = _reader(options)
    left = list(ranges)
    while left:
        positions = {each: each.start for each in left}
        try:
            for each, messages in reader.read(left):
                yield to_arrow(messages, each, schema)
                last = messages[-1].offset()
                assert last is not None
                positions[each] = last + 1
            return
        except RecordsGoneError as error:
            if options.fail_on_data_loss:
                raise data_loss(str(error)) from error
            positions[error.where] = _next_begin(error.where, positions[error.where], options)
        left = [OffsetRange(each.partition, at, each.end) for each, at in positions.items() if at < each.end]


def to_arrow(messages: list[Message], source: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of records of one partition, in Spark's columns."""
    count = len(messages)
    kinds, times_ms = zip(*map(Message.timestamp, messages), strict=True)
    columns: list[Any] = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(source.partition.topic, pa.string()), count),
        pa.repeat(pa.scalar(source.partition.partition, pa.int32()), count),
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(schema.field("timestamp").type),
        # confluent_kafka counts from 0 = none, Kafka and Spark from -1 = none.
        _timestamp_types(kinds),
    ]
    if "headers" in schema.names:
        columns.append(pa.array([_headers(message) for message in messages], schema.field("headers").type))
    if "leaderEpoch" in schema.names:
        columns.append(pa.array(list(map(Message.leader_epoch, messages)), pa.int32()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _timestamp_types(kinds: tuple[int, ...]) -> pa.Array:
    if len(set(kinds)) == 1:
        return pa.repeat(pa.scalar(kinds[0] - 1, pa.int32()), len(kinds))
    return pa.array([kind - 1 for kind in kinds], pa.int32())


def _headers(message: Message) -> list[dict[str, object]] | None:
    headers = message.headers()
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"key": key, "value": content} for key, content in pairs]


def _next_begin(where: OffsetRange, position: int, options: SourceOptions) -> int:
    """Where a range goes on whose records at *position* are gone; its end if none are left."""
    with contextlib.closing(log_offsets(options)) as log:
        begin = log.begins([where.partition]).get(where.partition, where.end)
    # A log that begins before is that of a topic that was made anew.
    return begin if begin > position else where.end


def _reader(options: SourceOptions) -> RangeReader:
    conf = data_plane(options)
    key = (os.getpid(), options.poll_timeout_ms, frozenset(conf.items()))
    if key not in _readers:
        _readers[key] = RangeReader(conf, poll_timeout_ms=options.poll_timeout_ms)
    _readers.move_to_end(key)
    while len(_readers) > _READERS_MAX:
        (pid, *_), unused = _readers.popitem(last=False)
        if pid == os.getpid():
            unused.close()
    return _readers[key]
