"""The traces of a whole sweep, analyzed: every rebalance that the runs counted is in the tables. Slow; no broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kip848_client.spark.analytics import analyze_sweep
from kip848_client.spark.sweep import Sweep, play_sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_traces_of_a_sweep_can_be_analyzed(spark: SparkSession, tmp_path: Path) -> None:
    """Thousands of runs are asked the questions that one log is asked."""
    runs = play_sweep(spark, Sweep("mixed", range(8), traces="all"), tmp_path / "sweep")
    ended = analyze_sweep(runs).rebalances.where("ms is not null")
    counted = {row["group_id"]: row["count"] for row in ended.groupBy("group_id").count().collect()}

    assert counted == {
        f"mixed-{row['seed']}": len(row["rebalances"]) for row in runs.select("seed", "rebalances").collect()
    }
