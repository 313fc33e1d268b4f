"""What importing a consumer loads: only what every consumer uses. How long that takes: benchmarks/imports.py."""

from __future__ import annotations

import subprocess
import sys

WHEN_NEEDED = {
    "kip848_client.aio",
    "kip848_client.broker",
    "kip848_client.client.credentials",
    "kip848_client.coordinator",
    "kip848_client.member.classic_group",
    "kip848_client.simulation",
    "kip848_client.wire.authentication",
    "kip848_client.wire.explain",
    "kip848_client.wire.sasl_scram",
    "kip848_client.wire.session",
    "kip848_client.wire.tls",
    "anyio.streams.tls",
    "json",
    "opentelemetry",
    "tempfile",
    "tenacity",
}
"""Modules for a first login, encrypted connection, retry, wrong value, event loop, broker or classic group."""

PROGRAM = """
import sys
import confluent_kafka
theirs = set(sys.modules)
import kip848_client
kip848_client.Consumer
print("\\n".join(set(sys.modules) - theirs))
"""


def test_a_consumer_loads_nothing_that_a_plain_one_does_not_need() -> None:
    """Command lines and workers start with this import; whatever slips into it is paid for by every one of them."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "kip848_client.consumer" in loaded
    assert not loaded & WHEN_NEEDED
