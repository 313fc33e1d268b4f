"""The summary of a sweep: runs, faults, broken invariants, and durations of rebalances by group size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as sf

from kip848_client.errors import Kip848Error

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_FAILURES_MAX: Final = 20
_SHARES: Final = (0.5, 0.9, 0.99, 1.0)


class Broken(msgspec.Struct, frozen=True):
    """A run in which an invariant broke, and the command that plays it again."""

    seed: int
    invariant: str
    message: str
    replay: str


class RebalanceTimes(msgspec.Struct, frozen=True):
    """Times of all rebalances that ended with so many members, in virtual milliseconds."""

    members: int
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class SweepSummary(msgspec.Struct, frozen=True):
    """Everything. `broken` has the first ones; `broken_count` is the number of all."""

    runs: int
    events: int
    faults: int
    simulated_ms: int
    handed_out_twice: int
    broken_count: int
    broken: tuple[Broken, ...]
    counts: dict[str, int]
    rebalances: tuple[RebalanceTimes, ...]

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        return plain


def summarize(runs: DataFrame) -> SweepSummary:
    """Read all runs of a sweep (`kip848_client.spark.sweeps.sweep.play_sweep`) and count."""
    totals = runs.agg(
        sf.count("*").alias("runs"),
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in _SUMMED),
        sf.count("invariant").alias("broken"),
    ).first()
    assert totals is not None, "an aggregate without groups has one row"
    broken = runs.where("invariant is not null").orderBy("seed").limit(_FAILURES_MAX)
    counts = (
        runs.select(sf.explode("counts").alias("what", "times")).groupBy("what").agg(sf.sum("times").alias("times"))
    )
    times = (
        runs.select(sf.explode("rebalances").alias("one"))
        .groupBy("one.members")
        .agg(sf.count("*").alias("count"), sf.percentile_approx("one.ms", list(_SHARES), 100_000).alias("ms"))
        .orderBy("members")
    )
    return SweepSummary(
        runs=totals["runs"],
        events=totals["events"],
        faults=totals["faults"],
        simulated_ms=totals["simulated_ms"],
        handed_out_twice=totals["handed_out_twice"],
        broken_count=totals["broken"],
        broken=tuple(Broken(row["seed"], row["invariant"], row["message"], row["replay"]) for row in broken.collect()),
        counts={row["what"]: row["times"] for row in counts.orderBy("what").collect()},
        rebalances=tuple(RebalanceTimes(row["members"], row["count"], *row["ms"]) for row in times.collect()),
    )


_SUMMED: Final = ("events", "faults", "simulated_ms", "handed_out_twice")


def plot_rebalances(summary: SweepSummary, path: Path) -> None:
    """Draw the rebalance times by group size (``.png`` or ``.svg``).

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    from kip848_client.tools.report.pictures.png import plot_lines  # needs matplotlib, an extra

    shown = [times for times in summary.rebalances if times.members]
    if not shown:
        raise Kip848Error("there is no rebalance to draw")
    plot_lines(
        path,
        title=f"{summary.runs:,} simulated groups: how long a rebalance takes",
        x_label="members when it ended",
        y_label="virtual seconds",
        x=[times.members for times in shown],
        counts=[times.count for times in shown],
        lines={
            "median": [times.p50_ms / 1000 for times in shown],
            "90 %": [times.p90_ms / 1000 for times in shown],
            "99 %": [times.p99_ms / 1000 for times in shown],
            "longest": [times.max_ms / 1000 for times in shown],
        },
    )
