"""Brokers that cannot be reached, from the driver's side: the error names the address, and comes when it was to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import AuthenticationError, Kip848Error
from kip848_client.spark.source.batch import plan_batch
from kip848_client.spark.source.fetch import log_offsets
from kip848_client.spark.values.options import parse_options
from kip848_client.testing import BrokerSasl, BrokerTls
from tests.security.certificates import Authority
from tests.spark.arrange import driving, options
from tests.support.waiting import wait_until

SOON = {"kafka.default.api.timeout.ms": 300}


@pytest.fixture
def closed_address() -> Iterator[str]:
    """An address without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"subscribe": None, "subscribePattern": "orders.*"},
        {"subscribe": None, "assign": '{"orders":[0]}'},
        {"subscribe": None, "assign": '{"orders":[0]}', "startingOffsets": "earliest", "kafka.group.id": None},
    ],
)
def test_a_stream_without_a_broker_fails_and_names_the_address(
    closed_address: str, changed: Mapping[str, object]
) -> None:
    """A mistyped address is the first mistake of all; a query that waits for ever in silence does not tell."""
    with pytest.raises(Kip848Error, match=rf"{closed_address}.*(Connection refused|Check that a broker)"):
        with driving(closed_address, {**SOON, **changed}) as driver:
            driver.plan()


def test_a_batch_without_a_broker_fails_and_names_the_address(closed_address: str) -> None:
    """The error names the address and the settings to check, so that the user need not guess."""
    tried_for_long = {"kafka.default.api.timeout.ms": 1_500}  # so that the last attempt is refused, and not too late
    chosen = parse_options(options(closed_address, tried_for_long, streaming=False), streaming=False)
    with pytest.raises(
        Kip848Error,
        match=rf"no broker answered in \d+ s; bootstrap.servers is {closed_address}.*refused.*security.protocol is",
    ):
        plan_batch(chosen)


def test_a_refusal_is_told_as_soon_as_it_is_known(tmp_path: Path) -> None:
    """Trying a wrong password again and again locks accounts; and the time-out is for what may still come."""
    authority = Authority(tmp_path)
    server = authority.issue("server", "localhost", "127.0.0.1")
    sasl = BrokerSasl({"alice": "secret"}, ("PLAIN",))
    wrong = {
        "kafka.default.api.timeout.ms": 3_600_000,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": authority.ca_file,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "wrong",
    }
    with EmbeddedBroker({"orders": 1}, tls=BrokerTls(server.certificate, server.key), sasl=sasl) as broker:
        chosen = parse_options(options(broker.bootstrap_servers, wrong, streaming=False), streaming=False)
        with pytest.raises(AuthenticationError, match=rf"{broker.bootstrap_servers} refused user 'alice'"):
            plan_batch(chosen)


def test_a_broker_that_comes_later_is_waited_for() -> None:
    """A cluster and its jobs are started together."""
    with EmbeddedBroker() as before:
        address = before.bootstrap_servers
    late = {"kafka.default.api.timeout.ms": 240_000, "kafka.reconnect.backoff.max.ms": 200}
    chosen = parse_options(options(address, late, streaming=False), streaming=False)
    found: list[Mapping[str, int]] = []
    log = log_offsets(chosen)
    asking = threading.Thread(target=lambda: found.append(log.partition_counts(["orders"])))
    asking.start()
    with EmbeddedBroker({"orders": 3}, port=int(address.partition(":")[2])):
        wait_until(lambda: found or not asking.is_alive(), 300.0)
    asking.join()
    log.close()

    assert found == [{"orders": 3}]


@pytest.mark.parametrize("text", ["soon", "0"])
def test_a_timeout_that_is_none_is_refused(text: str) -> None:
    """A wrong time-out is refused by its name before any broker is asked."""
    with pytest.raises(Kip848Error, match=r"kafka\.default\.api\.timeout\.ms"):
        parse_options(options("h:1", {"kafka.default.api.timeout.ms": text}), streaming=True)
