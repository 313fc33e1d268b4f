"""What the command line shows of workers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip848_client import Consumer, EmbeddedBroker, Worker
from kip848_client.cli import main
from kip848_client.testing import ApiKey, delay
from tests.support.waiting import wait_until


def test_groups_lists_and_describes_workers(capsys: pytest.CaptureFixture[str]) -> None:
    """Scenario 75: an operator sees which process runs a unit, and with which token."""
    with EmbeddedBroker(connect_groups=True) as broker:
        bootstrap = broker.bootstrap_servers
        conf = {"bootstrap.servers": bootstrap, "group.id": "feeds", "worker.id": "w1"}
        with Worker(conf, units=["eurusd", "gbpusd"], on_assigned=lambda *_: None) as worker:
            wait_until(lambda: len(worker.assignment()) == 2)
            assert main(["groups", "list", "--bootstrap", bootstrap]) == 0
            assert main(["groups", "describe", "feeds", "--bootstrap", bootstrap]) == 0
            shown = capsys.readouterr().out
            assert main(["groups", "describe", "feeds", "--bootstrap", bootstrap, "--json"]) == 0
            (group,) = json.loads(capsys.readouterr().out)["groups"]

    assert "feeds  connect  Stable" in shown
    assert "connect group feeds: Stable, epoch 1, assignor uniform" in shown
    assert "eurusd  w1" in shown
    wanted = {"unit": "gbpusd", "owner": "w1", "token": 1, "target": "w1", "deferred": False, "since_ms": None}
    assert group["units"][1] == wanted


@pytest.fixture
def fleet() -> Iterator[tuple[str, list[Worker]]]:
    """Bootstrap servers, and two workers of a classic group that share four units."""
    with EmbeddedBroker() as broker, ExitStack() as stack:
        workers = []
        for name in ("w1", "w2"):
            conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "feeds", "worker.id": name}
            settings = {"heartbeat.interval.ms": 50, "client.id": f"client-{name}"}
            worker = Worker({**conf, **settings}, units=["a", "b", "c", "d"], on_assigned=lambda *_: None)
            workers.append(stack.enter_context(worker))
            wait_until(lambda: all(len(one.assignment()) == 4 // len(workers) for one in workers))
        yield broker.bootstrap_servers, workers


def test_workers_describe_says_who_runs_what_since_when(
    fleet: tuple[str, list[Worker]], capsys: pytest.CaptureFixture[str]
) -> None:
    """On Apache Kafka no other tool can read what workers tell each other."""
    bootstrap, (first, second) = fleet
    assert main(["workers", "describe", "feeds", "--bootstrap", bootstrap, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    tokens = {owned.name: owned.token for one in (first, second) for owned in one.assignment()}
    assert {unit["unit"]: unit["token"] for unit in group["units"]} == tokens
    assert {unit["unit"]: unit["owner"] for unit in group["units"]} == {
        owned.name: one.worker_id for one in (first, second) for owned in one.assignment()
    }
    assert all(0 <= time.time() * 1000 - unit["since_ms"] < 60_000 for unit in group["units"])
    assert [(one["worker_id"], one["client_id"]) for one in group["workers"]] == [
        ("w1", "client-w1"),
        ("w2", "client-w2"),
    ]

    assert main(["workers", "describe", "feeds", "none", "--bootstrap", bootstrap]) == 1
    shown = capsys.readouterr()
    assert "classic group feeds: Stable, assignor uniform" in shown.out
    assert re.search(r"^a +w\d +\d{4}-\d\d-\d\d [\d:]+ \(.*\) +[\d,]+$", shown.out, re.MULTILINE)
    assert "group 'none'" in shown.err


def test_workers_drain_empties_one_process(fleet: tuple[str, list[Worker]], capsys: pytest.CaptureFixture[str]) -> None:
    """An operator empties a process before maintenance, without access to its code."""
    bootstrap, (first, second) = fleet
    assert main(["workers", "drain", "feeds", "w1", "w9", "--bootstrap", bootstrap]) == 1
    shown = capsys.readouterr()
    assert shown.out == "w1 runs no units any more\n"
    assert "worker 'w9' is not in group 'feeds'; there are: w1, w2" in shown.err
    assert not first.assignment()
    wait_until(lambda: len(second.assignment()) == 4)
    assert main(["workers", "describe", "feeds", "--bootstrap", bootstrap]) == 0
    assert re.search(r"^w1 .* 0 +draining", capsys.readouterr().out, re.MULTILINE)

    assert main(["workers", "drain", "feeds", "w2", "--bootstrap", bootstrap]) == 0
    assert "every worker is drained: 4 units run nowhere" in capsys.readouterr().err


def test_workers_drain_tells_again_who_has_not_heard(capsys: pytest.CaptureFixture[str]) -> None:
    """The command leaves with its answer, and the SyncGroup of a slow worker is refused: a new round has begun."""
    with EmbeddedBroker() as broker, ExitStack() as stack:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "feeds", "heartbeat.interval.ms": 50}
        for name in ("w1", "w2"):
            names = {"worker.id": name, "client.id": name}
            worker = stack.enter_context(Worker(conf | names, units=["a", "b"], on_assigned=lambda *_: None))
            wait_until(worker.assignment)
        broker.wait_for_group("feeds", state="Stable", members=2)
        slow = broker.faults.on(ApiKey.SYNC_GROUP, delay(300), client_id="w2")
        assert main(["workers", "drain", "feeds", "w2", "--bootstrap", broker.bootstrap_servers]) == 0
        assert slow.hits
        assert not worker.assignment()
    assert capsys.readouterr().out == "w2 runs no units any more\n"


def test_workers_drain_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    """In a connect group only the worker itself can ask for it; a group of consumers has no workers."""
    with EmbeddedBroker({"orders": 1}, connect_groups=True) as broker:
        bootstrap = broker.bootstrap_servers
        conf = {"bootstrap.servers": bootstrap, "group.id": "feeds", "worker.id": "w1"}
        with Worker(conf, units=["a"], on_assigned=lambda *_: None) as worker:
            wait_until(lambda: bool(worker.assignment()))
            assert main(["workers", "drain", "feeds", "w1", "--bootstrap", bootstrap]) == 1
        with Consumer({"bootstrap.servers": bootstrap, "group.id": "kitchen"}) as consumer:
            consumer.subscribe(["orders"])
            while not consumer.assignment():
                consumer.poll(0.1)
            assert main(["workers", "describe", "kitchen", "--bootstrap", bootstrap]) == 1
    errors = capsys.readouterr().err
    assert "call worker.drain() there" in errors
    assert "group 'kitchen' is not one of workers, but consumer" in errors
