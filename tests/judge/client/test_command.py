"""``kip848 judge client``: clients in processes of their own, one that does well and others that do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main

GOOD: Final = """
import signal, sys
from kip848_client import Consumer
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
with Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "client.id": "mine"}) as consumer:
    consumer.subscribe(["orders"])
    while not over:
        consumer.poll(0.1)
"""
BAD: Final = """
import os, sys
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
with RawConnection(os.environ["KIP848_BOOTSTRAP_SERVERS"], client_id="mine") as connection:
    connection.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), version=1)
    sys.stdin.read()
"""


def judge(*arguments: str, script: str, words: tuple[str, ...] = ()) -> int:
    return main(["judge", "client", "--topic", "orders:2", *arguments, "--", sys.executable, "-c", script, *words])


def test_a_client_that_keeps_the_rules_passes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A CI job of a client's project: one command, its exit status and a file that the server reads."""
    page = tmp_path / "judged.xml"
    arguments = ("--scenario", "fenced", "--scenario", "topic-grows", "--json", "--junit", str(page))
    assert judge(*arguments, script=GOOD, words=("{bootstrap}",)) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["facts"]["scenario fenced"] == report["facts"]["scenario topic-grows"] == "played"
    assert {"R10", "R57"} <= {f"R{one['rule']}" for one in report["verdicts"] if one["outcome"] == "holds"}
    assert 'failures="0"' in page.read_text(encoding="utf-8")


@pytest.mark.kip848_broker(topics={"orders": 2})
def test_clients_of_another_cluster_are_judged_through_the_proxy(
    broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client of a cluster that runs already, at its own broker or a vendor's."""
    arguments = ("--upstream", broker.bootstrap_servers, "--scenario", "fenced", "--scenario", "topic-grows", "--json")
    status = main(["judge", "client", *arguments, "--", sys.executable, "-c", GOOD, "{bootstrap}"])
    report = json.loads(capfd.readouterr().out)
    assert (status, report["facts"]["scenario fenced"]) == (0, "played")
    assert "as they are" in report["facts"]["scenario topic-grows"]
    assert broker.topics["orders"] == 2


def test_the_first_broken_rule_ends_the_client_and_is_told_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    """Who wrote the client reads which request was wrong, and why."""
    assert judge(script=BAD) == 1
    told = capfd.readouterr().out
    assert "R10 is broken" in told
    assert "a join without RebalanceTimeoutMs and SubscribedTopicNames" in told
    assert "mine (m) of g -> broker: heartbeat: epoch 0 (join)" in told


def test_a_client_that_joins_nothing_was_not_judged(capfd: pytest.CaptureFixture[str]) -> None:
    """Silence must not look like success."""
    assert judge(script="") == 3
    assert "0 hold" in capfd.readouterr().out


def test_a_command_that_is_not_there_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """A typing error is no broken rule."""
    assert main(["judge", "client", "--", "no-such-program-at-all"]) == 1
    assert "kip848 judge: no-such-program-at-all cannot be started" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "9092"], "is not HOST:PORT"),
        (["--upstream", "127.0.0.1:1", "--topic", "orders:1"], "the cluster is another's"),
        (["--ignore", "R1"], "not a rule that is judged"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before a client is started."""
    assert main(["judge", "client", *arguments]) == 1
    assert message in capfd.readouterr().err
