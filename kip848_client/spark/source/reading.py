"""The work of a Spark worker: one task of a batch or of a stream."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kip848_client.spark.source.planner import Task
from kip848_client.spark.values.options import SourceOptions

_freeze_once: Final = functools.cache(gc.freeze)


class TaskPartition(InputPartition):
    """The input of one task."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task

    def __repr__(self) -> str:
        return f"TaskPartition({self.task!r})"


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of one task, as Arrow batches.

    The collector of circular garbage is off meanwhile: it would go through the records again and again, which takes
    twice as long as reading them, and finds nothing. Spark itself runs it after each task; what the first task has
    imported, pandas by way of pyarrow, is kept out of that: 40 ms a task.
    """
    from kip848_client.spark.source.fetch import read_ranges

    assert isinstance(partition, TaskPartition)
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield from read_ranges(partition.task, options)
    finally:
        _freeze_once()
        if was_on:
            gc.enable()
