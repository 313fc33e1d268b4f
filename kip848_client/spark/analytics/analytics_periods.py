"""Compares periods of an analysis, as `kip848_client.tools.report.periods` counts them, in Spark's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from kip848_client.spark.analytics.analytics import Analysis
from kip848_client.spark.analytics.analytics_columns import cause_of, percentiles_of
from kip848_client.tools.report.figures import Percentiles
from kip848_client.tools.report.periods import CAUSES, WORST, Comparison, GroupPeriods, Period, PeriodFigures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_NONE = Percentiles(0, None, None, None, None)


def compare_periods(analysis: Analysis, periods: Sequence[Period]) -> Comparison:
    """Count what began in each of *periods*."""
    rebalances = _in_periods(analysis.rebalances, "start_ms", periods)
    changes = _in_periods(analysis.changes, "start_ms", periods)
    left = _in_periods(analysis.ownership.where("next_owner is not null"), "end_ms", periods)
    rebalanced = _by_period(
        rebalances.groupBy("period").agg(
            sf.count_distinct("group_id").alias("groups"), sf.count("*").alias("n"), percentiles_of("ms").alias("took")
        )
    )
    changed = _by_period(changes.groupBy("period").agg(percentiles_of("ms").alias("took")))
    moved = _by_period(
        left.groupBy("period").agg(
            percentiles_of("gap_ms", "gap_ms > 0").alias("gap"),
            sf.coalesce(sf.sum("gap_ms"), sf.lit(0.0)).alias("gap_ms"),
            sf.count_if(sf.expr("next_owner <> owner")).alias("moves"),
            sf.count_if(sf.expr("next_owner = owner")).alias("bounces"),
        )
    )
    causes: dict[int, dict[str, int]] = {}
    frequent = sf.sort_array(sf.collect_list(sf.struct((-sf.col("n")).alias("less"), sf.col("cause"))), asc=True)
    counted = rebalances.groupBy("period", cause_of("reasons").alias("cause")).agg(sf.count("*").alias("n"))
    for row in counted.groupBy("period").agg(sf.slice(frequent, 1, CAUSES).alias("most")).collect():
        causes[row["period"]] = {each["cause"]: -each["less"] for each in row["most"]}
    return Comparison(
        [
            PeriodFigures(
                start_ms=period.start_ms,
                end_ms=period.end_ms,
                groups=_of(rebalanced, index, "groups", 0),
                rebalances=_of(rebalanced, index, "n", 0),
                rebalance=_spread(rebalanced, index, "took"),
                change=_spread(changed, index, "took"),
                without_reader=_spread(moved, index, "gap"),
                without_reader_ms=_of(moved, index, "gap_ms", 0.0),
                moves=_of(moved, index, "moves", 0),
                bounces=_of(moved, index, "bounces", 0),
                causes=causes.get(index, {}),
            )
            for index, period in enumerate(periods)
        ],
        _groups(rebalances, left, len(periods)),
    )


def _in_periods(table: DataFrame, column: str, periods: Sequence[Period]) -> DataFrame:
    """A row for each period that *column* is in, with its number as `period`; periods may overlap."""
    at = sf.col(column)
    numbers = [sf.when((at >= each.start_ms) & (at < each.end_ms), sf.lit(index)) for index, each in enumerate(periods)]
    return table.withColumn("period", sf.explode(sf.array_compact(sf.array(*numbers))))


def _groups(rebalances: DataFrame, left: DataFrame, count: int) -> list[GroupPeriods]:
    """The groups, beginning with those whose time without a reader differs most between first and last period."""
    counted = rebalances.groupBy("group_id").agg(
        *(sf.count_if(sf.col("period") == index).alias(f"n{index}") for index in range(count))
    )
    gaps = left.groupBy("group_id").agg(
        *(
            sf.coalesce(sf.sum(sf.when(sf.col("period") == index, sf.col("gap_ms"))), sf.lit(0.0)).alias(f"gap{index}")
            for index in range(count)
        )
    )
    joined = counted.join(gaps, "group_id", "left").na.fill(0.0, [f"gap{index}" for index in range(count)])
    differs = sf.abs(sf.col(f"gap{count - 1}") - sf.col("gap0"))
    return [
        GroupPeriods(
            row["group_id"],
            [row[f"n{index}"] for index in range(count)],
            [row[f"gap{index}"] for index in range(count)],
        )
        for row in joined.orderBy(differs.desc(), "group_id").limit(WORST).collect()
    ]


def _by_period(table: DataFrame) -> dict[int, Row]:
    return {row["period"]: row for row in table.collect()}


def _of(rows: dict[int, Row], index: int, name: str, otherwise: Any) -> Any:
    return rows[index][name] if index in rows else otherwise


def _spread(rows: dict[int, Row], index: int, name: str) -> Percentiles:
    return Percentiles(*rows[index][name]) if index in rows else _NONE
