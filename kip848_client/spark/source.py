"""``format("kip848")``: the source as Spark calls it. Each method hands over to a module that knows no Spark.

Which process calls what: the user's Python only `register`s; a process per query, which lives as long as the query,
plans and is the member (`stream`, `membership`); another short-lived one makes a second reader and pickles it to the
workers that call ``read``. So nothing is joined when a reader is made, and it holds no thread until it has joined.
Each of these processes imports this module, most of them for one call: what that call needs is imported inside it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.filters import EVERYTHING, narrowed
from kip848_client.spark.offsets import StreamOffset
from kip848_client.spark.options import SourceOptions, parse_options
from kip848_client.spark.planner import Task
from kip848_client.spark.schema import record_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, Filter

    from kip848_client.spark.sink_options import SinkOptions
    from kip848_client.spark.stream import Stream

__all__ = ["FORMAT", "KafkaGroupSource", "register"]

FORMAT: Final = "kip848"

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""Main module of the process that lives as long as a query."""

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

_terminated = threading.Event()
"""Set in that process when Spark ends it."""


def register(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("kip848")`` and ``spark.read.format("kip848")`` known to a session."""
    from kip848_client.spark.cores import session_cores

    # Spark's Python processes know nothing of the session: the class that is sent to them tells.
    spark.conf.set(_PUSHDOWN, "true")  # off by default, and then Spark refuses readers that could filter
    knowledge = {"cores": session_cores(spark), "filters": True}
    known = type(KafkaGroupSource.__name__, (KafkaGroupSource,), knowledge)
    spark.dataSource.register(known)


class KafkaGroupSource(DataSource):
    """Records of Kafka topics, read as a member of a consumer group (stream) or between two offsets (batch)."""

    cores: ClassVar[int | None] = None
    """How many tasks the session can run at once; None if that is not known."""

    filters: ClassVar[bool] = False
    """Whether the session hands filters of batches over."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def schema(self) -> StructType:
        """Columns as Spark's Kafka source has them."""
        wanted = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return record_schema(include_headers=wanted)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        self._check_schema(schema)
        kind = FilteringReader if self.filters else KafkaBatchReader
        return kind(parse_options(dict(self.options), streaming=False, cores=self.cores))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """For ``spark.readStream``."""
        self._check_schema(schema)
        return KafkaStreamReader(parse_options(dict(self.options), streaming=True, cores=self.cores))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``frame.write``."""
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with mode("append")')
        from kip848_client.spark.sink import KafkaBatchWriter  # with librdkafka's producer, for those who write

        return KafkaBatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For ``frame.writeStream``."""
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with outputMode("append") or "update"')
        from kip848_client.spark.sink import KafkaStreamWriter

        return KafkaStreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: StructType) -> SinkOptions:
        from kip848_client.spark.sink import check_columns
        from kip848_client.spark.sink_options import parse_sink_options

        options = parse_sink_options(dict(self.options))
        check_columns(schema, options)
        return options

    def _check_schema(self, wanted: StructType) -> None:
        if wanted.simpleString() != self.schema().simpleString():
            raise ConfigError(
                "the columns of this source are fixed: leave schema(...) out, and decode key and value with functions "
                "of DataFrame"
            )


class TaskPartition(InputPartition):
    """What one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task

    def __repr__(self) -> str:
        return f"TaskPartition({self.task!r})"


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: one member of the group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stream: Stream | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The initial offset of a query: nothing is read yet."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What maxOffsetsPerTrigger says."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End when everything is read that was there at the first trigger."""
        self._running().bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Join the group if that was not done, end the batch before, plan the next."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._running().latest(start, rows_max=rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of what is owned."""
        return self._stream.report() if self._stream is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch that ends at *end*; after a restart the first call of all."""
        return [TaskPartition(task) for task in self._running().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; runs in a worker."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: `latestOffset` hears of a complete batch earlier."""

    def stop(self) -> None:
        """Leave the group."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if _terminated.is_set():
            # Spark has closed its end: what the runner would still write there is a traceback on stderr.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _running(self) -> Stream:
        if self._stream is None:
            from kip848_client.spark.stream import Stream

            _leave_when_terminated()
            self._stream = Stream(self._options)
        return self._stream


class KafkaBatchReader(DataSourceReader):
    """A batch between two offsets; joins nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the batch."""
        from kip848_client.spark.batch import plan_batch

        # Without any, Spark would have a task read None.
        return [TaskPartition(task) for task in plan_batch(self._options, self._wanted) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; runs in a worker."""
        return _read(partition, self._options)


class FilteringReader(KafkaBatchReader):
    """The same, where the session hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Read less; Spark applies all of them again."""
        self._wanted = narrowed(filters)
        return filters


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    from kip848_client.spark.fetch import read_ranges

    assert isinstance(partition, TaskPartition)
    return read_ranges(partition.task, options)


def _leave_when_terminated() -> None:
    """Let SIGTERM end in ``stop()``, in the process of a query.

    Spark ends that process with SIGTERM when the query stops, fails or is complete, and calls nothing before; the
    group would wait for the session to expire. It sends the signal twice: the second must not cut the leave short.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if getattr(spec, "name", None) != _RUNNER or threading.current_thread() is not threading.main_thread():
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _terminated.set()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, terminated)
