"""hand_over(): leaving without a gap; on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kip848_client import AsyncConsumer, Consumer, EmbeddedBroker, IllegalStateError
from kip848_client.common.error_codes import ErrorCode
from kip848_client.journal import MemoryJournal
from kip848_client.testing.faults.actions import error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once
from tests.support.driving import drive, settings
from tests.support.waiting import SOON_S, wait_until

pytestmark = pytest.mark.interop

Serve = Callable[[Any, Callable[[Any], object]], object]
"""A service as users write it: makes its consumer with settings, and tells it; returns when it has handed over."""


def _loop(conf: Any, made: Callable[[Any], object]) -> None:
    with Consumer(conf) as consumer:
        consumer.subscribe(["orders"])
        made(consumer)
        for message in consumer:
            consumer.commit(message)


def _process(conf: Any, made: Callable[[Any], object]) -> None:
    with Consumer(conf) as consumer:
        consumer.subscribe(["orders"])
        made(consumer)
        consumer.process(lambda _: None, concurrency=2)


def _tasks(conf: Any, made: Callable[[Any], object]) -> None:
    async def handle(_: Any) -> None:
        pass

    async def serve() -> None:
        async with AsyncConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])
            made(consumer)
            await consumer.process(handle)

    asyncio.run(serve())


def test_a_consumer_reads_on_until_the_others_are_ready_and_then_gives_up_everything(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """A rolling restart that calls hand_over() on SIGTERM leaves no partition without a reader for an interval."""
    leaver, stayer = make_consumer().subscribe("orders"), make_consumer().subscribe("orders")
    drive(leaver, stayer, until=lambda: len(leaver.partitions) == len(stayer.partitions) == 2)
    produce("orders", 5)

    leaver.raw.hand_over(timeout_s=60)
    drive(leaver, stayer, until=lambda: len(leaver.delivered) == 10)  # it still reads what it has
    drive(leaver, stayer, until=lambda: leaver.raw.handed_over and len(stayer.partitions) == 4)

    assert leaver.kinds[-2:] == ["revoked", "assigned"]
    assert list(leaver.raw) == []
    assert leaver.raw.poll() is None
    leaver.raw.close()
    leaver.raw.hand_over()  # a second SIGTERM, which must not raise in the middle of the program's end
    produce("orders", 5)
    drive(stayer, until=lambda: len(leaver.delivered) + len(stayer.delivered) == 40)
    assert len(delivered_once([leaver, stayer])) == 40


def test_a_group_that_cannot_be_described_is_left_all_the_same(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Without rights on the group hand_over() is a plain revocation, and the event log says why."""
    broker.faults.on("ConsumerGroupDescribe", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=None)
    journal = MemoryJournal()
    leaver = make_consumer(journal=journal).subscribe("orders")
    stayer = make_consumer().subscribe("orders")
    drive(leaver, stayer, until=lambda: len(leaver.partitions) == len(stayer.partitions) == 2)

    leaver.raw.hand_over(timeout_s=60)
    drive(leaver, stayer, until=lambda: leaver.raw.handed_over)

    (event,) = [event for event in journal.events if event.event == "hand_over_failed"]
    assert "cannot be described" in str(event.fields["reason"])


def test_a_signal_handler_that_closes_ends_the_poll_that_it_interrupts(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent_kafka's RuntimeError "Consumer closed" came out of poll(), which no handler of exceptions expects."""
    consumer = make_consumer().raw
    consumer.subscribe(["orders"])
    fetcher = consumer._core.fetcher
    read = fetcher.read

    def interrupted(count: int, **how: Any) -> Any:
        consumer.close()
        return read(count, **how)

    monkeypatch.setattr(fetcher, "read", interrupted)
    assert consumer.poll(10) is None
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("serve", [_loop, _process, _tasks], ids=["loop", "process", "tasks"])
@pytest.mark.parametrize(
    ("members", "leaving", "protocol"),
    [(2, 2, "consumer"), (4, 4, "consumer"), (4, 2, "consumer"), (6, 5, "consumer"), (2, 2, "classic")],
)
def test_members_that_hand_over_at_the_same_time_do_not_wait_for_each_other(
    serve: Serve, members: int, leaving: int, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``docker stop`` sends SIGTERM to all and kills after 10 s; each waited so long for the others, and was killed."""
    made: list[Any] = []
    with EmbeddedBroker({"orders": 12}) as broker:
        conf = settings(broker.bootstrap_servers, group_protocol=protocol)
        threads = [threading.Thread(target=serve, args=(conf, made.append), daemon=True) for _ in range(members)]
        for thread in threads:
            thread.start()
        broker.wait_for_group("g", state="Stable", members=members)

        for consumer in made[:leaving]:
            consumer.hand_over(timeout_s=60)

        wait_until(lambda: sum(thread.is_alive() for thread in threads) == members - leaving, SOON_S, "the end")
        for consumer in made:
            consumer.hand_over()
        for thread in threads:
            thread.join()
    assert "hand_over_failed" not in caplog.text


@pytest.mark.parametrize("serve", ["threads", "tasks"])
def test_a_handler_that_hangs_does_not_keep_the_process(broker: EmbeddedBroker, produce: Produce, serve: str) -> None:
    """SIGTERM took 30 s, the time for handlers in a rebalance; ``docker stop`` kills after 10 s."""
    produce("orders", 1, partitions=[0])
    conf = settings(broker.bootstrap_servers)
    began = threading.Event()
    never = threading.Event()

    def hang(_: Any) -> None:
        began.set()
        never.wait()

    async def hang_in_a_task(_: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async def serve_tasks() -> None:
        async with AsyncConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])
            made.append(consumer)
            await consumer.process(hang_in_a_task)

    def serve_threads() -> None:
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            made.append(consumer)
            consumer.process(hang, concurrency=1)

    made: list[Any] = []
    thread = threading.Thread(
        target=serve_threads if serve == "threads" else lambda: asyncio.run(serve_tasks()), daemon=True
    )
    thread.start()
    assert began.wait(SOON_S)

    made[0].hand_over(timeout_s=0.2)

    thread.join(SOON_S)
    assert not thread.is_alive()
    never.set()
