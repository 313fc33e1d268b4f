"""A cluster that takes the place of another at the same addresses."""

from __future__ import annotations

import threading

import pytest

from kip848_client import Consumer, EmbeddedBroker, OwnedUnit, Worker
from kip848_client.errors import OtherClusterError
from tests.support.driving import QUIET
from tests.support.waiting import wait_until


def test_a_consumer_does_not_read_in_a_cluster_that_took_the_place_of_its_own() -> None:
    """Its positions are of the old cluster: it would leave records out, or read some twice, without a word."""
    read: list[bytes | None] = []
    with EmbeddedBroker({"orders": 1}) as old:
        port = old.port
        old.produce("orders", value=b"old")
        consumer = Consumer(
            {"bootstrap.servers": old.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.subscribe(["orders"])

        def poll() -> bool:
            message = consumer.poll(0.1)
            read.extend([message.value()] if message is not None else ())
            return bool(read)

        wait_until(poll, 30)
    with EmbeddedBroker({"orders": 1}, port=port) as new:
        new.produce("orders", value=b"new")
        with pytest.raises(OtherClusterError, match="lead to cluster"):
            wait_until(lambda: consumer.poll(0.1) is not None, 30)
        consumer.close()
    assert read == [b"old"]


def test_a_worker_ends_if_another_cluster_took_the_place_of_its_own() -> None:
    """There its units may run at other workers: each would run twice, without a word."""
    conf = {"group.id": "jobs", "request.timeout.ms": "1000"}
    with EmbeddedBroker(connect_groups=True) as old:
        port = old.port
        worker = Worker({"bootstrap.servers": old.bootstrap_servers, **conf}, units=["a"])

        @worker.runner
        def run(_unit: OwnedUnit, stop: threading.Event) -> None:
            stop.wait()

        worker.start()
        wait_until(lambda: len(worker.assignment()) == 1)
    with EmbeddedBroker(connect_groups=True, port=port) as new:
        with pytest.raises(OtherClusterError, match="lead to cluster"):
            worker.wait()
        assert new.groups.get("jobs") is None
        worker.close()
