"""``process(outputs=...)``: a record is done once what its handler produced is acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import anyio
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kip848_client import AsyncConsumer, Consumer, HandlerOutputs, ProcessingFailure
from kip848_client.consumer.processing.sender import Sender
from kip848_client.errors import ArgumentTypeError, ConfigError, IllegalStateError, ProcessingError
from kip848_client.testing import EmbeddedBroker
from tests.processing.harness import P, Played
from tests.processing.orders import fill, member_conf
from tests.support.waiting import TIMEOUT_S, wait_until

NO = ValueError("no")


class FakeProducer:
    """Keeps what is produced until the test acknowledges it; reports come out of poll()."""

    def __init__(self, room: int = 1_000) -> None:
        self.room = room
        self.sent: list[tuple[Any, Callable[[Any, Any], None]]] = []
        self._reports: list[Callable[[], None]] = []
        self.raises: BaseException | None = None
        """Out of the next poll()."""
        self._lock = threading.Lock()

    def produce(self, topic: str, value: Any = None, *, on_delivery: Callable[[Any, Any], None], **_: Any) -> None:
        with self._lock:
            if len(self.sent) >= self.room:
                raise BufferError("queue full")
            self.sent.append((value, on_delivery))

    def poll(self, timeout: float) -> int:
        with self._lock:
            error, self.raises = self.raises, None
            if error is not None:
                raise error
            reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def acknowledge(self, error: KafkaError | None = None) -> object:
        """Answer the oldest record."""
        with self._lock:
            value, on_delivery = self.sent.pop(0)
            self._reports.append(lambda: on_delivery(error, None))
        return value


# --- the core


def test_a_commit_does_not_pass_a_record_whose_output_is_not_acknowledged() -> None:
    """P2: the handler has returned, and a crash now would lose what it has produced."""
    played = Played(2)
    played.core.assigned(P, 0)
    played.take(0, 1, 2, lanes="aab")
    assert played.core.produced(played.running.pop((0, 0)), played.now)
    played.perform()
    played.end(2)

    assert played.commit() == (0, [(2, 3)])
    assert played.started == [0, 2], "a later record of its key waits"
    assert (status := played.core.status(0)).waiting_output == 1
    assert status.in_hand == 2


def test_an_output_frees_its_slot_and_then_its_key() -> None:
    """Waiting for brokers takes no slot; the next record of the key begins when they have it."""
    played = Played(1)
    played.core.assigned(P, 0)
    played.take(0, 1, 2, lanes="aab")
    work = played.running.pop((0, 0))
    played.core.produced(work, played.now)
    played.perform()
    assert played.started == [0, 2]
    played.end(2)

    assert played.core.acknowledged(work, played.now)
    played.perform()

    assert played.started == [0, 2, 1]
    assert played.commit() == (1, [(2, 3)])


def test_a_refused_output_is_a_failure_of_its_handler() -> None:
    """The shell decides as for one that raised: again, a dead letter, or the end."""
    played = Played(1)
    played.core.assigned(P, 0)
    played.take(0)
    work = played.running.pop((0, 0))
    played.core.produced(work, played.now)

    played.core.refused_output(work, NO)
    played.perform()

    assert played.failed == [work]
    assert played.core.status(0).waiting_dead_letter == 1
    played.core.retry(work, played.now, in_ms=0)
    played.core.tick(played.now)
    played.perform()
    assert played.started == [0, 0]


def test_an_output_that_is_acknowledged_after_its_partition_went_counts_for_nothing() -> None:
    """The next owner handles the record again; a revocation waits for outputs, but not for ever."""
    played = Played(1)
    played.core.assigned(P, 0)
    played.take(0)
    work = played.running.pop((0, 0))
    played.core.produced(work, played.now)
    played.core.revoke([P], played.now)
    assert played.core.busy([P])

    played.core.forget([P], played.now)

    assert not played.core.acknowledged(work, played.now)
    played.core.refused_output(work, NO)
    played.perform()
    assert not played.failed
    assert played.core.status(0).in_hand == 0


# --- the sender


def test_what_has_no_room_in_the_producer_is_sent_in_order_as_room_comes() -> None:
    """A full queue is no failure: librdkafka's holds 100,000 records, and a slow broker fills it."""
    producer = FakeProducer(room=2)
    guard = threading.RLock()
    ended: list[tuple[int, Exception | None]] = []

    def tell(look: Callable[[], None]) -> None:
        with guard:
            look()

    sender = Sender(producer, tell)
    with guard:
        for number in range(3):
            records = [{"topic": "t", "value": value} for value in (2 * number, 2 * number + 1)]
            sender.send(records, lambda failure, number=number: ended.append((number, failure)))  # type: ignore[misc]
    got = []
    for _ in range(6):
        wait_until(lambda: producer.sent)
        got.append(producer.acknowledge())

    wait_until(lambda: len(ended) == 3)
    assert got == [*range(6)]
    assert ended == [(0, None), (1, None), (2, None)]


# --- both consumers


def _in_threads(broker: EmbeddedBroker, handler: Callable[..., None], **more: Any) -> Callable[[], None]:
    consumer: Consumer[Any, Any] = Consumer(member_conf(broker))
    consumer.subscribe(["orders"])

    def run() -> None:
        with consumer:
            consumer.process(handler, until="end", **more)

    return run


def _in_tasks(broker: EmbeddedBroker, handler: Callable[..., None], **more: Any) -> Callable[[], None]:
    async def handle(*arguments: Any) -> None:
        handler(*arguments)

    async def main() -> None:
        async with AsyncConsumer(member_conf(broker)) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle, until="end", **more)

    return lambda: anyio.run(main)


@pytest.mark.parametrize("way", [_in_threads, _in_tasks])
def test_records_are_committed_as_their_outputs_are_acknowledged(
    kip848_broker: EmbeddedBroker, way: Callable[..., Callable[[], None]]
) -> None:
    """``produce()`` only queues: a process that was killed lost the outputs of 1,000 committed records."""
    fill(kip848_broker, 3)
    producer = FakeProducer()

    def handle(message: Any, outputs: HandlerOutputs) -> None:
        outputs.produce("totals", message.value())
        if message.offset() == 1:
            outputs.produce("totals", b"another")

    running = threading.Thread(target=way(kip848_broker, handle, outputs=producer))
    running.start()
    try:
        wait_until(lambda: len(producer.sent) == 4)
        assert kip848_broker.groups.committed("g").get(("orders", 0), 0) == 0
        values = sorted(value for value, _ in producer.sent)
        assert values == [b"0", b"1", b"2", b"another"]
    finally:
        for _ in range(4):
            producer.acknowledge()
        running.join(TIMEOUT_S)
    assert not running.is_alive()
    assert kip848_broker.groups.committed("g")["orders", 0] == 3


@pytest.mark.parametrize("way", [_in_threads, _in_tasks])
def test_a_refused_output_ends_process_as_a_handler_that_raised(
    kip848_broker: EmbeddedBroker, way: Callable[..., Callable[[], None]]
) -> None:
    """A record without its output must not be committed."""
    fill(kip848_broker, 1)
    failures: list[ProcessingFailure] = []
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "allow.auto.create.topics": False}

    def handle(_: Any, outputs: HandlerOutputs) -> None:
        outputs.produce("x" * 300, b"a name that no topic has")

    with pytest.raises(ProcessingError, match="the handler failed for orders-0 at offset 0") as raised:
        way(kip848_broker, handle, outputs=Producer(conf), on_failure=failures.append)()

    assert isinstance(raised.value.__cause__, KafkaException)
    assert [failure.error for failure in failures] == [raised.value.__cause__]
    assert kip848_broker.groups.committed("g").get(("orders", 0), 0) == 0


@pytest.mark.parametrize("error", [NO, SystemExit(3)])
@pytest.mark.parametrize("way", [_in_threads, _in_tasks])
def test_what_a_callback_of_the_producer_raises_ends_process(
    kip848_broker: EmbeddedBroker, way: Callable[..., Callable[[], None]], error: BaseException
) -> None:
    """The thread that polls would end with it, and process() would wait for acknowledgements for ever."""
    fill(kip848_broker, 2)
    producer = FakeProducer()
    raised: list[BaseException] = []

    def handle(message: Any, outputs: HandlerOutputs) -> None:
        outputs.produce("totals", message.value())

    def run() -> None:
        try:
            way(kip848_broker, handle, outputs=producer, grace_s=TIMEOUT_S)()
        except (ValueError, SystemExit) as what:
            raised.append(what)

    running = threading.Thread(target=run)
    running.start()
    wait_until(lambda: len(producer.sent) == 2)
    producer.raises = error
    wait_until(lambda: producer.raises is None)
    for _ in range(2):
        producer.acknowledge()
    running.join(TIMEOUT_S)

    assert raised == [error]
    assert kip848_broker.groups.committed("g")["orders", 0] == 2, "what is acknowledged before the end is done"
    wait_until(lambda: all(thread.name != "kip848-sender" for thread in threading.enumerate()))


def test_the_end_names_what_the_handler_raised_and_what_the_callback_did(kip848_broker: EmbeddedBroker) -> None:
    """An exception of `on_failure` that is told as the handler's is looked for in the wrong place."""
    fill(kip848_broker, 1)

    def handle(_: Any) -> None:
        raise KeyError("customer")

    def tell(_: ProcessingFailure) -> None:
        raise NO

    with pytest.raises(ProcessingError, match="KeyError: 'customer', and retry= or on_failure= raised: ValueError"):
        _in_threads(kip848_broker, handle, on_failure=tell)()


def test_nothing_is_produced_by_a_call_that_raised(kip848_broker: EmbeddedBroker) -> None:
    """Half of its outputs would be there twice after the next attempt."""
    fill(kip848_broker, 1)
    producer = FakeProducer()
    kept: list[HandlerOutputs] = []

    def handle(_: Any, outputs: HandlerOutputs) -> None:
        kept.append(outputs)
        outputs.produce("totals", b"half")
        raise NO

    _in_threads(kip848_broker, handle, outputs=producer, on_error="skip")()

    assert not producer.sent
    with pytest.raises(IllegalStateError, match="this call of the handler is over"):
        kept[0].produce("totals", b"late")


def _produce_length(copy: Any, outputs: HandlerOutputs) -> None:
    outputs.produce("totals", str(len(copy.value())))


@pytest.mark.slow
def test_a_handler_in_another_process_produces_as_well(kip848_broker: EmbeddedBroker) -> None:
    """What it has produced comes back with its return, and is sent by the process that commits."""
    fill(kip848_broker, 2)
    kip848_broker.topics.create("totals", 1)
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    with ProcessPoolExecutor(1) as pool:
        _in_threads(kip848_broker, _produce_length, outputs=producer, executor=pool)()
    assert [record.value for record in kip848_broker.records("totals")] == [b"1", b"1"]
    assert kip848_broker.groups.committed("g")["orders", 0] == 2


def test_arguments_that_do_not_go_together_are_refused(kip848_broker: EmbeddedBroker) -> None:
    """A name in place of a producer, two places for outputs, a handler that takes none."""
    producer = FakeProducer()
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ArgumentTypeError, match="outputs='totals' is not a producer; give a confluent_kafka"):
            consumer.process(lambda message, outputs: None, outputs="totals")  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match=r"on_failure=\[\]: give a function"):
            consumer.process(lambda message: None, on_failure=[])  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="on_failure is called with"):
            consumer.process(lambda message: None, on_failure=lambda record, error: None)  # type: ignore[arg-type,misc]
        with pytest.raises(ConfigError, match="outputs= and transactional= are both given"):
            consumer.process(lambda message, tx: None, outputs=producer, transactional=producer)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="handler is called with"):
            consumer.process(lambda message: None, outputs=producer)  # type: ignore[arg-type]


def test_an_event_loop_that_has_ended_is_told_nothing() -> None:
    """A report may come after asyncio.run() has returned: the thread that polls ends quietly."""
    producer = FakeProducer()
    ended: list[object] = []

    async def send() -> Sender:
        sender = Sender(producer, asyncio.get_running_loop().call_soon_threadsafe)
        sender.send([{"topic": "t"}], ended.append)
        return sender

    sender = asyncio.run(send())
    producer.acknowledge()
    wait_until(lambda: not sender._polls)
    assert not ended
