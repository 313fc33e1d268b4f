"""A small cluster and our own consumers on it, for the tests in this folder."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent
from kip848_client.config import ConfigValue
from kip848_client.errors import Kip848Error
from kip848_client.journal import Journal
from tests.interop.client.drive import Produce, producer_for
from tests.support.brokers import marked_broker
from tests.support.driving import QUIET, DrivenConsumer, settings


class MakeConsumer(Protocol):
    """Makes a consumer that is closed when the test ends."""

    def __call__(
        self, group_id: str = "g", *, journal: Journal | None = None, clock: Clock | None = None, **conf: ConfigValue
    ) -> DrivenConsumer: ...


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker with the topic ``orders`` of four partitions, unless a marker says otherwise.

    No member is removed for being silent, however slow the machine is: a test says when a session ends.
    """
    config = {"group.consumer.session.timeout.ms": "60000"}
    with marked_broker(request, topics={"orders": 4}, config=config) as running:
        yield running


@pytest.fixture
def produce(broker: EmbeddedBroker) -> Iterator[Produce]:
    """Write records and wait until the broker has them."""
    with producer_for(broker.bootstrap_servers) as produce:
        yield produce


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[LogEvent], list[logging.LogRecord]]]:
    """The lines of one event so far."""
    with caplog.at_level(logging.INFO, logger="kip848_client"):
        yield lambda event: [record for record in caplog.records if getattr(record, "kip848_event", "") == event]


@pytest.fixture
def consumer_class() -> Callable[..., Consumer]:
    """What the tests of this folder are about; ``tests/aio`` puts something else in its place."""
    return Consumer


@pytest.fixture
def make_consumer(broker: EmbeddedBroker, consumer_class: Callable[..., Consumer]) -> Iterator[MakeConsumer]:
    """Make consumers of `broker`; underscores in names of settings stand for dots."""
    made: list[DrivenConsumer] = []

    def make(
        group_id: str = "g", *, journal: Journal | None = None, clock: Clock | None = None, **conf: ConfigValue
    ) -> DrivenConsumer:
        own = settings(broker.bootstrap_servers, group_id=group_id, **conf)
        consumer = DrivenConsumer(consumer_class({**QUIET, **own}, journal=journal, clock=clock))
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        with contextlib.suppress(Kip848Error):  # a test of errors has checked already what it expects
            consumer.raw.close(timeout_s=1.0)


@pytest.fixture
def closing() -> Iterator[Callable[[Consumer], Consumer]]:
    """Close a consumer of another broker when the test ends."""
    made: list[Consumer] = []

    def remember(consumer: Consumer) -> Consumer:
        made.append(consumer)
        return consumer

    yield remember
    for consumer in made:
        with contextlib.suppress(Kip848Error):
            consumer.close(timeout_s=1.0)
