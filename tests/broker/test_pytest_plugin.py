"""The pytest plugin, run by a pytest of its own, as a user's project does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from kip848_client import EmbeddedBroker

TIMEOUT_S: Final = 150

TESTS: Final = """
import socket

import pytest

seen = []

def test_it_serves(kip848_broker):
    kip848_broker.topics.create("orders", partitions=2)
    host, port = kip848_broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    seen.append(kip848_broker)

def test_each_test_has_its_own(kip848_broker):
    assert kip848_broker.topics == {}
    assert not seen[0].running

@pytest.mark.kip848_broker(topics={"users": 3}, config={"group.consumer.session.timeout.ms": "1000"})
def test_the_marker_configures_it(kip848_broker):
    assert kip848_broker.topics == {"users": 3}
    assert kip848_broker.config.coordinator.consumer_session_timeout_ms == 1000
"""

KIT: Final = """
from pathlib import Path

import pytest

from kip848_client.testing import ALWAYS, hold

@pytest.fixture
def after_the_consumers(kip848_broker):
    yield
    assert not tuple(kip848_broker.faults)

def test_a_rule_that_is_left_does_not_hold_up_the_end(after_the_consumers, kip848_broker, kip848_consumer):
    kip848_broker.topics.create("orders")
    consumer = kip848_consumer()
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.01)
    kip848_broker.faults.on("heartbeat", hold(), times=ALWAYS).wait()

def test_consumers_share_a_group_and_are_closed(kip848_broker, kip848_consumer):
    kip848_broker.topics.create("orders", partitions=2)
    kip848_broker.produce_many("orders", ["tea", "milk"])
    a, b = kip848_consumer(group_id="billing"), kip848_consumer(group_id="billing", client_id="b")
    a.subscribe(["orders"]), b.subscribe(["orders"])
    while not a.assignment() or not b.assignment():
        a.poll(0.01), b.poll(0.01)
    assert kip848_broker.wait_for_group("billing", members=2).member("b")

def test_a_topic_of_its_own(kip848_session_broker, kip848_topic, request):
    kip848_session_broker.produce(kip848_topic, "tea")
    assert kip848_session_broker.topics == {kip848_topic: 3}

def test_the_topic_of_the_test_before_is_gone(kip848_session_broker, kip848_topic):
    assert kip848_session_broker.topics == {kip848_topic: 3}
    assert kip848_session_broker.records(kip848_topic) == ()
"""

COST: Final = """
import sys

def test_nothing_was_loaded():
    assert "kip848_client.testing.pytest_plugin" in sys.modules
    kinds = ("confluent_kafka", "kip848_client.testing.broker", "anyio")
    heavy = [name for name in sys.modules if name.startswith(kinds)]
    assert not heavy, heavy
"""


FAILING: Final = """
import pytest
from kip848_client import EmbeddedBroker
from kip848_client.testing.faults import drop, error
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.testing.judge.broker.connection import RawConnection

HEARTBEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)

@pytest.fixture
def my_broker():
    with EmbeddedBroker() as broker:
        yield broker

def test_that_fails(my_broker):
    my_broker.faults.on("heartbeat", error(110), group="g")
    with RawConnection(my_broker.bootstrap_servers, client_id="me") as connection:
        for _ in range(50):
            connection.ask(HEARTBEAT, version=1)
    assert False

def test_with_a_rule_that_is_wrong(kip848_broker):
    kip848_broker.faults.on("heartbeat", drop(), when=lambda request: request.no_such_field)
    with RawConnection(kip848_broker.bootstrap_servers) as connection:
        connection.ask(HEARTBEAT, version=1)
"""


ROOT: Final = Path(__file__).resolve().parents[2]


def run_pytest(
    folder: Path, source: str, *arguments: str, pythonpath: Path | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "test_users_project.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=os.environ | ({"PYTHONPATH": str(pythonpath)} if pythonpath else {}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_fixture_gives_each_test_a_broker_of_its_own_configured_by_its_marker(tmp_path: Path) -> None:
    """The whole promise of the plugin, under strict markers and with warnings as errors."""
    result = run_pytest(
        tmp_path, TESTS, "--strict-markers", "-W", "error", "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:anyio"
    )
    assert "3 passed" in result.stdout, result.stdout + result.stderr


def test_the_kit_has_consumers_topics_and_folders_that_are_kept(tmp_path: Path) -> None:
    """Without these fixtures every test suite would have to write them itself."""
    arguments = ("--kip848-keep=kept", "-W", "error", "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:anyio")
    for _ in range(2):
        result = run_pytest(tmp_path, KIT, *arguments)
        assert "4 passed in" in result.stdout, result.stdout + result.stderr
        assert not result.stderr, "librdkafka's complaints about a broker that is gone"
    name = "test_consumers_share_a_group_and_are_closed"
    assert {name, f"{name}-2"} <= {folder.name for folder in (tmp_path / "kept").iterdir()}
    with EmbeddedBroker(data_dir=tmp_path / "kept" / name) as again:
        assert [record.value for record in again.records("orders")] == [b"tea", b"milk"]


def test_a_failed_test_shows_what_its_broker_was_asked(tmp_path: Path) -> None:
    """The requests usually explain the failure, so users see them without another run."""
    result = run_pytest(tmp_path, FAILING, "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:anyio", pythonpath=ROOT)
    assert "1 failed, 1 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert "my_broker: embedded broker" in result.stdout
    heartbeats = "Heartbeat or ConsumerGroupHeartbeat or ShareGroupHeartbeat"
    assert f"fault rule: {heartbeats} group='g': error FENCED_MEMBER_EPOCH(110)" in result.stdout
    assert "... 10 requests before" in result.stdout
    assert "#50 me: ConsumerGroupHeartbeat v1 group=g member=m epoch=1 -> GROUP_ID_NOT_FOUND(69)" in result.stdout
    assert "IllegalStateError: the fault rule failed" in result.stdout


def test_a_run_without_the_fixture_loads_neither_broker_nor_data_plane(tmp_path: Path) -> None:
    """The plugin is loaded in every pytest run of every project that has the package: it must cost nothing."""
    result = run_pytest(
        tmp_path,
        COST,
        *("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:randomly", "-p", "no:timeout", "-p", "no:hypothesispytest"),
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
