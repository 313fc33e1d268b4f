"""Columns of Spark's SQL for questions over all groups. The figures of one group: `tools.report.figures`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column


def percentiles_of(column: str, where: str = "true") -> Column:
    """A struct of count, p50_ms, p90_ms, p99_ms, max_ms; nearest rank, so that each is a duration that was seen."""
    shares = ", ".join(
        f"'{name}', percentile_disc({share}) within group (order by {column}) filter (where {where})"
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99))
    )
    return sf.expr(
        f"named_struct('count', count({column}) filter (where {where}), {shares}, "
        f"'max_ms', max({column}) filter (where {where}))"
    )


def cause_of(reasons: str) -> Column:
    """Why a rebalance began, by the name of its column of reasons, as `kip848_client.tools.report.periods.cause_of`."""
    cause = sf.regexp_replace(sf.substring_index(sf.get(sf.col(reasons), sf.lit(0)), " (", 1), "_", " ")
    return sf.when(sf.length(cause) > 0, cause).otherwise("unknown")
