"""``process()`` of both consumers on the embedded broker."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import anyio
import pytest
import tenacity
from confluent_kafka import Producer

from kip848_client import (
    AsyncConsumer,
    Consumer,
    DeadLetters,
    ProcessingFailure,
    RetryLater,
    processing_attempt,
    processing_cancelled,
)
from kip848_client.consumer.processing.access import ConsumerAccess
from kip848_client.errors import ConfigError, IllegalStateError, ListenerError, ProcessingError
from kip848_client.testing import EmbeddedBroker
from tests.processing.orders import fill, member_conf
from tests.support.waiting import wait_until

RETRY = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_tasks_run_at_once_and_in_the_order_of_their_keys(
    kip848_broker: EmbeddedBroker, backend: str, protocol: str
) -> None:
    """A slow handler uses all its slots, and records of one key never overtake each other."""
    fill(kip848_broker, 200)
    seen: dict[bytes, list[int]] = defaultdict(list)
    most = running = 0

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker, **{"group.protocol": protocol})) as consumer:

            async def handle(message: Any) -> None:
                nonlocal most, running
                running += 1
                most = max(most, running)
                await anyio.sleep(0.001)  # it takes time, so that handlers overlap
                running -= 1
                seen[message.key()].append(message.offset())
                if sum(map(len, seen.values())) == 200:
                    consumer.hand_over()
                    tasks.cancel_scope.cancel()

            await consumer.subscribe(["orders"])
            async with anyio.create_task_group() as tasks:
                await consumer.process(handle, concurrency=50)

    anyio.run(main, backend=backend)
    assert most == 10, "one for each key"
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert kip848_broker.groups.committed("g")["orders", 0] == 200


def test_a_full_buffer_costs_no_calls_of_the_consumer(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine each call waits for its thread: with few slots process() waited most of the time."""
    fill(kip848_broker, 2_000)
    wanted: list[int] = []
    consume = ConsumerAccess.consume

    def counted(access: ConsumerAccess, count: int, timeout_s: float, *, bytes_max: int) -> list[Any]:
        wanted.append(count)
        return consume(access, count, timeout_s, bytes_max=bytes_max)

    monkeypatch.setattr(ConsumerAccess, "consume", counted)

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:

            async def handle(message: Any) -> None:
                if message.offset() == 1_999:
                    consumer.hand_over()

            await consumer.subscribe(["orders"])
            await consumer.process(handle, concurrency=10)

    asyncio.run(main())
    assert wanted.count(0) < len(wanted) / 4


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_large_records_stay_within_buffer_bytes(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """Whole reads of 500 records came into memory before anything looked at their size."""
    kip848_broker.topics.create("orders", 4)
    for number in range(40):
        kip848_broker.produce("orders", b"x" * 100_000, key=str(number), partition=number % 4)
    in_hand = most = done = 0
    lock = threading.Lock()

    def begin(message: Any) -> None:
        nonlocal in_hand, most
        with lock:
            in_hand += len(message.value())
            most = max(most, in_hand)

    def end(message: Any) -> None:
        nonlocal in_hand, done
        with lock:
            in_hand -= len(message.value())
            done += 1
        if done == 40:
            consumer.hand_over()

    def handle(message: Any) -> None:
        begin(message)
        threading.Event().wait(0.02)  # it takes time, so that more would be read
        end(message)

    async def handle_async(message: Any) -> None:
        begin(message)
        await anyio.sleep(0.02)  # it takes time, so that more would be read
        end(message)

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle_async, concurrency=100, buffer_bytes=300_000)

    consumer = kind(member_conf(kip848_broker))
    if kind is AsyncConsumer:
        asyncio.run(run_async())
    else:
        with consumer:
            consumer.subscribe(["orders"])
            consumer.process(handle, concurrency=100, buffer_bytes=300_000)
    assert 200_000 <= most < 400_000, "only the last record of a read may exceed it"


def test_a_new_owner_repeats_only_what_was_not_done(kip848_broker: EmbeddedBroker) -> None:
    """One slow record holds the committed offset; the others travel in the commit's metadata."""
    fill(kip848_broker, 20, keys=20)
    first: list[int] = []
    second: list[int] = []

    async def main() -> None:
        consumer = AsyncConsumer(member_conf(kip848_broker))
        await consumer.subscribe(["orders"])

        async def handle(message: Any) -> None:
            if message.offset() == 0:
                await anyio.sleep_forever()
            first.append(message.offset())

        task = asyncio.create_task(consumer.process(handle, grace_s=0))
        await asyncio.to_thread(wait_until, lambda: len(first) == 19, what="all but one")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await consumer.close()

        async with AsyncConsumer(member_conf(kip848_broker)) as other:
            await other.subscribe(["orders"])

            async def again(message: Any) -> None:
                second.append(message.offset())
                other.hand_over()

            await other.process(again)

    asyncio.run(main())
    assert (sorted(first), second) == ([*range(1, 20)], [0])
    assert kip848_broker.groups.committed("g")["orders", 0] == 20


def test_a_rebalance_lets_running_handlers_end(kip848_broker: EmbeddedBroker) -> None:
    """Two members share the partitions: every record is handled once, whatever moved in the middle."""
    fill(kip848_broker, 400, keys=40, partitions=4)
    handled: list[tuple[int, int]] = []
    lock = threading.Lock()

    async def main() -> None:
        consumers = [AsyncConsumer(member_conf(kip848_broker)) for _ in range(2)]

        async def handle(message: Any) -> None:
            await anyio.sleep(0.005)  # it takes time, so that partitions move with records in hand
            with lock:
                handled.append((message.partition(), message.offset()))
                if len(handled) == 60:
                    joined.set()
            if len(handled) >= 400:
                tasks.cancel_scope.cancel()

        joined = anyio.Event()

        async def run(consumer: AsyncConsumer) -> None:
            async with consumer:
                await consumer.subscribe(["orders"])
                await consumer.process(handle, concurrency=4)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, consumers[0])
            await joined.wait()
            tasks.start_soon(run, consumers[1])

    anyio.run(main)
    assert len(handled) == len(set(handled)) == 400


def test_a_failure_for_good_stops_and_says_which_record(kip848_broker: EmbeddedBroker) -> None:
    """The record is not committed, nothing behind it of its key has started, and what else is done is noted."""
    fill(kip848_broker, 30, keys=3)
    done: list[int] = []
    before_it = threading.Event()

    def handle(message: Any) -> None:
        if message.offset() == 4:
            assert before_it.wait(60)
            raise ValueError("poison")
        done.append(message.offset())
        if {0, 1, 2, 3} <= set(done):
            before_it.set()

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=r"orders-0 at offset 4 after 3 attempts.*poison") as raised:
            consumer.process(handle, retry=RETRY)
        assert raised.value.records[0].offset() == 4
        assert isinstance(raised.value.__cause__, ValueError)
    assert not {7, 10, 13} & set(done)
    assert kip848_broker.groups.committed("g")["orders", 0] == 4


def test_a_poison_record_goes_to_the_dead_letters(kip848_broker: EmbeddedBroker) -> None:
    """With its origin and the error; the rest goes on, and the commit passes it."""
    fill(kip848_broker, 10)
    kip848_broker.topics.create("dead")

    def handle(message: Any) -> None:
        if message.offset() == 4:
            raise ValueError("poison")
        if message.offset() == 9:
            consumer.hand_over()

    letters = DeadLetters(Producer({"bootstrap.servers": kip848_broker.bootstrap_servers}), "dead")
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=1, dead_letter=letters)
    (letter,) = kip848_broker.records("dead")
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["kip848.offset"]) == (b"4", b"4", b"4")
    assert headers["kip848.error"] == b"ValueError: poison"
    assert kip848_broker.groups.committed("g")["orders", 0] == 10


def test_a_dead_letter_that_is_refused_stops(kip848_broker: EmbeddedBroker) -> None:
    """The record would be lost: in no topic, and committed."""
    fill(kip848_broker, 3)
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "message.timeout.ms": 300}
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        letters = DeadLetters(Producer(conf | {"allow.auto.create.topics": False}), "x" * 300)
        with pytest.raises(ProcessingError, match=r"with ZeroDivisionError: .* dead letter was not written to x"):
            consumer.process(lambda _: 1 / 0, concurrency=1, dead_letter=letters)
    assert kip848_broker.groups.committed("g").get(("orders", 0), 0) == 0


def _square(record: Any) -> None:
    assert record.value() is not None


def test_handlers_may_run_in_processes(kip848_broker: EmbeddedBroker) -> None:
    """CPU-bound work; a record is sent as a copy."""
    fill(kip848_broker, 20)
    with ProcessPoolExecutor(1) as pool, Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])

        def end() -> None:
            wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 20, what="all are committed")
            consumer.hand_over()

        watcher = threading.Thread(target=end)
        watcher.start()
        consumer.process(_square, executor=pool)
        watcher.join()


TENANT: contextvars.ContextVar[str | None] = contextvars.ContextVar("tenant", default=None)
"""Set by the caller of process()."""
ORDER: contextvars.ContextVar[int | None] = contextvars.ContextVar("order", default=None)
"""Set by handlers."""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_sees_no_context_of_another_record(kip848_broker: EmbeddedBroker, backend: str) -> None:
    """A bound logger, a tenant or a session of one record was seen by the next record of the same task."""
    fill(kip848_broker, 40, keys=40)
    seen: list[tuple[str | None, int | None, int | None]] = []

    async def main() -> None:
        TENANT.set("the caller's")
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:

            async def handle(message: Any) -> None:
                before = ORDER.get()
                ORDER.set(message.offset())
                await anyio.sleep(0.001)  # its context is its own after it has waited, too
                own = ORDER.get()
                seen.append((TENANT.get(), before, None if own == message.offset() else own))
                assert not processing_cancelled()
                if len(seen) == 40:
                    consumer.hand_over()

            await consumer.subscribe(["orders"])
            await consumer.process(handle, concurrency=4)
        assert ORDER.get() is None

    anyio.run(main, backend=backend)
    assert seen == [("the caller's", None, None)] * 40


def _check_alone(record: Any) -> None:
    if ORDER.get() is not None:
        raise AssertionError(f"offset {record.offset()} sees the context of offset {ORDER.get()}")
    ORDER.set(record.offset())


@pytest.mark.parametrize("pool", [None, ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_thread_or_process_sees_no_context_of_another_record(
    kip848_broker: EmbeddedBroker, pool: Callable[[int], Executor] | None
) -> None:
    """Threads and processes go from record to record as tasks do."""
    fill(kip848_broker, 10, keys=10)
    tenants: set[str | None] = set()

    def handle(record: Any) -> None:
        tenants.add(TENANT.get())
        _check_alone(record)

    def main() -> None:
        TENANT.set("the caller's")
        with Consumer(member_conf(kip848_broker)) as consumer:
            consumer.subscribe(["orders"])

            def end() -> None:
                wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 10, what="all are done")
                consumer.hand_over()

            watcher = threading.Thread(target=end, daemon=True)
            watcher.start()
            executor = None if pool is None else pool(1)
            handler = _check_alone if pool is ProcessPoolExecutor else handle
            consumer.process(handler, concurrency=1, executor=executor)
            watcher.join()
            if executor is not None:
                executor.shutdown()

    contextvars.copy_context().run(main)
    assert tenants == (set() if pool is ProcessPoolExecutor else {"the caller's"})


def test_calls_that_process_makes_by_itself_are_refused(kip848_broker: EmbeddedBroker) -> None:
    """A second reader, or a commit by hand, would break what is noted as done."""
    fill(kip848_broker, 1)
    refused: list[type[Exception]] = []

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])

            async def handle(message: Any) -> None:
                for call in (
                    *(consumer.poll(0), consumer.commit(message), consumer.process(handle)),
                    *(consumer.close(), consumer.unsubscribe()),
                ):
                    try:
                        await call
                    except IllegalStateError as error:
                        refused.append(type(error))
                consumer.hand_over()

            await consumer.process(handle)

    asyncio.run(main())
    assert refused == [IllegalStateError] * 5


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"concurrency": 0}, ConfigError),
        ({"order": "keys"}, ConfigError),
        ({"on_error": "ignore"}, ConfigError),
        ({"retry": 3}, ConfigError),
        ({"timeout_s": 0}, ConfigError),
        ({"until": "now"}, ConfigError),
        ({"batch": 10}, ConfigError),
        ({"batch": (10, 5), "order": "none"}, ConfigError),
        ({"split": True}, ConfigError),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(
    kip848_broker: EmbeddedBroker, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """A typing mistake is an error at once, and not a consumer that does something else."""
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(error, match=next(iter(arguments))):
            consumer.process(print, **arguments)


def test_an_error_of_the_listener_is_raised_as_itself(kip848_broker: EmbeddedBroker) -> None:
    """Who catches ListenerError around a loop catches it around process(), too."""
    fill(kip848_broker, 1)

    def fails(*_: object) -> None:
        raise ValueError("mine")

    async def handle(_: object) -> None:
        raise AssertionError("nothing is assigned")

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"], on_assign=fails)
            await consumer.process(handle)

    with pytest.raises(ListenerError, match="mine"):
        asyncio.run(main())


def test_a_retry_that_raises_stops(kip848_broker: EmbeddedBroker) -> None:
    """A mistake in the user's predicate is an error, and not a record that waits for ever."""
    fill(kip848_broker, 1)
    retry = tenacity.Retrying(retry=lambda state: state.no_such_attribute)  # type: ignore[attr-defined]
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match="no_such_attribute"):
            consumer.process(lambda _: 1 / 0, retry=retry)


def test_a_thread_may_not_close_its_consumer(kip848_broker: EmbeddedBroker) -> None:
    """close() would wait for the handler that calls it."""
    fill(kip848_broker, 1)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=r"hand_over\(\)"):
            consumer.process(lambda _: consumer.close())


def test_a_batch_waits_as_long_as_it_is_told(kip848_broker: EmbeddedBroker) -> None:
    """With batch=(500, 5) a record waited for a second, and a time-out of 10 ms took as long."""
    fill(kip848_broker, 1)
    took: list[float] = []

    async def main(group: str) -> None:
        async with AsyncConsumer(member_conf(kip848_broker, **{"group.id": group})) as consumer:
            await consumer.subscribe(["orders"])
            while not await consumer.assignment():
                await consumer.consume(0, 0.02)

            async def handle(_: Any) -> None:
                took.append(time.monotonic() - begun_s)
                consumer.hand_over()

            begun_s = time.monotonic()
            await consumer.process(handle, order="partition", batch=(500, 5))

    while len(took) < 20 and (not took or took[-1] >= 1):  # the machine may be busy
        asyncio.run(main(f"g{len(took)}"))
    assert took[-1] < 1


def test_a_thread_hears_that_its_partition_goes(kip848_broker: EmbeddedBroker) -> None:
    """A handler that takes minutes stops soon, and its record is not done, though it returned."""
    fill(kip848_broker, 1)
    told: list[str] = []

    def handle(_: Any) -> None:
        assert not processing_cancelled()
        consumer.hand_over(0)
        while not processing_cancelled():
            told.append("goes on")
        told.append("ends")

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, drain_s=0)
        assert told[-1] == "ends", "before process() has returned: the next owner does not overlap"
    assert not processing_cancelled()
    assert kip848_broker.groups.committed("g").get(("orders", 0), 0) == 0


def test_a_thread_hears_that_its_time_is_up(kip848_broker: EmbeddedBroker) -> None:
    """Its slot is free again; otherwise each late call would take one until it ends."""
    fill(kip848_broker, 3, keys=1)
    late: list[int] = []

    def handle(message: Any) -> None:
        if message.offset() == 2:
            consumer.hand_over()
            return
        while not processing_cancelled():
            pass
        late.append(message.offset())

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=2, timeout_s=0.05, on_error="skip")
    assert late == [0, 1]
    assert kip848_broker.groups.committed("g")["orders", 0] == 3


def test_what_a_cancelled_task_raises_is_no_failure(kip848_broker: EmbeddedBroker) -> None:
    """A deployment in the middle of a call skipped its record, or buried it. A thread of the task hears, too."""
    fill(kip848_broker, 1)
    heard = threading.Event()

    def wait_in_a_thread() -> None:
        while not processing_cancelled():
            pass
        heard.set()

    async def main() -> None:
        started = asyncio.Event()

        async def handle(_: Any) -> None:
            started.set()
            try:
                await asyncio.to_thread(wait_in_a_thread)
            except asyncio.CancelledError:
                raise OSError("the call was cut off") from None

        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            running = asyncio.create_task(consumer.process(handle, grace_s=0, on_error="skip"))
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(main())
    assert heard.is_set()
    assert kip848_broker.groups.committed("g").get(("orders", 0), 0) == 0


def test_only_the_bad_record_of_a_batch_goes_to_the_dead_letters(kip848_broker: EmbeddedBroker) -> None:
    """A bulk insert of 500 rows is refused for one of them."""
    fill(kip848_broker, 5)
    kip848_broker.topics.create("dead")
    inserted: list[bytes] = []

    def insert(messages: list[Any]) -> None:
        if any(message.value() == b"2" for message in messages):
            raise ValueError("poison")
        inserted.extend(message.value() for message in messages)
        if b"4" in inserted:
            consumer.hand_over()

    letters = DeadLetters(Producer({"bootstrap.servers": kip848_broker.bootstrap_servers}), "dead")
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(insert, order="partition", batch=[5, 60_000], split=True, dead_letter=letters)
    assert inserted == [b"0", b"1", b"3", b"4"]
    assert [letter.value for letter in kip848_broker.records("dead")] == [b"2"]
    assert kip848_broker.groups.committed("g")["orders", 0] == 5


def test_a_close_and_a_cancelled_process_wait_for_the_same_handler(kip848_broker: EmbeddedBroker) -> None:
    """When it ends, both go on; one of them slept until its time was over, and the other's close() failed."""
    fill(kip848_broker, 1)

    async def main() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def handle(_: Any) -> None:
            started.set()
            await release.wait()

        consumer = AsyncConsumer(member_conf(kip848_broker))
        await consumer.subscribe(["orders"])
        running = asyncio.create_task(consumer.process(handle, grace_s=1_000))
        await started.wait()
        running.cancel()
        closing = asyncio.create_task(consumer.close())
        processor = consumer._core.processor
        assert processor is not None
        held = processor.core._partitions
        await asyncio.to_thread(wait_until, lambda: any(each.draining for each in held.values()), what="close()")
        release.set()
        async with asyncio.timeout(60):
            await closing
            await asyncio.wait([running])

    asyncio.run(main())
    assert kip848_broker.groups.committed("g")["orders", 0] == 1


async def _always(_: BaseException) -> bool:
    return True


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        (tenacity.Retrying(wait=tenacity.wait_fixed(3600), stop=tenacity.stop_before_delay(60)), "ZeroDivisionError"),
        (tenacity.AsyncRetrying(retry=tenacity.retry_if_exception(_always)), "coroutine function"),  # type: ignore[arg-type]
    ],
    ids=["the next attempt would be too late", "a condition that has to be awaited"],
)
def test_a_retry_is_asked_as_tenacity_would(kip848_broker: EmbeddedBroker, retry: Any, said: str) -> None:
    """Otherwise a record waits for an hour that was to be given up now, or is tried again for ever."""
    fill(kip848_broker, 1)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=said):
            consumer.process(lambda _: 1 / 0, retry=retry)


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_handler_knows_its_attempt_and_may_ask_for_another(
    kip848_broker: EmbeddedBroker, kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    """An API that says when to come again; a handler that gives up after some attempts by itself."""
    fill(kip848_broker, 1)
    attempts: list[tuple[int, str]] = []
    told: list[tuple[int, str, str, float | None]] = []

    def handle(message: Any) -> None:
        attempt = processing_attempt()
        attempts.append((attempt.number, repr(attempt.last_error)))
        if attempt.number == 1:
            raise RetryLater(0.01)
        if attempt.number == 2:
            raise RetryLater(0.02) from OSError("busy")
        if attempt.number == 3:
            consumer.hand_over()
            raise ValueError("poison")

    caplog.set_level(logging.INFO, logger="kip848_client")

    async def handle_async(message: Any) -> None:
        handle(message)

    def tell(failure: ProcessingFailure) -> None:
        assert failure.records[0].offset() == 0
        told.append((failure.attempt, repr(failure.error), failure.then, failure.delay_s))

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle_async, on_error="skip", on_failure=tell)

    consumer = kind(member_conf(kip848_broker))
    if kind is AsyncConsumer:
        asyncio.run(run_async())
    else:
        with consumer:
            consumer.subscribe(["orders"])
            consumer.process(handle, on_error="skip", on_failure=tell)
    assert attempts == [(1, "None"), (2, "RetryLater(0.01)"), (3, "OSError('busy')")]
    assert told == [
        (1, "RetryLater(0.01)", "retry", 0.01),
        (2, "OSError('busy')", "retry", 0.02),
        (3, "ValueError('poison')", "skip", None),
    ]
    assert caplog.text.count("Traceback") == caplog.text.count('raise ValueError("poison")') == 1
    assert processing_attempt().number == 1, "outside, where a test calls the handler"


def _again_twice(record: Any) -> None:
    attempt = processing_attempt()
    if attempt.number < 3:
        raise RetryLater(0.01)
    assert isinstance(attempt.last_error, RetryLater)


def test_a_handler_in_another_process_knows_its_attempt(kip848_broker: EmbeddedBroker) -> None:
    """There is no record beside it that could count."""
    fill(kip848_broker, 1)
    with ProcessPoolExecutor(1) as pool, Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])

        def end() -> None:
            wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 1, what="it is committed")
            consumer.hand_over()

        watcher = threading.Thread(target=end)
        watcher.start()
        consumer.process(_again_twice, executor=pool)
        watcher.join()


def test_callbacks_of_tenacity_are_called_as_tenacity_would(kip848_broker: EmbeddedBroker) -> None:
    """They were ignored without a word, and a wait that looks at the record ended process() with IndexError."""
    fill(kip848_broker, 1)
    calls: list[object] = []

    def wait(state: tenacity.RetryCallState) -> float:
        return float(len(state.args[0].value())) / 100

    retry = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(2),
        wait=wait,
        before=lambda state: calls.append(("before", state.attempt_number)),
        after=lambda state: calls.append(("after", state.attempt_number)),
        before_sleep=lambda state: calls.append(("sleep", state.next_action and state.next_action.sleep)),
    )
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match="after 2 attempts"):
            consumer.process(lambda _: 1 / 0, retry=retry)
        refused = tenacity.Retrying(retry_error_callback=lambda _: None)
        with pytest.raises(ConfigError, match="retry_error_callback"):
            consumer.process(print, retry=refused)
    assert calls == [("before", 1), ("after", 1), ("sleep", 0.01), ("before", 2), ("after", 2)]


@pytest.mark.parametrize("delay_s", [-1, "30", None, float("nan"), True])
def test_a_wrong_delay_is_an_error_of_the_handler(delay_s: Any) -> None:
    """Not a record that waits for ever."""
    with pytest.raises(ConfigError, match="seconds"):
        RetryLater(delay_s)


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_batch_job_returns_when_all_is_read_and_done(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """Without it a job counts records, or guesses by a time-out."""
    fill(kip848_broker, 30, partitions=3)
    done: list[int] = []

    def handle(message: Any) -> None:
        if message.offset() == 5 and processing_attempt().number == 1:
            raise RetryLater(0.2)
        done.append(message.offset())

    async def handle_async(message: Any) -> None:
        handle(message)

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle_async, until="end")

    consumer = kind(member_conf(kip848_broker))
    if kind is AsyncConsumer:
        asyncio.run(run_async())
    else:
        with consumer:
            consumer.subscribe(["orders"])
            consumer.process(handle, until="end")
    assert len(done) == 30
    assert sum(kip848_broker.groups.committed("g").values()) == 30
