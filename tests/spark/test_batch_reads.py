"""``spark.read.format("kip848")`` on Spark itself: columns, tasks, and what bad options say. Ranges: `test_batch`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kip848_client import EmbeddedBroker
from tests.spark.arrange import MARCH_2026_MS, options, produce
from tests.spark.queries import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2}) as broker:
        produce(broker.bootstrap_servers, "orders", 50, partitions=2, timestamp_ms=MARCH_2026_MS, headers=[("h", b"1")])
        yield broker


def test_columns_are_those_of_sparks_own_source(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """A query moves to this source by changing its format; every row means the same."""
    frame = read(spark, broker.bootstrap_servers, {"includeHeaders": True})
    row = frame.selectExpr("*", "unix_millis(timestamp) as ms").where("partition = 1 and offset = 7").collect()[0]

    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert (bytes(row.key), bytes(row.value), row.topic, row.timestampType) == (b"k7", b"1:7", "orders", 0)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"1")]
    assert row.ms == MARCH_2026_MS + 7
    assert read(spark, broker.bootstrap_servers).columns == frame.columns[:-1], "headers are for those who ask"


def test_every_record_is_in_exactly_one_task(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """minPartitions cuts ranges, so that more cores than Kafka partitions have something to do."""
    frame = read(spark, broker.bootstrap_servers, {"minPartitions": 5})

    assert frame.rdd.getNumPartitions() == 5
    rows = [(row.partition, row.offset) for row in frame.collect()]
    assert sorted(rows) == [(number, offset) for number in range(2) for offset in range(50)]


def test_filters_reach_the_source(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """A look at ten records must not read the topic: only one range is left, and Spark filters again."""
    frame = read(spark, broker.bootstrap_servers)
    ten = frame.where("partition = 1 and offset between 10 and 19 and timestamp > timestamp'2026-01-01'")

    assert ten.rdd.getNumPartitions() == 1
    assert sorted((row.partition, row.offset) for row in ten.collect()) == [(1, offset) for offset in range(10, 20)]
    assert frame.where("partition = 1 and value = '1:7'").count() == 1


def test_bad_options_of_a_stream_are_told(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The user sees our sentence, not only a stack of Spark's."""
    from pyspark.errors import PySparkException

    chosen = options(broker.bootstrap_servers, {"kafka.group.id": None})
    frame = spark.readStream.format("kip848").options(**chosen).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match=r"kafka\.group\.id is missing"):
        query.awaitTermination(240)


def test_a_batch_without_records_is_empty(spark: SparkSession, broker: EmbeddedBroker) -> None:
    """Nothing came since yesterday: that is an answer, not an error."""
    same = '{"orders":{"0":4,"1":9}}'
    frame = read(spark, broker.bootstrap_servers, {"startingOffsets": same, "endingOffsets": same})
    assert frame.collect() == []
