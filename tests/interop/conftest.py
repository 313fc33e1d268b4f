"""Fixtures that bring a real Apache Kafka broker to a test. Where none can be started the test fails and says why.

Environment:
    KIP848_BOOTSTRAP: use this broker (`host:port`) instead of starting one.
    See kafka_libs.py for the rest.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.embedded.java_member import java_client
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.kafka_libs import KafkaUnavailableError, java_command, kafka_libs
from tests.support.waiting import wait_until

ADMIN_TIMEOUT_S: Final = 60.0
WITHOUT_KAFKA: Final = 'pytest -m "not kafka" runs the tests that need nothing but Python.'


class StartKafkaBroker(Protocol):
    """Starts a broker of the test's own; it is closed when the test ends."""

    def __call__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> KafkaBroker: ...


class CreateTopic(Protocol):
    """Creates a topic under a new name and returns the name; the topic is deleted when the test ends."""

    def __call__(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the broker's jars before the first test: a download must not count against a test's time limit."""
    if session.config.option.collectonly:
        return
    starters = {"start_kafka_broker"} if "KIP848_BOOTSTRAP" in os.environ else {"start_kafka_broker", "kafka_broker"}
    wanted = {name for item in session.items if isinstance(item, pytest.Function) for name in item.fixturenames}
    if wanted & starters:
        _why_not_startable()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker | ExternalKafka]:
    """The broker that all tests share: started here, or named by KIP848_BOOTSTRAP. Tests use their own topic names."""
    if bootstrap := os.environ.get("KIP848_BOOTSTRAP"):
        yield ExternalKafka(bootstrap)
        return
    require_kafka()
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def start_kafka_broker() -> Iterator[StartKafkaBroker]:
    """Brokers for one test, which may stop, kill, restart and configure them; needs Java (see kafka_libs.py)."""
    require_kafka()
    started: list[KafkaBroker] = []

    def start(
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
    ) -> KafkaBroker:
        broker = KafkaBroker(properties=properties, listeners=listeners, format_arguments=format_arguments)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.close()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line that runs Apache Kafka's own clients, compiled (embedded/java/JavaClient.java)."""
    try:
        return java_client(tmp_path_factory.mktemp("java-classes"))
    except KafkaUnavailableError as error:
        pytest.fail(f"{error}\n{WITHOUT_KAFKA}", pytrace=False)


@pytest.fixture
def kafka_topic(kafka_broker: KafkaBroker | ExternalKafka) -> Iterator[CreateTopic]:
    """Topics on the shared broker."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    created: list[str] = []

    def create(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = unique_name("topic")
        create_topic(admin, name, partitions=partitions, config=config)
        created.append(name)
        return name

    yield create
    if created:
        for deleted in admin.delete_topics(created, request_timeout=ADMIN_TIMEOUT_S).values():
            deleted.result()


@pytest.fixture
def kafka_group() -> Callable[[], str]:
    """New group ids, never used before on any broker."""
    return lambda: unique_name("group")


def create_topic(
    admin: AdminClient, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic with one replica and wait until metadata shows a leader for each partition."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    for answer in admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S).values():
        answer.result()

    def is_shown() -> bool:
        shown = admin.list_topics(name, timeout=ADMIN_TIMEOUT_S).topics[name].partitions
        return len(shown) == partitions and all(partition.leader >= 0 for partition in shown.values())

    # The controller answered; the broker learns of it a moment later.
    wait_until(is_shown, ADMIN_TIMEOUT_S, f"metadata with {partitions} partitions of {name}")


def unique_name(kind: str) -> str:
    """A name that no other test, process or earlier run has used: a shared broker outlives them all."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def require_kafka() -> None:
    """Fail the test that asks, if no broker can be started here; for fixtures that start one of their own."""
    reason = _why_not_startable()
    if reason is not None:
        pytest.fail(f"{reason}\n{WITHOUT_KAFKA}", pytrace=False)


def _why_not_startable() -> str | None:
    """None if a broker can be started here; else what is missing. Downloads the jars if need be; asked once."""
    if not _startable:
        try:
            java_command()
            kafka_libs()
            _startable.append(None)
        except KafkaUnavailableError as error:
            _startable.append(str(error))
    return _startable[0]


_startable: Final[list[str | None]] = []
