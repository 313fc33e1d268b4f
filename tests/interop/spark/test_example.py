"""The Spark example does what its docstring says: two queries, one group, sums that equal the data set."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.quick import quick_environment

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark_job.py"
TIMEOUT_S = 280


@pytest.mark.slow
@pytest.mark.kafka  # needs no broker, but minutes: it runs with the slow ones
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_two_queries_count_each_flight_once(tmp_path: Path) -> None:
    """The first thing that somebody with Spark tries."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--flights", "20000"],
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
