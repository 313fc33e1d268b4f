"""What only an event loop has: iteration, listeners that await, several tasks with one consumer."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from kip848_client import Consumer, ConsumerRebalanceListener, EmbeddedBroker, KafkaError, MemberState, TopicPartition
from kip848_client.aio.consumer import AsyncConsumer
from kip848_client.aio.share_consumer import AsyncShareConsumer
from kip848_client.config import ConfigValue
from kip848_client.errors import ConfigError, IllegalStateError, Kip848Error
from tests.aio.world import Notes, committed, new_consumer, poll_until, read, state_of_group, until
from tests.interop.client.drive import Produce, keys_of
from tests.support.driving import QUIET, Key, key
from tests.support.waiting import TIMEOUT_S
from tests.support.wrong_arguments import wrong_calls

pytestmark = [pytest.mark.interop, pytest.mark.anyio]

EARLIEST: dict[str, ConfigValue] = {"auto.offset.reset": "earliest"}
PARTITIONS = [TopicPartition("orders", partition) for partition in range(4)]


def test_every_method_of_the_synchronous_consumer_is_there_with_the_same_arguments() -> None:
    """A program is ported by writing ``await``; a test that compares finds what was forgotten."""
    for name in dir(Consumer):
        if name.startswith("_"):
            continue
        ours, theirs = inspect.getattr_static(AsyncConsumer, name), inspect.getattr_static(Consumer, name)
        assert isinstance(ours, property) is isinstance(theirs, property), name
        if isinstance(theirs, property):
            continue
        assert inspect.iscoroutinefunction(ours) or name in {
            *("batches", "group_instance_id", "hand_over", "health", "processing_status", "change_processing")
        }, name
        others = [each for each in inspect.signature(theirs).parameters.values() if each.name != "executor"]
        for parameter, other in zip(inspect.signature(ours).parameters.values(), others, strict=True):
            assert (parameter.name, parameter.kind, parameter.default) == (other.name, other.kind, other.default), name


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_iteration_hands_out_each_record_once_and_ends_with_the_consumer(
    broker: EmbeddedBroker, produce: Produce, protocol: str
) -> None:
    """`async for message in consumer` is the loop of most programs; close() inside it must end it."""
    produce("orders", 300)
    seen: list[Key] = []
    async with new_consumer(broker, group_protocol=protocol) as consumer:
        await consumer.subscribe(["orders"])
        async for message in consumer:
            seen.append(key(message))
            if len(seen) == 1_200:
                group = broker.groups.get("g")
                assert group is not None
                assert (consumer.health().ready, group.type) == (True, protocol)
                await consumer.close()
    assert len(seen) == len(set(seen))
    assert set(seen) == keys_of("orders", 300)
    assert committed(broker) == [300] * 4
    assert state_of_group(broker) == "Empty"


async def test_batches_hold_what_is_at_hand_and_end_with_the_consumer(broker: EmbeddedBroker, produce: Produce) -> None:
    """Services that write to a database take records by the hundred."""
    produce("orders", 300)
    seen: list[Key] = []
    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        async for batch in consumer.batches(100):
            assert 0 < len(batch) <= 100
            seen.extend(map(key, batch))
            if len(seen) == 1_200:
                await consumer.close()
    assert set(seen) == keys_of("orders", 300)
    assert len(seen) == 1_200


async def test_a_batch_with_a_time_limit_may_be_empty(broker: EmbeddedBroker) -> None:
    """A loop that also has to flush every second must get its turn when no record comes."""
    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        sizes = []
        async for batch in consumer.batches(10, 0.05):
            sizes.append(len(batch))
            if len(sizes) == 3:
                break
    assert sizes == [0, 0, 0]


async def test_consume_waits_for_its_records_and_lets_other_calls_run(broker: EmbeddedBroker, produce: Produce) -> None:
    """A task that fills a batch for a second must not keep the task that asks for lag waiting."""
    async with new_consumer(broker) as consumer:
        await consumer.assign([TopicPartition("orders", 0)])
        sizes = []

        async def fill() -> None:
            sizes.append(len(await consumer.consume(2, TIMEOUT_S)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill)
            produce("orders", 1, partitions=[0])
            await until(lambda: len(consumer._core.ready) == 1)
            assert await consumer.assignment() == PARTITIONS[:1]
            assert sizes == []
            produce("orders", 1, partitions=[0])
        assert sizes == [2]
        produce("orders", 1, partitions=[0])
        assert len(await consumer.consume(5, 0.3)) == 1
        produce("orders", 1, partitions=[0])
        assert len(await anext(consumer.batches(5, linger_s=0.1))) == 1


async def test_listeners_await_in_the_task_that_polls(broker: EmbeddedBroker, produce: Produce) -> None:
    """Inside a listener programs await their database and their locks: it must be their loop, and their task."""
    produce("orders", 10)
    notes, threads, offsets = Notes(), [], []

    async def load(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        threads.append(threading.get_ident())
        await anyio.lowlevel.checkpoint()
        offsets.extend([one.offset for one in await consumer.committed(partitions)])
        await consumer.seek(TopicPartition("orders", 0, 7))

    async def save(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        threads.append(threading.get_ident())
        await consumer.commit(asynchronous=False)

    notes.acts = {"assigned": load, "revoked": save}
    async with new_consumer(broker, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["orders"], notes)
        keys = await read(consumer, 33)
    assert {offset for _, partition, offset in keys if partition == 0} == {7, 8, 9}
    assert notes.told == ["assigned 0 1 2 3", "revoked 0 1 2 3"]
    assert offsets == [-1001] * 4
    assert set(threads) == {threading.get_ident()}
    assert committed(broker) == [10] * 4


async def test_synchronous_listeners_and_callables_do_as_well(broker: EmbeddedBroker) -> None:
    """A listener that only writes something down need not be a coroutine; what a lambda returns is awaited."""
    told: list[str] = []

    class Plain(ConsumerRebalanceListener):
        def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
            told.append(f"assigned in {threading.get_ident()}")

    class Half(ConsumerRebalanceListener):
        async def on_partitions_revoked(  # type: ignore[override]  # programs do this
            self, consumer: Consumer, partitions: list[TopicPartition]
        ) -> None:
            told.append("revoked")

    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"], Plain())
        await poll_until(consumer, lambda: told)
        await consumer.unsubscribe()
        await consumer.subscribe(["orders"], on_assign=lambda inside, partitions: inside.pause(partitions))
        await poll_until(consumer, lambda: consumer.state is MemberState.STABLE)
        assert await consumer.paused() == PARTITIONS
        await consumer.unsubscribe()
        await consumer.subscribe(["orders"], Half())
        await poll_until(consumer, lambda: consumer.state is MemberState.STABLE)
        broker.groups.remove_member("g", consumer.member_id)
        await poll_until(consumer, lambda: "revoked" in told)
    assert told[:2] == [f"assigned in {threading.get_ident()}", "revoked"]


async def test_a_listener_may_start_tasks_that_call_the_consumer(broker: EmbeddedBroker, produce: Produce) -> None:
    """One state per partition, loaded at the same time: the calls belong to the listener like its own."""
    produce("orders", 1)
    found: list[int] = []

    async def load(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        async def load_one(partition: TopicPartition) -> None:
            [at] = await consumer.committed([partition])
            found.append(at.partition)

        async with anyio.create_task_group() as tasks:
            for partition in partitions:
                tasks.start_soon(load_one, partition)

    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"], on_assign=load)
        await read(consumer, 4)
    assert sorted(found) == [0, 1, 2, 3]


async def test_other_tasks_commit_while_one_waits_for_records(broker: EmbeddedBroker, produce: Produce) -> None:
    """A poll() without a time limit must not lock out the tasks that work on the records."""
    produce("orders", 1)
    async with new_consumer(broker, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["orders"])
        await read(consumer, 4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.poll)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(60):
                done = await consumer.commit(asynchronous=False)
                assert await consumer.position(PARTITIONS[:1]) == [TopicPartition("orders", 0, 1)]
            tasks.cancel_scope.cancel()
    assert done is not None
    assert committed(broker) == [1] * 4


async def test_two_tasks_that_read_are_told_so(broker: EmbeddedBroker) -> None:
    """Records of one partition in two tasks lose their order, and a commit covers what the other one still works on."""
    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.poll)
            await anyio.wait_all_tasks_blocked()
            for call in (consumer.poll, consumer.consume):
                with pytest.raises(IllegalStateError, match="another task reads"):
                    await call()
            tasks.cancel_scope.cancel()


async def test_close_ends_the_iteration_of_another_task(broker: EmbeddedBroker) -> None:
    """A service shuts down from its signal handler while its reader waits."""
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"])
    ended: list[str] = []

    async def iterate() -> None:
        async for _ in consumer:
            pass
        ended.append("iteration")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(iterate)
        await until(lambda: consumer.state is MemberState.STABLE)
        with anyio.fail_after(60):
            await consumer.close()
    assert ended == ["iteration"]
    assert state_of_group(broker) == "Empty"
    with pytest.raises(IllegalStateError, match="closed"):
        await consumer.poll()
    await consumer.close()


async def test_commit_callbacks_run_in_the_event_loop_and_are_awaited(broker: EmbeddedBroker, produce: Produce) -> None:
    """Programs wake their own tasks from there; from another thread that would corrupt the loop."""
    produce("orders", 1)
    heard: list[str] = []

    async def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        await anyio.lowlevel.checkpoint()
        heard.append(f"{error} {len(partitions)} {threading.get_ident() == me}")

    me = threading.get_ident()
    async with new_consumer(broker, enable_auto_commit=False, on_commit=on_commit) as consumer:
        await consumer.subscribe(["orders"])
        await read(consumer, 4)
        await consumer.commit()
        await poll_until(consumer, lambda: heard)
        await consumer.commit(offsets=[TopicPartition("orders", 1, 1)], on_commit=on_commit)
        await poll_until(consumer, lambda: len(heard) == 2)
    assert heard == ["None 4 True", "None 1 True"]


async def test_records_at_hand_do_not_keep_other_tasks_waiting(broker: EmbeddedBroker, produce: Produce) -> None:
    """A loop that awaits nothing else would starve health checks and the heartbeats of other clients."""
    produce("orders", 25_000, partitions=[0])
    gaps: list[float] = []

    async def watch() -> None:
        last_s = time.monotonic()
        while True:
            await anyio.lowlevel.checkpoint()
            gaps.append(time.monotonic() - last_s)
            last_s = time.monotonic()

    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        await consumer.poll()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            for _ in range(20_000):
                await consumer.poll()
            tasks.cancel_scope.cancel()
    assert len(gaps) > 20


async def test_nothing_is_read_for_a_task_that_does_not_ask(broker: EmbeddedBroker, produce: Produce) -> None:
    """Back-pressure: a slow consumer holds a bounded number of records, not the topic."""
    produce("orders", 5_000, partitions=[0])
    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        assert await consumer.poll() is not None
        await anyio.sleep(0.05)  # time in which it would read ahead
        assert len(consumer._core.ready) < 256
        assert (await consumer.position(PARTITIONS[:1]))[0].offset == 1


async def test_wrong_arguments_are_named(broker: EmbeddedBroker) -> None:
    """A mistake in a program is told where it is made."""
    async with new_consumer(broker) as consumer:
        with pytest.raises(ConfigError, match="not both"):
            await consumer.subscribe(["orders"], Notes(), on_assign=lambda *_: None)
        with pytest.raises(ConfigError, match="AsyncConsumerRebalanceListener"):
            await consumer.subscribe(["orders"], object())  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="callables"):
            await consumer.subscribe(["orders"], on_assign=3)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateError, match="nothing is subscribed or assigned"):
            await consumer.poll()
        assert await consumer.poll(0) is None
        with pytest.raises(TypeError, match="a number of seconds, got '1'"):
            await consumer.close("1")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="on_commit is a callable"):
            await consumer.commit(on_commit=3)  # type: ignore[arg-type]


async def test_a_consumer_that_was_dropped_leaves_the_group_and_its_thread_ends(broker: EmbeddedBroker) -> None:
    """A consumer that is dropped without close() must not block its group until the session ends, or leak a thread."""

    async def forgetful() -> weakref.ref[AsyncConsumer]:
        consumer = new_consumer(broker)
        await consumer.subscribe(["orders"])
        await poll_until(consumer, lambda: consumer.state is MemberState.STABLE)
        return weakref.ref(consumer)

    gone = await forgetful()
    gc.collect()
    assert gone() is None
    await until(lambda: state_of_group(broker) == "Empty")
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith("kip848-async")])


async def test_assigning_by_hand_reads_without_a_group(broker: EmbeddedBroker, produce: Produce) -> None:
    """Tools that replay a partition want no membership."""
    produce("orders", 5)
    async with new_consumer(broker) as consumer:
        await consumer.assign([TopicPartition("orders", 0, 2)])
        assert [offset for _, _, offset in await read(consumer, 3)] == [2, 3, 4]
        await consumer.incremental_assign([TopicPartition("orders", 1, 4)])
        assert await read(consumer, 1) == [("orders", 1, 4)]
        assert await consumer.lag() == {PARTITIONS[0]: 0, PARTITIONS[1]: 0}
        assert await consumer.get_watermark_offsets(PARTITIONS[2], timeout=60.0) == (0, 5)
        assert set((await consumer.list_topics("orders", timeout=60.0)).topics) == {"orders"}
        await consumer.incremental_unassign(PARTITIONS[:1])
        assert await consumer.assignment() == PARTITIONS[1:2]
        await consumer.unassign()
        assert await consumer.assignment() == []


def test_batches_of_the_synchronous_consumer_are_the_same(broker: EmbeddedBroker, produce: Produce) -> None:
    """A program moves between the two without another loop."""
    produce("orders", 300)
    seen: list[Key] = []
    with Consumer({**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **EARLIEST}) as consumer:
        consumer.subscribe(["orders"])
        for batch in consumer.batches(100):
            assert 0 < len(batch) <= 100
            seen.extend(map(key, batch))
            if len(seen) == 1_200:
                consumer.close()
    assert set(seen) == keys_of("orders", 300)


def test_a_consumer_may_move_from_one_event_loop_to_the_next(broker: EmbeddedBroker, produce: Produce) -> None:
    """Notebooks and test suites start a new loop for each step."""
    produce("orders", 2, partitions=[0])
    consumer = new_consumer(broker)
    seen: list[Key] = []

    async def subscribe() -> None:
        await consumer.subscribe(["orders"])

    async def take() -> None:
        seen.extend(await read(consumer, 1))

    for backend, step in (("asyncio", subscribe), ("trio", take), ("asyncio", take), ("trio", consumer.close)):
        anyio.run(step, backend=backend)
    assert seen == [("orders", 0, 0), ("orders", 0, 1)]
    assert state_of_group(broker) == "Empty"


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncShareConsumer])
def test_two_event_loops_at_once_are_refused(kind: type[AsyncConsumer | AsyncShareConsumer]) -> None:
    """What a task of one loop waits for would be told to the other."""
    consumer = kind({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    refused: list[str] = []

    def other() -> None:
        try:
            asyncio.run(consumer.subscribe(["orders"]))
        except IllegalStateError as error:
            refused.append(str(error))

    async def main() -> None:
        await consumer.subscribe(["orders"])
        reading = asyncio.create_task(consumer.poll())
        with anyio.fail_after(TIMEOUT_S):
            while not refused:
                if reading.done():  # it was the one that was refused
                    reading = asyncio.create_task(consumer.poll())
                await anyio.lowlevel.checkpoint()
                await asyncio.to_thread(other)
        reading.cancel()
        await asyncio.wait([reading])
        await consumer.close(0)

    asyncio.run(main())
    assert "two event loops" in refused[0]


PROGRAM = """
import asyncio, sys
from kip848_client import AsyncConsumer

async def main(consumer):
    await consumer.subscribe(["orders"])
    while not await consumer.assignment():
        await consumer.poll(0.02)

consumer = AsyncConsumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "log_level": 0})
asyncio.run(main(consumer))
"""


def test_a_program_that_ends_without_close_leaves_the_group(broker: EmbeddedBroker) -> None:
    """Otherwise the group waits a session timeout for the partitions of a program that has ended."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore:This process", "-c", PROGRAM, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith("consumer.not_closed")
    assert state_of_group(broker) == "Empty"


async def test_every_wrong_argument_gets_an_exception_of_this_library(broker: EmbeddedBroker) -> None:
    """As `Consumer`; it must not leave the event loop as a TypeError of the library's own lines either."""
    consumer = new_consumer(broker)
    with suppress(Kip848Error):  # close() raises what no other call has raised
        async with consumer:
            for name, arguments in wrong_calls(AsyncConsumer):
                with suppress(Kip848Error):
                    result = getattr(consumer, name)(**arguments)
                    if inspect.isawaitable(result):
                        await result
                    elif hasattr(result, "__anext__"):
                        await anext(result)
