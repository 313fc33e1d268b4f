"""Standing by for a slot, as services do it: loops, process(), tasks, Ctrl-C, and what operators see."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import anyio
import pytest
from confluent_kafka import Producer

from kip848_client import AsyncConsumer, Consumer, EmbeddedBroker
from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import UnreleasedInstanceIdError
from kip848_client.journal import MemoryJournal
from kip848_client.testing.faults.actions import drop, error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, delivered_once
from tests.interop.client.local_assignors import Weighing
from tests.support.driving import drive, settings
from tests.support.waiting import SOON_S, wait_until

pytestmark = pytest.mark.interop

POOL: dict[str, Any] = {"group_instance_id_pool": "s-{0..1}"}
SLOT: dict[str, Any] = {"group_instance_id": "s-0", "group_instance_id_takeover": "wait"}


@pytest.mark.parametrize("handlers", ["threads", "tasks"])
def test_process_is_replaced_without_repeating_a_record(handlers: str) -> None:
    """Records in hand are finished and committed before the slot is released (scenario 15)."""
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def handle(message: Any) -> None:
        with lock:
            done.append((message.partition(), message.offset()))

    async def handle_in_a_task(message: Any) -> None:
        await asyncio.sleep(0.001)
        handle(message)

    with EmbeddedBroker({"orders": 6}) as broker:
        conf = settings(broker.bootstrap_servers, **POOL)
        made: list[Any] = []

        def serve() -> None:
            with Consumer(conf) as consumer:
                consumer.subscribe(["orders"])
                made.append(consumer)
                consumer.process(handle, concurrency=4)

        async def serve_tasks() -> None:
            async with AsyncConsumer(conf) as consumer:
                await consumer.subscribe(["orders"])
                made.append(consumer)
                await consumer.process(handle_in_a_task, concurrency=50)

        def start() -> threading.Thread:
            target = serve if handlers == "threads" else lambda: asyncio.run(serve_tasks())
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            return thread

        threads = [start(), start()]
        epoch = broker.wait_for_group("g", state="Stable", members=2).group_epoch
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        written = 0
        for _ in range(2):
            threads.append(start())
            wait_until(lambda: made and made[-1].health().standing_by and made[-1].health().ready, SOON_S, "a standby")
            for _ in range(300):
                producer.produce("orders", b"x", key=str(written))
                written += 1
            producer.flush()
            leaver = made.pop(0)
            leaver.hand_over(timeout_s=60)
            wait_until(lambda: made[-1].group_instance_id() is not None, SOON_S, "the takeover")
        wait_until(lambda: len(done) >= written, what="all records")
        assert broker.wait_for_group("g", state="Stable", members=2).group_epoch == epoch
        for consumer in made:
            consumer.hand_over()
        wait_until(lambda: not any(thread.is_alive() for thread in threads), SOON_S, "the end")
    assert len(set(done)) == len(done) == written


def test_operators_see_who_stands_by(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 23: health, log and journal say since when, and who was followed."""
    caplog.set_level(logging.INFO, "kip848_client")
    journal = MemoryJournal()
    owner = make_consumer(**SLOT).subscribe("orders")
    drive(owner, until=lambda: len(owner.partitions) == 4)
    standby = make_consumer(journal=journal, **SLOT).subscribe("orders")
    drive(owner, standby, until=lambda: standby.raw.health().standing_by)
    health = standby.raw.health()
    assert health.ready
    assert health.live
    assert health.standing_by_s is not None
    assert "standby.began" in caplog.text
    drive(owner, standby, until=lambda: "orders" in standby.raw._core.fetcher._warm, what="a warm data plane")

    owner.raw.close()
    drive(standby, until=lambda: len(standby.partitions) == 4)

    assert not standby.raw.health().standing_by
    assert "standby.took_over" in caplog.text
    assert [event.event for event in journal.events if event.event.startswith("standby")] == [
        "standby_began",
        "standby_took_over",
    ]


def test_without_takeover_two_processes_with_one_id_are_noticed(
    broker: EmbeddedBroker, make_consumer: MakeConsumer
) -> None:
    """Scenario 11."""
    owner = make_consumer(group_instance_id="s-0").subscribe("orders")
    drive(owner, until=lambda: len(owner.partitions) == 4)
    double = make_consumer(group_instance_id="s-0").subscribe("orders")
    with pytest.raises(UnreleasedInstanceIdError):
        drive(owner, double, until=lambda: False, timeout_s=SOON_S)


def test_a_standby_without_a_right_to_describe_takes_a_slot(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 9: a refused join tells the same, and the log says once why it is slower."""
    broker.faults.on("ConsumerGroupDescribe", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=None)
    owners = [make_consumer(**POOL).subscribe("orders") for _ in range(2)]
    drive(*owners, until=lambda: all(len(one.partitions) == 2 for one in owners))
    standby = make_consumer(**POOL).subscribe("orders")
    drive(*owners, standby, until=lambda: standby.raw.health().standing_by)

    owners[0].raw.hand_over(timeout_s=60)
    drive(*owners, standby, until=lambda: len(standby.partitions) == 2 and owners[0].raw.handed_over)

    assert caplog.text.count("standby.slots_unseen") == 3


def test_an_answer_to_a_join_that_gets_lost_costs_no_session(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Scenario 13: the repeated join is refused by its own place, which it frees."""
    produce("orders", 5)
    joins = broker.faults.on("ConsumerGroupHeartbeat", drop(), when=lambda request: request.member_epoch == 0, times=1)
    consumer = make_consumer(request_timeout_ms=500, **POOL).subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 20)
    assert joins.hits == 1
    assert len(delivered_once([consumer])) == 20


def test_ctrl_c_and_close_while_standing_by_end_at_once(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Scenario 18: and the owner is not touched."""
    owner = make_consumer(**SLOT).subscribe("orders")
    drive(owner, until=lambda: len(owner.partitions) == 4)

    def serve() -> None:
        with Consumer(settings(broker.bootstrap_servers, **SLOT)) as standby:
            standby.subscribe(["orders"])
            while not standby.health().standing_by:
                standby.poll(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve()

    assert [member.instance_id for member in broker.wait_for_group("g", members=1).members] == ["s-0"]
    assert len(owner.partitions) == 4


def test_a_cancelled_task_that_stands_by_ends(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Scenario 17."""
    owner = make_consumer(**SLOT).subscribe("orders")
    drive(owner, until=lambda: len(owner.partitions) == 4)

    async def read(standby: AsyncConsumer) -> None:
        async for _ in standby:
            pass

    async def main() -> None:
        async with AsyncConsumer(settings(broker.bootstrap_servers, **SLOT)) as standby:
            await standby.subscribe(["orders"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, standby)
                await anyio.to_thread.run_sync(wait_until, lambda: standby.health().standing_by)
                tasks.cancel_scope.cancel()
            assert standby.health().standing_by
            assert standby.group_instance_id() is None

    asyncio.run(main())
    broker.wait_for_group("g", members=1)


def test_an_own_assignor_knows_the_successor_by_its_slot(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """Scenario 20: what the successor's assignor tells of itself counts as soon as it has taken over."""
    old, other, new = Weighing(1), Weighing(1), Weighing(3)
    owner, neighbour = (
        make_consumer(group_local_assignors=one, **conf).subscribe("orders") for one, conf in ((old, SLOT), (other, {}))
    )
    drive(owner, neighbour, until=lambda: len(owner.partitions) == len(neighbour.partitions) == 2)
    standby = make_consumer(group_local_assignors=new, **SLOT).subscribe("orders")
    drive(owner, neighbour, standby, until=lambda: standby.raw.health().standing_by)

    owner.raw.hand_over(timeout_s=60)

    everybody = (owner, neighbour, standby)
    drive(
        *everybody, until=lambda: owner.raw.handed_over and len(standby.partitions) == 3, what="the share of its weight"
    )
    assert len(neighbour.partitions) == 1
