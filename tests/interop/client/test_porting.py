"""Programs as confluent-kafka's own examples write them, with a changed import only; and what they rely on."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # missing in its __all__

import kip848_client as confluent_kafka
from kip848_client import (
    AsyncConsumer,
    ConfigError,
    Consumer,
    EmbeddedBroker,
    IllegalStateError,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, keys_of
from tests.support.driving import drive
from tests.support.waiting import wait_until


@pytest.fixture
def conf(broker: EmbeddedBroker) -> dict[str, Any]:
    """What every program below has in its configuration."""
    address = broker.bootstrap_servers
    return {"bootstrap.servers": address, "group.id": "ported", "auto.offset.reset": "earliest", "log_level": 0}


def committed(broker: EmbeddedBroker, group: str = "ported") -> dict[str, int]:
    """Committed offsets by ``topic-partition``."""
    return {str(partition): offset for partition, offset in broker.groups.committed(group).items()}


# --- shapes of whole programs


def test_the_loop_that_stores_offsets_after_processing(
    broker: EmbeddedBroker, produce: Produce, conf: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The at-least-once idiom of confluent-kafka: if what is not stored were committed, a crash would lose records."""
    produce("orders", 5, partitions=[0, 1])
    settings = {**conf, "session.timeout.ms": 6000, "enable.auto.offset.store": False}
    assigned: list[TopicPartition] = []

    def print_assignment(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.extend(partitions)

    processed: list[tuple[int | None, int | None]] = []
    c = Consumer(settings, logger=logging.getLogger("consumer"))
    c.subscribe(["orders"], on_assign=print_assignment)
    try:
        while len(processed) < 10:
            msg = c.poll(timeout=1.0)
            if msg is None:
                continue
            if msg.error():
                raise KafkaException(msg.error())
            processed.append((msg.partition(), msg.offset()))
            if msg.partition() == 0:  # the work on the other partition is never finished
                c.store_offsets(msg)
    finally:
        c.close()

    assert [partition.partition for partition in assigned] == [0, 1, 2, 3]
    assert committed(broker) == {"orders-0": 5}
    warnings = [record for record in caplog.records if "classic_by_keys" in record.getMessage()]
    assert len(warnings) == 1
    assert "consumer.session.timeout.ms" in warnings[0].getMessage()


@pytest.mark.kip848_broker(topics={"left": 2, "right": 2})
def test_a_program_that_names_range_gets_range(make_consumer: MakeConsumer) -> None:
    """A join of two topics in memory needs the same numbers of both; uniform would give one member each topic whole."""
    pair = [make_consumer(partition_assignment_strategy="range").subscribe("left", "right") for _ in range(2)]
    drive(*pair, until=lambda: [len(one.partitions) for one in pair] == [2, 2])
    for consumer in pair:
        assert sorted({one.topic for one in consumer.partitions}) == ["left", "right"]
        assert len(set(consumer.numbers)) == 1


def test_the_three_clients_as_context_managers(broker: EmbeddedBroker, conf: dict[str, Any]) -> None:
    """Administration and producing stay confluent-kafka's; only the consumer is ours."""
    topic = "context-manager-example"
    with AdminClient({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        for future in admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)]).values():
            future.result()
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for i in range(5):
            producer.produce(topic, key=f"key-{i}", value=f"Message {i}".encode())
            producer.poll(0)

    texts: list[tuple[bytes | None, bytes | None]] = []
    with Consumer(**conf) as consumer:
        consumer.subscribe([topic])
        while len(texts) < 5:
            msg = consumer.poll(timeout=1.0)
            if msg is None:
                continue
            if error := msg.error():
                assert error.code() == KafkaError._PARTITION_EOF
                continue
            texts.append((msg.key(), msg.value()))

    assert texts == [(f"key-{i}".encode(), f"Message {i}".encode()) for i in range(5)]
    assert committed(broker) == {f"{topic}-0": 5}


def test_committed_offsets_and_watermarks_without_a_subscription(
    broker: EmbeddedBroker, produce: Produce, conf: dict[str, Any]
) -> None:
    """Scripts that report lag join no group, and use the module under confluent-kafka's name."""
    produce("orders", 7, partitions=[0])
    with Consumer({**conf, "enable.auto.commit": False}) as reader:
        reader.assign([TopicPartition("orders", 0)])
        reader.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)

    consumer = confluent_kafka.Consumer(conf)
    metadata = consumer.list_topics("orders", timeout=10)
    if metadata.topics["orders"].error is not None:
        raise confluent_kafka.KafkaException(metadata.topics["orders"].error)
    partitions = [confluent_kafka.TopicPartition("orders", p) for p in metadata.topics["orders"].partitions]
    lags: dict[int, tuple[str, int]] = {}
    for partition in consumer.committed(partitions, timeout=10):
        (lo, hi) = consumer.get_watermark_offsets(partition, timeout=10, cached=False)
        offset = "-" if partition.offset == confluent_kafka.OFFSET_INVALID else str(partition.offset)
        lags[partition.partition] = (offset, hi - lo if partition.offset < 0 else hi - partition.offset)
    consumer.close()

    assert lags == {0: ("3", 4), 1: ("-", 0), 2: ("-", 0), 3: ("-", 0)}


def test_reading_one_partition_to_its_end_as_before_a_transaction(
    broker: EmbeddedBroker, produce: Produce, conf: dict[str, Any]
) -> None:
    """The consumer's half of consume-transform-produce: it stops at the end, and hands positions to the producer."""
    produce("orders", 25, partitions=[2])
    consumer = Consumer({**conf, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 2)])
    eof: dict[tuple[str | None, int | None], bool] = {}
    values = []
    while True:
        msg = consumer.poll(timeout=1.0)
        if msg is None:
            continue
        topic, partition = msg.topic(), msg.partition()
        if error := msg.error():
            if error.code() == KafkaError._PARTITION_EOF:
                eof[(topic, partition)] = True
                if len(eof) == len(consumer.assignment()):
                    break
            continue
        eof.pop((topic, partition), None)
        values.append(msg.value())

    positions = consumer.position(consumer.assignment())
    metadata = consumer.consumer_group_metadata()
    consumer.close()

    assert values == [str(number).encode() for number in range(25)]
    assert [(p.topic, p.partition, p.offset) for p in positions] == [("orders", 2, 25)]
    assert b"ported" in metadata
    assert committed(broker) == {}


# --- stored offsets


def test_only_stored_offsets_are_committed_at_each_interval(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A crash of the process must cost what was not stored, and nothing else."""
    produce("orders", 10, partitions=[0])
    consumer = make_consumer(enable_auto_offset_store=False, auto_commit_interval_ms=20).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 10)
    consumer.raw.store_offsets(offsets=[TopicPartition("orders", 0, 4, "half")])
    drive(consumer, until=lambda: committed(broker, "g"))
    consumer.vanish()

    assert committed(broker, "g") == {"orders-0": 4}
    assert consumer.raw.position([TopicPartition("orders", 0)])[0].offset == 10, "reading goes on where it was"


def test_a_commit_without_arguments_commits_what_is_stored(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """As in confluent-kafka; without anything stored there is nothing to commit, and no error."""
    produce("orders", 10, partitions=[0])
    consumer = make_consumer(enable_auto_offset_store=False, enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 10)

    assert consumer.raw.commit(asynchronous=False) == []
    consumer.raw.store_offsets(offsets=[TopicPartition("orders", 0, 6)])
    told = consumer.raw.commit(asynchronous=False)

    assert told is not None
    assert [partition.offset for partition in told] == [6]
    assert committed(broker, "g") == {"orders-0": 6}


def test_a_store_ends_with_the_partition(broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce) -> None:
    """The next owner commits further; an old store that came back with the partition would commit backwards."""
    produce("orders", 4)
    first = make_consumer(enable_auto_offset_store=False, auto_commit_interval_ms=60_000).subscribe("orders")
    drive(first, until=lambda: len(first.delivered) == 16)
    first.raw.store_offsets(offsets=[TopicPartition("orders", p, 2) for p in range(4)])
    second = make_consumer(auto_commit_interval_ms=60_000).subscribe("orders")
    drive(first, second, until=lambda: len(second.partitions) == 2 and len(second.delivered) == 4)
    assert committed(broker, "g") == {f"orders-{p}": 2 for p in range(4)}, "the revocation committed what was stored"
    moved = second.numbers
    second.raw.close()
    drive(first, until=lambda: len(first.partitions) == 4)
    first.raw.close()

    assert committed(broker, "g") == {f"orders-{p}": 4 if p in moved else 2 for p in range(4)}


def test_storing_is_refused_where_it_means_nothing(make_consumer: MakeConsumer) -> None:
    """An offset that is silently not committed is read twice by the next process."""
    automatic = make_consumer()
    with pytest.raises(IllegalStateError, match=r"enable\.auto\.offset\.store=false"):
        automatic.raw.store_offsets(offsets=[TopicPartition("orders", 0, 1)])
    by_hand = make_consumer(enable_auto_offset_store=False)
    with pytest.raises(KafkaException, match="orders-0 is not assigned") as raised:
        by_hand.raw.store_offsets(offsets=[TopicPartition("orders", 0, 1)])
    assert raised.value.args[0].code() == KafkaError._STATE
    with pytest.raises(IllegalStateError, match="takes a message or offsets"):
        by_hand.raw.store_offsets()


# --- ends of partitions


def test_every_partitions_end_is_told_once_and_the_position_stays(
    make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Batch programs stop when they saw all ends; an end that is counted as a record would skip one."""
    produce("orders", 3)
    consumer = make_consumer(enable_partition_eof=True).subscribe("orders").raw
    ends, records = list[Message](), list[Message]()
    while len(ends) < 4:
        for message in consumer.consume(100, 1.0):
            error = message.error()
            (ends if error is not None and error.code() == KafkaError._PARTITION_EOF else records).append(message)

    assert sorted((end.partition(), end.offset()) for end in ends) == [(p, 3) for p in range(4)]
    assert len(records) == 12
    assert [p.offset for p in consumer.position(consumer.assignment())] == [3, 3, 3, 3]
    assert not any(message.error() for message in consumer.consume(100, 0.2)), "once is enough"


# --- smaller differences


def test_poll_before_subscribe_returns_none(conf: dict[str, Any]) -> None:
    """Programs subscribe later, or from time to time, and poll all along."""
    with Consumer(conf) as consumer:
        began_s = time.monotonic()
        assert consumer.poll(0.2) is None
        assert time.monotonic() - began_s >= 0.2
        assert consumer.consume(10, 0.01) == []
        for wait_for_ever in (consumer.poll, lambda: next(iter(consumer)), lambda: next(consumer.batches())):
            with pytest.raises(IllegalStateError, match=r"wait for ever; call subscribe\(\)"):
                wait_for_ever()


def test_pausing_what_is_not_assigned_is_left_out(make_consumer: MakeConsumer, produce: Produce) -> None:
    """A partition that was revoked a moment ago must not end the program; and must not be silent when it comes back."""
    produce("orders", 1)
    consumer = make_consumer()
    consumer.raw.pause([TopicPartition("orders", 0)])
    consumer.raw.resume([TopicPartition("elsewhere", 7)])
    consumer.subscribe("orders")
    drive(consumer, until=lambda: set(consumer.delivered) == keys_of("orders", 1))
    assert consumer.raw.paused() == []


def test_the_cluster_has_an_id(make_consumer: MakeConsumer) -> None:
    """A deserialiser of confluent-kafka asks the consumer for its ``cluster_id``."""
    consumer = make_consumer().raw
    assert consumer.cluster_id(timeout=5) == consumer.list_topics(timeout=5).cluster_id


def test_credentials_can_only_be_replaced_where_there_are_some(make_consumer: MakeConsumer) -> None:
    """A program without credentials must not believe that it logs in."""
    with pytest.raises(IllegalStateError, match="needs a login"):
        make_consumer().raw.set_sasl_credentials("ann", "secret")


def test_unknown_keys_are_named_together(conf: dict[str, Any]) -> None:
    """One error names every unknown key; librdkafka names one at a time, which costs a run each."""
    with pytest.raises(ConfigError) as raised:
        Consumer({**conf, "fetch.min.byte": 1, "zzzzzz": 2})
    assert "fetch.min.byte is not a configuration key; did you mean fetch.min.bytes?" in str(raised.value)
    assert "zzzzzz is not a configuration key" in str(raised.value)


def wrong_calls(consumer: Any) -> Iterator[tuple[Any, str]]:
    yield lambda: consumer.poll("1"), "a number of seconds, got '1'"
    yield lambda: consumer.close("1"), "timeout is a number of seconds, got '1'"
    yield lambda: consumer.close(mode="stay"), "mode is a LeaveMode, got 'stay'"
    yield lambda: consumer.hand_over("1"), "timeout is a number of seconds, got '1'"
    for call in (consumer.lag, consumer.cluster_id, partial(consumer.list_topics, "orders")):
        yield partial(call, "1"), "a number of seconds, got '1'"
    for call in (consumer.committed, consumer.offsets_for_times):
        yield partial(call, [TopicPartition("orders", 0, 0)], "1"), "a number of seconds, got '1'"
    yield lambda: consumer.get_watermark_offsets(TopicPartition("orders", 0), "1"), "a number of seconds, got '1'"
    yield lambda: consumer.consume("5", 0.1), "num_messages is a whole number, got '5'"
    yield lambda: consumer.poll(timeout_ms=500), r"write poll\(0.5\), which returns one record, or consume\(500, 0.5\)"
    yield lambda: consumer.consume(timeout_ms=500), r"write consume\(500, 0.5\)"
    yield lambda: consumer.seek("orders", 0, 5), r'write seek\(TopicPartition\("orders", 0, 5\)\)'
    yield lambda: consumer.assign([("orders", 0)]), r"write TopicPartition\('orders', 0\)"
    yield lambda: consumer.assign(TopicPartition("orders", 0)), "put brackets around it"
    yield lambda: consumer.commit("x"), r"commit\(\) takes a message that was consumed, got 'x'"
    yield lambda: consumer.commit(offsets="x"), r"takes a list of TopicPartition, got 'x'"
    yield lambda: consumer.commit(on_commit=3), r"on_commit is a callable \(error, partitions\), got 3"
    yield lambda: consumer.commit(asynchronous="no"), "asynchronous is True or False, got 'no'"
    yield lambda: consumer.list_topics(["orders"]), r"the name of one topic, or none for all, got \['orders'\]"
    yield lambda: consumer.committed([("orders", 0)]), r"committed\(\) takes TopicPartition objects"
    yield lambda: consumer.seek(("orders", 0, 5)), r"write TopicPartition\('orders', 0, 5\)"
    yield lambda: consumer.pause("orders"), r"pause\(\) takes a list of TopicPartition"
    yield lambda: consumer.get_watermark_offsets(("orders", 0)), "takes TopicPartition objects"
    yield partial(consumer.get_watermark_offsets, TopicPartition("orders", 0), cached="1"), "True or False, got '1'"
    yield lambda: EmbeddedBroker(topics=["orders"]), "mapping of names to partition counts"  # type: ignore[arg-type]


def test_arguments_of_wrong_types_get_a_sentence(conf: dict[str, Any]) -> None:
    """An AttributeError from the middle of the library says nothing about the caller's line."""
    with Consumer(conf) as consumer:
        for call, sentence in wrong_calls(consumer):
            with pytest.raises(TypeError, match=sentence):
                call()
        with pytest.raises(ConfigError, match=r'a list of topics such as \["orders"\], got 0'):
            consumer.subscribe(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("commitSync", "use commit(asynchronous=False)"),
        ("seekToBeginning", "OFFSET_BEGINNING"),
        ("seek_to_end", "OFFSET_END"),
        ("currentLag", "use lag()"),
    ],
)
def test_a_method_of_another_client_names_ours(conf: dict[str, Any], name: str, meant: str) -> None:
    """A program of Java's client, or of kafka-python's, is ported name by name."""
    with Consumer(conf) as consumer, pytest.raises(AttributeError) as raised:
        getattr(consumer, name)()
    assert meant in str(raised.value)


def test_functions_are_given_in_confluent_kafkas_order(conf: dict[str, Any]) -> None:
    """Ported programs, and OpenTelemetry's instrumentation of confluent-kafka, give on_assign as second argument."""
    told: list[str] = []
    with Consumer(conf) as consumer:
        consumer.subscribe(["orders"], lambda *_: told.append("assigned"), lambda *_: told.append("revoked"))
        wait_until(lambda: consumer.poll(0) or told, what="an assignment")
    assert told == ["assigned", "revoked"]


def test_the_async_consumer_takes_keyword_arguments_too(conf: dict[str, Any]) -> None:
    """A configuration written for `Consumer` also serves `AsyncConsumer`."""
    with pytest.raises(ConfigError, match=r"group\.id is missing"):
        AsyncConsumer(**{key: value for key, value in conf.items() if key != "group.id"})


def test_statistics_reach_the_callback_while_nothing_is_subscribed(conf: dict[str, Any]) -> None:
    """Callbacks of librdkafka run inside poll(), also before subscribe()."""
    told: list[str] = []
    with Consumer({**conf, "statistics.interval.ms": 10}, stats_cb=told.append) as consumer:
        wait_until(lambda: consumer.poll(0.05) is not None or told, what="statistics")
    assert json.loads(told[0])["type"] == "consumer"


def test_statistics_tell_lag_commits_and_the_group(make_consumer: MakeConsumer, produce: Produce) -> None:
    """librdkafka is no member here and knows none of it: dashboards would show -1 for every partition."""
    produce("orders", 10)
    told: list[dict[str, Any]] = []
    consumer = make_consumer(
        enable_auto_commit=False,
        statistics_interval_ms=20,
        stats_cb=lambda text: told.append(json.loads(text)),
    ).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 40)
    consumer.raw.commit(offsets=[TopicPartition("orders", 1, 4)], asynchronous=False)

    def partition(number: int) -> dict[str, Any]:
        topics = told[-1]["topics"] if told else {}
        return dict(topics.get("orders", {}).get("partitions", {}).get(str(number), {}))  # librdkafka learns them later

    drive(consumer, until=lambda: partition(1).get("consumer_lag") == 6 and partition(0).get("hi_offset") == 10)

    assert (partition(1)["committed_offset"], partition(1)["stored_offset"]) == (4, 10)
    assert partition(1)["consumer_lag_stored"] == 0
    assert (partition(0)["committed_offset"], partition(0)["consumer_lag"]) == (-1001, -1), "nothing is committed"
    group = told[-1]["cgrp"]
    assert (group["state"], group["join_state"], group["assignment_size"]) == ("up", "steady", 4)
    assert group["rebalance_cnt"] >= 1
    assert group["member_id"] == consumer.raw.member_id
    consumer.raw.close()

    again = make_consumer(statistics_interval_ms=20, stats_cb=lambda text: told.append(json.loads(text)))
    told.clear()
    again.subscribe("orders")
    drive(again, until=lambda: partition(1).get("committed_offset", -1) >= 4)
