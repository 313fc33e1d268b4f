"""When a query is triggered, by the driver's side of it alone: limits in time, warnings, settings that are refused."""

from __future__ import annotations

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.errors import ConfigError
from tests.spark.arrange import GROUP, driving, everything, produce
from tests.support.waiting import wait_until


def test_available_now_reads_what_was_there_and_ends(broker: EmbeddedBroker, address: str) -> None:
    """A query that ends must not run after a producer that does not."""
    with driving(address, maxOffsetsPerTrigger=120) as driver:
        driver.stream.bound()
        assert driver.plan()
        produce(address, "orders", 50, partitions=4, first=100)
        driver.finish()
        driver.drain()

    assert driver.rows == everything(100, partitions=4)


def test_a_minimum_holds_a_batch_back(address: str) -> None:
    """minOffsetsPerTrigger spares small batches; maxTriggerDelay bounds the wait."""
    with driving(address, minOffsetsPerTrigger=500) as driver:
        assert not driver.plan()
        assert not driver.plan()
        produce(address, "orders", 25, partitions=4, first=100)
        wait_until(driver.plan)
        driver.finish()
        assert not driver.plan()
    with driving(address, minOffsetsPerTrigger=500, maxTriggerDelay="1ms") as hurried:
        produce(address, "orders", 1, partitions=1, first=125)
        wait_until(hurried.plan)
        hurried.finish()

    assert driver.rows.total() == 500
    assert hurried.rows.total() == 1


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
    with driving(address, {"kafka.max.poll.interval.ms": 1_000, "kafkaConsumer.pollTimeoutMs": 100}) as driver:
        assert driver.plan()
        wait_until(lambda: "no trigger for" in caplog.text)
        driver.finish()

    assert "raise kafka.max.poll.interval.ms" in caplog.text


def test_a_topic_that_is_not_there_is_warned_of_and_read_once_it_is(
    broker: EmbeddedBroker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt topic is a query that runs for weeks and reads nothing."""
    with driving(address, subscribe="orders,payments") as driver:
        driver.run(400)
        assert "subscribed to do not exist: payments" in caplog.text
        broker.create_topic("payments", 1)
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
    assert broker.group(GROUP) is None
