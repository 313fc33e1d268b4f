"""A Spark application for tests: one query to Parquet, in a process of its own, that says what happens.

Started with one JSON object as its argument; prints one JSON object a line: ``{"jvm": pid}`` once the query runs, and
``{"ended": rows}`` at its end. With ``hold_at`` the batch that reads that offset waits for ever in its middle, after it
has made the file ``held``. Without ``available_now`` it runs until its standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kip848_client.spark import register, spark_session


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    spark = spark_session("tests")
    register(spark)
    frame = spark.readStream.format("kip848").options(**task["options"]).load().select("topic", "partition", "offset")
    hold_at, held = task.get("hold_at"), task["folder"] + "/held"

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if hold_at is not None and hold_at in batch.column("offset").to_pylist():
                Path(held).touch()
                threading.Event().wait()  # the test kills this process
            yield batch

    writer = frame.mapInArrow(hold, frame.schema).writeStream.format("parquet").option("path", task["folder"] + "/rows")
    writer = writer.option("checkpointLocation", task["folder"] + "/checkpoint")
    query = (writer.trigger(availableNow=True) if task.get("available_now") else writer).start()
    proc = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    say(jvm=proc.pid)
    if task.get("available_now"):
        query.awaitTermination()
    else:
        sys.stdin.read()
        query.processAllAvailable()
        query.stop()
    rows = [tuple(row) for row in spark.read.parquet(task["folder"] + "/rows").collect()]
    say(ended=rows)
    spark.stop()


if __name__ == "__main__":
    main()
