"""``kip848 consume`` as a process in a real group on the embedded broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.support.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from kip848_client import EmbeddedBroker


def produce(broker: EmbeddedBroker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce("orders", f"order {number}".encode(), partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def consume(broker: EmbeddedBroker, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A running command; whatever happens, it is gone afterwards."""
    command = [sys.executable, "-m", "kip848_client", "consume", "orders", "--bootstrap", broker.bootstrap_servers]
    process = subprocess.Popen(
        [*command, "--group", "billing", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_it_prints_what_is_there_commits_it_and_leaves(kip848_broker: EmbeddedBroker) -> None:
    """A second run of the same group must go on where the first one stopped."""
    kip848_broker.topics.create("orders", partitions=2)
    produce(kip848_broker, 4)
    with consume(kip848_broker, "--from", "beginning", "--max", "4") as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert sorted(output.splitlines()) == ["order 0", "order 1", "order 2", "order 3"]
    assert "% assigned orders-0, orders-1 (member epoch 1)" in errors
    assert "% revoked orders-0, orders-1" in errors
    kip848_broker.wait_for_group("billing", state="Empty", members=0)
    produce(kip848_broker, 2)
    with consume(kip848_broker, "--from-beginning", "--max", "2", "--json", "--quiet") as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    records = [json.loads(line) for line in output.splitlines()]
    assert sorted((record["partition"], record["offset"]) for record in records) == [(0, 2), (1, 2)]
    assert errors == ""


def test_a_signal_makes_it_leave_the_group(kip848_broker: EmbeddedBroker) -> None:
    """A member that ends without leaving would keep its partitions for the whole session timeout."""
    kip848_broker.topics.create("orders", partitions=2)
    with consume(kip848_broker) as process:
        kip848_broker.wait_for_group("billing", state="Stable", members=1, timeout_s=TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    kip848_broker.wait_for_group("billing", state="Empty", members=0)


def test_a_reader_that_goes_away_ends_it_without_a_traceback(kip848_broker: EmbeddedBroker) -> None:
    """``kip848 consume orders ... | head`` is an ordinary thing to type."""
    kip848_broker.topics.create("orders", partitions=2)
    with consume(kip848_broker, "--from-beginning") as process:
        assert process.stdout is not None
        kip848_broker.wait_for_group("billing", state="Stable", members=1, timeout_s=TIMEOUT_S)
        process.stdout.close()
        produce(kip848_broker, 4)
        assert process.stderr is not None
        errors = process.stderr.read()
    assert "Traceback" not in errors
    kip848_broker.wait_for_group("billing", state="Empty", members=0)


def test_a_broker_that_is_not_there_is_named_and_waited_for(kip848_broker: EmbeddedBroker) -> None:
    """A wrong port is the first mistake that everybody makes; silence would not tell."""
    kip848_broker.topics.create("orders", partitions=2)
    kip848_broker.stop()
    with consume(kip848_broker) as process:
        assert process.stderr is not None
        complaint = process.stderr.readline()
        kip848_broker.start()
        kip848_broker.wait_for_group("billing", state="Stable", members=1, timeout_s=TIMEOUT_S)
    assert f"no connection to {kip848_broker.bootstrap_servers}: Connection refused" in complaint
