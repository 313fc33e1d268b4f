"""Many streaming queries on few processes: each name has one query, and each query runs on one live process.

    python examples/spark_queries.py --bootstrap localhost:9092 --folder /data --topics orders,invoices,payments

Start it on several machines that share the folder. The names are spread evenly. If a process dies, its queries go on
elsewhere from their checkpoints; if one gets SIGTERM, it ends its queries between two batches and hands them over.

The broker must serve connect groups (`kip848 broker --connect-groups`); the records may be on another cluster
(`--records`). A query that fails is started again where it is.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kip848_client import OwnedUnit, Worker
from kip848_client.spark import register, spark_session, stop_gracefully

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STOP_TIMEOUT_S = 10.0
"""Less than the margin of the worker's lease: a process that is cut off must have stopped before others start."""
RETRY_S = 5.0


def start(spark: SparkSession, name: str, *, records: str, folder: Path) -> StreamingQuery:
    """Start the query of one name: here a topic, to Parquet."""
    frame = (
        spark.readStream.format("kip848")
        .option("kafka.bootstrap.servers", records)
        .option("kafka.group.id", f"query-{name}")
        .option("subscribe", name)
        .option("auto.offset.reset", "earliest")
        .load()
    )
    writer = frame.selectExpr("partition", "offset", "cast(value as string) as value").writeStream
    return (
        writer.queryName(name)
        .format("parquet")
        .option("path", str(folder / name / "rows"))
        .option("checkpointLocation", str(folder / name / "checkpoint"))
        .start()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True, help="the broker that serves connect groups")
    parser.add_argument("--records", help="the cluster of the topics (the same broker)")
    parser.add_argument("--topics", required=True, help="names, with commas between them")
    parser.add_argument("--folder", type=Path, required=True, help="for rows and checkpoints; all processes share it")
    arguments = parser.parse_args()
    records = arguments.records or arguments.bootstrap

    spark = spark_session("spark_queries")
    register(spark)
    worker = Worker(
        {"bootstrap.servers": arguments.bootstrap, "group.id": "spark-queries"}, units=arguments.topics.split(",")
    )

    @worker.runner
    def run(owned: OwnedUnit, stop: threading.Event) -> None:
        while not stop.is_set():
            query = start(spark, owned.name, records=records, folder=arguments.folder)
            print(f"{owned.name} runs here", flush=True)
            while query.isActive and not stop.wait(0.2):
                pass
            if stop.is_set():
                stop_gracefully(query, timeout_s=STOP_TIMEOUT_S)
                print(f"{owned.name} has stopped here", flush=True)
            else:
                print(f"{owned.name} failed: {query.exception()}", file=sys.stderr, flush=True)
                stop.wait(RETRY_S)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with worker:
        try:
            worker.wait()
        except KeyboardInterrupt:
            print("leaving; the others take over", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
