"""A plain consumer whose brokers cannot be reached: every error that it raises says where it looked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from confluent_kafka import TopicPartition

from kip848_client import Consumer
from kip848_client.errors import Kip848Error, RequestTimeoutError
from tests.support.driving import QUIET
from tests.support.waiting import wait_until

ORDERS = TopicPartition("orders", 0, 5)


@pytest.fixture
def closed_address() -> Iterator[str]:
    """An address without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def unanswered(closed_address: str) -> Iterator[Consumer]:
    """A consumer whose only broker does not answer."""
    with Consumer({"bootstrap.servers": closed_address, "group.id": "g", "default.api.timeout.ms": 200}) as consumer:
        yield consumer


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer: consumer.list_topics(timeout=0.2),
        lambda consumer: consumer.get_watermark_offsets(ORDERS, timeout=0.2),
        lambda consumer: consumer.offsets_for_times([ORDERS], timeout=0.2),
    ],
)
def test_questions_to_an_unreachable_broker_name_the_address(
    closed_address: str, unanswered: Consumer, ask: Callable[[Consumer], object]
) -> None:
    """librdkafka's own words are "broker transport failure", which leaves everything to guess."""
    with pytest.raises(Kip848Error, match=f"bootstrap.servers is {closed_address}"):
        ask(unanswered)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.committed([ORDERS]),
        lambda consumer: consumer.commit(offsets=[ORDERS], asynchronous=False),
    ],
)
def test_calls_that_wait_for_the_coordinator_say_why_there_is_none(
    closed_address: str, unanswered: Consumer, call: Callable[[Consumer], object]
) -> None:
    """ "No answer came" is true, and of no use."""
    raised: list[str] = []

    def told() -> bool:
        with pytest.raises(RequestTimeoutError) as error:
            call(unanswered)
        raised.append(str(error.value))
        return "coordinator is not found" in raised[-1]

    wait_until(told)
    assert raised[-1].endswith(
        f"the group's coordinator is not found: no connection to {closed_address}: Connection refused"
    )


def test_close_does_not_wait_for_a_name_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that stops because its cluster has moved away hung for the time-out of its name server."""
    asked, answer = threading.Event(), threading.Event()

    def hangs(*_arguments: object, **_options: object) -> NoReturn:
        asked.set()
        answer.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    consumer = Consumer({**QUIET, "bootstrap.servers": "broker.invalid:9092", "group.id": "g"})
    try:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0) is None and asked.is_set())
        consumer.close(1)
    finally:
        answer.set()

    assert "heartbeat_thread_died" not in caplog.text
