"""Streaming queries whose sink is this process: tests see each batch, hold it in its middle, or let it fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark.arrange import options
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEADLINE_S: Final = 240.0
"""A cold JVM on a busy machine takes a minute for its first batch."""

_STARTS_MAX: Final = 20
_TOO_SLOW: Final = "failed to connect back"
"""Spark gives each Python process ten seconds to start, which cannot be changed. Nothing was read by then."""


class Sink:
    """Keeps the rows of each batch under its number, so that a replay replaces what it repeats."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = {}
        self.calls = 0
        self.reading = threading.Event()
        """A batch was read, and waits to be let through."""
        self.gate = threading.Event()
        self.gate.set()
        self.fails_at: int | None = None
        """Number of the batch that raises when it was read."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What foreachBatch calls."""
        self.calls += 1
        rows = [
            (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
        ]
        self.reading.set()
        assert self.gate.wait(DEADLINE_S), "the test did not let the batch through"
        if self.fails_at is not None and batch_id >= self.fails_at:
            raise OSError("the sink's disk is full")
        self.batches[batch_id] = rows

    @property
    def rows(self) -> Counter[tuple[str, int, int]]:
        """How often each record is in a batch that was kept."""
        return Counter(row for rows in self.batches.values() for row in rows)


def start(
    spark: SparkSession,
    address: str,
    checkpoint: Path,
    sink: Sink,
    changed: dict[str, object] | None = None,
    *,
    came: Callable[[], object] | None = None,
) -> StreamingQuery:
    """Start a query over ``orders`` in the tests' group, and wait until it *came*: to its first batch, if not told.

    A query that failed is returned, too.
    """
    frame = spark.readStream.format("kip848").options(**_texts(options(address, changed))).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    calls = sink.calls
    return begin(writer, came or (lambda: sink.calls > calls))


def begin(writer: DataStreamWriter, came: Callable[[], object]) -> StreamingQuery:
    """Start a query, again and again if the machine is too slow for Spark, until it *came* so far or failed."""
    for _ in range(_STARTS_MAX):
        query = writer.start()
        wait_until(lambda query=query: came() or not query.isActive, DEADLINE_S, "the query")  # type: ignore[misc]
        if _TOO_SLOW not in str(query.exception()):
            return query
    raise AssertionError(f"Spark could not start its Python processes in {_STARTS_MAX} attempts")


def stop(query: StreamingQuery) -> None:
    """Stop it, and wait for its end."""
    query.stop()
    assert query.awaitTermination(int(DEADLINE_S))


def until(predicate: Callable[[], object], *queries: StreamingQuery) -> None:
    """Wait for what running queries do; a query that failed is told at once."""

    def came() -> object:
        for query in queries:
            failure = query.exception()
            if failure is not None:
                raise failure
        return predicate()

    wait_until(came, DEADLINE_S)


def read(spark: SparkSession, address: str, changed: dict[str, object] | None = None) -> DataFrame:
    """A batch over ``orders``."""
    return spark.read.format("kip848").options(**_texts(options(address, changed, streaming=False))).load()


def _texts(chosen: dict[str, str]) -> dict[str, Any]:
    return dict(chosen)
