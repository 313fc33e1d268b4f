"""The log of a consumer, as its operator reads it."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.common.clock import ManualClock
from kip848_client.common.logs import LogEvent
from tests.interop.client.conftest import MakeConsumer
from tests.support.driving import QUIET, ClockAhead
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop

PATIENT: Final[dict[str, Any]] = {"request.timeout.ms": 86_400_000, "max.poll.interval.ms": 86_400_000}
"""The clock of these tests runs ahead of the broker, which answers in real time, and of the thread that polls."""
PAGE: Final = Path(__file__).parents[3] / "docs/observability.md"


@pytest.fixture
def full(broker: EmbeddedBroker) -> EmbeddedBroker:
    """A cluster whose topic is full."""
    return fill(broker)


def fill(broker: EmbeddedBroker) -> EmbeddedBroker:
    """Make the topic ``payments``, with 303 records in three partitions."""
    broker.topics.create("payments", partitions=3)
    for partition in range(3):
        for _ in range(100 + partition):
            broker.produce("payments", "x", partition=partition)
    return broker


def conf_of(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "shop", **PATIENT, **more}


def poll_until_told(
    consumer: Consumer,
    clock: ClockAhead,
    lines: Callable[[LogEvent], list[logging.LogRecord]],
    *,
    after: LogEvent = LogEvent.READING_FROM,
) -> None:
    """Poll; each time that nothing is told since *after*, half a minute passes."""
    wait_until(lambda: consumer.poll(0.05) is None and lines(after), what=after)

    def told() -> bool:
        assert consumer.poll(0.05) is None
        if lines(LogEvent.READS_NOTHING):
            return True
        clock.ahead_ms += 30_000
        return False

    wait_until(told, what="the line that says why nothing is read")


def documented() -> list[str]:
    """The log in the documentation, with the numbers that differ from run to run replaced."""
    (block,) = re.findall(r"```text\n(INFO .*?member\.joined.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return sorted(as_documented(line) for line in block.splitlines())


def as_documented(line: str) -> str:
    line = re.sub(r"member_id=\S+", "member_id=...", line)
    line = re.sub(r"=\S+ \(node \d+\)", "=broker:9092 (node 1)", line)
    return re.sub(r"heartbeat_interval_ms=\d+", "heartbeat_interval_ms=5000", line)


def test_the_log_of_a_new_user_on_a_full_topic_answers_why_nothing_is_read(
    broker: EmbeddedBroker,
    make_consumer: MakeConsumer,
    lines: Callable[[LogEvent], list[logging.LogRecord]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first hour of most users: the default is latest, and the topic is full. It is the log in the docs."""
    fill(broker)
    clock = ClockAhead()
    with make_consumer("shop", clock=clock, auto_offset_reset="latest", **PATIENT).raw as consumer:
        consumer.subscribe(["payments"])
        poll_until_told(consumer, clock, lines)
        told = [
            f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == "kip848_client"
        ]
        for _ in range(3):
            clock.ahead_ms += 30_000
            consumer.poll(0.05)

    assert sorted(map(as_documented, told)) == documented()
    (line,) = lines(LogEvent.READS_NOTHING)
    assert (line.records, line.count, line.levelname) == (303, 3, "WARNING")  # type: ignore[attr-defined]


def test_a_group_that_has_read_everything_says_that_it_has(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """The second run of a script: its group has committed, and auto.offset.reset=earliest changes nothing."""
    conf = conf_of(full, **{"auto.offset.reset": "earliest"})
    with Consumer(conf) as first:
        first.subscribe(["payments"])
        read = 0
        while read < 303:
            read += len(first.consume(303 - read, 30.0))
    clock = ClockAhead()
    with Consumer(conf, clock=clock) as second:
        second.subscribe(["payments"])
        poll_until_told(second, clock, lines)

    (line,) = lines(LogEvent.READS_NOTHING)
    assert line.starts == {"committed offset": "payments-[0-2]"}  # type: ignore[attr-defined]
    assert "kip848 groups reset-offsets shop --to-earliest --execute" in line.getMessage()
    assert line.levelname == "INFO", "a consumer that has caught up is no reason to wake anybody"
    first_starts, second_starts = lines(LogEvent.READING_FROM)
    assert (first_starts.reason, first_starts.reset) == ("nothing committed", "earliest")  # type: ignore[attr-defined]
    assert second_starts.offsets == {"payments-0": 100, "payments-1": 101, "payments-2": 102}  # type: ignore[attr-defined]


def test_a_member_without_partitions_says_so(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """More members than partitions: the second process of a topic with one partition looks broken."""
    full.topics.create("single", partitions=1)
    clock = ClockAhead()
    with Consumer(conf_of(full)) as holder, Consumer(conf_of(full), clock=clock) as spare:
        holder.subscribe(["single"])
        wait_until(lambda: holder.poll(0.05) is None and holder.assignment(), what="the only partition")
        spare.subscribe(["single"])
        poll_until_told(spare, clock, lines, after=LogEvent.JOINED)

    (line,) = lines(LogEvent.READS_NOTHING)
    assert (line.reason, line.count) == ("no partitions", 0)  # type: ignore[attr-defined]


def test_paused_partitions_are_the_reason(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """A pause() that nothing resumes looks like an empty topic."""
    clock = ClockAhead()
    with Consumer(conf_of(full), clock=clock) as consumer:
        consumer.assign([TopicPartition("payments", 0, 0)])
        consumer.pause([TopicPartition("payments", 0)])
        poll_until_told(consumer, clock, lines)

    (line,) = lines(LogEvent.READS_NOTHING)
    assert line.reason == "paused"  # type: ignore[attr-defined]


def test_a_consumer_that_has_read_something_says_nothing(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """A quiet hour is no reason for a line."""
    clock = ClockAhead()
    with Consumer(conf_of(full, **{"auto.offset.reset": "earliest"}), clock=clock) as consumer:
        consumer.subscribe(["payments"])
        read = 0
        while read < 303:
            read += len(consumer.consume(303 - read, 30.0))
        for _ in range(5):
            clock.ahead_ms += 30_000
            assert consumer.consume(500, 0.05) == []

    assert not lines(LogEvent.READS_NOTHING)


def test_process_says_it_too(full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]) -> None:
    """It reads by the same call; a program without a loop of its own has nothing else to look at."""
    clock = ClockAhead()
    with Consumer(conf_of(full), clock=clock) as consumer:
        consumer.subscribe(["payments"])

        def wait_and_end() -> None:
            def told() -> bool:
                clock.ahead_ms += 30_000
                return bool(lines(LogEvent.READS_NOTHING))

            try:
                wait_until(told, what="the line", every_s=0.2)
            finally:
                consumer.hand_over(0.0)

        watcher = threading.Thread(target=wait_and_end)
        watcher.start()
        consumer.process(lambda _: None)
        watcher.join()

    assert len(lines(LogEvent.READS_NOTHING)) == 1


def test_seeks_between_two_polls_are_one_line(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """Thousands of partitions are sought one by one; who seeks for each record gets a line a second."""
    clock = ManualClock()
    with Consumer(conf_of(full), clock=clock) as consumer:
        consumer.subscribe(["payments"])

        def settled() -> bool:
            clock.advance(50)
            return consumer.poll(0.05) is None and bool(lines(LogEvent.READING_FROM)) and len(consumer.lag()) == 3

        wait_until(settled, what="positions")
        clock.advance(1_000)
        for partition in range(3):
            consumer.seek(TopicPartition("payments", partition, 5))
        consumer.poll(0)
        consumer.seek(TopicPartition("payments", 0, 6))
        consumer.poll(0)
        soon = [record.offsets for record in lines(LogEvent.READING_FROM)[1:]]  # type: ignore[attr-defined]
        clock.advance(1_000)
        consumer.seek(TopicPartition("payments", 0, 6))

        def told() -> bool:
            consumer.poll(0)  # one that finds records of other partitions ready tells nothing
            return bool(lines(LogEvent.READING_FROM)[-1].offsets == {"payments-0": 6})  # type: ignore[attr-defined]

        wait_until(told, what="the line about the last seek")

    assert soon == [{"payments-0": 5, "payments-1": 5, "payments-2": 5}]


def test_a_member_tells_what_it_gets_and_loses_and_why_it_goes(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """The story of one membership, without a debugger."""
    with Consumer(conf_of(full, **{"group.instance.id": "host-1"})) as consumer:
        consumer.subscribe(["payments"])
        wait_until(lambda: consumer.poll(0.05) is None and lines(LogEvent.READING_FROM), what="a start")
        full.groups.remove_member("shop", consumer.member_id)
        wait_until(
            lambda: consumer.poll(0.05) is None and len(lines(LogEvent.PARTITIONS_ASSIGNED)) == 2,
            what="the partitions after a second join",
        )

    (joined, _) = lines(LogEvent.JOINED)
    assert (joined.protocol, joined.instance_id) == ("consumer", "host-1")  # type: ignore[attr-defined]
    assert joined.coordinator.startswith("127.0.0.1:")  # type: ignore[attr-defined]
    assert [line.partitions for line in lines(LogEvent.PARTITIONS_LOST)] == ["payments-[0-2]"]  # type: ignore[attr-defined]
    assert lines(LogEvent.PARTITIONS_REVOKED)[-1].count == 3  # type: ignore[attr-defined]
    removed, left = [line.reason for line in lines(LogEvent.LEFT)]  # type: ignore[attr-defined]
    assert "the coordinator removed the member" in removed
    assert "the consumer is being closed" in left


def test_process_names_the_listener_that_held_it_up(
    full: EmbeddedBroker, lines: Callable[[LogEvent], list[logging.LogRecord]]
) -> None:
    """It polls by itself, so "poll more often" would be no advice."""
    clock = ClockAhead()
    with Consumer(conf_of(full, **{"max.poll.interval.ms": 300_000}), clock=clock) as consumer:

        def slow(_: Consumer, __: list[TopicPartition]) -> None:
            if not lines(LogEvent.PROCESSING_LATE):
                mark = full.requests.mark()  # heartbeats look when the last poll was; only then may the clock jump
                full.requests.wait_for("ConsumerGroupHeartbeat", since=mark, count=3, timeout_s=TIMEOUT_S)
                clock.ahead_ms += 300_001
                consumer._core.manager.poke()
                full.groups.wait_for(
                    "shop", lambda group: not group.members, what="the silent consumer to leave", timeout_s=TIMEOUT_S
                )

        def wait_and_end() -> None:
            try:
                wait_until(lambda: lines(LogEvent.PROCESSING_LATE), what="the line")
            finally:
                consumer.hand_over(0.0)

        consumer.subscribe(["payments"], on_assign=slow)
        watcher = threading.Thread(target=wait_and_end)
        watcher.start()
        consumer.process(lambda _: None)
        watcher.join()

    text = lines(LogEvent.PROCESSING_LATE)[0].getMessage()
    assert "a rebalance listener ran for 300" in text
    assert "use process()" not in text
