"""``writeStream.format("kip848")``: the sink of a stream as Spark calls it, from Spark 4.1 on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kip848_client.errors import ConfigError
from kip848_client.spark.sink.sink import TaskWritten
from kip848_client.spark.sink.sink_options import SinkOptions
from kip848_client.spark.sink.sink_task import BatchId, decide, give_up, write_task

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_RUN: Final = "spark.jobGroup.id"
"""Spark's local properties of a task."""


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """A stream: each micro-batch once, if it is transactional."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's records; runs in a worker."""
        context = TaskContext.get()
        assert context is not None
        query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        run = context.getLocalProperty(_RUN) or ""
        batch = BatchId(query, int(number), run) if query is not None and number is not None else None
        if batch is None and self._options.transactional_id is not None:
            raise ConfigError("Spark does not tell which batch this is: leave kafka.transactional.id out")
        return TaskWritten(write_task(iterator, self._options, task=context.partitionId(), batch=batch), batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Make the batch visible."""
        told = [each for each in messages if isinstance(each, TaskWritten)]
        if told:
            decide([each.written for each in told], self._options, batch=told[0].batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort what the tasks have written."""
        give_up(self._options)
