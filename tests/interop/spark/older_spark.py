"""What an older Spark can do with the source and the sink; run by `test_older_sparks` with that Spark on its path.

Its argument is the broker's address, with 20 records in ``orders`` and nothing in ``out``. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

from kip848_client.spark import register, spark_session


def error_of(frame: DataFrame, kind: str, options: dict[str, str]) -> str:
    """The last line of what a stream that is started fails with; blank if it ends well."""
    with tempfile.TemporaryDirectory() as checkpoint:
        try:
            writer = frame.writeStream.format(kind).options(**options).option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            told = [line for line in str(error).splitlines() if "ConfigError" in line]
            return told[-1] if told else str(error)
    return ""


def main(servers: str) -> None:
    spark: SparkSession = spark_session("older")
    register(spark)
    source, sink = {"kafka.bootstrap.servers": servers}, {"kafka.bootstrap.servers": servers, "topic": "out"}
    frame = spark.read.format("kip848").options(**source, subscribe="orders", includeHeaders="true").load()
    few = frame.where("partition = 1 and offset >= 4")
    frame.select("key", "value").write.format("kip848").options(**sink).mode("append").save()
    stream = spark.readStream.format("kip848").options(**source, **{"kafka.group.id": "g"}, subscribe="orders").load()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "lines").write_text("one\ntwo\n", encoding="utf-8")
        print(
            json.dumps(
                {
                    "version": pyspark.__version__,
                    "rows": sorted((row.partition, row.offset, bytes(row.value).decode()) for row in frame.collect()),
                    "few": sorted((row.partition, row.offset) for row in few.collect()),
                    "reading": error_of(stream, "noop", {}),
                    "writing": error_of(spark.readStream.text(folder), "kip848", sink),
                }
            ),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
