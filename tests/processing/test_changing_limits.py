"""Limits and concurrency of a ``process()`` that runs: with threads, tasks and real records."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from kip848_client import AsyncConsumer, Consumer, Limits
from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.testing import EmbeddedBroker, NewRecord
from tests.processing.orders import fill, member_conf


def test_a_handler_in_a_thread_raises_the_concurrency(kip848_broker: EmbeddedBroker) -> None:
    """A service that adapts to its load starts no new process() for that."""
    fill(kip848_broker, 3)
    meet = threading.Barrier(3)

    def handle(message: Any) -> None:
        if message.offset() == 0:
            consumer.change_processing(concurrency=3)
        meet.wait()

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        consumer.process(handle, concurrency=1, until="end")
        with pytest.raises(IllegalStateError, match="does not run"):
            consumer.change_processing(concurrency=3)
    assert kip848_broker.groups.committed("g")["orders", 0] == 3


def test_a_task_raises_the_concurrency(kip848_broker: EmbeddedBroker) -> None:
    """The same with tasks; a wrong value changes nothing."""
    fill(kip848_broker, 3)

    async def main() -> None:
        running, all_run = 0, asyncio.Event()

        async def handle(message: Any) -> None:
            nonlocal running
            if message.offset() == 0:
                with pytest.raises(ConfigError, match="concurrency=0"):
                    consumer.change_processing(concurrency=0)
                consumer.change_processing(concurrency=3)
            running += 1
            if running == 3:
                all_run.set()
            await all_run.wait()

        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle, concurrency=1, until="end")

    asyncio.run(main())
    assert kip848_broker.groups.committed("g")["orders", 0] == 3


def test_a_key_with_a_limit_waits_and_others_do_not(kip848_broker: EmbeddedBroker) -> None:
    """More than `concurrency` records of one customer, who may have two calls a second, and one of another customer."""
    fill(kip848_broker, 4)
    kip848_broker.produce_many("orders", [NewRecord("", key="a")] * 3 + [NewRecord("last", key="b")])
    handled: list[bytes] = []

    async def main() -> None:
        async def handle(message: Any) -> None:
            handled.append(message.key())

        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(
                handle, concurrency=1, until="end", limits=Limits(calls_per_second_per_key=2), timeout_s=60
            )

    begun_s = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun_s >= 0.999, "the third call of a key begins a second after the first"
    assert sorted(handled) == [b"0", b"1", b"2", b"3", b"a", b"a", b"a", b"b"]


def test_a_topic_that_waits_for_its_limit_leaves_room_for_one_that_comes_first(kip848_broker: EmbeddedBroker) -> None:
    """A backlog that fills the buffer would stand before it for as long as it waits."""
    kip848_broker.topics.create("bulk")
    kip848_broker.topics.create("orders")
    kip848_broker.produce_many("bulk", [NewRecord("b")] * 200)
    handled: list[str] = []

    def handle(message: Any) -> None:
        handled.append(message.topic())
        if len(handled) == 1:
            kip848_broker.produce_many("orders", [NewRecord("o")] * 5)
        elif len(handled) == 6:
            consumer.hand_over()

    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["bulk", "orders"])
        limits = Limits(topics={"orders": Limits(priority=1), "bulk": Limits(calls_per_second=0.001)})
        consumer.process(handle, concurrency=1, buffer=10, limits=limits)
    assert handled == ["bulk", *["orders"] * 5]


class _SlowProducer:
    """Acknowledges what it is given once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self._reports: list[Any] = []

    def produce(self, *, on_delivery: Any, **_: Any) -> None:
        self._reports.append(on_delivery)

    def poll(self, timeout: float) -> None:
        if self.may.wait(timeout):
            while self._reports:
                self._reports.pop()(None, None)


def test_a_record_begins_when_an_output_is_acknowledged_though_all_tasks_are_busy(
    kip848_broker: EmbeddedBroker,
) -> None:
    """A task cannot be started from what a thread hands in: process() stood still without a word."""
    kip848_broker.topics.create("orders")
    kip848_broker.produce_many("orders", [NewRecord("a1", key="a"), NewRecord("a2", key="a")])
    producer: Any = _SlowProducer()

    async def main() -> None:
        second = asyncio.Event()

        async def handle(message: Any, outputs: Any) -> None:
            if message.value() == b"a1":
                outputs.produce("done")
                kip848_broker.produce_many("orders", [NewRecord("b", key="b")])
            elif message.value() == b"b":
                producer.may.set()
                await asyncio.wait_for(second.wait(), 120)
            else:
                second.set()

        async with AsyncConsumer(member_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.process(handle, outputs=producer, until="end")

    asyncio.run(main())
    assert kip848_broker.groups.committed("g")["orders", 0] == 3


@pytest.mark.parametrize("limits", [5, Limits(calls_per_second=-1)])
def test_wrong_limits_are_refused_at_once(kip848_broker: EmbeddedBroker, limits: Any) -> None:
    """Before anything is read."""
    with Consumer(member_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match=r"limits"):
            consumer.process(print, limits=limits)
        with pytest.raises(ConfigError, match='needs order="key"'):
            consumer.process(print, batch=(5, 5), order="partition", limits=Limits(calls_per_second_per_key=1))
