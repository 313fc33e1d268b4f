"""The pytest plugin, run by a pytest of its own, as a user's project does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 50

TESTS: Final = """
import socket

import pytest

seen = []

def test_it_serves(kip848_broker):
    kip848_broker.create_topic("orders", partitions=2)
    host, port = kip848_broker.bootstrap_servers.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    seen.append(kip848_broker)

def test_each_test_has_its_own(kip848_broker):
    assert kip848_broker.topics() == {}
    assert not seen[0].running

@pytest.mark.kip848_broker(topics={"users": 3}, config={"group.consumer.session.timeout.ms": "1000"})
def test_the_marker_configures_it(kip848_broker):
    assert kip848_broker.topics() == {"users": 3}
    assert kip848_broker.config.coordinator.consumer_session_timeout_ms == 1000
"""

COST: Final = """
import sys

def test_nothing_was_loaded():
    assert "kip848_client.pytest_plugin" in sys.modules
    heavy = [name for name in sys.modules if name.startswith(("confluent_kafka", "kip848_client.broker", "asyncio"))]
    assert not heavy, heavy
"""


def run_pytest(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_users_project.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
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


def test_a_run_without_the_fixture_loads_neither_broker_nor_data_plane(tmp_path: Path) -> None:
    """The plugin is loaded in every pytest run of every project that has the package: it must cost nothing."""
    result = run_pytest(
        tmp_path,
        COST,
        *("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:randomly", "-p", "no:timeout", "-p", "no:hypothesispytest"),
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
