"""Members, records and an administrator on the shared Apache Kafka broker, or on one that a test starts itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from kip848_client import Kip848Error
from kip848_client.config import ConfigValue
from tests.interop.conftest import unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.ledger import Ledger
from tests.interop.real.members import Feed, LibrdkafkaMember, OurMember


class MakeOurs(Protocol):
    """Makes a consumer of ours that is closed when the test ends; underscores in settings stand for dots."""

    def __call__(self, name: str, *, at: str | None = None, **conf: ConfigValue) -> OurMember: ...


class MakeTheirs(Protocol):
    """Makes a librdkafka consumer that is closed when the test ends; underscores in settings stand for dots."""

    def __call__(self, name: str, **conf: ConfigValue) -> LibrdkafkaMember: ...


@pytest.fixture
def group_id() -> str:
    """A group that no other test uses."""
    return unique_name("ours")


@pytest.fixture
def ledger() -> Ledger:
    """Where all members of the test write."""
    return Ledger()


@pytest.fixture
def administrator(kafka_broker: KafkaBroker | ExternalKafka) -> Administrator:
    """Of the shared broker."""
    return Administrator(kafka_broker.bootstrap_servers)


@pytest.fixture
def feed(kafka_broker: KafkaBroker | ExternalKafka) -> Feed:
    """Numbered records for the shared broker."""
    return Feed(kafka_broker.bootstrap_servers)


@pytest.fixture
def ours(request: pytest.FixtureRequest, ledger: Ledger, group_id: str) -> Iterator[MakeOurs]:
    """Consumers of ours; of the shared broker unless told otherwise."""
    made: list[OurMember] = []

    def make(name: str, *, at: str | None = None, **conf: ConfigValue) -> OurMember:
        bootstrap = at or request.getfixturevalue("kafka_broker").bootstrap_servers
        member = OurMember(name, settings(bootstrap, group_id, conf), ledger)
        made.append(member)
        return member

    yield make
    for member in made:
        with contextlib.suppress(Kip848Error):  # a test of errors has checked already what it expects
            member.consumer.close(timeout_s=2.0)


@pytest.fixture
def theirs(kafka_broker: KafkaBroker | ExternalKafka, ledger: Ledger, group_id: str) -> Iterator[MakeTheirs]:
    """librdkafka's consumers on the shared broker."""
    made: list[LibrdkafkaMember] = []

    def make(name: str, **conf: ConfigValue) -> LibrdkafkaMember:
        member = LibrdkafkaMember(name, settings(kafka_broker.bootstrap_servers, group_id, conf), ledger)
        made.append(member)
        return member

    yield make
    for member in made:
        member.close()


def settings(bootstrap_servers: str, group_id: str, conf: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    """The configuration that both kinds of members begin with."""
    named = {name if name == "on_commit" else name.replace("_", "."): value for name, value in conf.items()}
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        **named,
    }


Condition = Callable[[], object]
