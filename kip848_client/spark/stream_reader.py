"""A stream as Spark calls it, from 4.2 on. Hands over to `stream`, in the process that lives as long as the query."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kip848_client.spark.offsets import StreamOffset
from kip848_client.spark.options import SourceOptions
from kip848_client.spark.reading import TaskPartition, read_partition

if TYPE_CHECKING:
    from kip848_client.spark.stream import Stream

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""Main module of the process that lives as long as a query."""

_terminated = threading.Event()
"""Set in that process when Spark ends it."""


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
        return [TaskPartition(task) for task in self._running().tasks(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; runs in a worker."""
        return read_partition(partition, self._options)

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
