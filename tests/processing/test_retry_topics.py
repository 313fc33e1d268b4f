"""``process(retry_later=RetryTopics(...))`` of both consumers on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import tenacity
from confluent_kafka import Producer

from kip848_client import (
    AsyncConsumer,
    Consumer,
    DeadLetters,
    ProcessingFailure,
    RetryTopics,
    TopicPartition,
    processing_attempt,
)
from kip848_client.errors import ArgumentTypeError, ConfigError, ProcessingError
from kip848_client.member.processing.tiers import FailureHeaders, read_failed
from kip848_client.testing import EmbeddedBroker, NewRecord
from tests.processing.orders import fill, member_conf
from tests.support.waiting import TIMEOUT_S, wait_until

LONG_MS = 3_600_000


def _producer(broker: EmbeddedBroker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings})


@contextmanager
def _running(
    kind: type, conf: dict[str, Any], topics: list[str], handle: Callable[..., Any], **settings: Any
) -> Iterator[Consumer[Any, Any]]:
    """process() in another thread, until the block is left."""
    ready, errors = threading.Event(), list[BaseException]()
    consumers: list[tuple[Any, Callable[[], object]]] = []

    def in_thread() -> None:
        with Consumer(conf) as consumer:
            consumer.subscribe(topics)
            consumers.append((consumer, consumer.hand_over))
            ready.set()
            consumer.process(handle, **settings)

    async def in_loop() -> None:
        async with AsyncConsumer(conf) as consumer:

            async def call(*given: Any) -> None:
                handle(*given)

            await consumer.subscribe(topics)
            loop = asyncio.get_running_loop()
            consumers.append((consumer._consumer, lambda: loop.call_soon_threadsafe(consumer.hand_over)))
            ready.set()
            await consumer.process(call, **settings)

    def run() -> None:
        try:
            if kind is Consumer:
                in_thread()
            else:
                asyncio.run(in_loop())
        except BaseException as error:
            errors.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    try:
        yield consumers[0][0]
    finally:
        if thread.is_alive():
            consumers[0][1]()
        thread.join()
    if errors:
        raise errors[0]


def _put_into(broker: EmbeddedBroker, topic: str, count: int, *, due_ms: int, group: str = "g") -> None:
    """Records of *orders* that have failed."""
    failed = [
        FailureHeaders(
            topic="orders", partition=0, offset=n, timestamp_ms=1, error="OSError: down", attempts=1, group=group
        )
        for n in range(count)
    ]
    records = [NewRecord(str(one.offset), headers=[*one.headers(), ("kip848.due", b"%d" % due_ms)]) for one in failed]
    broker.produce_many(topic, records)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_record_comes_back_from_each_tier_as_it_was(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """A handler that tells records by topic and offset took a retry for another record."""
    kip848_broker.topics.create("orders", 1)
    kip848_broker.produce("orders", b"tea", key=b"ann", headers=[("trace", b"17")], timestamp_ms=1_000_000)
    seen: list[tuple[Any, ...]] = []
    at: list[float] = []
    failures: list[ProcessingFailure] = []

    def handle(message: Any) -> None:
        attempt = processing_attempt()
        place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
        at.append(time.monotonic())
        seen.append((*place, message.key(), message.value(), message.headers(), attempt.number))
        if attempt.number < 3:
            raise OSError("down")
        assert "OSError: down" in str(attempt.last_error)

    retries = RetryTopics("orders-retry", ["200ms", 0.3], producer=_producer(kip848_broker), partitions=2)
    conf, topics = member_conf(kip848_broker), ["orders", *retries.topics]
    with _running(kind, conf, topics, handle, retry_later=retries, on_failure=failures.append):
        wait_until(lambda: len(seen) == 3)
    first = ("orders", 0, 0, 1_000_000, b"ann", b"tea", [("trace", b"17")])
    assert seen == [(*first, 1), (*first, 2), (*first, 3)]
    assert at[1] - at[0] >= 0.2
    assert at[2] - at[1] >= 0.3
    assert [(each.then, each.delay_s, each.attempt) for each in failures] == [
        ("retry_later", 0.2, 1),
        ("retry_later", 0.3, 2),
    ]
    committed = kip848_broker.groups.committed("g")
    assert committed["orders", 0] == 1
    assert [sum(committed.get((topic, index), 0) for index in range(2)) for topic in retries.topics] == [1, 1]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_others_go_on_while_records_wait_and_no_commit_passes_them(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """A record that waits for an hour would hold its key; or an hour later it would be committed and not handled."""
    fill(kip848_broker, 100, keys=1)
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(message.offset())
        if message.offset() < 50:
            raise OSError("down")

    retries = RetryTopics("orders-retry", ["1h"], producer=_producer(kip848_broker), partitions=1)
    topics = ["orders", *retries.topics]
    for _ in range(2):  # the next owner waits, too
        with _running(kind, member_conf(kip848_broker), topics, handle, retry_later=retries) as consumer:
            wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 100)

            def waits() -> bool:
                status = consumer.processing_status()
                return status is not None and status.held == 1 and status.in_hand == 0

            wait_until(waits)
            wait_until(lambda: [(one.topic, one.partition) for one in consumer.paused()] == [("orders-retry-1", 0)])
        assert sorted(seen) == list(range(100))
        assert kip848_broker.groups.committed("g").get(("orders-retry-1", 0), 0) == 0
    assert len(kip848_broker.records("orders-retry-1")) == 50


def test_after_the_last_tier_comes_the_dead_letter_with_the_first_place(kip848_broker: EmbeddedBroker) -> None:
    """A letter that names a retry topic says nothing of where its record came from."""
    fill(kip848_broker, 1)
    kip848_broker.topics.create("dead")
    retries = RetryTopics("r", ["1ms", "1ms"], partitions=1)
    letters = DeadLetters(_producer(kip848_broker), "dead")

    def handle(_: Any) -> None:
        raise OSError("down")

    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    topics = ["orders", *retries.topics]
    given: dict[str, Any] = {"retry_later": retries, "dead_letter": letters, "retry": retry}
    with _running(Consumer, member_conf(kip848_broker), topics, handle, **given) as consumer:
        wait_until(lambda: kip848_broker.records("dead"))
        wait_until(lambda: (status := consumer.processing_status()) is None or status.dead_letters)
        status = consumer.processing_status()
        assert status is not None
        assert (status.retry_later, status.dead_letters, status.done) == (2, 1, 3)
    (letter,) = kip848_broker.records("dead")
    failed = read_failed(letter.headers)
    assert failed is not None
    assert (failed.topic, failed.offset, failed.attempts, failed.group, failed.retries) == ("orders", 0, 6, "g", "r")
    assert failed.due_ms is None
    assert len(letter.headers) == len(dict(letter.headers))


def test_an_error_that_does_not_pass_waits_in_no_tier(kip848_broker: EmbeddedBroker) -> None:
    """A record that can never be handled would be told of hours later."""
    fill(kip848_broker, 2)
    kip848_broker.topics.create("dead")
    retries = RetryTopics("r", ["1h"], errors=(OSError, TimeoutError), partitions=1)

    def handle(message: Any) -> None:
        raise OSError if message.offset() else ValueError

    given: dict[str, Any] = {"retry_later": retries, "dead_letter": DeadLetters(_producer(kip848_broker), "dead")}
    with _running(Consumer, member_conf(kip848_broker), ["orders", *retries.topics], handle, **given):
        wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 2)
    assert [letter.value for letter in kip848_broker.records("dead")] == [b"0"]
    assert [record.value for record in kip848_broker.records("r-1")] == [b"1"]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_with_transactions_a_record_is_in_one_tier_exactly(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """What its handler produced before it failed must not be seen, and the record must not be in two tiers."""
    fill(kip848_broker, 20)
    kip848_broker.topics.create("invoices", 1)
    retries = RetryTopics("r", ["20ms", "30ms"], partitions=2)

    def handle(message: Any, tx: Any) -> None:
        tx.produce("invoices", message.value())
        if processing_attempt().number < 3 and message.offset() % 2:
            raise OSError("down")

    producer = _producer(kip848_broker, **{"transactional.id": "tx", "metadata.recovery.strategy": "none"})
    topics = ["orders", *retries.topics]
    given: dict[str, Any] = {"retry_later": retries, "transactional": producer, "slice_ms": 10}
    with _running(kind, member_conf(kip848_broker), topics, handle, **given):
        wait_until(lambda: len(kip848_broker.records("invoices")) >= 20)
    assert Counter(one.value for one in kip848_broker.records("invoices")) == Counter(
        str(number).encode() for number in range(20)
    )
    for topic in retries.topics:
        assert Counter(one.value for one in kip848_broker.records(topic)) == Counter(
            str(number).encode() for number in range(1, 20, 2)
        )


def test_groups_that_share_topics_handle_their_own_records(kip848_broker: EmbeddedBroker) -> None:
    """A record that has failed in one group would be handled by the others once more, or hold theirs back."""
    kip848_broker.topics.create("orders", 1)
    kip848_broker.topics.create("r-1", 1)
    _put_into(kip848_broker, "r-1", 2, due_ms=_now_ms() + LONG_MS, group="another")
    _put_into(kip848_broker, "r-1", 1, due_ms=0)
    seen: list[int] = []
    retries = RetryTopics("r", ["1h"], producer=_producer(kip848_broker))
    topics = ["orders", "r-1"]
    with _running(
        Consumer, member_conf(kip848_broker), topics, lambda one: seen.append(one.offset()), retry_later=retries
    ):
        wait_until(lambda: kip848_broker.groups.committed("g").get(("r-1", 0)) == 3)
    assert seen == [0]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_tiers_are_read_from_their_first_record_whatever_the_reset_policy(
    kip848_broker: EmbeddedBroker, kind: type
) -> None:
    """With ``latest`` what was written to a tier before its reader came was skipped."""
    kip848_broker.topics.create("orders", 1)
    kip848_broker.topics.create("r-1", 1)
    _put_into(kip848_broker, "r-1", 5, due_ms=0)
    seen: list[int] = []
    retries = RetryTopics("r", ["1h"], producer=_producer(kip848_broker))
    conf = member_conf(kip848_broker, **{"auto.offset.reset": "latest"})
    with _running(kind, conf, ["orders", "r-1"], lambda one: seen.append(one.offset()), retry_later=retries):
        wait_until(lambda: len(seen) == 5)
    assert sorted(seen) == list(range(5))


def test_one_process_writes_and_another_reads(kip848_broker: EmbeddedBroker) -> None:
    """The slow work of an outage would take slots of the process that has the new records."""
    fill(kip848_broker, 1)
    seen: list[int] = []

    def fail(_: Any) -> None:
        raise OSError

    writes = RetryTopics("r", ["1ms"], producer=_producer(kip848_broker), partitions=1, elsewhere=True)
    reads = RetryTopics("r", ["1ms"], producer=_producer(kip848_broker))
    with _running(Consumer, member_conf(kip848_broker), ["orders"], fail, retry_later=writes):
        wait_until(lambda: "r-1" in kip848_broker.topics)
        conf = member_conf(kip848_broker)
        with _running(Consumer, conf, reads.topics, lambda one: seen.append(one.offset()), retry_later=reads):
            wait_until(lambda: seen)
    assert seen == [0]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_partition_that_waits_is_forgotten_when_it_moves(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """It would count as held here, and be read again from here if it came back."""
    kip848_broker.topics.create("r-1", 2)
    _put_into(kip848_broker, "r-1", 20, due_ms=_now_ms() + LONG_MS)

    def held(consumer: Consumer[Any, Any]) -> int:
        status = consumer.processing_status()
        return 0 if status is None else status.held

    def run() -> AbstractContextManager[Consumer[Any, Any]]:
        retries = RetryTopics("r", ["2h"], producer=_producer(kip848_broker))
        return _running(kind, member_conf(kip848_broker), ["r-1"], lambda _: None, retry_later=retries)

    with run() as first:
        wait_until(lambda: held(first) == 2)
        with run() as second:
            wait_until(lambda: held(first) == 1)
            wait_until(lambda: held(second) == 1)


def test_the_application_cannot_resume_what_waits_by_mistake(kip848_broker: EmbeddedBroker) -> None:
    """resume() of all partitions would have records handled too early; pause() must outlast their time."""
    kip848_broker.topics.create("r-1", 1)
    due_ms = _now_ms() + 400
    _put_into(kip848_broker, "r-1", 1, due_ms=due_ms)
    seen: list[int] = []
    retries = RetryTopics("r", ["1h"], producer=_producer(kip848_broker))

    def handle(_: Any) -> None:
        seen.append(_now_ms())

    with _running(Consumer, member_conf(kip848_broker), ["r-1"], handle, retry_later=retries) as consumer:
        wait_until(lambda: seen or ((status := consumer.processing_status()) is not None and status.held))
        consumer.resume([TopicPartition("r-1", 0)])
        wait_until(lambda: seen)
    assert seen[0] >= due_ms


def test_a_batch_waits_record_by_record(kip848_broker: EmbeddedBroker) -> None:
    """A batch that failed would be committed with only its first record in the tier."""
    fill(kip848_broker, 6)
    seen: list[list[int]] = []

    def insert(messages: list[Any]) -> None:
        seen.append([message.offset() for message in messages])
        if processing_attempt().number == 1:
            raise OSError

    retries = RetryTopics("r", ["50ms"], producer=_producer(kip848_broker), partitions=1)
    topics = ["orders", "r-1"]
    given: dict[str, Any] = {"retry_later": retries, "batch": [6, 60], "order": "partition"}
    with _running(Consumer, member_conf(kip848_broker), topics, insert, **given):
        wait_until(lambda: kip848_broker.groups.committed("g").get(("r-1", 0)) == 6)
    assert sorted(offset for batch in seen for offset in batch) == sorted([*range(6), *range(6)])


def test_nothing_stays_paused_when_process_has_ended(kip848_broker: EmbeddedBroker) -> None:
    """A program that goes on with poll() would never see the records of the tier."""
    kip848_broker.topics.create("orders", 1)
    kip848_broker.topics.create("r-1", 1)
    _put_into(kip848_broker, "r-1", 1, due_ms=_now_ms() + LONG_MS)
    kip848_broker.produce("orders", "bad")

    def handle(_: Any) -> None:
        wait_until(lambda: (status := consumer.processing_status()) is not None and status.held)
        raise ValueError

    retries = RetryTopics("r", ["2h"], producer=_producer(kip848_broker), errors=OSError)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders", "r-1"])
        with pytest.raises(ProcessingError):
            consumer.process(handle, retry_later=retries)
        assert consumer.paused() == []
        found = [consumer.poll(TIMEOUT_S), consumer.poll(TIMEOUT_S)]
        assert {message.topic() for message in found if message is not None} == {"orders", "r-1"}


def _fails_first(_: Any) -> None:
    if processing_attempt().number == 1:
        raise OSError("down")


def test_handlers_in_processes_are_told_their_attempt(kip848_broker: EmbeddedBroker) -> None:
    """The copy that is sent to a process would come without what the tier knows."""
    fill(kip848_broker, 3)
    retries = RetryTopics("r", [timedelta(milliseconds=20)], producer=_producer(kip848_broker), partitions=1)
    with (
        ProcessPoolExecutor(1) as pool,
        _running(
            Consumer, member_conf(kip848_broker), ["orders", "r-1"], _fails_first, retry_later=retries, executor=pool
        ),
    ):
        wait_until(lambda: kip848_broker.groups.committed("g").get(("r-1", 0)) == 3)


def test_a_deserialiser_that_fails_is_asked_again_when_the_record_is_due(kip848_broker: EmbeddedBroker) -> None:
    """While a schema registry is away its records would be handled at once, again and again."""
    fill(kip848_broker, 1)
    seen: list[Any] = []

    def value(data: bytes, context: Any) -> str:
        due_ms = dict(context.headers or ()).get("kip848.due")
        if due_ms is None or _now_ms() < int(due_ms):
            raise OSError("registry")
        return data.decode()

    retries = RetryTopics("r", ["200ms"], producer=_producer(kip848_broker), partitions=1)
    conf = member_conf(kip848_broker, **{"value.deserializer": value})
    with _running(Consumer, conf, ["orders", "r-1"], lambda one: seen.append(one.value()), retry_later=retries):
        wait_until(lambda: seen)
    assert seen == ["0"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"delays": []}, ConfigError, "1 to 20"),
        ({"delays": "10s"}, ArgumentTypeError, "give a list"),
        ({"delays": ["ten"]}, ConfigError, "not readable"),
        ({"delays": ["31d"]}, ConfigError, "30 days"),
        ({"delays": [None]}, ArgumentTypeError, "timedelta"),
        ({"name": ""}, ArgumentTypeError, "give the name"),
        ({"producer": object()}, ArgumentTypeError, "not a producer"),
        ({"errors": "OSError"}, ArgumentTypeError, "class of exceptions"),
        ({"partitions": 0}, ConfigError, "how many"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments: dict[str, Any], error: type, text: str) -> None:
    """They would be noticed when the first record fails."""
    with pytest.raises(error, match=text):
        RetryTopics(**{"name": "r", "delays": ["1s"]} | arguments)


@pytest.mark.parametrize(
    ("settings", "topics", "arguments", "text"),
    [
        (None, ["orders"], {}, "does not read r-1"),
        (None, ["orders", "r-1"], {}, "no topic r-1"),
        ({"cleanup.policy": "compact"}, ["orders", "r-1"], {}, "compacted"),
        ({"retention.ms": "1000"}, ["orders", "r-1"], {}, "keeps records for 1,000 ms"),
        ({}, ["orders", "r-1"], {"producer": None}, "no producer"),
    ],
)
def test_topics_that_would_lose_records_are_refused_at_the_start(
    kip848_broker: EmbeddedBroker, settings: Any, topics: list[str], arguments: Any, text: str
) -> None:
    """It would be noticed in the first outage, by the records that are missing."""
    kip848_broker.topics.create("orders", 1)
    if settings is not None:
        kip848_broker.topics.create("r-1", 1, configs=settings)
    retries = RetryTopics("r", ["1m"], **{"producer": _producer(kip848_broker)} | arguments)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(topics)
        with pytest.raises(ConfigError, match=text):
            consumer.process(lambda _: None, retry_later=retries, until="end")
