"""The Spark examples do what their docstrings say."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kip848_client.broker import EmbeddedBroker
from tests.spark.arrange import committed, produce
from tests.spark.quick import quick_environment
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TIMEOUT_S = 280


@pytest.mark.slow
@pytest.mark.kafka  # needs no broker, but minutes: it runs with the slow ones
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_two_queries_count_each_flight_once(tmp_path: Path) -> None:
    """The first thing that a Spark user tries."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_job.py"), "--flights", "20000"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=quick_environment(tmp_path / "conf"),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"query-1 counted ([\d,]+) flights, query-2 ([\d,]+)", done.stdout)
    assert counted
    parts = [int(text.replace(",", "")) for text in counted.groups()]
    assert sum(parts) == 20_000
    assert parts[1] > 2_000, "the second query took its half"
    assert "lag of the group 0" in done.stdout
    assert "none lost, none twice" in done.stdout


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_a_signal_ends_a_service_between_two_batches(tmp_path: Path) -> None:
    """What a supervisor does on each release; the program itself must get the signal, and not its JVM."""
    with EmbeddedBroker({"orders": 2}) as broker:
        arguments = ["--bootstrap", broker.bootstrap_servers, "--group", "g", "--topic", "orders"]
        produce(broker.bootstrap_servers, "orders", 50, partitions=2)
        with subprocess.Popen(
            [sys.executable, str(EXAMPLES / "spark_service.py"), *arguments, "--folder", str(tmp_path / "out")],
            env=quick_environment(tmp_path / "conf"),
        ) as service:
            try:
                wait_until(lambda: committed(broker, group="g") == {0: 50, 1: 50}, TIMEOUT_S)
                assert (tmp_path / "out" / "pid").read_text() == str(service.pid)
                service.send_signal(signal.SIGTERM)
                assert service.wait(TIMEOUT_S) == 0
            finally:
                service.kill()
        assert not broker.wait_for_group("g", members=0, timeout_s=1).members
