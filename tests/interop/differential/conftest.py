"""The two brokers of every differential test, and how many sequences are compared.

Environment:
    KIP848_DIFFERENTIAL_SEEDS: seeds of the sequences: `7`, or `100-599`. Without it 0-39, or the `SEEDS` of a module.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.side import Side
from tests.interop.differential.conversation import Conversation
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker

DEFAULT_SEEDS: Final = "0-39"
SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 10,
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.min.heartbeat.interval.ms": 10,
    "group.share.session.timeout.ms": 60_000,
    "group.share.min.session.timeout.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.regex.refresh.interval.ms": 10_000,
    "group.consumer.regex.refresh.min.interval.ms": 10_000,
    "kip848.client.assignors.enable": "true",
}
"""As in kafka/server.properties. The last two are not there: a constant in Kafka, and what Kafka does not have, which
must not show until a test asks for it."""

Converse: TypeAlias = Callable[[], AbstractContextManager[Conversation]]
"""Opens a conversation on groups and topics of its own, and removes them afterwards."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test one case per seed."""
    if "seed" in metafunc.fixturenames:
        wanted = os.environ.get("KIP848_DIFFERENTIAL_SEEDS", getattr(metafunc.module, "SEEDS", DEFAULT_SEEDS))
        first, _, last = wanted.partition("-")
        metafunc.parametrize("seed", range(int(first), int(last or first) + 1) if wanted else ())


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """Our side, with the defaults and settings of the real broker."""
    with EmbeddedBroker(profile="kafka", config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def converse(kafka_broker: KafkaBroker | ExternalKafka, embedded_broker: EmbeddedBroker) -> Converse:
    """Conversations of our broker and Kafka."""
    return lambda: conversing(embedded_broker, kafka_broker.bootstrap_servers)


@contextmanager
def conversing(embedded: EmbeddedBroker, other: str) -> Iterator[Conversation]:
    """A conversation of *embedded* and the broker at the address *other*."""
    prefix = f"d{uuid.uuid4().hex[:8]}."
    sides = Side("ours", embedded.bootstrap_servers, prefix=prefix), Side("Kafka", other, prefix=prefix)
    try:
        for side in sides:
            side.prepare()
        yield Conversation(*sides, ours_group=embedded.groups.get)
        for side in sides:
            side.clear()
    finally:
        for side in sides:
            side.close()
