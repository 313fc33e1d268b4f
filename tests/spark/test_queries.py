"""Streaming queries on Spark, as members of a group on the embedded broker: nothing lost, doubled or left behind.

Each start of a query costs Spark some seconds, most of them for Python processes: what one query can show is one test.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyarrow import RecordBatch
from pyspark.errors import StreamingQueryException

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.journal import MemoryJournal
from kip848_client.spark import source_progress, stop_gracefully
from tests.spark.arrange import GROUP, committed, everything, options, produce
from tests.spark.queries import DEADLINE_S, Sink, begin, start, stop, until
from tests.spark.sinks import seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def all_left(broker: EmbeddedBroker, journal: MemoryJournal) -> bool:
    """Whether the group is empty, and every member of it has said so before it went."""
    broker.wait_for_group(GROUP, members=0, timeout_s=DEADLINE_S)
    return {event.fields["reason"] for event in journal.named("member_left")} == {"leave"}


def test_restarts_with_other_limits_continue_exactly(
    spark: SparkSession, broker: EmbeddedBroker, journal: MemoryJournal, address: str, tmp_path: Path
) -> None:
    """The life of a query: stopped for a release, failed in the middle of a batch, started again with other options.

    The batch that failed is committed to no member, and read again as it was planned.
    """
    sink = Sink()
    first = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 30})
    until(lambda: len(sink.batches) >= 2, first)
    stop(first)
    assert all_left(broker, journal)
    complete = len(sink.batches)

    sink.fails_at = complete + 1
    failing = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 50})
    with pytest.raises(StreamingQueryException, match="disk is full"):
        failing.awaitTermination(int(DEADLINE_S))
    assert all_left(broker, journal)
    after_failure = sum(committed(broker).values())
    assert after_failure == sink.rows.total(), "complete batches, and nothing of the one that failed"

    sink.fails_at = None
    third = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 170})
    third.processAllAvailable()
    stop(third)

    assert sink.rows == everything(100, partitions=4)
    assert len(sink.batches[complete + 1]) == 50, "the failed batch was repeated as it was planned"
    assert committed(broker) == dict.fromkeys(range(4), 100)
    assert all_left(broker, journal)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_records_pass_through_spark_once_although_batches_fail(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """Topic to Spark to topic: a task that fails leaves nothing that readers of committed records see."""
    broker.topics.create("out", 3)
    failed = tmp_path / "failed"

    def fail_once(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            yield batch
            if not failed.exists():
                failed.touch()
                raise OSError("the disk is full")

    frame = spark.readStream.format("kip848").options(**options(address, {"maxOffsetsPerTrigger": 150})).load()
    frame = frame.selectExpr("key", "concat(partition, ':', offset) as value")
    frame = frame.mapInArrow(fail_once, "key binary, value string")

    def run() -> StreamingQuery:
        writer = frame.writeStream.format("kip848").option("kafka.bootstrap.servers", address).option("topic", "out")
        writer = writer.option("kafka.transactional.id", "copy").trigger(availableNow=True)
        query = begin(
            writer.option("checkpointLocation", str(tmp_path / "checkpoint")), lambda: failed.exists() or seen(address)
        )
        query.awaitTermination(int(DEADLINE_S))
        return query

    with pytest.raises(StreamingQueryException, match="the disk is full"):
        run()
    run()

    assert seen(address) == Counter(f"{number}:{offset}" for number in range(4) for offset in range(100))


def test_a_whole_result_is_written_with_each_batch(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """Counts by key go into a compacted topic: outputMode("complete"), as with Spark's own sink."""
    broker.topics.create("out", 3)
    frame = spark.readStream.format("kip848").options(**options(address, {"startingOffsets": "earliest"})).load()
    counts = frame.groupBy("partition").count()
    counts = counts.selectExpr("cast(partition as string) as key", "concat(partition, ' has ', count) as value")
    writer = counts.writeStream.format("kip848").option("kafka.bootstrap.servers", address).option("topic", "out")
    writer = writer.outputMode("complete").trigger(availableNow=True)
    query = begin(writer.option("checkpointLocation", str(tmp_path / "checkpoint")), lambda: bool(seen(address)))
    query.awaitTermination(int(DEADLINE_S))

    assert seen(address) == Counter(f"{number} has 100" for number in range(4))


def test_a_graceful_stop_finishes_the_batch_and_commits_it(
    spark: SparkSession, broker: EmbeddedBroker, journal: MemoryJournal, address: str, tmp_path: Path
) -> None:
    """A release: what the query has written is committed, so that no member reads it again."""
    sink = Sink()
    query = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 60})
    sink.reading.clear()
    sink.gate.clear()
    until(sink.reading.is_set, query)
    complete = len(sink.batches)
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(stop_gracefully(query)))
    stopping.start()
    asked = Path(tempfile.gettempdir()) / f"kip848-spark-{os.getuid()}"
    until(lambda: complete == 0 or list(asked.glob("*.stop")), query)
    sink.gate.set()
    stopping.join(DEADLINE_S)

    assert stopped == [True]
    assert not query.isActive
    assert complete < len(sink.batches)
    assert sum(committed(broker).values()) == sink.rows.total() < 400
    assert all_left(broker, journal)
    assert not [*asked.glob("*.stop"), *asked.glob("*.left")]


def test_available_now_reads_two_sources_ends_by_itself_and_leaves(
    spark: SparkSession, broker: EmbeddedBroker, journal: MemoryJournal, address: str, tmp_path: Path
) -> None:
    """The nightly job: all that is there, of two sources that are members of their own, through a Parquet sink."""
    broker.topics.create("payments", 2)
    produce(address, "payments", 30, partitions=2)
    limited: dict[str, object] = {"maxOffsetsPerTrigger": 250}
    frames = [
        spark.readStream.format("kip848").options(**options(address, {**limited, "subscribe": topic})).load()
        for topic in ("orders", "payments")
    ]
    writer = frames[0].union(frames[1]).writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = begin(writer, lambda: list(tmp_path.glob("checkpoint/commits/[0-9]*")))
    assert query.awaitTermination(int(DEADLINE_S))
    assert query.exception() is None
    assert all_left(broker, journal)
    written = spark.read.parquet(str(tmp_path / "rows"))
    found = Counter((row.topic, row.partition, row.offset) for row in written.collect())

    assert found == everything(100, partitions=4) + everything(30, partitions=2, topic="payments")
    assert committed(broker) == dict.fromkeys(range(4), 100)
    assert len({event.member_id for event in journal.named("member_joined")}) == 2


def test_two_streams_of_one_query_in_one_group_are_refused(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """A self-join that is written with two load() had half of its rows, or none; Spark's own source gives all."""
    frames = [spark.readStream.format("kip848").options(**options(address)).load() for _ in range(2)]
    writer = frames[0].union(frames[1]).writeStream.foreachBatch(Sink())
    query = begin(writer.option("checkpointLocation", str(tmp_path)), lambda: False)

    assert "two streams of this Spark session read orders in group" in str(query.exception())


def test_lag_is_the_same_for_everybody(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Operators watch groups with their own tools; they must see what Spark's progress says."""
    sink = Sink()
    query = start(spark, address, tmp_path, sink)
    query.processAllAvailable()
    sink.gate.clear()
    sink.reading.clear()
    produce(address, "orders", 30, partitions=4, first=100)
    until(sink.reading.is_set, query)

    admin = AdminClient({"bootstrap.servers": address})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(60)
    seen_by_admin = {tp.partition: tp.offset for tp in answer.topic_partitions}
    assert main(["groups", "lag", GROUP, "--bootstrap", address, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    seen_by_cli = {row["partition"]: (row["committed"], row["lag"]) for row in group["progress"]}
    sink.gate.set()
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    (shown,) = source_progress(progress)
    begin, end, latest = (_positions(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
    stop(query)

    assert begin == {str(number): offset for number, offset in seen_by_admin.items()}
    assert group["lag"] == 120
    assert seen_by_cli == dict.fromkeys(range(4), (100, 30))
    assert {number: latest[number] - begin[number] for number in begin} == dict.fromkeys("0123", 30)
    assert shown["metrics"]["maxOffsetsBehindLatest"] == "0"
    assert (shown["description"].startswith("kip848 orders"), shown["endOffset"]["orders"]) == (True, end)
    assert end == latest == {str(number): offset for number, offset in committed(broker).items()}


def _positions(offset: object) -> dict[str, int]:
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    assert isinstance(parsed, dict)
    positions = parsed["positions"]["orders"]
    assert isinstance(positions, dict)
    return positions
