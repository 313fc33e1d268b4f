"""Streaming queries on Spark, as members of a group on the embedded broker: nothing lost, doubled or left behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from kip848_client.broker import EmbeddedBroker
from kip848_client.cli import main
from tests.spark.arrange import GROUP, committed, consumed, consumer, everything, produce
from tests.spark.queries import Sink, start
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 4}) as broker:
        yield broker


@pytest.fixture
def address(broker: EmbeddedBroker) -> str:
    produce(broker.bootstrap_servers, "orders", 100, partitions=4)
    return broker.bootstrap_servers


def stop(query: StreamingQuery) -> None:
    query.stop()
    query.awaitTermination(20)


def test_a_restart_with_another_limit_continues_exactly(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """The usual life of a query: stopped for a release, started again with other options."""
    sink = Sink()
    first = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 150})
    wait_until(lambda: sink.rows.total() >= 150, 60)
    stop(first)
    broker.wait_for_group(GROUP, members=0, timeout_s=1)
    second = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 210})
    second.processAllAvailable()
    done = committed(broker)
    stop(second)

    assert sink.rows == everything(100, partitions=4)
    assert done == dict.fromkeys(range(4), 100)


def test_a_failure_in_the_middle_of_a_batch_commits_nothing_of_it_and_leaves_the_group(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """The batch is read again by the next run, whatever its limits are, and by nobody else as long as it is ours."""
    from pyspark.errors import StreamingQueryException

    sink = Sink()
    sink.fails_at = 1
    failing = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 100})
    with pytest.raises(StreamingQueryException, match="disk is full"):
        failing.awaitTermination(60)
    broker.wait_for_group(GROUP, members=0, timeout_s=1)
    after_failure = sum(committed(broker).values())

    sink.fails_at = None
    second = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 170})
    second.processAllAvailable()
    stop(second)

    assert after_failure == 100, "the first batch, and nothing of the second"
    assert sink.rows == everything(100, partitions=4)
    assert len(sink.batches[1]) == 100, "the failed batch was repeated as it was planned"
    assert committed(broker) == dict.fromkeys(range(4), 100)


def test_a_consumer_takes_over_in_the_middle_of_a_batch_and_gives_back(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """The hand-over that users see when they deploy a service beside a query: both read, nothing is doubled."""
    sink = Sink()
    query = start(spark, address, tmp_path, sink, {"maxOffsetsPerTrigger": 200})
    wait_until(lambda: sink.batches, 60)
    sink.reading.clear()
    sink.gate.clear()
    produce(address, "orders", 100, partitions=4, first=100)
    assert sink.reading.wait(30)

    seen: Counter[tuple[str, int, int]] = Counter()
    with consumer(address) as plain:
        plain.subscribe(["orders"])
        while not any(m.target and not m.assigned for m in broker.wait_for_group(GROUP).members):
            assert plain.poll(0.01) is None
        for _ in range(10):
            assert plain.poll(0.02) is None, "a batch reads all four partitions"
        sink.gate.set()
        while seen.total() < 20:
            seen.update(consumed(plain.consume(7, 0.05)))
        plain.commit(asynchronous=False)
    broker.wait_for(GROUP, lambda group: len(group.members) == 1 and len(group.members[0].assigned) == 4)
    wait_until(lambda: (sink.rows + seen).total() >= 800, 60)
    query.processAllAvailable()
    stop(query)

    assert len({number for _, number, _ in seen}) <= 2
    assert sink.rows + seen == everything(200, partitions=4)
    assert committed(broker) == dict.fromkeys(range(4), 200)


def test_two_queries_share_the_partitions_of_one_group(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """A second application takes half of the work."""
    one, two = Sink(), Sink()
    first = start(spark, address, tmp_path / "1", one, {"maxOffsetsPerTrigger": 100})
    wait_until(lambda: one.batches, 60)
    second = start(spark, address, tmp_path / "2", two, {"maxOffsetsPerTrigger": 100})
    broker.wait_for(
        GROUP,
        lambda group: [len(m.assigned) for m in group.members] == [2, 2] and group.state == "Stable",
        timeout_s=60,
    )
    produce(address, "orders", 100, partitions=4, first=100)
    wait_until(lambda: (one.rows + two.rows).total() >= 800, 60)
    first.processAllAvailable()
    second.processAllAvailable()
    stop(first)
    stop(second)

    assert one.rows + two.rows == everything(200, partitions=4)
    assert two.rows.total() >= 200, "all that came to its two partitions after it had joined"
    broker.wait_for_group(GROUP, members=0, timeout_s=1)


def test_a_query_can_have_two_sources(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """A union, or a join of two streams: each source is a member of its own."""
    from tests.spark.arrange import options

    broker.create_topic("payments", 2)
    produce(address, "payments", 30, partitions=2)
    sink = Sink()
    frames = [
        spark.readStream.format("kip848").options(**options(address, {"subscribe": topic})).load()
        for topic in ("orders", "payments")
    ]
    query = (
        frames[0].union(frames[1]).writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path)).start()
    )
    wait_until(lambda: sink.rows.total() == 460, 60)
    assert len(broker.wait_for_group(GROUP).members) == 2
    stop(query)
    broker.wait_for_group(GROUP, members=0, timeout_s=1)

    assert sink.rows == everything(100, partitions=4) + everything(30, partitions=2, topic="payments")


def test_a_topic_grows(spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path) -> None:
    """New partitions are read from their beginning without a restart."""
    sink = Sink()
    query = start(spark, address, tmp_path, sink)
    query.processAllAvailable()
    broker.add_partitions("orders", 6)
    produce(address, "orders", 10, partitions=6, first=100)
    wait_until(lambda: sink.rows.total() == 460, 60)
    stop(query)

    assert Counter(number for _, number, _ in sink.rows) == {0: 110, 1: 110, 2: 110, 3: 110, 4: 10, 5: 10}


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_is_deleted(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path, fail: bool
) -> None:
    """With failOnDataLoss the query fails and says why; without, it goes on with its other topic."""
    from pyspark.errors import StreamingQueryException

    broker.create_topic("payments", 2)
    sink = Sink()
    changed: dict[str, object] = {"subscribe": "orders,payments", "failOnDataLoss": fail}
    query = start(spark, address, tmp_path, sink, changed)
    wait_until(lambda: sink.rows.total() == 400, 60)
    query.processAllAvailable()
    broker.delete_topic("orders")
    if fail:
        with pytest.raises(StreamingQueryException, match=r"do not exist any more: orders.*failOnDataLoss to false"):
            query.awaitTermination(60)
    else:
        produce(address, "payments", 10, partitions=2)
        wait_until(lambda: sink.rows.total() == 420, 60)
        stop(query)
    broker.wait_for_group(GROUP, members=0, timeout_s=1)


def test_available_now_ends_by_itself_and_leaves(
    spark: SparkSession, broker: EmbeddedBroker, address: str, tmp_path: Path
) -> None:
    """The nightly job: everything that is there, through a Parquet sink, then the group is free again."""
    from tests.spark.arrange import options

    frame = spark.readStream.format("kip848").options(**options(address, {"maxOffsetsPerTrigger": 250})).load()
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    broker.wait_for_group(GROUP, members=0, timeout_s=1)
    written = spark.read.parquet(str(tmp_path / "rows"))
    found = Counter((row.topic, row.partition, row.offset) for row in written.collect())

    assert found == everything(100, partitions=4)
    assert committed(broker) == dict.fromkeys(range(4), 100)


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
    assert sink.reading.wait(30)

    admin = AdminClient({"bootstrap.servers": address})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(10)
    seen_by_admin = {tp.partition: tp.offset for tp in answer.topic_partitions}
    assert main(["groups", "describe", GROUP, "--bootstrap", address, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    seen_by_cli = {row["partition"]: (row["committed"], row["lag"]) for row in group["progress"]}
    sink.gate.set()
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    begin, end, latest = (_positions(source[name]) for name in ("startOffset", "endOffset", "latestOffset"))
    stop(query)

    assert begin == {str(number): offset for number, offset in seen_by_admin.items()}
    assert seen_by_cli == dict.fromkeys(range(4), (100, 30))
    assert {number: latest[number] - begin[number] for number in begin} == dict.fromkeys("0123", 30)
    assert end == latest == {str(number): offset for number, offset in committed(broker).items()}


def _positions(offset: object) -> dict[str, int]:
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    assert isinstance(parsed, dict)
    positions = parsed["positions"]["orders"]
    assert isinstance(positions, dict)
    return positions
