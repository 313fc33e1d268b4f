"""A partition whose position does not move although records wait is told of: by health(), last_error and the log."""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections.abc import Callable

import confluent_kafka
import pytest

from kip848_client import AsyncConsumer, Consumer, ConsumerHealth, EmbeddedBroker, TopicPartition
from kip848_client.common.clock import ManualClock
from kip848_client.common.error_codes import ErrorCode
from kip848_client.config import ConfigValue
from kip848_client.testing.faults.actions import error
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.record_batch import HEADER_SIZE, Record, build_batch, crc32c
from tests.interop.client.drive import Produce
from tests.support.driving import QUIET
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop

PATIENT_MS = 86_400_000
"""The clock of these tests runs ahead of the broker, which answers in real time."""


def cut_inside_a_record(count: int, first: int) -> bytes:
    """A batch of *count* records in two gzip members; the first ends some bytes behind its record *first*."""
    plain = build_batch([Record(b"value %d" % number, timestamp=number) for number in range(count)])
    cut_at = len(build_batch([Record(b"value %d" % number, timestamp=number) for number in range(first)])) + 5
    packed = b""
    for part in (plain[HEADER_SIZE:cut_at], plain[cut_at:]):
        packer = zlib.compressobj(wbits=31)
        packed += packer.compress(part) + packer.flush()
    batch = bytearray(plain[:HEADER_SIZE] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = b"\0\1"
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@pytest.fixture
def unreadable(broker: EmbeddedBroker) -> None:
    """Put a batch that librdkafka cannot read into the first partition."""
    with RawConnection(broker.bootstrap_servers) as raw:
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": cut_inside_a_record(41, 20)}]}]
        answer = raw.call(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=data)
        assert answer.responses[0].partition_responses[0].error_code == 0


def settings_of(broker: EmbeddedBroker, **more: ConfigValue) -> dict[str, ConfigValue]:
    return {
        **QUIET,
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "request.timeout.ms": PATIENT_MS,
        **more,
    }


def stalled(health: ConsumerHealth) -> list[int]:
    """The partitions that are."""
    return [each.partition for each in health.assignment if each.stalled_s is not None]


def poll_for(consumer: Consumer, clock: ManualClock, *, seconds: int) -> None:
    for _ in range(2 * seconds):
        consumer.poll(0.01)
        clock.advance(500)


@pytest.mark.usefixtures("unreadable")
def test_a_batch_that_librdkafka_cannot_read_is_told_of(
    broker: EmbeddedBroker, closing: Callable[[Consumer], Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka fetches it again and again without a word: the consumer would be healthy for ever, with a lag."""
    clock = ManualClock()
    consumer = closing(Consumer(settings_of(broker), clock=clock))
    consumer.subscribe(["orders"])

    def told() -> bool:
        poll_for(consumer, clock, seconds=1)
        return bool(stalled(consumer.health()))

    wait_until(told)
    health = consumer.health()

    assert (health.live, stalled(health)) == (True, [0])
    (reason,) = [each.reason for each in health.assignment if each.reason]
    assert "its gzip has several members" in reason.lower()
    assert "position in orders-0 has not moved" in (health.last_error or "")
    (line,) = [each for each in caplog.records if getattr(each, "kip848_event", "") == "consumer.partitions_stalled"]
    assert (line.levelno, line.partitions) == (logging.WARNING, "orders-0")  # type: ignore[attr-defined]

    consumer.seek(TopicPartition("orders", 0, 41))
    wait_until(lambda: told() is False)


@pytest.mark.usefixtures("unreadable")
def test_process_tells_of_it(broker: EmbeddedBroker) -> None:
    """The handler is simply called no more for this partition."""
    clock = ManualClock()
    consumer = Consumer(settings_of(broker), clock=clock)
    consumer.subscribe(["orders"])
    thread = threading.Thread(target=consumer.process, args=(lambda _record: None,))
    thread.start()
    try:
        pause = threading.Event()

        def told() -> bool:
            pause.wait(0.02)
            clock.advance(500)
            return bool(stalled(consumer.health()))

        wait_until(told)
    finally:
        consumer.hand_over(0)
        thread.join(TIMEOUT_S)
        consumer.close()


@pytest.mark.usefixtures("unreadable")
def test_an_async_consumer_tells_of_it(broker: EmbeddedBroker) -> None:
    """Its reading task waits for ever."""

    async def main() -> None:
        clock = ManualClock()
        async with AsyncConsumer(settings_of(broker), clock=clock) as consumer:
            await consumer.subscribe(["orders"])
            async with asyncio.timeout(TIMEOUT_S):
                while not stalled(consumer.health()):
                    await consumer.poll(0.02)
                    clock.advance(500)

    asyncio.run(main())


def test_a_partition_without_a_position_is_told_of(
    broker: EmbeddedBroker, closing: Callable[[Consumer], Consumer]
) -> None:
    """Offsets of a transaction that hangs are refused again and again, and nothing is read."""
    broker.faults.on(ApiKey.OFFSET_FETCH, error(ErrorCode.UNSTABLE_OFFSET_COMMIT), times=None)
    clock = ManualClock()
    consumer = closing(Consumer(settings_of(broker), clock=clock))
    consumer.subscribe(["orders"])

    def told() -> bool:
        poll_for(consumer, clock, seconds=1)
        return stalled(consumer.health()) == [0, 1, 2, 3]

    wait_until(told)
    assert {each.reason for each in consumer.health().assignment} != {None}


def test_the_end_of_a_topic_with_transactions_is_no_stall(
    broker: EmbeddedBroker, closing: Callable[[Consumer], Consumer], produce: Produce
) -> None:
    """The last offset is a marker, which no application gets; librdkafka's position stays in front of it."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions()
    for commit in (True, False):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce("orders", b"value", partition=partition)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    clock = ManualClock()
    consumer = closing(Consumer(settings_of(broker), clock=clock))
    consumer.subscribe(["orders"])
    wait_until(lambda: len(consumer.assignment()) == 4 or consumer.poll(0.01) is not None)
    poll_for(consumer, clock, seconds=60)
    assert stalled(consumer.health()) == []
    assert consumer.health().last_error is None


def test_silent_partitions_cost_one_request(broker: EmbeddedBroker, closing: Callable[[Consumer], Consumer]) -> None:
    """What librdkafka knows of their ends may be old; a consumer of thousands must not ask about each."""
    clock = ManualClock()
    consumer = closing(Consumer(settings_of(broker, **{"client.id": "idle"}), clock=clock))
    consumer.subscribe(["orders"])
    wait_until(lambda: len(consumer.assignment()) == 4 or consumer.poll(0.01) is not None)

    def looked() -> bool:
        poll_for(consumer, clock, seconds=1)
        still = consumer._core.stalls._still
        return bool(still) and all(each.asked_idle for each in still.values())

    wait_until(looked)
    ours = broker.requests.of("Fetch", when=lambda request: request.version <= 12)
    assert len(ours) == 1
    assert stalled(consumer.health()) == []
