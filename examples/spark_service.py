"""A streaming query that a supervisor can stop without a batch being read twice: SIGTERM to this process.

    python examples/spark_service.py --bootstrap localhost:9092 --group billing --topic orders --folder /data/billing
    kill -TERM $(cat /data/billing/pid)

On SIGTERM the batch that runs is finished and committed, the partitions are handed over to the other members of the
group, and the query leaves. `docs/spark.md` shows how Kubernetes and `spark-submit` send the signal to this process:
otherwise they send it to the JVM, which stops the query in the middle of a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from kip848_client.spark import register, spark_session, stop_gracefully


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for rows, checkpoint and the process id")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())  # Spark must not be called inside a signal handler
    Path(folder, "pid").write_text(str(os.getpid()), encoding="utf-8")

    spark = spark_session("spark_service")
    register(spark)
    records = (
        spark.readStream.format("kip848")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("kafka.group.id", arguments.group)
        .option("subscribe", arguments.topic)
        .option("auto.offset.reset", "earliest")
        .load()
    )
    writer = records.selectExpr("topic", "partition", "offset", "cast(value as string) as value").writeStream
    query = (
        writer.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    left = True
    while not query.awaitTermination(1):
        if stopping.is_set():
            left = stop_gracefully(query, timeout_s=120)
            break
    spark.stop()
    return 0 if left else 1


if __name__ == "__main__":
    sys.exit(main())
