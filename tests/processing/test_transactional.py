"""``process(transactional=...)`` of both consumers on the embedded broker: each result exactly once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import tenacity
from confluent_kafka import Producer

from kip848_client import AsyncConsumer, Consumer, DeadLetters, HandlerTransaction, Limits
from kip848_client.common.model import NamedPartition
from kip848_client.consumer.transactions import producer_calls
from kip848_client.errors import (
    ConfigError,
    IllegalStateError,
    ProcessingError,
    ProducerFencedError,
    TransactionFailedError,
)
from kip848_client.testing import EmbeddedBroker
from tests.interop.embedded.clients import read_committed
from tests.processing.orders import fill
from tests.support.waiting import TIMEOUT_S, wait_until

RETRY = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())
P = NamedPartition("orders", 0)


def _conf(broker: EmbeddedBroker, **settings: Any) -> dict[str, Any]:
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    return {**base, **settings}


def _producer(broker: EmbeddedBroker, name: str = "tx") -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": name,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            "linger.ms": 0,
        }
    )


def _filled(broker: EmbeddedBroker, count: int, *, keys: int = 10, partitions: int = 1) -> None:
    broker.topics.create("invoices", 1)
    broker.topics.create("dead", 1)
    fill(broker, count, keys=keys, partitions=partitions)


def _written(broker: EmbeddedBroker, topic: str = "invoices") -> list[str]:
    return [(one.value() or b"").decode() for one in read_committed(broker.bootstrap_servers, topic)]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_limit_is_looked_at_when_a_transaction_has_ended(
    kip848_broker: EmbeddedBroker, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one holds up all others, nobody waits for the limit."""
    monkeypatch.setattr("kip848_client.aio.processing._SLICE_S", 600.0)  # else it is looked at every second
    _filled(kip848_broker, 4)

    async def main() -> None:
        async with AsyncConsumer(_conf(kip848_broker)) as consumer:

            async def handle(message: Any, tx: HandlerTransaction) -> None:
                tx.produce("invoices", message.value(), message.key())
                if message.offset() == 3:
                    consumer.hand_over()

            await consumer.subscribe(["orders"])
            with anyio.fail_after(TIMEOUT_S):
                await consumer.process(
                    handle, limits=Limits(calls_per_second=10), transactional=_producer(kip848_broker), slice_records=1
                )

    anyio.run(main, backend=backend)
    assert sorted(_written(kip848_broker)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_write_each_result_once_and_in_the_order_of_its_key(kip848_broker: EmbeddedBroker, backend: str) -> None:
    """Handlers that fail halfway and are called again must not write the first half twice."""
    _filled(kip848_broker, 200)
    failed: set[int] = set()

    async def main() -> None:
        async with AsyncConsumer(_conf(kip848_broker)) as consumer:

            async def handle(message: Any, tx: HandlerTransaction) -> None:
                tx.produce("invoices", message.value(), message.key())
                await anyio.lowlevel.checkpoint()
                if message.offset() % 7 == 0 and message.offset() not in failed:
                    failed.add(message.offset())
                    raise OSError

            def all_is_committed() -> None:
                wait_until(lambda: kip848_broker.groups.committed("g").get(P) == 200)

            await consumer.subscribe(["orders"])
            process = partial(
                consumer.process, handle, concurrency=20, retry=RETRY, transactional=producer, slice_records=30
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process)
                await anyio.to_thread.run_sync(all_is_committed)
                tasks.cancel_scope.cancel()

    producer = _producer(kip848_broker)

    anyio.run(main, backend=backend)
    written = _written(kip848_broker)
    assert Counter(written) == Counter(map(str, range(200)))
    for key in range(10):
        assert [int(value) for value in written if int(value) % 10 == key] == list(range(key, 200, 10))


def test_a_rebalance_in_the_middle_writes_nothing_twice(kip848_broker: EmbeddedBroker) -> None:
    """A deployment hands partitions over while handlers run; results of the old owner and of the new one add up."""
    _filled(kip848_broker, 300, partitions=4, keys=50)
    consumers = [Consumer(_conf(kip848_broker, **{"client.id": name})) for name in ("one", "two")]
    joined = threading.Event()

    def handle(message: Any, tx: HandlerTransaction) -> None:
        if not joined.is_set() and message.offset() > 5:
            joined.wait(TIMEOUT_S)
        tx.produce("invoices", message.value())

    def work(consumer: Consumer[Any, Any], name: str) -> None:
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=8, transactional=_producer(kip848_broker, name), slice_ms=10)
        consumer.close()

    threads = [threading.Thread(target=work, args=(consumer, str(at))) for at, consumer in enumerate(consumers)]
    threads[0].start()
    wait_until(lambda: sum(kip848_broker.groups.committed("g").values()) > 0)
    threads[1].start()
    wait_until(lambda: (group := kip848_broker.groups.get("g")) is not None and len(group.members) == 2)
    joined.set()
    wait_until(lambda: sum(kip848_broker.groups.committed("g").values()) == 300)
    for consumer in consumers:
        consumer.hand_over(0)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert Counter(_written(kip848_broker)) == Counter(map(str, range(300)))


def test_a_slow_record_holds_up_no_result_and_is_handled_by_the_next_owner_alone(
    kip848_broker: EmbeddedBroker,
) -> None:
    """One call that hangs must neither delay the results of the others nor have them written twice."""
    _filled(kip848_broker, 20, keys=20)
    released = threading.Event()
    seen: list[int] = []

    def handle(message: Any, tx: HandlerTransaction) -> None:
        if not seen and message.offset() == 0:
            released.wait(TIMEOUT_S)
        tx.produce("invoices", message.value())

    def again(message: Any, tx: HandlerTransaction) -> None:
        seen.append(message.offset())
        tx.produce("invoices", message.value())

    def stop_once(done: int) -> None:
        wait_until(lambda: len(_written(kip848_broker)) == done, every_s=0.05)
        consumer.hand_over(0)

    for handler, done in ((handle, 19), (again, 20)):
        with Consumer(_conf(kip848_broker)) as consumer:
            stopping = threading.Thread(target=stop_once, args=(done,))
            stopping.start()
            consumer.subscribe(["orders"])
            consumer.process(
                handler, concurrency=20, transactional=_producer(kip848_broker), slice_ms=0, drain_s=0.1, grace_s=0.1
            )
            stopping.join(TIMEOUT_S)
    released.set()
    assert seen == [0]
    assert Counter(_written(kip848_broker)) == Counter(map(str, range(20)))


def test_a_member_that_is_removed_in_the_middle_writes_nothing_twice(kip848_broker: EmbeddedBroker) -> None:
    """A process that hung finds its partitions lost; what it has done of them since must not be written."""
    _filled(kip848_broker, 60, keys=60)
    removed = threading.Event()

    def handle(message: Any, tx: HandlerTransaction) -> None:
        if message.offset() == 20 and not removed.is_set():
            removed.set()
            kip848_broker.groups.remove_member("g", consumer.member_id)
        tx.produce("invoices", message.value())

    def stop_at_the_end() -> None:
        wait_until(lambda: kip848_broker.groups.committed("g").get(P) == 60)
        consumer.hand_over(0)

    with Consumer(_conf(kip848_broker)) as consumer:
        stopping = threading.Thread(target=stop_at_the_end)
        stopping.start()
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=4, transactional=_producer(kip848_broker), slice_records=5)
        stopping.join(TIMEOUT_S)
    assert Counter(_written(kip848_broker)) == Counter(map(str, range(60)))


def test_a_failure_for_good_stops_and_a_letter_is_in_the_transaction(kip848_broker: EmbeddedBroker) -> None:
    """What a poisoned record had produced is not seen; the others of its slice are, and its letter is there once."""
    _filled(kip848_broker, 10)

    def handle(message: Any, tx: HandlerTransaction) -> None:
        tx.produce("invoices", message.value())
        if message.offset() == 4:
            raise ValueError("poison")
        if message.offset() == 6:
            tx.produce("invoices", b"x" * 2_000_000)
        if message.offset() == 9 and letters:
            consumer.hand_over(0)

    producer, letters = _producer(kip848_broker), None
    for _ in range(2):
        with Consumer(_conf(kip848_broker)) as consumer:
            consumer.subscribe(["orders"])
            failure: Any = (
                pytest.raises(ProcessingError, match="poison") if letters is None else contextlib.nullcontext()
            )
            with failure:
                consumer.process(handle, order="partition", transactional=producer, dead_letter=letters)
        letters = DeadLetters(producer, "dead")
    assert _written(kip848_broker) == [str(number) for number in range(10) if number not in {4, 6}]
    assert _written(kip848_broker, "dead") == ["4", "6"]
    assert kip848_broker.groups.committed("g") == {P: 10}


def test_a_result_that_cannot_be_written_stops_and_names_its_record(kip848_broker: EmbeddedBroker) -> None:
    """Otherwise the same transaction would be tried for ever, and the program would only seem to work."""
    _filled(kip848_broker, 3)

    def handle(message: Any, tx: HandlerTransaction) -> None:
        tx.produce("invoices", b"x" * (2_000_000 if message.offset() == 1 else 1))

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=r"orders-0 at offset 1 cannot be written.*MSG_SIZE_TOO_LARGE"):
            consumer.process(handle, transactional=_producer(kip848_broker))
        assert consumer.poll(TIMEOUT_S).offset() == 0  # type: ignore[union-attr]
    assert _written(kip848_broker) == []


def test_a_process_whose_name_was_taken_stops(kip848_broker: EmbeddedBroker) -> None:
    """It would work for nothing, and a supervisor can start it under another name."""
    _filled(kip848_broker, 1)

    def handle(message: Any, tx: HandlerTransaction) -> None:
        _producer(kip848_broker).init_transactions(TIMEOUT_S)
        tx.produce("invoices", message.value())

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProducerFencedError, match="end this process"):
            consumer.process(handle, transactional=_producer(kip848_broker))
    assert _written(kip848_broker) == []


def test_a_process_that_is_to_end_does_not_wait_for_brokers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment while the cluster is down ends with an error, and not with SIGKILL."""
    monkeypatch.setattr(producer_calls, "_OFFSETS_SLICE_S", 0.2)

    def handle(message: Any, tx: HandlerTransaction) -> None:
        broker.stop()
        tx.produce("invoices", message.value())
        consumer.hand_over(0)

    with EmbeddedBroker() as broker:
        _filled(broker, 1)
        consumer = Consumer(_conf(broker, log_level=0))
        consumer.subscribe(["orders"])
        with pytest.raises(TransactionFailedError, match="is not known"):
            consumer.process(handle, transactional=_producer(broker), slice_ms=0, grace_s=0.1)
        consumer.close(0)


def test_what_would_break_the_promise_is_refused(kip848_broker: EmbeddedBroker) -> None:
    """A program that only seems to be exactly once is worse than one that does not start."""
    _filled(kip848_broker, 1)
    producer = _producer(kip848_broker)
    plain = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match="the same producer"):
            consumer.process(print, transactional=producer, dead_letter=DeadLetters(plain, "dead"))
        with pytest.raises(ConfigError, match=r"transactional\.id"):
            consumer.process(print, transactional=plain)
        with ProcessPoolExecutor(1) as executor, pytest.raises(ConfigError, match="in threads"):
            consumer.process(print, transactional=producer, executor=executor)
    late = HandlerTransaction()
    late.end()
    with pytest.raises(IllegalStateError, match="is over"):
        late.produce("invoices", b"late")
