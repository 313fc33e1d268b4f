"""librdkafka's own log lines, which repeat themselves."""

from __future__ import annotations

import logging
import socket

import pytest

from kip848_client import Consumer
from kip848_client.consumer.records.librdkafka_log import LIBRDKAFKA_LOGGER, OnceInAWhile
from tests.support.waiting import wait_until


class Clock:
    """Seconds that pass when told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def passes(filter_: OnceInAWhile, text: str, *args: object) -> str | None:
    """The text that is logged; None if it is held back."""
    record = logging.LogRecord("librdkafka", logging.ERROR, "", 0, text, args, None)
    return record.getMessage() if filter_.filter(record) else None


def test_the_same_line_is_held_back_for_a_while_and_counted() -> None:
    """Twenty lines a second for a broker that is down push everything else out of a log."""
    clock = Clock()
    lines = OnceInAWhile(quiet_s=30.0, clock=clock)
    assert passes(lines, "%s failed", "connect") == "connect failed"
    assert passes(lines, "%s failed", "connect") is None
    clock.now_s += 29.9
    assert passes(lines, "connect failed") is None
    clock.now_s += 0.1
    assert passes(lines, "connect failed") == "connect failed (2 more of these in 30 s)"
    clock.now_s += 30.0
    assert passes(lines, "connect failed") == "connect failed"


def test_lines_that_differ_in_times_and_client_numbers_are_the_same_and_others_are_not() -> None:
    """Ten consumers of a broker that is down tell of one trouble; a second broker is another one."""
    lines = OnceInAWhile(clock=Clock())
    assert passes(lines, "[rdkafka#consumer-1] one:9092: refused (after 0ms in state CONNECT)")
    assert passes(lines, "[rdkafka#consumer-7] one:9092: refused (after 12ms in state CONNECT)") is None
    assert passes(lines, "[rdkafka#consumer-7] two:9092: refused (after 12ms in state CONNECT)")


def test_a_line_that_counts_its_repetitions_is_the_same() -> None:
    """librdkafka writes how many of its own errors it held back at the end of the next one."""
    lines = OnceInAWhile(clock=Clock())
    assert passes(lines, "Connect: refused (after 0ms in state CONNECT)") is not None
    assert passes(lines, "Connect: refused (after 3ms in state CONNECT, 7 identical error(s) suppressed)") is None


def test_what_is_remembered_is_bounded() -> None:
    """A line with a number in it that never comes again must not stay for the life of the process."""
    lines = OnceInAWhile(clock=Clock())
    for number in range(1_000):
        assert passes(lines, f"line {number}")
    assert passes(lines, "line 999") is None
    assert passes(lines, "line 0")


def test_a_broker_that_cannot_be_reached_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka tries again all the time; a person reads the first line."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with Consumer({"bootstrap.servers": address, "group.id": "told"}) as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(0.1) is None and refusals(caplog, address))
            consumer.poll(0.5)

    assert len(refusals(caplog, address)) == 1


def refusals(caplog: pytest.LogCaptureFixture, address: str) -> list[str]:
    """Lines of librdkafka's about the broker that cannot be reached."""
    lines = [record.getMessage() for record in caplog.records if record.name == LIBRDKAFKA_LOGGER]
    return [line for line in lines if f"{address}/bootstrap: Connect to" in line]
