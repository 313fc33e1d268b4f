"""What the command line shows of workers."""

from __future__ import annotations

import json

import pytest

from kip848_client import EmbeddedBroker, Worker
from kip848_client.cli import main
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
    assert group["units"][1] == {"unit": "gbpusd", "owner": "w1", "token": 1, "target": "w1", "deferred": False}
