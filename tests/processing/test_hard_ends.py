"""What ends ``process()`` or a handler in ways that are not in the plan: exits, broken pools, full queues, refusals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from confluent_kafka import Producer, TopicPartition

from kip848_client import AsyncConsumer, Consumer, DeadLetters
from kip848_client.aio.processing import TaskProcessor
from kip848_client.errors import ArgumentTypeError, ConfigError, ErrorCode, ProcessingError, TopicAuthorizationError
from kip848_client.member.processing.marks import decode_marks
from kip848_client.testing import EmbeddedBroker, NewRecord
from kip848_client.testing.faults import ALWAYS, error
from tests.processing.orders import fill, member_conf
from tests.support.waiting import SOON_S, wait_until


def _committed(broker: EmbeddedBroker) -> int | None:
    committed: int | None = broker.groups.committed("g").get(("orders", 0))
    return committed


async def _nothing(_: Any) -> None:
    """A handler."""


@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_handler_ends_process(kip848_broker: EmbeddedBroker, exit_: type[BaseException]) -> None:
    """As in a plain loop: it is raised, and its record is not skipped."""
    fill(kip848_broker, 10)

    async def handle(message: Any) -> None:
        if message.offset() == 4:
            raise exit_

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(exit_):
                await consumer.process(handle, on_error="skip")

    asyncio.run(main())
    assert _committed(kip848_broker) == 4

    def synchronous(message: Any) -> None:
        raise exit_

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(exit_):
            consumer.process(synchronous, on_error="skip")
    assert _committed(kip848_broker) == 4


def test_a_handler_that_awaits_something_cancelled_has_failed(kip848_broker: EmbeddedBroker) -> None:
    """Else process() would end without an error, though its task was not cancelled."""
    fill(kip848_broker, 10)

    async def handle(message: Any) -> None:
        if message.offset() == 4:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ProcessingError, match=r"offset 4.*cancelled"):
                await consumer.process(handle)

    asyncio.run(main())


def test_a_task_of_a_handler_that_others_cancel_ends_process(kip848_broker: EmbeddedBroker) -> None:
    """It has not failed, so on_error="skip" must not count its record as done."""
    fill(kip848_broker, 5)

    async def handle(message: Any) -> None:
        if message.offset() == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await anyio.sleep_forever()

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ProcessingError, match="cancelled the task"):
                await consumer.process(handle, on_error="skip")

    asyncio.run(main())
    assert _committed(kip848_broker) == 2


def test_the_log_names_handlers_that_swallow_their_cancellation(
    kip848_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """process() has to wait for its tasks: an operator must see for which."""
    fill(kip848_broker, 1)

    async def main() -> None:
        began, told = anyio.Event(), anyio.Event()

        async def handle(_: Any) -> None:
            began.set()
            while not told.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await told.wait()

        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            task = asyncio.create_task(consumer.process(handle, grace_s=0))
            await began.wait()
            task.cancel()
            await asyncio.to_thread(wait_until, lambda: "handlers_do_not_end" in caplog.text, what="it is logged")
            told.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert "orders-0 at offset 0" in caplog.text
    assert f"handle ({__file__}:" in caplog.text


def test_an_error_after_a_commit_ends_process(kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only asyncio's log had it, and process() never committed again."""
    fill(kip848_broker, 1)

    def raises(*_: Any) -> bool:
        monkeypatch.undo()
        raise RuntimeError("a bug")

    monkeypatch.setattr(TaskProcessor, "commit_ended", raises)

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(RuntimeError, match="a bug"):
                await asyncio.wait_for(consumer.process(_nothing), SOON_S)

    asyncio.run(main())


@pytest.mark.parametrize("assigned", [False, True])
def test_a_signal_before_the_first_record_ends_process(kip848_broker: EmbeddedBroker, assigned: bool) -> None:
    """A deployment may stop what it has just started: with SIGTERM lost, it would be killed after its grace."""
    fill(kip848_broker, 1)

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            if assigned:
                await consumer.assign([TopicPartition("orders", 0)])
                consumer.hand_over()
            else:
                consumer.hand_over()
                await consumer.subscribe(["orders"])

            async def handle(_: Any) -> None:
                raise AssertionError("it was told to end")

            await consumer.process(handle)
            assert await consumer.poll(0) is None
            assert [message async for message in consumer] == []

    asyncio.run(main())


def _die(record: Any) -> None:
    if record.offset() == 2:
        os._exit(9)


def test_a_worker_process_that_dies_is_no_failure_of_records(kip848_broker: EmbeddedBroker) -> None:
    """A broken pool refuses every record: with on_error="skip" all of them would count as done."""
    fill(kip848_broker, 20, keys=20)
    with ProcessPoolExecutor(1) as pool, Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProcessingError, match=r"executor=lambda: ProcessPoolExecutor"):
            consumer.process(_die, executor=pool, on_error="skip", concurrency=1)
    assert _committed(kip848_broker) == 2


def test_a_record_that_waits_for_a_worker_does_not_time_out(kip848_broker: EmbeddedBroker) -> None:
    """An executor with few workers would send healthy records to the dead letters."""
    fill(kip848_broker, 6)
    began, go_on = [0], threading.Semaphore(0)

    def handle(message: Any) -> None:
        began[0] += 1
        go_on.acquire()
        if message.offset() == 5:
            consumer.hand_over()

    def step() -> None:
        for number in range(1, 7):
            wait_until(lambda number=number: began[0] == number, what="the next handler has begun")  # type: ignore[misc]
            processor = consumer._core.processor
            assert processor is not None
            running.append(len(processor.core.running()))
            go_on.release()

    running: list[int] = []
    watcher = threading.Thread(target=step)
    with ThreadPoolExecutor(1) as pool, Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        watcher.start()
        consumer.process(handle, executor=pool, timeout_s=60, concurrency=10)
        watcher.join()
    assert running == [1] * 6


def test_a_handler_that_cannot_be_pickled_is_refused_at_once(kip848_broker: EmbeddedBroker) -> None:
    """It would fail for every record, and each would go to the dead letters."""
    fill(kip848_broker, 1)
    with ProcessPoolExecutor(1) as pool, Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ArgumentTypeError, match="cannot be sent to another process"):
            consumer.process(lambda _: None, executor=pool)


def test_a_handler_that_does_not_take_its_arguments_is_refused_at_once(kip848_broker: EmbeddedBroker) -> None:
    """A slip in the program would send every record to the dead letters; a TypeError of its body is the record's."""
    fill(kip848_broker, 1)
    kip848_broker.topics.create("dead")
    letters = DeadLetters(Producer({"bootstrap.servers": kip848_broker.bootstrap_servers}), "dead")

    async def two(record: Any, other: Any) -> None: ...

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ConfigError, match=r"handler is called with \(records\)"):
                await consumer.process(two, dead_letter=letters, batch=5)  # type: ignore[arg-type]

    asyncio.run(main())

    def one(record: Any) -> None:
        consumer.hand_over()
        len(5)  # type: ignore[arg-type]

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match=r"handler is called with \(record, transaction\)"):
            consumer.process(one, transactional=letters.producer)
        consumer.process(one, dead_letter=letters)
    assert len(kip848_broker.records("dead")) == 1


def test_letters_wait_while_the_producers_queue_is_full(kip848_broker: EmbeddedBroker) -> None:
    """A burst of failures must not end process(): room comes with the next acknowledgement."""
    fill(kip848_broker, 100, keys=100)
    kip848_broker.topics.create("dead")
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "queue.buffering.max.messages": 10}

    def end() -> None:
        wait_until(lambda: _committed(kip848_broker) == 100, what="all are committed")
        consumer.hand_over()

    watcher = threading.Thread(target=end)
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        watcher.start()
        consumer.process(lambda _: 1 / 0, concurrency=50, dead_letter=DeadLetters(Producer(conf), "dead"))
        watcher.join()
    assert len(kip848_broker.records("dead")) == 100


def test_a_dead_letter_is_the_record_as_it_was_fetched(kip848_broker: EmbeddedBroker) -> None:
    """It is read with the same deserializers later, and a long error must not make it too large."""
    kip848_broker.topics.create("orders")
    kip848_broker.topics.create("dead")
    kip848_broker.produce_many("orders", [NewRecord('{"a": 1}', key="[1]")])

    def handle(message: Any) -> None:
        consumer.hand_over()
        raise ValueError(message.value()["a"], "x" * 2_000_000)

    letters = DeadLetters(Producer({"bootstrap.servers": kip848_broker.bootstrap_servers}), "dead")
    opens = {f"{part}.deserializer": lambda data, _: json.loads(data) for part in ("key", "value")}
    with Consumer(member_conf(kip848_broker, **opens)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, dead_letter=letters)
    (letter,) = kip848_broker.records("dead")
    assert (letter.key, letter.value) == (b"[1]", b'{"a": 1}')


class _Key:
    """Equal by nothing but identity, and so is its text."""


def test_keys_are_equal_if_their_bytes_are(kip848_broker: EmbeddedBroker) -> None:
    """What a deserializer makes of two equal keys may differ: their order would be lost."""
    kip848_broker.topics.create("orders")
    kip848_broker.produce_many("orders", [NewRecord(str(number), key="k") for number in range(20)])
    most = running = 0

    async def handle(message: Any) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        if message.offset() == 19:
            consumer.hand_over()

    consumer = AsyncConsumer(member_conf(kip848_broker, **{"key.deserializer": lambda *_: _Key()}))

    async def main() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle)

    asyncio.run(main())
    assert most == 1


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
@pytest.mark.parametrize("allowed", [10, 64])
def test_an_end_repeats_nothing_where_little_metadata_is_allowed(kind: type, allowed: int) -> None:
    """With a small offset.metadata.max.bytes an orderly end repeated nine records of ten, and no word was said."""
    done: set[int] = set()
    before: set[int] = set()
    stuck, hang = threading.Event(), threading.Event()

    def handle(message: Any) -> None:
        if message.offset() >= 100 and message.offset() % 10 == 0:
            stuck.set()
            hang.wait(600)
        done.add(message.offset())

    async def handle_async(message: Any) -> None:
        if message.offset() >= 100 and message.offset() % 10 == 0:
            stuck.set()
            await anyio.sleep_forever()
        done.add(message.offset())

    def end(consumer: Any) -> None:
        assert stuck.wait(60)
        core = consumer._core.processor.core
        wait_until(lambda: core.metadata_limit.asks is None, what="the limit is known")
        wait_until(
            lambda: all(work.items[0].offset % 10 == 0 for work in core.running()), what="nothing more may start"
        )
        consumer.hand_over(0)

    with EmbeddedBroker(config={"offset.metadata.max.bytes": allowed}) as broker:
        fill(broker, 3_000, keys=3_000)
        consumer = kind(
            member_conf(broker, **{"auto.commit.interval.ms": 60_000})
        )  # it asks at once, when it has to know

        async def run_async() -> None:
            async with consumer:
                await consumer.subscribe(["orders"])
                await consumer.process(handle_async, concurrency=100, drain_s=0, grace_s=0)
                before.update(done)
                hang.set()

        watcher = threading.Thread(target=end, args=[consumer])
        watcher.start()
        if kind is AsyncConsumer:
            asyncio.run(run_async())
        else:
            with consumer:
                consumer.subscribe(["orders"])
                consumer.process(handle, concurrency=100, drain_s=0, grace_s=0)
                before.update(done)
                hang.set()
        watcher.join()
        with Consumer(member_conf(broker)) as asking:
            (at,) = asking.committed([TopicPartition("orders", 0)])
    assert at.offset == 100
    skipped = {offset for first, after in decode_marks(100, at.metadata or "") or () for offset in range(first, after)}
    assert len(before) < 500
    if allowed == 64:
        assert before == {*range(100), *skipped}


def test_other_partitions_are_read_while_one_waits_for_its_handler(kip848_broker: EmbeddedBroker) -> None:
    """A rebalance must not stop what stays: one slow handler would hold up all partitions for drain_s."""
    kip848_broker.topics.create("orders", 2)
    kip848_broker.produce_many("orders", [NewRecord("hang", partition=number) for number in range(2)])
    hanging, seen = [0], [0]

    async def main() -> None:
        release, over = anyio.Event(), threading.Event()
        consumer = AsyncConsumer(member_conf(kip848_broker))

        async def handle(message: Any) -> None:
            if message.value() == b"hang":
                hanging[0] += 1
                await release.wait()
            else:
                seen[0] += 1

        def draining() -> bool:
            processor = consumer._core.processor
            return processor is not None and any(each.draining for each in processor.core._partitions.values())

        def other() -> None:
            wait_until(lambda: hanging[0] == 2, what="both partitions are in hand")
            with Consumer(member_conf(kip848_broker)) as joining:
                joining.subscribe(["orders"])
                while not over.is_set():
                    joining.consume(10, 0.05)

        thread = threading.Thread(target=other)
        thread.start()
        async with consumer:
            await consumer.subscribe(["orders"])
            task = asyncio.create_task(consumer.process(handle, concurrency=4))
            await asyncio.to_thread(wait_until, draining, what="a partition is given away")
            kip848_broker.produce_many("orders", [NewRecord("x", partition=number % 2) for number in range(200)])
            await asyncio.to_thread(wait_until, lambda: seen[0] == 100, what="the other partition goes on")
            release.set()
            over.set()
            consumer.hand_over()
            await task
        thread.join()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_an_end_whose_last_commit_was_refused_says_so(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """A job without a right ended as if all was well, and began with the same records each time."""
    fill(kip848_broker, 3)
    kip848_broker.faults.on("OffsetCommit", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), group="g", times=ALWAYS)
    consumer = kind(member_conf(kip848_broker))

    def handle(message: Any) -> None:
        if message.offset() == 2:
            consumer.hand_over(0)

    async def handle_async(message: Any) -> None:
        handle(message)

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(TopicAuthorizationError, match="orders"):
                await consumer.process(handle_async)

    if kind is AsyncConsumer:
        asyncio.run(run_async())
        return
    with consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(TopicAuthorizationError, match="orders"):
            consumer.process(handle)


def test_a_refusal_that_has_passed_is_not_raised_at_the_end(kip848_broker: EmbeddedBroker) -> None:
    """A service that runs for months must not end with the error of a commit that was made up for."""
    fill(kip848_broker, 3)
    refused = kip848_broker.faults.on("OffsetCommit", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), group="g")
    with Consumer(member_conf(kip848_broker)) as consumer:

        def end() -> None:
            wait_until(lambda: _committed(kip848_broker) == 3, what="all are committed")
            consumer.hand_over()

        consumer.subscribe(["orders"])
        watcher = threading.Thread(target=end)
        watcher.start()
        consumer.process(lambda _: None)
        watcher.join()
    assert refused.hits == 1


class Held:
    """Handlers that hold the first record of each partition until they are told to let it go."""

    def __init__(self) -> None:
        self.started: set[int] = set()
        self.let_go: dict[int, threading.Event] = {0: threading.Event(), 1: threading.Event()}

    def handle(self, message: Any, _: Any = None) -> None:
        if message.value() == b"hang":
            self.started.add(message.partition())
            assert self.let_go[message.partition()].wait(600)

    async def handle_async(self, message: Any, _: Any = None) -> None:
        await asyncio.to_thread(self.handle, message)


@pytest.mark.parametrize(
    ("protocol", "transactions"), [("consumer", False), ("consumer", True), ("classic", False)], ids=str
)
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_commits_go_on_while_a_revocation_waits_for_a_handler(
    kip848_broker: EmbeddedBroker, kind: type, protocol: str, transactions: bool
) -> None:
    """A kill in the middle of a deploy repeated all that was done since the drain had begun, up to drain_s."""
    kip848_broker.topics.create("orders", 2)
    kip848_broker.produce_many("orders", [NewRecord("hang", partition=number) for number in range(2)])
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    consumer, held, over = kind(member_conf(kip848_broker, **settings)), Held(), threading.Event()
    arguments: dict[str, Any] = {}
    if transactions:
        producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "transactional.id": "t"})
        arguments = {"transactional": producer, "slice_ms": 10}

    def run() -> None:
        with consumer:
            consumer.subscribe(["orders"])
            consumer.process(held.handle, **arguments)

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(held.handle_async, **arguments)

    def join() -> None:
        with Consumer(member_conf(kip848_broker, **settings)) as joining:
            joining.subscribe(["orders"])
            while not over.is_set():
                joining.poll(0.05)

    def draining() -> set[int]:
        processor = consumer._core.processor
        return {name.partition for name, each in processor.core._partitions.items() if each.draining}

    processing = threading.Thread(target=run if kind is Consumer else partial(asyncio.run, run_async()))
    processing.start()
    wait_until(lambda: held.started == {0, 1}, what="both partitions are in hand")
    joining = threading.Thread(target=join)
    joining.start()
    try:
        wait_until(lambda: len(draining()) == 1, what="a partition is given away")
        (going,) = draining()
        staying = 1 - going
        kip848_broker.produce("orders", "x", partition=staying)
        held.let_go[staying].set()
        wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", staying)) == 2, what="it is committed")
        assert draining() == {going}
    finally:
        over.set()
        for event in held.let_go.values():
            event.set()
        consumer.hand_over(0)
        joining.join()
        processing.join()


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_commits_go_on_while_the_end_waits_for_a_handler(kip848_broker: EmbeddedBroker, kind: type) -> None:
    """What ends in the last seconds of a process was repeated if it was killed before the slowest handler ended."""
    kip848_broker.topics.create("orders", 2)
    kip848_broker.produce_many("orders", [NewRecord("hang", partition=number) for number in range(2)])
    kip848_broker.produce_many("orders", [NewRecord("stop", partition=0)])
    consumer, held = kind(member_conf(kip848_broker)), Held()

    def fail(message: Any) -> None:
        if message.value() == b"stop":
            wait_until(lambda: held.started == {0, 1}, what="both partitions are in hand")
            raise ValueError("the end begins")
        held.handle(message)

    async def fail_async(message: Any) -> None:
        await asyncio.to_thread(fail, message)

    def run() -> None:
        with consumer:
            consumer.subscribe(["orders"])
            with pytest.raises(ProcessingError):
                consumer.process(fail, grace_s=600)

    async def run_async() -> None:
        async with consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ProcessingError):
                await consumer.process(fail_async, grace_s=600)

    def stopping() -> bool:
        processor = consumer._core.processor
        return processor is not None and processor.core.stopping

    processing = threading.Thread(target=run if kind is Consumer else partial(asyncio.run, run_async()))
    processing.start()
    wait_until(stopping, what="process() ends")
    held.let_go[0].set()
    try:
        wait_until(lambda: kip848_broker.groups.committed("g").get(("orders", 0)) == 1, what="it is committed")
        assert stopping()
    finally:
        held.let_go[1].set()
        processing.join()


def test_an_event_loop_that_was_blocked_is_no_end(kip848_broker: EmbeddedBroker) -> None:
    """The member lost its partitions, and joins again: a service must not stop for it."""
    fill(kip848_broker, 3)
    calls: list[int] = []

    async def main() -> None:
        async with AsyncConsumer(member_conf(kip848_broker, **{"max.poll.interval.ms": 1000})) as consumer:
            await consumer.subscribe(["orders"])

            async def handle(message: Any) -> None:
                calls.append(message.offset())
                if calls.count(1) == 1 and message.offset() == 1:
                    first = consumer._core.group.view.member_epoch
                    wait_until(lambda: consumer._core.group.view.member_epoch != first, what="it is lost")
                elif calls.count(1) == 2:
                    consumer.hand_over()

            await consumer.process(handle, order="partition")

    asyncio.run(main())
    assert calls.count(1) == 2


def test_threads_of_handlers_do_not_keep_the_program_from_ending(kip848_broker: EmbeddedBroker) -> None:
    """process() waits for a hung handler for grace_s, and the interpreter would wait for ever."""
    fill(kip848_broker, 1)
    threads: list[threading.Thread] = []

    def handle(_: Any) -> None:
        threads.append(threading.current_thread())
        consumer.hand_over()

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle)
    (thread,) = threads
    assert thread.daemon
    thread.join(10)
    assert not thread.is_alive()


def test_a_second_ctrl_c_ends_the_wait_and_commits_what_is_done(kip848_broker: EmbeddedBroker) -> None:
    """An impatient operator gets the prompt back, and nothing that is done is repeated."""
    fill(kip848_broker, 2)
    hang = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def handle(message: Any) -> None:
        processor = consumer._core.processor
        assert processor is not None
        if message.offset() == 1:
            wait_until(lambda: processor.status().done == 1, what="the first record is done")
            signal.pthread_kill(main, signal.SIGINT)
            wait_until(lambda: processor.core.stopping, what="process() waits for this handler")
            signal.pthread_kill(main, signal.SIGINT)
            hang.wait()

    with Consumer(member_conf(kip848_broker, **{"auto.commit.interval.ms": 60_000})) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(KeyboardInterrupt):
            consumer.process(handle, grace_s=600)
        hang.set()
    assert _committed(kip848_broker) == 1


async def _save(value: Any) -> None:
    """What handlers forget to await."""


def _generator(message: Any) -> Any:
    yield message


_POOL = ThreadPoolExecutor(1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "handler", [lambda message: _save(message.value()), _generator, lambda message: _POOL.submit(print, message)]
)
def test_work_that_a_handler_only_returns_is_not_committed(kip848_broker: EmbeddedBroker, handler: Any) -> None:
    """``lambda message: save(message)`` of an async function ran nothing, and every record was committed as done."""
    fill(kip848_broker, 3)
    letters = DeadLetters(Producer({"bootstrap.servers": kip848_broker.bootstrap_servers}), "dead")
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match=r"the handler returned a \w+, and its record would count as done"):
            consumer.process(handler, dead_letter=letters)
    assert not _committed(kip848_broker)


@pytest.mark.filterwarnings("error")
def test_work_that_an_async_handler_does_not_await_is_not_committed(kip848_broker: EmbeddedBroker) -> None:
    """A forgotten await, a task of its own, and a handler that is not asynchronous at all."""
    fill(kip848_broker, 3)

    async def forgets(message: Any) -> Any:
        return _save(message)

    async def detaches(message: Any) -> Any:
        return asyncio.create_task(_save(message))

    async def main(handler: Any, refusal: str) -> None:
        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(ConfigError, match=refusal):
                await consumer.process(handler, on_error="skip")

    asyncio.run(main(forgets, "returned a coroutine.*await it in the handler"))
    asyncio.run(main(detaches, "returned a Task.*await it in the handler"))
    asyncio.run(main(lambda message: None, "returned NoneType, which cannot be awaited.*Consumer.process"))
    assert not _committed(kip848_broker)


def test_dead_letters_need_a_producer_and_a_topic(kip848_broker: EmbeddedBroker) -> None:
    """The name of the topic alone was taken, and process() ended in an AttributeError at the first bad record."""
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ArgumentTypeError, match=r"dead_letter='dead': give DeadLetters\(producer, topic\)"):
            consumer.process(print, dead_letter="dead")  # type: ignore[arg-type]
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    with pytest.raises(ArgumentTypeError, match="give the name of the topic"):
        DeadLetters(producer, "")
