"""What the sink writes, by its own functions and without Spark: what readers see after a crash at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.admin import OpenTransaction
from kip848_client.errors import BrokerError, ConfigError, ConnectionLostError
from kip848_client.spark.sink import sink_task
from kip848_client.spark.sink.sink import check_columns
from kip848_client.spark.sink.sink_options import SinkOptions, parse_sink_options
from kip848_client.spark.sink.sink_task import BatchId, decide, give_up, write_task
from tests.spark.sinks import BATCH, repeat_after_crash, rows, seen, sink, transactional, write_both

STRING = StringType()


@pytest.fixture
def servers() -> Iterator[str]:
    with EmbeddedBroker({"out": 3}) as broker:
        yield broker.bootstrap_servers


def test_columns_become_records(servers: str) -> None:
    """Keys go where Java's producer, and so Spark's own sink, would send them; a partition that is named wins."""
    batch = pa.record_batch(
        {
            "key": ["k", "k", None],
            "value": [b"1", None, b"3"],
            "partition": pa.array([None, None, 1], pa.int32()),
            "headers": [[{"key": "h", "value": b"x"}], None, []],
        }
    )
    write_task([batch], sink(servers), task=0, batch=None)
    conf = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    found: dict[object, object] = {}
    with Consumer(conf) as reader:
        reader.subscribe(["out"])
        while len(found) < 3:
            for record in reader.consume(3, 1):
                found[record.partition(), record.offset()] = (record.key(), record.value(), record.headers())

    of_murmur2 = 2
    assert found == {
        (of_murmur2, 0): (b"k", b"1", [("h", b"x")]),
        (of_murmur2, 1): (b"k", None, None),
        (1, 0): (None, b"3", None),
    }


def test_a_batch_is_seen_when_it_is_decided_on(servers: str) -> None:
    """Readers of committed records never see half of a batch's tasks; and the next batch follows."""
    options = transactional(servers)
    written = write_both(options)
    assert not seen(servers)
    decide(written, options, batch=BATCH)
    assert seen(servers) == Counter("abc")
    later = BatchId(BATCH.query, BATCH.number + 1)
    decide([write_task(rows("d"), options, task=0, batch=later)], options, batch=later)
    assert seen(servers) == Counter("abcd")


@pytest.mark.parametrize("crash", ["before the decision", "after the decision", "between two ends", "after the ends"])
def test_a_batch_that_is_repeated_after_a_crash_is_seen_once(servers: str, crash: str) -> None:
    """Spark repeats the batch with the same number until it has written down that it is complete."""
    repeated = repeat_after_crash(servers, "out", "billing", crash=crash)

    assert seen(servers) == Counter("abc")
    assert [each.rows for each in repeated] == ([2, 1] if crash == "before the decision" else [0, 0])


def test_another_query_with_the_same_id_is_not_taken_for_one_that_was_repeated(servers: str) -> None:
    """A new checkpoint counts its batches from 0 again: none of them must be left out."""
    options = transactional(servers)
    decide(write_both(options), options, batch=BATCH)
    fresh = BatchId("another", 0)
    decide(write_both(options, fresh), options, batch=fresh)

    assert seen(servers) == Counter("aabbcc")


def test_a_batch_that_failed_is_aborted_at_once(servers: str) -> None:
    """Readers would wait for the end of the transactions until they time out."""
    options = transactional(servers)
    write_both(options)
    give_up(options)
    write_task(rows("d"), sink(servers), task=0, batch=None)

    assert seen(servers) == Counter("d")


def test_a_run_with_fewer_tasks_ends_what_an_earlier_run_has_left(servers: str) -> None:
    """A restart with fewer cores: readers stood still until the transactions of the other tasks timed out."""
    options, other = transactional(servers), transactional(servers, transactional_id="billing-eu")
    for task in range(4):
        write_task(rows(f"interrupted {task}"), options, task=task, batch=BATCH)
    elsewhere = write_both(other, BatchId("elsewhere", 1))
    again = msgspec.structs.replace(BATCH, run="the second")
    decide([write_task(rows("a", "b"), options, task=0, batch=again)], options, batch=again)
    decide(elsewhere, other, batch=BatchId("elsewhere", 1))
    write_task(rows(*"xyz"), sink(servers), task=0, batch=None)

    assert seen(servers) == Counter("ababcxyz")


def test_a_batch_that_was_decided_on_is_not_aborted_when_its_end_fails(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls abort() after a commit() that raised; the restarted query found its batch lost."""
    options = transactional(servers)
    written = write_both(options)
    with monkeypatch.context() as patched:
        patched.setattr(sink_task, "_end", lambda *_, **__: (_ for _ in ()).throw(ConnectionLostError("away")))
        with pytest.raises(ConnectionLostError):
            decide(written, options, batch=BATCH)
    give_up(options)
    decide(write_both(options), options, batch=BATCH)

    assert seen(servers) == Counter("abc")


def test_a_run_looks_once_for_what_was_left(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks every node of the cluster: too much for each batch of a second."""
    options = transactional(servers)
    asked: list[str] = []
    ongoing = sink_task._ongoing

    def noted(options: SinkOptions, matching: str, *, timeout_ms: int) -> tuple[list[OpenTransaction], list[str]]:
        asked.append(matching)
        return ongoing(options, matching, timeout_ms=timeout_ms)

    monkeypatch.setattr(sink_task, "_ongoing", noted)
    for run in ("first", "second"):
        for number in range(2):
            batch = BatchId("q", number if run == "first" else number + 2, run)
            decide([write_task(rows("a"), options, task=0, batch=batch)], options, batch=batch)

    assert len(asked) == 2
    assert seen(servers) == Counter("aaaa")


def test_a_transaction_that_was_aborted_after_the_decision_fails_the_query(servers: str) -> None:
    """It timed out while the driver was down: what is lost must not be a success."""
    options = transactional(servers)
    written = write_both(options)
    give_up(options)
    for _ in range(2):
        with pytest.raises(BrokerError, match="'billing-0' was not committed"):
            decide(written, options, batch=BATCH)


def test_a_batch_write_is_seen_as_a_whole(servers: str) -> None:
    """``frame.write`` has no number to be repeated by; it is not repeated."""
    options = transactional(servers)
    written = write_both(options, None)
    assert not seen(servers)
    decide(written, options, batch=None)
    assert seen(servers) == Counter("abc")


def test_too_many_tasks_for_one_note_are_refused(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka keeps 4 KiB of metadata with an offset."""
    monkeypatch.setattr(sink_task, "_NOTE_LENGTH_MAX", 40)
    options = transactional(servers)
    with pytest.raises(ConfigError, match=r"2 tasks wrote in this batch.*coalesce"):
        decide(write_both(options), options, batch=BATCH)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"topics": "x"}, "topics is not an option of this sink"),
        ({"linger.ms": "5"}, "did you mean kafka.linger.ms"),
        ({"kafka.buffer.memory": "1g"}, "number of bytes"),
        ({"kafka.max.request.size": "5", "kafka.message.max.bytes": "6"}, "mean the same and differ"),
        ({"kafka.max.block.ms": "5"}, "does not apply"),
        ({"kafka.partitioner.class": "X"}, "column partition"),
        ({"path": "/x"}, "take no path"),
        ({"topic": " "}, "topic is blank"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap.servers": "other:1"}, "differ"),
        ({"kafka.key.serializer": "X"}, "bytes or strings"),
        ({"kafka.transactional.id": " "}, "name the query"),
        ({"kafka.transactional.id": "t", "kafka.enable.idempotence": "false"}, "needs an idempotent producer"),
        ({"kafka.default.api.timeout.ms": "soon"}, "number of milliseconds"),
        ({"kafka.sasl.jaas.config": "x"}, "cannot be translated"),
    ],
)
def test_a_wrong_option_is_named(changed: dict[str, str], told: str) -> None:
    """A misspelt or impossible option of the sink is refused by its name, and not ignored."""
    with pytest.raises(ConfigError, match=told):
        parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **changed})


def test_limits_of_javas_producer_are_taken() -> None:
    """Options of a job that wrote with Spark's own sink work unchanged."""
    javas = {"kafka.max.request.size": "5000000", "kafka.buffer.memory": "33554432"}
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **javas})
    assert options.producer["message.max.bytes"] == "5000000"
    assert options.producer["queue.buffering.max.kbytes"] == "32768"


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"value": STRING, "order": STRING}, "t", "column order is not one of"),
        ({"value": LongType()}, "t", "column value is bigint, and must be binary or string"),
        ({"key": STRING}, "t", "no column value"),
        ({"value": STRING}, None, "there is no topic"),
        ({"value": STRING, "topic": STRING, "partition": LongType()}, None, "column partition is bigint, .*int: cast"),
    ],
)
def test_columns_that_are_no_records_are_refused(columns: dict[str, DataType], topic: str | None, told: str) -> None:
    """Before anything is written; each task would fail otherwise, and say so in words of Arrow."""
    options = {"kafka.bootstrap.servers": "h:1"} | ({"topic": topic} if topic else {})
    with pytest.raises(ConfigError, match=told):
        check_columns(StructType([StructField(*each) for each in columns.items()]), parse_sink_options(options))


def test_a_record_without_a_topic_is_refused(servers: str) -> None:
    """A row without a topic fails the query, as in Spark's own sink; it must not be dropped."""
    batch = pa.record_batch({"value": ["x"], "topic": pa.array([None], pa.string())})
    with pytest.raises(ConfigError, match="a record has no topic"):
        write_task([batch], parse_sink_options({"kafka.bootstrap.servers": servers}), task=0, batch=None)
