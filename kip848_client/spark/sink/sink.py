"""``write.format("kip848")``: the sink as Spark calls it. ``writeStream`` is `sink_stream`.

Which process calls what: ``write`` runs in workers, one call for each task; ``commit`` and ``abort`` in a process on
the driver's machine, with a writer of their own. They share state by messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.sink.sink_options import SinkOptions
from kip848_client.spark.sink.sink_task import BatchId, Written, decide, give_up, write_task

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Columns, with the types that each may have."""


class TaskWritten(WriterCommitMessage):
    """The result of one task.

    Args:
        batch: that it belongs to; None in a batch write.
    """

    def __init__(self, written: Written, batch: BatchId | None) -> None:
        self.written = written
        self.batch = batch


class KafkaBatchWriter(DataSourceArrowWriter):
    """The writer of a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's records; runs in a worker."""
        context = TaskContext.get()
        assert context is not None
        return TaskWritten(write_task(iterator, self._options, task=context.partitionId(), batch=None), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the batch visible."""
        decide([each.written for each in messages if isinstance(each, TaskWritten)], self._options, batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks have written."""
        give_up(self._options)


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
        raise ConfigError("there is no column value: give that name to the bytes or the text of the records")
    if "topic" not in found and options.topic is None:
        raise ConfigError("there is no topic: set the option topic, or have a column topic")
