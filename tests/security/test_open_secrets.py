"""A password or token that crosses connections as it is, and a cluster that names brokers elsewhere."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from kip848_client import Consumer
from kip848_client.config import parse_consumer_config
from kip848_client.errors import AuthenticationError, ConfigError
from kip848_client.network import connection_opener
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.spark.source.fetch import data_plane
from kip848_client.spark.values.options import parse_options

PLAIN: Final[dict[str, Any]] = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "g",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "canary",
}
ALLOWED: Final = "kip848.allow.unencrypted.credentials"
REMOTE: Final = "kafka.example"


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hosts that connections were opened to."""
    hosts: list[str] = []

    async def connect(host: str, port: int, **_: object) -> None:
        hosts.append(host)

    monkeypatch.setattr(connection_opener, "connect", connect)
    return hosts


def dial(host: str, conf: dict[str, Any]) -> None:
    """Open a connection of the control plane."""

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            opener = ConnectionOpener(parse_consumer_config(conf))
            await opener(host=host, port=9092, timeout_ms=1_000, tasks=tasks)

    try:
        anyio.run(run)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


@pytest.mark.parametrize("host", [REMOTE, "192.0.2.1", "2001:db8::1"])
def test_a_broker_elsewhere_that_the_cluster_names_is_not_dialled(host: str, dialled: list[str]) -> None:
    """A tunnel to a cluster looks like this machine, until it names its brokers; one of them would get the password."""
    with pytest.raises(AuthenticationError, match=rf"{host}.*nothing was sent.*{ALLOWED}") as refused:
        dial(host, PLAIN)
    assert "canary" not in str(refused.value)
    assert dialled == []


@pytest.mark.parametrize(
    ("host", "changes"),
    [
        ("127.0.0.1", {}),
        ("localhost", {}),
        ("::1", {}),
        (REMOTE, {ALLOWED: "true"}),
        (REMOTE, {"sasl.mechanism": "SCRAM-SHA-256"}),
        (REMOTE, {"security.protocol": "sasl_ssl"}),
    ],
)
def test_others_are_dialled(host: str, changes: dict[str, Any], dialled: list[str]) -> None:
    """Brokers on this machine, secrets that are proven and not shown, encrypted connections, and what was allowed."""
    dial(host, PLAIN | changes)
    assert dialled == [host]


def test_librdkafka_is_not_given_a_secret_that_it_would_show_to_anybody() -> None:
    """It logs in to every broker of the metadata, and gives us no place to check the address."""
    with pytest.raises(ConfigError, match=rf"every broker that the cluster names.*{ALLOWED}=true"):
        Consumer(PLAIN)
    with Consumer(PLAIN | {ALLOWED: "true"}) as consumer:
        assert consumer.assignment() == []


def test_nor_is_that_of_a_spark_task() -> None:
    """Tasks read through librdkafka as well, on machines that the driver does not see."""
    settings = {f"kafka.{key}": value for key, value in PLAIN.items() if key != "group.id"}
    options = parse_options(settings | {"subscribe": "orders", "kafka.group.id": "g"}, streaming=True)
    with pytest.raises(ConfigError, match="every broker that the cluster names"):
        data_plane(options)
