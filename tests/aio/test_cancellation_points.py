"""Every await of the calls of `AsyncConsumer` is cancelled once, in every way that there is: nothing is lost by it.

`cancelled_at` counts the awaits of a call as its event loop sees them, and lets something happen at one of them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel
import pytest

from kip848_client import EmbeddedBroker, MemberState, TopicPartition
from kip848_client.aio.consumer import AsyncConsumer
from kip848_client.testing.faults.actions import delay
from tests.aio.world import Notes, committed, new_consumer, poll_until, read, state_of_group, until
from tests.interop.client.drive import Produce, keys_of
from tests.support.driving import Key, key

pytestmark = [pytest.mark.interop, pytest.mark.anyio]

ResultT = TypeVar("ResultT")

POINTS: Final = 12
"""More awaits than any call here has."""


class Observed(Generic[ResultT]):
    """Awaits *call*, and has something done at its awaits.

    Args:
        at: number of the await, from 1 on -> what is done there, while the task is about to wait.

    Attributes:
        count: awaits up to now.
    """

    def __init__(self, call: Awaitable[ResultT], at: dict[int, Callable[[], object]]) -> None:
        self._call: Final = call
        self._at: Final = at
        self.count = 0

    def __await__(self) -> Generator[Any, Any, ResultT]:
        steps = self._call.__await__()
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self.count += 1
            if self.count in self._at:
                self._at[self.count]()
            answer, error = None, None
            try:
                answer = yield waits_for
            except BaseException as raised:
                error = raised


async def in_a_scope(call: Awaitable[ResultT], point: int) -> ResultT | None:
    """Cancel the scope around *call* at one of its awaits. Returns None if it was cancelled."""
    result: ResultT | None = None
    with anyio.CancelScope() as scope:
        observed = Observed(call, {point: scope.cancel})
        result = await observed
        if observed.count >= point:
            await anyio.lowlevel.checkpoint()
            raise AssertionError(f"cancelled at {point}, without a CancelledError")
        return result
    assert scope.cancelled_caught
    return result


async def by_asyncio(call: Awaitable[ResultT], point: int) -> ResultT | None:
    """Call Task.cancel() at one of the awaits of *call*, as Ctrl-C does. Returns None if it was cancelled."""
    task = asyncio.current_task()
    assert task is not None
    observed = Observed(call, {point: task.cancel})
    result: ResultT | None = None
    try:
        result = await observed
        await asyncio.sleep(0)  # a cancellation of the last step arrives here
    except asyncio.CancelledError:
        assert observed.count >= point
        task.uncancel()
        return result
    assert observed.count < point, f"cancelled at {point}, without a CancelledError"
    return result


async def with_its_wake_up(call: Awaitable[ResultT], point: int) -> ResultT | None:
    """The same, in the moment in which what it waits for comes."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    fired: list[bool] = []

    def fire(_: object) -> None:
        fired.append(True)
        task.cancel()

    def cancel_with_the_wake_up() -> None:
        def look() -> None:
            waits_for = task._fut_waiter  # type: ignore[attr-defined]
            if waits_for is not None:
                waits_for.add_done_callback(fire)

        loop.call_soon(look)

    result: ResultT | None = None
    try:
        result = await Observed(call, {point: cancel_with_the_wake_up})
        await asyncio.sleep(0)  # a cancellation of the last step is called for in the next turn ...
        await asyncio.sleep(0)  # ... and arrives in the one after it
    except asyncio.CancelledError:
        assert fired
        task.uncancel()
        return result
    assert not fired, f"cancelled with the wake-up of {point}, without a CancelledError"
    return result


WAYS: Final = [
    pytest.param(in_a_scope, "asyncio", id="scope of anyio"),
    pytest.param(in_a_scope, "trio", id="scope of trio"),
    pytest.param(by_asyncio, "asyncio", id="Task.cancel"),
    pytest.param(with_its_wake_up, "asyncio", id="Task.cancel with the wake-up"),
]
Way = Callable[[Awaitable[Any], int], Awaitable[Any]]


@pytest.mark.parametrize(("way", "anyio_backend"), WAYS)
async def test_reading_that_is_cancelled_anywhere_loses_no_record(
    broker: EmbeddedBroker, produce: Produce, way: Way, anyio_backend: str
) -> None:
    """Records that were on their way to a cancelled task are handed to the next one that asks."""
    produce("orders", 40)
    seen: list[Key] = []

    def save(batch: Any) -> None:
        """What a call returned counts as delivered, even if its task hears afterwards that it was cancelled."""
        seen.extend(map(key, batch if isinstance(batch, list) else [batch]))

    async def polled(consumer: AsyncConsumer) -> None:
        message = await consumer.poll(0.2)
        if message is not None:
            save(message)

    async def consumed(consumer: AsyncConsumer) -> None:
        save(await consumer.consume(3, 0.2))

    async def iterated(consumer: AsyncConsumer) -> None:
        save(await anext(aiter(consumer)))

    async with new_consumer(broker) as consumer:
        await consumer.subscribe(["orders"])
        calls = itertools.cycle([polled, consumed, iterated])
        points = itertools.cycle(range(1, 5))
        with anyio.fail_after(60):
            while len(seen) < 160:
                await way(next(calls)(consumer), next(points))
        assert consumer.state is MemberState.STABLE
    assert len(seen) == len(set(seen)), "a record came twice"
    assert set(seen) == keys_of("orders", 40)
    assert committed(broker) == [40] * 4


@pytest.mark.parametrize(("way", "anyio_backend"), WAYS)
async def test_a_commit_that_is_cancelled_anywhere_leaves_the_consumer_usable(
    broker: EmbeddedBroker, produce: Produce, way: Way, anyio_backend: str
) -> None:
    """It may have been done or not; the next one is."""
    produce("orders", POINTS, partitions=[0])
    async with new_consumer(broker, enable_auto_commit=False) as consumer:
        await consumer.subscribe(["orders"])
        await read(consumer, POINTS)
        for point in range(1, POINTS):
            at = [TopicPartition("orders", 0, point)]
            await way(consumer.commit(offsets=at, asynchronous=False), point)
        await consumer.commit(asynchronous=False)
        assert committed(broker)[0] == POINTS


@pytest.mark.parametrize("point", range(1, 5))
@pytest.mark.parametrize(("way", "anyio_backend"), WAYS)
async def test_a_close_that_is_cancelled_anywhere_leaves_the_group(
    broker: EmbeddedBroker, produce: Produce, way: Way, anyio_backend: str, point: int
) -> None:
    """With a listener that awaits: its partitions are not kept from the others."""
    produce("orders", 1)
    notes = Notes()

    async def wait(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep(0.01)  # a listener that takes time

    notes.acts = {"revoked": wait}
    consumer = new_consumer(broker)
    await consumer.subscribe(["orders"], notes)
    await poll_until(consumer, lambda: notes.told)
    await way(consumer.close(), point)
    await consumer.close()
    assert notes.told == ["assigned 0 1 2 3", "revoked 0 1 2 3"]
    await until(lambda: state_of_group(broker) == "Empty")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("call", ["poll", "listener", "commit"])
async def test_ctrl_c_while_a_time_limit_ends_a_call_is_not_taken_for_that_limit(
    broker: EmbeddedBroker, produce: Produce, anyio_backend: str, call: str
) -> None:
    """The call ends late, as it does in order; what comes meanwhile is for the whole task, and not for the scope."""
    produce("orders", 1)
    broker.faults.on("OffsetCommit", delay(200), times=None)  # so that a commit is still under way when it is awaited
    task = asyncio.current_task()
    assert task is not None
    notes = Notes()

    async def hang(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await anyio.sleep_forever()

    async with new_consumer(broker, enable_auto_commit=False) as consumer:
        if call == "listener":
            notes.acts = {"assigned": hang}
        await consumer.subscribe(["orders"], notes)
        if call != "listener":
            await read(consumer, 4)
        for second in range(2, 6):
            heard = False
            with anyio.CancelScope() as scope:
                calls = {"commit": lambda: consumer.commit(asynchronous=False)}
                observed = Observed(calls.get(call, consumer.poll)(), {1: scope.cancel, second: task.cancel})
                try:
                    await observed
                    await asyncio.sleep(0)  # a cancellation of the last step arrives here
                except asyncio.CancelledError:
                    heard = task.cancelling() > 0 and observed.count >= second
                    if not heard:
                        raise
                    task.uncancel()
            if observed.count < second:
                break
            assert heard
        assert second > 2, "the call ended with its first await, so this test proves nothing"
        notes.acts = {}
