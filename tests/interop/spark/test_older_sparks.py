"""Spark 4.0, 4.1 and 4.2, each in its own PySpark: what works there does, and what cannot says which version can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from tests.spark.arrange import committed, produce
from tests.spark.quick import quick_environment
from tests.spark.sinks import seen

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kip848_client"
ROOT = Path(__file__).resolve().parents[3]


def installed(version: str) -> Path:
    """A folder with this PySpark, fetched if it is not there yet (400 MB)."""
    folder = CACHE / f"pyspark-{version}"
    if not folder.exists():
        part = folder.with_name(f"{folder.name}-{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(part), f"pyspark=={version}"]
        subprocess.run(pip, check=True)
        part.rename(folder)
    return folder


@pytest.mark.parametrize(
    ("version", "writing"),
    [("4.0.1", "writing a stream needs Spark 4.1 or newer, and this is 4.0.1"), ("4.1.1", ""), ("4.2.1", "")],
)
def test_batches_and_streams_are_read_and_a_sink_says_which_version_can(
    version: str, writing: str, tmp_path: Path
) -> None:
    """Clusters are seldom on the newest Spark; a traceback about a missing module does not tell what to do."""
    environment = quick_environment(tmp_path / "conf")
    environment["PYTHONPATH"] = f"{installed(version)}{os.pathsep}{ROOT}"
    with EmbeddedBroker({"orders": 2, "out": 1}) as broker:
        produce(broker.bootstrap_servers, "orders", 10, partitions=2, headers=[("h", b"1")])
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/interop/spark/older_spark.py"), broker.bootstrap_servers],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        told = json.loads(done.stdout.splitlines()[-1])
        written = seen(broker.bootstrap_servers)
        broker.wait_for_group("g", members=0)
        committed_now = committed(broker, group="g")

    assert told["version"] == version
    assert told["rows"] == [[p, at, f"{p}:{at}"] for p in range(2) for at in range(10)]
    assert told["few"] == [[1, at] for at in range(4, 10)]
    assert told["stream"] == [[p, at, 1] for p in range(2) for at in range(30)]
    assert committed_now == {0: 30, 1: 30}
    assert writing in told["writing"]
    lines = [] if writing else ["one", "two"]
    assert written == Counter([*lines, *(f"{p}:{at}" for p in range(2) for at in range(10))])
