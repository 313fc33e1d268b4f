"""What counts as consumed, and what a commit does; on the embedded broker."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, IllegalStateError, KafkaError, TopicPartition
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import NamedPartition
from kip848_client.consumer.consumer import core_of
from kip848_client.consumer.records.data_plane import OFFSET_INVALID, group_metadata_bytes
from kip848_client.errors import CommitFailedError, ErrorCode, GroupAuthorizationError, RequestTimeoutError
from kip848_client.member.core.events import CommitRequested, MemberEvent
from kip848_client.testing.faults import ALWAYS, drop, error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once
from tests.support.driving import QUIET, drive, settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


def offsets_of(consumer_maker: MakeConsumer, group_id: str = "g") -> list[int]:
    """Committed offsets of ``orders``, read by another member."""
    reader = consumer_maker(group_id)
    partitions = [TopicPartition("orders", partition) for partition in range(4)]
    return [committed.offset for committed in reader.raw.committed(partitions, timeout=60.0)]


def test_records_in_the_prefetch_buffer_are_not_committed(make_consumer: MakeConsumer, produce: Produce) -> None:
    """poll() reads ahead; a commit of what the application never saw would lose it at the next restart."""
    produce("orders", 100, partitions=[0])
    first = make_consumer().subscribe("orders")
    for _ in range(3):
        assert first.raw.poll(10.0) is not None

    first.raw.close()

    assert offsets_of(make_consumer) == [3, 0, 0, 0]


def test_an_error_about_thousands_of_partitions_names_a_few(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """A log line of 158,000 characters hides its reason at the end."""
    broker.faults.on("OffsetFetch", drop(), times=ALWAYS)
    partitions = [TopicPartition("orders", number) for number in range(5_000)]

    with pytest.raises(RequestTimeoutError, match=r"orders-9 and 4,990 more were not fetched") as raised:
        make_consumer().raw.committed(partitions, timeout=0.5)

    assert len(str(raised.value)) < 500


def test_where_a_consumer_began_is_committed_as_well(make_consumer: MakeConsumer, produce: Produce) -> None:
    """With auto.offset.reset=latest and no record yet, a restart must not skip what was written in between."""
    produce("orders", 10)
    first = make_consumer(auto_offset_reset="latest").subscribe("orders")
    partitions = [TopicPartition("orders", partition) for partition in range(4)]
    drive(first, until=lambda: [at.offset for at in first.raw.position(partitions)] == [10] * 4)
    first.raw.close()

    produce("orders", 5)
    second = make_consumer(auto_offset_reset="latest").subscribe("orders")
    drive(second, until=lambda: len(second.delivered) >= 20)

    assert delivered_once([second]) == {("orders", p, offset) for p in range(4) for offset in range(10, 15)}


def test_close_commits_what_was_consumed_unless_told_otherwise(make_consumer: MakeConsumer, produce: Produce) -> None:
    """``enable.auto.commit`` also decides whether close() commits the last positions."""
    produce("orders", 10)
    for group_id, auto_commit, expected in (("on", True, [10] * 4), ("off", False, [OFFSET_INVALID] * 4)):
        consumer = make_consumer(group_id, enable_auto_commit=auto_commit, auto_commit_interval_ms=60_000)
        consumer.subscribe("orders")
        drive(consumer, until=lambda: len(consumer.delivered) >= 40)  # noqa: B023  used before the next round
        consumer.raw.close()
        assert offsets_of(make_consumer, group_id) == expected


def test_a_message_and_explicit_offsets_are_committed_as_given(make_consumer: MakeConsumer, produce: Produce) -> None:
    """commit(message) commits the offset after it; commit(offsets=...) what it says, metadata included."""
    produce("orders", 10, partitions=[0])
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    message = consumer.raw.poll(10.0)
    assert message is not None

    one = consumer.raw.commit(message, asynchronous=False)
    two = consumer.raw.commit(offsets=[TopicPartition("orders", 1, 7, "note")], asynchronous=False)

    assert one == [TopicPartition("orders", 0, 1)]
    assert two == [TopicPartition("orders", 1, 7)]
    assert offsets_of(make_consumer)[:2] == [1, 7]
    [noted] = consumer.raw.committed([TopicPartition("orders", 1)])
    assert noted.metadata == "note"
    with pytest.raises(IllegalStateError, match="not both"):
        consumer.raw.commit(message, offsets=[TopicPartition("orders", 1, 7)])


def test_an_asynchronous_commit_reports_to_its_callback(make_consumer: MakeConsumer, produce: Produce) -> None:
    """The fast way to commit; its callback runs on the application's thread, inside a later call."""
    produce("orders", 10)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 40)
    heard: list[tuple[KafkaError | None, list[int]]] = []

    answer = consumer.raw.commit(on_commit=lambda error, offsets: heard.append((error, [o.offset for o in offsets])))
    assert answer is None
    assert heard == []
    drive(consumer, until=lambda: heard)

    assert heard == [(None, [10, 10, 10, 10])]


def test_on_commit_of_the_configuration_hears_of_every_commit(make_consumer: MakeConsumer, produce: Produce) -> None:
    """confluent-kafka programs configure it once; it must hear of automatic commits as well."""
    produce("orders", 10)
    heard: list[tuple[object, list[TopicPartition]]] = []
    consumer = make_consumer(
        auto_commit_interval_ms=50, on_commit=lambda error, offsets: heard.append((error, offsets))
    )
    consumer.subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 40)

    consumer.raw.commit()
    drive(consumer, until=lambda: heard)

    assert heard[0][0] is None


def test_an_asynchronous_commit_that_is_refused_for_good_is_raised_later(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Without a callback the next call raises the error; otherwise nothing would be committed, and nobody knew why."""
    produce("orders", 1)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 4)
    broker.faults.on("OffsetCommit", error(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    consumer.raw.commit()
    with pytest.raises(GroupAuthorizationError) as raised:
        drive(consumer, until=lambda: False)
    assert "asynchronous commit() has failed" in raised.value.__notes__[0]

    assert offsets_of(make_consumer)[0] == OFFSET_INVALID


def test_a_synchronous_commit_gives_up_at_its_time(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A commit against a dead coordinator returns when it was asked to, with an error that says so."""
    produce("orders", 1)
    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) >= 4)
    broker.stop()

    with pytest.raises((RequestTimeoutError, CommitFailedError)):
        consumer.raw.commit(asynchronous=False, timeout_s=0.5)


def test_group_metadata_is_what_librdkafka_would_write(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Transactions need it; the layout is librdkafka's own, so every release must be compared."""
    for instance_id in (None, "inst"):
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "grü", "log_level": 0}
        if instance_id is not None:
            conf["group.instance.id"] = instance_id
        plain = PlainConsumer(conf)
        expected = plain.consumer_group_metadata()
        plain.close()
        assert group_metadata_bytes(group_id="grü", member_epoch=-1, member_id="", instance_id=instance_id) == expected


def test_group_metadata_carries_the_epoch_of_now(make_consumer: MakeConsumer) -> None:
    """A producer that sends an old epoch is fenced; the epoch of a member moves without a rebalance of its own."""
    consumer = make_consumer()
    assert consumer.raw.group_metadata() == group_metadata_bytes(
        group_id="g", member_epoch=-1, member_id="", instance_id=None
    )

    consumer.subscribe("orders")
    drive(consumer, until=lambda: len(consumer.partitions) == 4)
    joined = consumer.raw.group_metadata()

    assert joined == group_metadata_bytes(
        group_id="g", member_epoch=1, member_id=consumer.raw.member_id, instance_id=None
    )
    Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def test_metadata_that_confluent_kafka_committed_neither_stops_reading_nor_shows_its_nul(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A group that moves over from confluent_kafka has such offsets: nothing was read, by a member that stayed."""
    produce("orders", 5)
    theirs = PlainConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUIET})
    theirs.commit(offsets=[TopicPartition("orders", 0, 2, "note"), TopicPartition("orders", 1, 3)], asynchronous=False)
    theirs.close()

    consumer = make_consumer(enable_auto_commit=False).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 15)

    told = consumer.raw.committed([TopicPartition("orders", index) for index in range(3)])
    assert [(one.offset, one.metadata) for one in told] == [(2, "note"), (3, None), (-1001, None)]
    assert {one.metadata for one in consumer.raw.position(consumer.raw.assignment())} == {None}


@pytest.mark.parametrize("way", ["poll", "consume", "store"])
def test_automatic_commits_go_on_while_a_handler_is_slow(broker: EmbeddedBroker, produce: Produce, way: str) -> None:
    """What it has in hand is not committed; what was returned before is, although no poll() comes."""
    produce("orders", 5, partitions=[0])
    conf = settings(broker.bootstrap_servers, auto_commit_interval_ms=50, enable_auto_offset_store=way != "store")
    with Consumer({**QUIET, **conf}) as consumer:
        consumer.subscribe(["orders"])
        returned = 0
        while returned < 3:
            batch = consumer.consume(1, 0.2) if way == "consume" else [consumer.poll(0.2)]
            returned += sum(message is not None for message in batch)
        if way == "store":
            consumer.store_offsets(offsets=[TopicPartition("orders", 0, 2)])
        # No poll() follows: the handler of the third record is at work.
        wait_until(lambda: broker.groups.committed("g").get(NamedPartition("orders", 0)) == 2, what="the commit")


@pytest.mark.parametrize("end", [Consumer.close, Consumer.unsubscribe])
def test_no_commit_of_the_interval_takes_back_the_last_one(
    broker: EmbeddedBroker, produce: Produce, monkeypatch: pytest.MonkeyPatch, end: Callable[[Consumer], object]
) -> None:
    """While the last commit is on its way, the heartbeat thread may ask what is processed, and commit that after it.

    The records that it commits were in hand until then: the next owner would get them again.
    """
    produce("orders", 3, partitions=[0])
    first = NamedPartition("orders", 0)
    with Consumer({**QUIET, **settings(broker.bootstrap_servers, auto_commit_interval_ms=60_000)}) as consumer:
        consumer.subscribe(["orders"])
        returned = 0
        while returned < 3:
            returned += len(consumer.consume(3, 0.2))
        core = core_of(consumer)
        post = core.manager.post
        processed: list[int] = []

        def answered() -> bool:
            progress = core.progress()
            if progress is not None:  # otherwise another thread looks at the positions just now
                processed.append(progress.positions[first].offset)
            return progress is not None

        def post_and_ask(event: MemberEvent) -> object:
            if isinstance(event, CommitRequested):
                wait_until(answered)
            return post(event)

        monkeypatch.setattr(core.manager, "post", post_and_ask)
        end(consumer)
        assert processed == [3]
        assert broker.groups.committed("g")[first] == 3


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_loop_that_commits_each_record_survives_what_passes(
    broker: EmbeddedBroker,
    make_consumer: MakeConsumer,
    produce: Produce,
    lines: Callable[[LogEvent], list[logging.LogRecord]],
    code: int,
) -> None:
    """A restart of a broker ended the loop of README's first program with an exception."""
    produce("orders", 30, partitions=[0])
    broker.faults.on("OffsetCommit", error(code), times=2)
    consumer = make_consumer().subscribe("orders").raw

    for message in itertools.islice(consumer, 30):
        consumer.commit(message)

    wait_until(lambda: consumer.poll(0.0) is None and broker.groups.committed("g").get(("orders", 0)) == 30)
    wait_until(lambda: consumer.poll(0.0) is None and lines(LogEvent.ASYNC_COMMIT_FAILED))  # a later call logs it
    assert len(lines(LogEvent.ASYNC_COMMIT_FAILED)) == 1
