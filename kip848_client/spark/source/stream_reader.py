"""A stream as Spark calls it. It calls `stream`, in the process that lives as long as the query.

`stream_reader_of_4_2` has the methods that Spark calls from 4.2 on.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kip848_client.spark.source.reading import TaskPartition, read_partition
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.spark.values.options import SourceOptions

if TYPE_CHECKING:
    from kip848_client.spark.source.stream import Stream

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""Main module of the process that lives as long as a query."""

_terminated = threading.Event()
"""Set in that process when Spark ends it."""


class KafkaStreamReader(DataSourceStreamReader):
    """A stream: one member of the group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stream: Stream | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The initial offset of a query: nothing is read yet."""
        return StreamOffset().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch that ends at *end*. After a restart Spark may call this first."""
        return [TaskPartition(task) for task in self._running().tasks(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; runs in a worker."""
        return read_partition(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset` has ended the batch already."""

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
            session = None
            if _in_process_of_query():
                gc.freeze()  # the imports below would have PySpark's modules searched for garbage: 25 of 90 ms
                _leave_when_terminated()
                session = os.getppid()
            from kip848_client.spark.source.stream import Stream

            self._stream = Stream(self._options, session=session)
        return self._stream


class EarlierStreamReader(KafkaStreamReader):
    """A stream on Spark 4.0 and 4.1, which pass neither the trigger nor a limit, and ask once with AvailableNow.

    So the first batch is planned as if it were the last: when the group has settled, and without a limit.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._reached = StreamOffset().to_json()
        """The end of the last batch that Spark asked for, in an earlier run or in this one."""
        self._first = True

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  as it was before 4.2
        """Join the group in the first call, end the previous batch, and plan the next."""
        if self._first:
            end = self._running().first_of_unknown_trigger(self._reached)
            self._first = False
            return end
        return self._running().latest(self._reached, rows_max=self._options.rows_max)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch; after a restart first of all the complete one, as one without records."""
        self._reached = end
        return [] if start == end else super().partitions(start, end)


def _in_process_of_query() -> bool:
    """Whether this is the process that lives as long as a query, started by the session's JVM; tests have none."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == _RUNNER and threading.current_thread() is threading.main_thread()


def _leave_when_terminated() -> None:
    """Let SIGTERM end in ``stop()``, in the process of a query.

    Spark ends that process with SIGTERM when the query stops, fails or is complete, and calls nothing before; the
    group would wait for the session to expire. It sends the signal twice: the second must not cut the leave short.
    """

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _terminated.set()
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, terminated)
