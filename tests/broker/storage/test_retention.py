"""Retention and compaction: what goes, what stays, and what readers see of it."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import hypothesis.strategies as st
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.errors import BrokerError, IllegalStateError
from kip848_client.testing import BrokerRecord, NewRecord
from kip848_client.wire.record_batch import Record, build_batch, keep_records, parse_batch_header, records_of

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("configs", "start"),
    [
        ({}, 0),
        ({"retention.ms": str(2 * HOUR_MS)}, 2),
        ({"retention.ms": "-1"}, 0),
        ({"retention.ms": "0"}, 4),
        ({"retention.bytes": "2500"}, 1),
        ({"retention.bytes": "0"}, 4),
        ({"retention.ms": str(2 * HOUR_MS), "cleanup.policy": "compact"}, 0),
        ({"retention.ms": str(2 * HOUR_MS), "cleanup.policy": "compact,delete"}, 2),
    ],
)
def test_whole_batches_go_oldest_first(configs: dict[str, str], start: int) -> None:
    """Each batch is about 1,070 bytes, and 4, 3, 2 and 1 hours old."""
    clock = ManualClock(wall_ms=1_000 * HOUR_MS)
    with EmbeddedBroker(clock=clock) as broker:
        broker.topics.create("orders", configs=configs)
        for age in (4, 3, 2, 1):
            broker.produce("orders", "x" * 1_000, key="k", timestamp_ms=1_000 * HOUR_MS - age * HOUR_MS)
        assert broker.topics.offsets("orders") == {0: (0, 4)}, "nothing goes by itself"
        assert broker.topics.apply_retention("orders") == ({("orders", 0): start} if start else {})
        assert broker.topics.offsets("orders") == {0: (start, 4)}
        assert broker.topics.apply_retention() == {}


def test_a_consumer_behind_the_start_is_reset_by_its_policy() -> None:
    """A lag alarm and a reset policy are worth a test: this is how records are lost in production."""
    with EmbeddedBroker() as broker:
        broker.topics.create("orders", configs={"retention.bytes": "0"})
        broker.produce_many("orders", ["tea", "milk"])
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            first = consumer.poll(20)
            assert first is not None
            consumer.commit(first, asynchronous=False)
        broker.topics.apply_retention()
        broker.produce("orders", "salt")
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            after = consumer.poll(20)
            assert after is not None
            assert (after.offset(), after.value()) == (2, b"salt")


def test_the_profile_kafka_cleans_by_itself() -> None:
    """At its check intervals, as Kafka: a compacted topic every 15 s, and retention every five minutes."""
    clock = ManualClock()
    with EmbeddedBroker(profile="kafka", clock=clock) as broker:
        broker.topics.create("orders", configs={"retention.ms": "1000"})
        broker.topics.create("state", configs={"cleanup.policy": "compact"})
        broker.produce("orders", "tea")
        for value in ("old", "new", "newest batch"):
            broker.produce("state", value, key="k")
        broker.clock.advance(14_999)
        assert len(broker.records("state")) == 3
        broker.clock.advance(1)
        assert [record.value for record in broker.records("state")] == [b"new", b"newest batch"]
        broker.clock.advance(284_999)
        assert broker.topics.offsets("orders") == {0: (0, 1)}
        broker.clock.advance(1)
        assert broker.topics.offsets("orders") == {0: (1, 1)}


def test_compaction_keeps_the_last_record_of_each_key_and_every_offset(tmp_path: Path) -> None:
    """A state restored from a compacted changelog is the same; a client reads over the gaps."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.topics.create("state", configs={"cleanup.policy": "compact"})
        for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "3"), ("c", "1"), ("b", "2")):
            broker.produce("state", value, key=key)
        broker.produce("state", "9", key="a")  # in the newest batch, which stays out of it
        before = {record.key: record.value for record in broker.records("state")}
        assert broker.topics.compact("state") == {("state", 0): 3}
        kept = [(record.offset, record.key, record.value) for record in broker.records("state")]
        assert kept == [(3, b"a", b"3"), (4, b"c", b"1"), (5, b"b", b"2"), (6, b"a", b"9")]
        assert {record.key: record.value for record in broker.records("state")} == before
        assert broker.topics.offsets("state") == {0: (0, 7)}
        assert read_by_librdkafka(broker, "state", 4) == [offset for offset, _, _ in kept]
        broker.produce("state", "10", key="a")
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert [(record.offset, record.key, record.value) for record in broker.records("state")] == [
            *kept,
            (7, b"a", b"10"),
        ]


def read_by_librdkafka(broker: EmbeddedBroker, topic: str, count: int) -> list[int | None]:
    """The offsets of the records that a client sees from the beginning."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r"})
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = reader.consume(count, 20)
    reader.close()
    return [message.offset() for message in messages]


def test_a_tombstone_stays_for_a_while_and_then_goes_with_its_key() -> None:
    """A reader that is slow must still hear that the key is gone."""
    clock = ManualClock()
    with EmbeddedBroker(clock=clock) as broker:
        broker.topics.create("state", configs={"cleanup.policy": "compact", "delete.retention.ms": "1000"})
        for value in ("1", None, "another key"):
            broker.produce("state", value, key="a" if value != "another key" else "z")
        broker.topics.compact("state")
        assert [record.value for record in broker.records("state")] == [None, b"another key"]
        broker.clock.advance(999)
        assert broker.topics.compact("state") == {}
        broker.clock.advance(1)
        assert broker.topics.compact("state") == {("state", 0): 1}
        assert [record.value for record in broker.records("state")] == [b"another key"]


def test_what_a_transaction_took_back_is_no_last_record() -> None:
    """Aborted records go; open ones stay, and shadow nothing."""
    with EmbeddedBroker() as broker:
        broker.topics.create("state", configs={"cleanup.policy": "compact"})
        broker.produce("state", "kept", key="a")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("state", b"taken back", key=b"a")
        producer.flush(20)
        producer.abort_transaction(20)
        producer.begin_transaction()
        producer.produce("state", b"open", key=b"a")
        producer.flush(20)
        broker.produce("state", "newest", key="z")
        assert broker.topics.compact("state") == {("state", 0): 1}
        assert [record.value for record in broker.records("state", committed=False)] == [b"kept", b"open", b"newest"]
        producer.commit_transaction(20)


def test_what_is_not_to_be_cleaned_is_refused() -> None:
    """The error names the topic and the setting that it needs; a silent no-op would hide a wrong test."""
    with EmbeddedBroker({"orders": 1}) as broker:
        with pytest.raises(IllegalStateError, match=r"create it with cleanup\.policy=compact"):
            broker.topics.compact("orders")
        with pytest.raises(BrokerError, match="there is no topic 'payments'"):
            broker.topics.apply_retention("payments")


KEY_AND_VALUE = st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.text(max_size=3)))
BATCHES = st.lists(st.lists(KEY_AND_VALUE, min_size=1, max_size=12), min_size=1, max_size=6)


@given(BATCHES, st.integers(0, 5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_state_that_is_restored_is_the_same_after_compaction(
    batches: list[list[tuple[str, str | None]]], at: int
) -> None:
    """Compacting at any time, and again at the end, changes no key's last value."""
    with EmbeddedBroker() as broker:
        broker.topics.create("state", configs={"cleanup.policy": "compact"})
        for number, batch in enumerate(batches):
            broker.produce_many("state", [NewRecord(value, key) for key, value in batch])
            if number == at:
                broker.topics.compact("state")
        before = state_of(broker.records("state"))
        broker.topics.compact("state")
        after = broker.records("state")
        assert state_of(after) == before
        offsets = [record.offset for record in after]
        assert offsets == sorted(set(offsets))
        assert broker.topics.offsets("state") == {0: (0, sum(map(len, batches)))}


def state_of(records: tuple[BrokerRecord, ...]) -> dict[bytes | None, bytes | None]:
    """The last value of each key, tombstones included."""
    return {record.key: record.value for record in records}


def test_records_are_taken_out_of_a_batch_without_moving_the_others() -> None:
    """Sequences, epochs and offsets are what a producer's retry and a fetch rely on."""
    batch = build_batch(
        [Record(bytes([65 + n]), timestamp=100 + n) for n in range(4)],
        base_offset=7, producer_id=3, producer_epoch=2, base_sequence=5, attributes=1,
    )  # fmt: skip
    less = keep_records(batch, lambda record: record.offset in (8, 10))
    assert [(record.offset, record.value, record.timestamp) for record in records_of(less)] == [
        (8, b"B", 101), (10, b"D", 103),
    ]  # fmt: skip
    old, new = parse_batch_header(batch), parse_batch_header(less)
    assert (new.base_offset, new.last_offset, new.producer_id, new.producer_epoch, new.base_sequence) == (
        old.base_offset, old.last_offset, old.producer_id, old.producer_epoch, old.base_sequence,
    )  # fmt: skip
    assert new.record_count == 2
    assert keep_records(batch, lambda _: True) is batch
    assert records_of(keep_records(batch, lambda _: False)) == ()
