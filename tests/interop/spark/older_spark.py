"""What an older Spark can do with the source and the sink; run by `test_older_sparks` with that Spark on its path.

Its argument is the broker's address, with 10 records in each partition of ``orders`` (two) and nothing in ``out``.
Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kip848_client.spark import register, spark_session, stop_gracefully
from tests.spark.arrange import produce
from tests.spark.queries import Sink


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


def stream_rows(stream: DataFrame, servers: str, checkpoint: str) -> list[tuple[int, int, int]]:
    """Partition, offset and how often, of a query that ends, fails in its second run, and is stopped in its third."""
    sink = Sink()
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    if find_spec("pyspark.sql.streaming.datasource") is None:
        assert [len(rows) for rows in sink.batches.values()] == [20], "one batch, whatever the limit: there is no other"
    produce(servers, "orders", 10, partitions=2, first=10)
    sink.fails_at = failed = len(sink.batches)
    with pytest.raises(StreamingQueryException, match="disk is full"):
        writer.trigger(availableNow=True).start().awaitTermination()
    sink.fails_at = None
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    produce(servers, "orders", 10, partitions=2, first=20)
    query.processAllAvailable()
    assert stop_gracefully(query), "it left the group in time"
    assert not query.isActive
    later = [len(rows) for number, rows in sink.batches.items() if number > failed]
    assert max(later) <= 3, "the limit holds from then on"
    return sorted((partition, offset, count) for (_, partition, offset), count in sink.rows.items())


def main(servers: str) -> None:
    spark: SparkSession = spark_session("older")
    register(spark)
    source, sink = {"kafka.bootstrap.servers": servers}, {"kafka.bootstrap.servers": servers, "topic": "out"}
    frame = spark.read.format("kip848").options(**source, subscribe="orders", includeHeaders="true").load()
    few = frame.where("partition = 1 and offset >= 4")
    frame.select("key", "value").write.format("kip848").options(**sink).mode("append").save()
    member = {"kafka.group.id": "g", "auto.offset.reset": "earliest", "maxOffsetsPerTrigger": "3"}
    stream = spark.readStream.format("kip848").options(**source, **member, subscribe="orders").load()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as checkpoint:
        Path(folder, "lines").write_text("one\ntwo\n", encoding="utf-8")
        print(
            json.dumps(
                {
                    "version": pyspark.__version__,
                    "rows": sorted((row.partition, row.offset, bytes(row.value).decode()) for row in frame.collect()),
                    "few": sorted((row.partition, row.offset) for row in few.collect()),
                    "stream": stream_rows(stream, servers, checkpoint),
                    "writing": error_of(spark.readStream.text(folder), "kip848", sink),
                }
            ),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
