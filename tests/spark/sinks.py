"""What the tests of the Spark sink share: batches of two tasks, and what readers of committed records see."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from kip848_client.admin import OpenTransaction
from kip848_client.spark.sink import sink_task
from kip848_client.spark.sink.sink_options import SinkOptions, parse_sink_options
from kip848_client.spark.sink.sink_task import BatchId, Written, decide, write_task
from kip848_client.spark.source.batch import plan_batch
from kip848_client.spark.source.fetch import read_ranges
from kip848_client.spark.values.options import parse_options

BATCH = BatchId("the-query", 7)


def sink(servers: str, topic: str = "out", **more: str) -> SinkOptions:
    """Options of a sink."""
    return parse_sink_options({"kafka.bootstrap.servers": servers, "topic": topic, **more})


def transactional(servers: str, topic: str = "out", transactional_id: str = "billing") -> SinkOptions:
    """The same with transactions."""
    return sink(servers, topic, **{"kafka.transactional.id": transactional_id})


def rows(*values: str) -> list[pa.RecordBatch]:
    """Records of one task."""
    return [pa.record_batch({"value": list(values)})]


def write_both(options: SinkOptions, batch: BatchId | None = BATCH) -> list[Written]:
    """A batch of two tasks, with two records and one."""
    return [
        write_task(rows("a", "b"), options, task=0, batch=batch),
        write_task(rows("c"), options, task=1, batch=batch),
    ]


def seen(servers: str, topic: str = "out") -> Counter[str]:
    """What a reader of committed records reads, from the beginning to the last stable offset."""
    options = parse_options({"kafka.bootstrap.servers": servers, "subscribe": topic}, streaming=False)
    found: Counter[str] = Counter()
    for task in plan_batch(options):
        for batch in read_ranges(task, options):
            found.update(value.decode() for value in batch.column("value").to_pylist())
    return found


class CrashError(Exception):
    """The driver ends here."""


def repeat_after_crash(servers: str, topic: str, transactional_id: str, *, crash: str) -> list[Written]:
    """Write a batch, end at *crash*, and repeat the batch as Spark does; what its tasks wrote the second time."""
    options = transactional(servers, topic, transactional_id)
    written = write_both(options)
    assert not seen(servers, topic)
    end = sink_task._end

    def crashing(options: SinkOptions, transactions: list[OpenTransaction], *, commit: bool) -> None:
        if crash == "between two ends":
            end(options, transactions[:1], commit=commit)
        raise CrashError

    if crash == "after the ends":
        decide(written, options, batch=BATCH)
    elif crash != "before the decision":
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sink_task, "_end", crashing)
            with pytest.raises(CrashError):
                decide(written, options, batch=BATCH)
    repeated = write_both(options)
    decide(repeated, options, batch=BATCH)
    return repeated
