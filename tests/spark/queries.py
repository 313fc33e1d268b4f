"""Streaming queries whose sink is this process: tests see each batch, hold it in its middle, or let it fail."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.arrange import options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Sink:
    """Keeps the rows of each batch under its number, so that a replay replaces what it repeats."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = {}
        self.reading = threading.Event()
        """A batch was read, and waits to be let through."""
        self.gate = threading.Event()
        self.gate.set()
        self.fails_at: int | None = None
        """Number of the batch that raises when it was read."""

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What foreachBatch calls."""
        rows = [
            (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
        ]
        self.reading.set()
        assert self.gate.wait(60), "nobody let the batch through"
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
    available_now: bool = False,
) -> StreamingQuery:
    """Start a query over ``orders`` in the tests' group."""
    frame = spark.readStream.format("kip848").options(**_texts(options(address, changed))).load()
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def read(spark: SparkSession, address: str, changed: dict[str, object] | None = None) -> DataFrame:
    """A batch over ``orders``."""
    return spark.read.format("kip848").options(**_texts(options(address, changed, streaming=False))).load()


def _texts(chosen: dict[str, str]) -> dict[str, Any]:
    return dict(chosen)
