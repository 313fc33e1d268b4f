"""``write.format("kip848")`` and ``writeStream.format("kip848")``: the sink as Spark calls it. Needs Spark 4.1.

Which process calls what: ``write`` runs in workers, one call for each task; ``commit`` and ``abort`` in a process on
the driver's machine, with a writer of their own. What they share travels in messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.sink_options import SinkOptions
from kip848_client.spark.sink_task import BatchId, Written, decide, give_up, write_task

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Columns, with the types that each may have."""

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Spark's local properties of a task."""


class TaskWritten(WriterCommitMessage):
    """What one task wrote.

    Args:
        batch: that it belongs to; None in a batch write.
    """

    def __init__(self, written: Written, batch: BatchId | None) -> None:
        self.written = written
        self.batch = batch


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch once, if it is transactional."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's records; runs in a worker."""
        context = TaskContext.get()
        assert context is not None
        query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        batch = BatchId(query, int(number)) if query is not None and number is not None else None
        if batch is None and self._options.transactional_id is not None:
            raise ConfigError("Spark does not tell which batch this is: leave kafka.transactional.id out")
        return TaskWritten(write_task(iterator, self._options, task=context.partitionId(), batch=batch), batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Make the batch visible."""
        told = [each for each in messages if isinstance(each, TaskWritten)]
        if told:
            decide([each.written for each in told], self._options, batch=told[0].batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Take back what the tasks wrote that were done."""
        _abort(messages, self._options)


class KafkaBatchWriter(DataSourceArrowWriter):
    """A batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's records; runs in a worker."""
        context = TaskContext.get()
        assert context is not None
        return TaskWritten(write_task(iterator, self._options, task=context.partitionId(), batch=None), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make it visible."""
        decide([each.written for each in messages if isinstance(each, TaskWritten)], self._options, batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take back what the tasks wrote that were done."""
        _abort(messages, self._options)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuse what cannot be a record.

    Raises:
        ConfigError: a column is missing, or has a wrong type.
    """
    found = {field.name: field.dataType.simpleString() for field in schema}
    for name, kind in found.items():
        if name not in _TYPES:
            raise ConfigError(f"column {name} is not one of {', '.join(_TYPES)}: select what is to be written")
        if kind not in _TYPES[name]:
            raise ConfigError(f"column {name} is {kind}, and must be {' or '.join(_TYPES[name])}: cast it")
    if "value" not in found:
        raise ConfigError("there is no column value: name the bytes or the text of the records so")
    if "topic" not in found and options.topic is None:
        raise ConfigError("there is no topic: set the option topic, or have a column topic")


def _abort(messages: list[WriterCommitMessage | None], options: SinkOptions) -> None:
    give_up([each.written if isinstance(each, TaskWritten) else None for each in messages], options)
