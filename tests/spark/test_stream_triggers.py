"""When a query is triggered, by the driver's side of it alone: limits in time, warnings, settings that are refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError
from kip848_client.spark.group.group_membership import GroupMembership
from kip848_client.spark.group.settling import NotOwnedError
from tests.spark.arrange import GROUP, consumer, driving, everything, produce
from tests.support.waiting import wait_until


def hold_everything(plain: Consumer, broker: EmbeddedBroker) -> None:
    """Let *plain* have all partitions; it is not polled from then on, so it gives nothing back."""
    plain.subscribe(["orders"])
    wait_until(lambda: plain.poll(0.02) and [len(m.assigned) for m in broker.wait_for_group(GROUP).members] == [4])


@contextlib.contextmanager
def polled(plain: Consumer) -> Iterator[None]:
    """Poll *plain* on another thread meanwhile."""
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            plain.poll(0.05)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        yield
    finally:
        over.set()
        polling.join()


def test_available_now_reads_what_was_there_and_ends(broker: EmbeddedBroker, address: str) -> None:
    """A query that ends must not run after a producer that does not."""
    with driving(address, maxOffsetsPerTrigger=120) as driver:
        driver.stream.bound()
        assert driver.plan()
        produce(address, "orders", 50, partitions=4, first=100)
        driver.finish()
        driver.drain()

    assert driver.rows == everything(100, partitions=4)


def test_available_now_reads_partitions_that_are_assigned_while_a_trigger_plans(
    broker: EmbeddedBroker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: the query plans without them, sees them before it decides to end, and ends as if it had read them."""
    readable, progress = GroupMembership.readable, GroupMembership.progress
    early = {"readable": 2, "progress": 1}

    def readable_before(source: GroupMembership) -> dict[NamedPartition, int]:
        wait_until(lambda: readable(source))
        early["readable"] -= 1
        return {} if early["readable"] >= 0 else readable(source)

    def progress_before(source: GroupMembership) -> dict[NamedPartition, int]:
        early["progress"] -= 1
        return {} if early["progress"] >= 0 else progress(source)

    monkeypatch.setattr(GroupMembership, "readable", readable_before)
    monkeypatch.setattr(GroupMembership, "progress", progress_before)
    with driving(address) as driver:
        driver.stream.bound()
        driver.drain()

    assert driver.rows == everything(100, partitions=4)


def test_available_now_waits_for_the_partitions_of_a_member_that_died(broker: EmbeddedBroker, address: str) -> None:
    """A job that crashed and is started again at once: its old member holds everything until its session ends."""
    with consumer(address) as dead, driving(address, firstAssignmentTimeout=None) as driver:
        hold_everything(dead, broker)
        driver.stream.bound()
        ending = threading.Thread(target=driver.drain, daemon=True)
        ending.start()
        (old,) = (m for m in broker.wait_for_group(GROUP, members=2).members if m.client_id == "plain")
        assert ending.is_alive()
        broker.groups.expire_session(GROUP, old.member_id)
        ending.join(60)

    assert driver.rows == everything(100, partitions=4)


def test_available_now_does_not_end_without_its_partitions(broker: EmbeddedBroker, address: str) -> None:
    """A night's records would be missing, and the scheduler would show a success."""
    with consumer(address) as busy, driving(address, firstAssignmentTimeout="300ms") as driver:
        hold_everything(busy, broker)
        driver.stream.bound()
        with pytest.raises(NotOwnedError, match=r"not settled in 0\.3 s .*orders-0, .*orders-3 by plain \("):
            driver.drain()


@pytest.mark.parametrize("behind", [True, False])
def test_available_now_without_a_partition_ends_only_if_nothing_waits(
    broker: EmbeddedBroker, address: str, behind: bool
) -> None:
    """More members than partitions: the others may have read everything, or nothing of it."""
    broker.topics.create("single", 1)
    produce(address, "single", 5)
    with consumer(address) as other, driving(address, subscribe="single") as driver:
        other.subscribe(["single"])
        wait_until(lambda: other.consume(5, 0.02))
        if not behind:
            other.commit(asynchronous=False)
        with polled(other):
            driver.stream.bound()
            if behind:
                with pytest.raises(NotOwnedError, match="has settled, and this query has no partition in it: single-0"):
                    driver.drain()
            else:
                driver.drain()
    assert not driver.rows


@pytest.mark.parametrize(
    "changed", [{"subscribe": "orders,ordesr"}, {"subscribe": None, "subscribePattern": "ordesr.*"}]
)
def test_available_now_refuses_a_topic_that_does_not_exist(address: str, changed: dict[str, object]) -> None:
    """A query without an end waits for it; one that ends would end without it, every night."""
    with driving(address, changed) as driver:
        driver.stream.bound()
        with pytest.raises(ConfigError, match=r"do not exist: .*ordesr.*AvailableNow"):
            driver.drain()


def test_a_first_batch_of_an_unknown_trigger_has_all_that_waits(broker: EmbeddedBroker, address: str) -> None:
    """Before Spark 4.2 it may be the only one (AvailableNow): what it leaves out is missing, and a success is shown."""
    ends: list[dict[str, Any]] = []
    with consumer(address) as dead, driving(address, maxOffsetsPerTrigger=7, firstAssignmentTimeout=None) as driver:
        hold_everything(dead, broker)
        planning = threading.Thread(target=lambda: ends.append(driver.stream.first_of_unknown_trigger(driver.offset)))
        planning.start()
        (old,) = (m for m in broker.wait_for_group(GROUP, members=2).members if m.client_id == "plain")
        assert not ends
        broker.groups.expire_session(GROUP, old.member_id)
        planning.join(60)
        driver.replay(ends[0])
        assert driver.rows == everything(100, partitions=4)

        produce(address, "orders", 10, partitions=4, first=100)
        assert driver.turn()
        assert driver.rows.total() == 407, "from then on the limit holds"


def test_a_minimum_holds_a_batch_back(address: str) -> None:
    """minOffsetsPerTrigger spares small batches; maxTriggerDelay bounds the wait."""
    with driving(address, minOffsetsPerTrigger=100) as driver:
        assert driver.turn(), "as in Spark's own source, the first batch does not wait"
        produce(address, "orders", 20, partitions=4, first=100)
        assert not driver.plan()
        assert not driver.plan()
        produce(address, "orders", 5, partitions=4, first=120)
        wait_until(driver.turn)
        assert not driver.plan()
    with driving(address, minOffsetsPerTrigger=100, maxTriggerDelay="1ms") as hurried:
        for first in (125, 126):
            produce(address, "orders", 1, partitions=1, first=first)
            wait_until(hurried.turn)

    assert driver.rows.total() == 500
    assert hurried.rows.total() == 2


@pytest.mark.parametrize(("patience", "warned"), [("120000", True), ("120001", False)])
def test_a_task_that_may_wait_for_longer_than_the_group_is_warned_of_at_the_start(
    address: str, patience: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first revocation takes too long, and the query is removed."""
    with driving(address, {"kafka.max.poll.interval.ms": patience}) as driver:
        driver.plan()
    assert ("lower the one, or raise the other" in caplog.text) is warned


def test_triggers_that_come_too_seldom_are_warned_of_before_the_second_one(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark does not say how often it asks; a trigger an hour would be noticed when the group has removed the query."""
    with driving(address, {"kafka.max.poll.interval.ms": 1_000}) as driver:
        wait_until(driver.plan)
        wait_until(lambda: "no trigger for" in caplog.text)

    assert "raise kafka.max.poll.interval.ms" in caplog.text


def test_a_topic_that_is_not_there_is_warned_of_and_read_once_it_is(
    broker: EmbeddedBroker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt topic is a query that runs for weeks and reads nothing."""
    with driving(address, subscribe="orders,payments") as driver:
        driver.run(400)
        assert "subscribed to do not exist: payments" in caplog.text
        broker.topics.create("payments", 1)
        produce(address, "payments", 5)
        driver.run(405)


def test_a_setting_that_librdkafka_refuses_is_told_before_anything_is_joined(
    broker: EmbeddedBroker, address: str
) -> None:
    """The tasks would fail on it, but only when there is something to read."""
    with pytest.raises(
        ConfigError, match=r"fetch\.min\.byte is not a configuration key; did you mean fetch\.min\.bytes"
    ):
        with driving(address, {"kafka.fetch.min.byte": 5}):
            pass
    assert broker.groups.get(GROUP) is None
