"""The plays of `kip848_client.testing.simulation.what_if` on Spark, in the order in which they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kip848_client.testing.simulation.what_if import Job, Shape, WhatIfOutcome, play_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def play_on_spark(spark: SparkSession, shape: Shape, jobs: Sequence[Job]) -> list[WhatIfOutcome]:
    """Play each of *jobs* with a group of *shape*."""
    slices = max(1, min(len(jobs), 8 * spark.sparkContext.defaultParallelism))
    return spark.sparkContext.parallelize(jobs, slices).map(lambda job: play_job(shape, job)).collect()
