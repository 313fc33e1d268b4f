"""Our consumers read everything while members come and go; on the embedded broker."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kip848_client import Consumer, EmbeddedBroker, IllegalStateError, MemberState, TopicPartition
from kip848_client.consumer.group import filling
from kip848_client.consumer.records.data_plane import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Message
from kip848_client.errors import ListenerError, NoOffsetForPartitionError
from kip848_client.testing import ALWAYS, delay
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once, keys_of
from tests.support.driving import drive, key
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop


def test_one_consumer_reads_every_record_in_order(make_consumer: MakeConsumer, produce: Produce) -> None:
    """The least that a consumer does: every record once, in offset order within its partition."""
    produce("orders", 300)
    consumer = make_consumer().subscribe("orders")

    drive(consumer, until=lambda: len(consumer.delivered) >= 1200)

    assert delivered_once([consumer]) == keys_of("orders", 300)
    for partition in range(4):
        offsets = [offset for _, its_partition, offset in consumer.delivered if its_partition == partition]
        assert offsets == sorted(offsets)
    assert consumer.calls == [("assigned", [0, 1, 2, 3])]
    drive(consumer, until=lambda: consumer.raw.state is MemberState.STABLE)


def test_poll_hands_out_the_same_records_one_by_one(make_consumer: MakeConsumer, produce: Produce) -> None:
    """poll() prefetches; nothing may be lost or doubled between its buffer and consume()."""
    produce("orders", 300)
    consumer = make_consumer().subscribe("orders")

    while len(consumer.delivered) < 1200:
        for _ in range(7):
            message = consumer.raw.poll(5.0)
            if message is not None:
                consumer.delivered.append(key(message))
        consumer.delivered.extend(key(message) for message in consumer.raw.consume(5, 0.0))

    assert delivered_once([consumer]) == keys_of("orders", 300)


def test_consume_waits_for_as_many_records_as_it_is_asked_for(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A bulk insert of consume(500, 1.0) would be an insert of one row if records come one by one."""
    consumer = make_consumer().raw
    consumer.assign([TopicPartition("orders", 0)])

    def write() -> None:
        for _ in range(3):
            mark = broker.requests.mark()
            broker.requests.wait_for("Fetch", since=mark, count=1)
            produce("orders", 1, partitions=[0])

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write)
        batch = consumer.consume(3, TIMEOUT_S)
        written.result()

    assert [message.offset() for message in batch] == [0, 1, 2]


def test_consume_returns_what_came_when_its_time_is_up(make_consumer: MakeConsumer, produce: Produce) -> None:
    """The rest of a quiet topic's batch may come tomorrow."""
    consumer = make_consumer().raw
    consumer.assign([TopicPartition("orders", 0)])
    produce("orders", 2, partitions=[0])
    assert consumer.consume(1, TIMEOUT_S)

    began_s = time.monotonic()
    batch = consumer.consume(5, 0.3)

    assert len(batch) == 1
    assert time.monotonic() - began_s >= 0.3


def test_batches_wait_for_more_only_as_long_as_they_may_linger(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Without a linger a batch has what is at hand; with one it is a batch, even if records come one by one."""
    consumer = make_consumer().raw
    consumer.assign([TopicPartition("orders", 0)])
    produce("orders", 2, partitions=[0])

    first = next(consumer.batches(1))
    began_s = time.monotonic()
    second = next(consumer.batches(5, linger_s=0.3))

    assert [len(first), len(second)] == [1, 1]
    assert time.monotonic() - began_s >= 0.3


def test_a_rebalance_ends_the_wait_of_consume_with_what_has_come(make_consumer: MakeConsumer, produce: Produce) -> None:
    """What one call returned is handled before the next; a member that went on waiting would hold up the group."""
    first, second = make_consumer().subscribe("orders"), make_consumer()
    produce("orders", 1)

    with ThreadPoolExecutor() as pool:
        batch = pool.submit(first.raw.consume, 100, TIMEOUT_S)
        wait_until(lambda: len(first.raw._core.ready) == 4)
        drive(second.subscribe("orders"), until=batch.done)

    read = [key(message) for message in batch.result()]
    first.delivered.extend(read)
    drive(first, second, until=lambda: len(first.delivered) + len(second.delivered) >= 4)
    assert len(read) == 2, "the records of the other two partitions are the other member's"
    assert delivered_once([first, second]) == keys_of("orders", 1)


def test_hand_over_ends_the_wait_of_consume_with_what_has_come(make_consumer: MakeConsumer, produce: Produce) -> None:
    """SIGTERM comes in the middle of a long wait: the records are handled and committed before the end."""
    first, second = make_consumer().subscribe("orders"), make_consumer().subscribe("orders")
    drive(first, second, until=lambda: [len(one.raw._core.fetcher.fetched) for one in (first, second)] == [2, 2])
    produce("orders", 1)

    with ThreadPoolExecutor() as pool:
        batch = pool.submit(first.raw.consume, 100, TIMEOUT_S)
        wait_until(lambda: len(first.raw._core.ready) == 2)
        first.raw.hand_over()
        drive(second, until=batch.done)

    assert len(batch.result()) == 2
    assert not first.raw.handed_over, "the others get the partitions after these records"


def test_many_bytes_end_the_wait_of_consume(
    make_consumer: MakeConsumer, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """consume(1_000_000, 60) must not take all memory."""
    monkeypatch.setattr(filling, "BUFFER_BYTES", 2)
    consumer = make_consumer().subscribe("orders")
    produce("orders", 1)
    assert len(consumer.raw.consume(100, TIMEOUT_S)) >= 2


def test_records_that_come_as_the_assignment_changes_are_counted(
    make_consumer: MakeConsumer, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for a look at the assignment, and are handed out then: the next commit has to be behind them."""
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.raw._core.fetcher.fetched) == 4)
    consumer.raw.poll(0.3)  # until it is at rest
    produce("orders", 1)
    fetcher, manager = consumer.raw._core.fetcher, consumer.raw._core.manager
    plane = fetcher.plane
    came = [plane.consume(1, 30.0)[0] for _ in range(4)]

    class Plane:
        def __getattr__(self, name: str) -> object:
            return getattr(plane, name)

        def consume(self, *_: object) -> list[Message]:
            batch, came[:] = came[:], []
            manager.look_up()
            return batch

    monkeypatch.setattr(fetcher, "plane", Plane())
    batch = consumer.raw.consume(10, 1.0)
    monkeypatch.setattr(fetcher, "plane", plane)

    assert len(batch) == 4
    assert {position.offset for position in fetcher.positions().values()} == {1}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_latest_loses_no_record_of_partitions_that_appear(
    make_consumer: MakeConsumer, broker: EmbeddedBroker, protocol: str
) -> None:
    """A topic grows, or is created, under a group that listens: its first records come before the assignment."""
    broker.produce_many("orders", ["old"] * 3)
    conf = {"auto_offset_reset": "latest", "topic_metadata_refresh_interval_ms": 100}
    consumer = make_consumer("g", journal=None, clock=None, group_protocol=protocol, **conf).subscribe(
        "orders", "later"
    )
    drive(consumer, until=lambda: consumer.partitions)

    broker.topics.add_partitions("orders", 5)
    broker.produce("orders", "first", partition=4)
    broker.topics.create("later", 1)
    broker.produce("later", "first")
    drive(consumer, until=lambda: len(consumer.delivered) >= 2)

    assert set(consumer.delivered) == {("orders", 4, 0), ("later", 0, 0)}


def test_by_duration_reads_the_recent_past(make_consumer: MakeConsumer, broker: EmbeddedBroker) -> None:
    """Kafka's way to begin without all of the history: records of the last hour, and all that come (KIP-1106)."""
    now_ms = time.time_ns() // 1_000_000
    for age_ms in (7_200_000, 1_800_000):
        broker.produce("orders", "x", partition=0, timestamp_ms=now_ms - age_ms)
    broker.produce("orders", "x", partition=1, timestamp_ms=now_ms - 7_200_000)
    consumer = make_consumer(auto_offset_reset="by_duration:PT1H").subscribe("orders")
    drive(consumer, until=lambda: consumer.delivered)
    partitions = [TopicPartition("orders", partition) for partition in (0, 1)]
    drive(consumer, until=lambda: [at.offset for at in consumer.raw.position(partitions)] == [2, 1])

    assert consumer.delivered == [("orders", 0, 1)]


def test_iteration_ends_when_the_consumer_is_closed(make_consumer: MakeConsumer, produce: Produce) -> None:
    """`for message in consumer` is the loop of most programs; close() inside it must end it."""
    produce("orders", 10)
    consumer = make_consumer().subscribe("orders")
    seen = []

    for message in consumer.raw:
        seen.append(key(message))
        if len(seen) == 40:
            consumer.raw.close()

    assert set(seen) == keys_of("orders", 10)


def test_seek_inside_assigned_decides_where_to_start(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Programs that keep offsets elsewhere start partitions themselves; no committed offset may overrule them."""
    produce("orders", 20)
    consumer = make_consumer()

    def on_assign(inside: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            inside.seek(TopicPartition(partition.topic, partition.partition, 15))

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    drive(consumer, until=lambda: len(consumer.delivered) >= 20)

    assert delivered_once([consumer]) == {("orders", p, o) for p in range(4) for o in range(15, 20)}


def test_assign_inside_assigned_means_start_there(make_consumer: MakeConsumer, produce: Produce) -> None:
    """confluent-kafka programs call assign() in on_assign, with numbers, OFFSET_END or nothing in the offset field."""
    produce("orders", 20)
    consumer = make_consumer()

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        partitions[0].offset = 18
        partitions[1].offset = OFFSET_END
        partitions[2].offset = OFFSET_BEGINNING
        consumer.assign(partitions)

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    drive(consumer, until=lambda: len(consumer.delivered) >= 42)
    produce("orders", 1, partitions=[1])
    drive(consumer, until=lambda: len(consumer.delivered) >= 43)

    expected = {("orders", 0, 18), ("orders", 0, 19), ("orders", 1, 20)} | keys_of("orders", 20, partitions=[2, 3])
    assert delivered_once([consumer]) == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda consumer, partitions: consumer.assign(partitions[1:]), "leaves out orders-0: no other member reads"),
        (lambda consumer, partitions: consumer.assign([*partitions, TopicPartition("others", 0)]), "names others-0"),
        (lambda consumer, _: consumer.incremental_assign([TopicPartition("others", 0, 7)]), "names others-0"),
        (lambda consumer, _: consumer.unassign(), r"unassign\(\) inside on_assign: no other member would read"),
        (
            lambda consumer, partitions: consumer.incremental_unassign(partitions[:1]),
            r"unassign\(\) inside on_ass",
        ),
    ],
    ids=["part", "more", "another", "none", "less"],
)
def test_an_assignment_that_is_not_the_groups_is_refused(
    make_consumer: MakeConsumer, call: Callable[[Consumer, list[TopicPartition]], None], words: str
) -> None:
    """It was ignored: a program that meant to read half of its partitions read all of them."""
    consumer = make_consumer()
    consumer.raw.subscribe(["orders"], on_assign=call)
    with pytest.raises(ListenerError) as raised:
        wait_until(lambda: consumer.raw.poll(0.1), what="the listener's error")
    assert isinstance(raised.value.__cause__, IllegalStateError)
    assert re.search(words, str(raised.value.__cause__))


def test_incremental_assign_may_name_a_part_of_the_partitions(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Partitions that incremental_assign() does not name start at their committed offset."""
    produce("orders", 20)
    consumer = make_consumer()

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions[:2]:
            partition.offset = 18
            consumer.incremental_assign([partition])

    consumer.raw.subscribe(["orders"], on_assign=on_assign)
    drive(consumer, until=lambda: len(consumer.delivered) >= 44)
    expected = {("orders", p, o) for p in (0, 1) for o in (18, 19)} | keys_of("orders", 20, partitions=[2, 3])
    assert delivered_once([consumer]) == expected


def test_seek_while_reading_moves_the_position(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Reading something again must give exactly the records from there on, whatever is prefetched."""
    produce("orders", 50, partitions=[0])
    consumer = make_consumer().subscribe("orders")
    first = [key(message) for message in itertools.islice(consumer.raw, 10)]

    consumer.raw.seek(TopicPartition("orders", 0, 3))
    assert consumer.raw.position([TopicPartition("orders", 0)])[0].offset == 3
    again = [key(message) for message in itertools.islice(consumer.raw, 10)]
    consumer.raw.seek(TopicPartition("orders", 0, OFFSET_BEGINNING))
    from_start = [key(message) for message in itertools.islice(consumer.raw, 5)]

    assert [offset for _, _, offset in first] == list(range(10))
    assert [offset for _, _, offset in again] == list(range(3, 13))
    assert [offset for _, _, offset in from_start] == list(range(5))


def test_a_manual_assignment_reads_without_a_group(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """assign() is for programs that divide the work themselves: no membership, no rebalance."""
    produce("orders", 20)
    consumer = make_consumer()

    consumer.raw.assign([TopicPartition("orders", 0, 15), TopicPartition("orders", 1)])
    assert consumer.numbers == [0, 1]
    drive(consumer, until=lambda: len(consumer.delivered) >= 25)
    consumer.raw.incremental_assign([TopicPartition("orders", 2, OFFSET_BEGINNING)])
    drive(consumer, until=lambda: len(consumer.delivered) >= 45)
    consumer.raw.incremental_unassign([TopicPartition("orders", 0)])

    expected = {("orders", 0, offset) for offset in range(15, 20)} | keys_of("orders", 20, partitions=[1, 2])
    assert delivered_once([consumer]) == expected
    assert consumer.numbers == [1, 2]
    assert broker.groups.get("g") is None or not broker.groups.get("g").members  # type: ignore[union-attr]
    with pytest.raises(IllegalStateError, match="assigned by hand"):
        consumer.raw.subscribe(["orders"])
    consumer.raw.unassign()
    assert consumer.numbers == []


def test_an_offset_out_of_range_goes_through_the_reset_policy(make_consumer: MakeConsumer, produce: Produce) -> None:
    """A position that retention deleted must restart by auto.offset.reset, and not hang or stop the consumer."""
    produce("orders", 10)
    consumer = make_consumer()
    consumer.raw.subscribe(["orders"], on_assign=lambda c, _: c.seek(TopicPartition("orders", 2, 1_000)))

    drive(consumer, until=lambda: len(consumer.delivered) >= 40)

    assert delivered_once([consumer]) == keys_of("orders", 10)


def test_without_a_reset_policy_the_application_is_told(make_consumer: MakeConsumer, produce: Produce) -> None:
    """auto.offset.reset=none exists so that no member reads from a place that was not chosen."""
    produce("orders", 10)
    consumer = make_consumer(auto_offset_reset="none").subscribe("orders")

    with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
        drive(consumer, until=lambda: False)


def test_lag_and_positions_tell_how_far_behind(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Autoscalers read lag(); a record that waits in the prefetch buffer is not consumed."""
    produce("orders", 10, partitions=[0])
    consumer = make_consumer().subscribe("orders")

    for _ in range(3):
        assert consumer.raw.poll(10.0) is not None

    assert consumer.raw.position([TopicPartition("orders", 0)])[0].offset == 3
    assert consumer.raw.lag()[TopicPartition("orders", 0)] == 7
    assert consumer.raw.get_watermark_offsets(TopicPartition("orders", 0), timeout=60.0) == (0, 10)
    assert consumer.raw.list_topics("orders", timeout=60.0).topics["orders"].partitions.keys() == {0, 1, 2, 3}
    assert consumer.raw.position([TopicPartition("nowhere", 0)])[0].offset == OFFSET_INVALID


def test_the_lag_of_a_paused_partition_is_asked_for(make_consumer: MakeConsumer, produce: Produce) -> None:
    """A paused partition is not fetched, and it is where the lag grows: the last fetch knows nothing of that."""
    produce("orders", 10, partitions=[0])
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 10)

    consumer.raw.pause([TopicPartition("orders", 0)])
    produce("orders", 25, partitions=[0])

    assert consumer.raw.lag()[TopicPartition("orders", 0)] == 25


def test_poll_without_a_subscription_says_what_is_missing(
    make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """A forgotten subscribe() would otherwise look like an empty topic."""
    consumer = make_consumer().raw
    with pytest.raises(IllegalStateError, match=r"wait for ever; call subscribe\(\)"):
        consumer.poll()
    assert consumer.poll(0) is None
    assert consumer.poll(0) is None
    assert len([record for record in caplog.records if "consumer.not_subscribed" in record.getMessage()]) == 1


def test_a_topic_that_is_missing_is_said_once(
    make_consumer: MakeConsumer, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt name would otherwise look like an empty topic; a line for each poll would hide the rest."""
    produce("orders", 1)
    consumer = make_consumer().raw
    consumer.subscribe(["orders", "ordres"])
    assert len(consumer.consume(4, TIMEOUT_S)) == 4

    def told() -> list[str]:
        assert consumer.poll(0.05) is None
        return [record.getMessage() for record in caplog.records if "consumer.topics_missing" in record.getMessage()]

    wait_until(told)
    (first,) = told()
    assert "topics=ordres" in first
    consumer.unsubscribe()
    consumer.assign([TopicPartition("ordres", 0), TopicPartition("orders", 99)])
    wait_until(lambda: len(told()) == 2)
    assert "topics=orders-99, ordres" in told()[1]


def test_a_topic_that_is_deleted_is_said(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    """The log had "partitions_revoked" only, as after any rebalance, and the consumer read nothing from then on."""
    produce("orders", 1)
    consumer = make_consumer().raw
    consumer.subscribe(["orders"])
    assert len(consumer.consume(4, TIMEOUT_S)) == 4
    broker.topics.delete("orders")
    assert "topics=orders" in wait_for_line(consumer, "consumer.topics_missing", caplog)


def test_a_topic_that_is_deleted_is_said_also_if_metadata_is_late(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    """It was asked about once, and with no answer in time it was never named."""
    caplog.set_level(logging.INFO)
    produce("orders", 1)
    consumer = make_consumer().raw
    consumer.subscribe(["orders"])
    assert len(consumer.consume(4, TIMEOUT_S)) == 4
    broker.faults.on("Metadata", delay(900), times=ALWAYS)
    broker.topics.delete("orders")
    wait_for_line(consumer, "data_plane_error", caplog)
    broker.faults.clear()
    assert "topics=orders" in wait_for_line(consumer, "consumer.topics_missing", caplog)


def wait_for_line(consumer: Consumer[Any, Any], words: str, caplog: pytest.LogCaptureFixture) -> str:
    """Poll until the log has a line with *words*."""

    def lines() -> list[str]:
        assert consumer.poll(0.5) is None
        return [record.getMessage() for record in caplog.records if words in record.getMessage()]

    wait_until(lines, what=words)
    return lines()[0]
