"""A task that is cancelled, wherever it waits, loses no record and leaves the group in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import anyio
import pytest

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.aio.consumer import AsyncConsumer
from kip848_client.errors import ErrorCode, RequestTimeoutError
from kip848_client.testing import NewRecord
from kip848_client.testing.faults import ALWAYS, drop, error
from tests.aio.world import Notes, committed, new_consumer, poll_until, read, state_of_group, until
from tests.interop.client.drive import Produce
from tests.support.waiting import SOON_S, TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.anyio]


async def test_a_cancelled_task_commits_is_told_and_leaves(broker: EmbeddedBroker, produce: Produce) -> None:
    """A deployment cancels its tasks; the next one must go on where this one stopped, at once."""
    produce("orders", 10)
    notes = Notes()

    async def save(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep(0.05)  # it takes time to save
        await consumer.commit(asynchronous=False)
        notes.told.append("saved")

    notes.acts = {"revoked": save}

    async def serve() -> None:
        async with new_consumer(broker, enable_auto_commit=False) as consumer:
            await consumer.subscribe(["orders"], notes)
            await read(consumer, 40)
            notes.told.append("read")
            await consumer.poll()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await until(lambda: "read" in notes.told)
        tasks.cancel_scope.cancel()
    assert notes.told == ["assigned 0 1 2 3", "read", "revoked 0 1 2 3", "saved"]
    assert committed(broker) == [10] * 4
    assert state_of_group(broker) == "Empty"


async def test_a_listener_that_is_cancelled_is_called_again_by_the_next_poll(
    broker: EmbeddedBroker, produce: Produce
) -> None:
    """Half of a listener is not a listener: state that was half loaded must be loaded."""
    produce("orders", 1)
    notes = Notes()
    waiting = anyio.Event()

    async def wait_once(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        if not waiting.is_set():
            waiting.set()
            await anyio.sleep_forever()

    notes.acts = {"assigned": wait_once}
    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"], notes)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.poll)
            await waiting.wait()
            tasks.cancel_scope.cancel()
        await read(consumer, 4)
    assert notes.told == ["assigned 0 1 2 3", "assigned 0 1 2 3", "revoked 0 1 2 3"]
    assert committed(broker) == [1] * 4


async def test_a_task_cancelled_inside_its_listener_leaves_in_order(broker: EmbeddedBroker) -> None:
    """The member hears of every way out of a listener, or it would reconcile for ever."""
    notes = Notes()

    async def wait(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep_forever()

    notes.acts = {"assigned": wait}

    async def serve() -> None:
        async with new_consumer(broker) as consumer:
            await consumer.subscribe(["orders"], notes)
            await consumer.poll()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await until(lambda: notes.told)
        tasks.cancel_scope.cancel()
    assert state_of_group(broker) == "Empty"


async def test_a_cancelled_commit_is_not_repeated_behind_a_later_one(broker: EmbeddedBroker, produce: Produce) -> None:
    """An old commit that overtakes a new one would let the next consumer read everything in between again."""
    produce("orders", 10, partitions=[0])
    async with new_consumer(broker, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["orders"])
        await read(consumer, 5)
        rule = broker.faults.on("OffsetCommit", error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), group="g", times=ALWAYS)
        with anyio.move_on_after(0.1) as scope:
            await consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        assert scope.cancelled_caught
        rule.cancel()
        await consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        with anyio.move_on_after(1.2):
            await consumer.poll()
        assert committed(broker)[0] == 10


async def test_a_commit_inside_a_listener_can_be_cancelled_alone(broker: EmbeddedBroker, produce: Produce) -> None:
    """A listener gives its commit a time limit, and goes on without it."""
    produce("orders", 1)
    notes = Notes()

    async def save(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        with anyio.move_on_after(0.1) as limit:
            await consumer.commit(asynchronous=False)
        notes.told.append(f"given up {limit.cancelled_caught}")

    notes.acts = {"revoked": save}
    # The leave waits behind the commit for an answer; the time-out ends both.
    async with new_consumer(broker, enable_auto_commit=False, request_timeout_ms=1_000) as consumer:
        await consumer.subscribe(["orders"], notes)
        await read(consumer, 4)
        broker.faults.on("OffsetCommit", drop(), group="g", times=ALWAYS)
        await consumer.unsubscribe()
        broker.faults.clear()
    assert notes.told == ["assigned 0 1 2 3", "revoked 0 1 2 3", "given up True"]
    assert state_of_group(broker) == "Empty"


async def test_a_cancelled_close_is_over_soon_and_still_leaves(broker: EmbeddedBroker, produce: Produce) -> None:
    """A cancelled close() still leaves, so that the group need not wait for the end of the session."""
    produce("orders", 1)
    consumer = new_consumer(broker, request_timeout_ms=1_000)
    await consumer.subscribe(["orders"])
    await read(consumer, 4)
    rule = broker.faults.on("OffsetCommit", drop(), group="g", times=ALWAYS)
    began_s = time.monotonic()
    with anyio.move_on_after(0.05) as limit:
        await consumer.close(timeout_s=60)
    assert limit.cancelled_caught
    assert time.monotonic() - began_s < SOON_S
    assert rule.hits
    rule.cancel()
    await until(lambda: state_of_group(broker) == "Empty")
    await consumer.close()


async def test_a_listener_that_does_not_return_is_cancelled_when_the_time_of_close_is_over(
    broker: EmbeddedBroker,
) -> None:
    """close(timeout_s) is a promise, whatever the application's listener waits for."""
    notes = Notes()

    async def wait(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            notes.told.append("cancelled")

    notes.acts = {"revoked": wait}
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"], notes)
    await poll_until(consumer, lambda: notes.told)
    began_s = time.monotonic()
    with pytest.raises(Exception, match="before the time of the call was over"):
        await consumer.close(timeout_s=0.2)
    assert time.monotonic() - began_s < SOON_S
    assert notes.told == ["assigned 0 1 2 3", "revoked 0 1 2 3", "cancelled"]
    assert state_of_group(broker) == "Empty"


async def test_close_leaves_although_another_task_hangs_in_its_listener(broker: EmbeddedBroker) -> None:
    """A stuck reader must not keep the rest of the service from shutting down."""
    notes = Notes()
    hanging = anyio.Event()

    async def hang(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        hanging.set()
        await anyio.sleep_forever()

    notes.acts = {"assigned": hang}
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"], notes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.poll)
        await hanging.wait()
        with pytest.raises(RequestTimeoutError, match="has not ended"):
            await consumer.close(timeout_s=0.2)
        await until(lambda: state_of_group(broker) == "Empty")
        tasks.cancel_scope.cancel()
    await consumer.close()


async def test_leaving_with_an_exception_closes_and_keeps_the_exception(broker: EmbeddedBroker) -> None:
    """The application must see the exception of its own block, and not one from closing after it."""

    async def fail(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        raise ValueError("in the listener")

    async def serve() -> None:
        async with new_consumer(broker) as consumer:
            await consumer.subscribe(["orders"], on_revoke=fail)
            await poll_until(consumer, lambda: consumer.state is MemberState.STABLE)
            raise KeyError("in the block")

    with pytest.raises(KeyError, match="in the block"):
        await serve()
    assert state_of_group(broker) == "Empty"


PROGRAM = """
import signal
import sys
import threading
import anyio
from kip848_client.aio.consumer import AsyncConsumer
from kip848_client.testing import NewRecord

async def main():
    conf = {"bootstrap.servers": sys.argv[1], "group.id": "g", "client.id": "victim", "auto.offset.reset": "earliest"}
    async with AsyncConsumer(conf) as consumer:
        async def revoked(consumer, partitions):
            await anyio.sleep(0.01)  # a listener that takes time
            print("revoked", flush=True)
        async def assigned(consumer, partitions):
            print("assigned", flush=True)
            if sys.argv[3] == "listener":
                await anyio.sleep_forever()
            if sys.argv[3] == "asleep":
                threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
        await consumer.subscribe(["orders"], on_assign=assigned, on_revoke=revoked)
        async for message in consumer:
            await consumer.commit(message)
            print(message.offset(), flush=True)

try:
    anyio.run(main, backend=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("place", ["poll", "listener"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_ctrl_c_commits_and_leaves_the_group(
    broker: EmbeddedBroker, produce: Produce, backend: str, place: str, anyio_backend: str
) -> None:
    """The way most programs end while they are being written; the next start must not wait for a session to expire."""
    produce("orders", 1, partitions=[0])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, backend, place], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "assigned\n"
            if place == "poll":
                assert process.stdout.readline() == "0\n"
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert output.endswith("revoked\ninterrupted\n")
    assert state_of_group(broker) == "Empty"
    assert committed(broker)[0] == (1 if place == "poll" else 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_ctrl_c_that_does_not_wake_the_main_thread_is_heard(
    broker: EmbeddedBroker, backend: str, anyio_backend: str
) -> None:
    """It comes while the event loop goes to sleep; here always so, as another thread gets the signal."""
    program = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, backend, "asleep"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout == "assigned\nrevoked\ninterrupted\n"
    assert state_of_group(broker) == "Empty"


async def read_to(consumer: AsyncConsumer, offset: int, got: anyio.Event) -> None:
    """Read partition 0 up to this record, and never finish it."""
    async for message in consumer:
        if message.offset() == offset:
            got.set()
            await anyio.sleep_forever()


async def test_a_record_whose_handler_is_cancelled_is_read_again(broker: EmbeddedBroker) -> None:
    """A deployment cancels a task in the middle of an order: the order is lost without a word."""
    broker.produce_many("orders", [NewRecord(str(number), partition=0) for number in range(10)])
    got = anyio.Event()

    async def serve() -> None:
        async with new_consumer(broker) as consumer:
            await consumer.subscribe(["orders"])
            await read_to(consumer, 3, got)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await got.wait()
        tasks.cancel_scope.cancel()
    assert committed(broker)[0] == 3


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_record_that_another_task_has_in_hand_is_read_again(broker: EmbeddedBroker, cancelled: bool) -> None:
    """The task that closes the consumer hears nothing of the one that reads: it was cancelled, or is still at it."""
    broker.produce_many("orders", [NewRecord(str(number), partition=0) for number in range(10)])
    got = anyio.Event()
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_to, consumer, 3, got)
        await got.wait()
        if not cancelled:
            await consumer.close()
        tasks.cancel_scope.cancel()
    await consumer.close()
    assert committed(broker)[0] == 3


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_record_that_came_through_a_task_for_one_call_is_read_again(
    broker: EmbeddedBroker, cancelled: bool, anyio_backend: str
) -> None:
    """Before Python 3.12 wait_for() runs poll() in a task of its own: that one has returned, the handler has not."""
    broker.produce_many("orders", [NewRecord(str(number), partition=0) for number in range(10)])
    got = anyio.Event()
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"])

    async def work() -> None:
        while True:
            message = await asyncio.create_task(consumer.poll())
            assert message is not None
            if message.offset() == 3:
                got.set()
                if cancelled:
                    await anyio.sleep_forever()
                raise OSError("database away")

    worker = asyncio.create_task(work())
    await got.wait()
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError, OSError):
        await worker
    await consumer.close()
    assert committed(broker)[0] == 3


async def test_a_batch_whose_handler_raises_is_read_again(broker: EmbeddedBroker) -> None:
    """Committing a batch whose handler raised would lose its records, so the next consumer reads it again."""
    broker.produce_many("orders", [NewRecord(str(number), partition=0) for number in range(10)])

    async def serve() -> None:
        async with new_consumer(broker) as consumer:
            await consumer.subscribe(["orders"])
            async for batch in consumer.batches(4):
                if any(message.offset() == 5 for message in batch):
                    raise OSError("database away")

    with pytest.raises(OSError, match="database away"):
        await serve()
    assert committed(broker)[0] == 4


async def test_a_record_counts_as_handled_when_a_poll_is_cancelled_before_it_begins(broker: EmbeddedBroker) -> None:
    """A loop that is cancelled between two records has finished the first: reading it again would double its work."""
    broker.produce_many("orders", [NewRecord(str(number), partition=0) for number in range(10)])
    seen: list[int | None] = []
    with anyio.CancelScope() as scope:
        async with new_consumer(broker) as consumer:
            await consumer.subscribe(["orders"])
            async for message in consumer:
                seen.append(message.offset())
                if message.offset() == 3:
                    scope.cancel()  # it strikes in a later poll(), as nothing else here waits
    assert committed(broker)[0] == len(seen) >= 4
