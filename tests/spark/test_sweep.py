"""Many simulated runs on Spark: the same runs as without it, kept, and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.journal import parse_line
from kip848_client.spark.analytics.analytics import analyze_sweep
from kip848_client.spark.sweeps.sweep import Sweep, play_sweep, rebalances_of
from kip848_client.spark.sweeps.sweep_summary import plot_rebalances, summarize
from kip848_client.spark.sweeps.what_if import play_on_spark
from kip848_client.testing.simulation.run import run
from kip848_client.testing.simulation.virtual.history import to_event_log
from kip848_client.testing.simulation.virtual.scenario import scenario_of
from kip848_client.testing.simulation.what_if import Job, Setting, Shape, play_job
from kip848_client.tools.report import build_timelines, figures_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_sweep_plays_what_kip848_simulate_plays_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """A seed that breaks in a cluster must break on a laptop; and a night's work is not played twice."""
    out = tmp_path / "sweep"
    first = play_sweep(spark, Sweep("quiet", range(2), traces="all", part=2), out)
    row = first.where("seed = 1").collect()[0]
    alone = run(scenario_of("quiet", seed=1), seed=1)
    assert (row["events"], row["simulated_ms"], row["invariant"]) == (alone.events, alone.simulated_ms, None)
    assert row["counts"] == dict(alone.counts)
    assert [parse_line(line).event for line in row["log"]] == [event.event for event in to_event_log(alone.lines)]

    written = {path: path.stat().st_mtime_ns for path in out.glob("seeds-*/part-*.parquet")}
    told: list[tuple[int, int]] = []
    longer = play_sweep(
        spark, Sweep("quiet", range(3), traces="all", part=3), out.as_uri(), on_progress=lambda *done: told.append(done)
    )
    assert [row["seed"] for row in longer.select("seed").orderBy("seed").collect()] == list(range(3))
    assert {path: path.stat().st_mtime_ns for path in written} == written, "parts that were there were played again"
    assert told[-1] == (3, 3)

    summary = summarize(longer)
    assert (summary.runs, summary.broken_count) == (3, 0)
    assert summary.counts["member_joined"] >= 3
    assert sum(times.count for times in summary.rebalances) == longer.selectExpr("sum(size(rebalances))").first()[0]  # type: ignore[index]
    plot_rebalances(summary, tmp_path / "times.png")
    assert (tmp_path / "times.png").stat().st_size > 5_000

    ended = analyze_sweep(longer).rebalances.where("ms is not null")
    counted = {row["group_id"]: row["count"] for row in ended.groupBy("group_id").count().collect()}
    assert counted == {f"quiet-{row['seed']}": len(row["rebalances"]) for row in longer.collect()}, "as on one machine"

    lines = sum(len(row["log"]) for row in longer.select("log").collect())
    with pytest.raises(
        Kip848Error, match=rf"there is quiet-0, quiet-1, quiet-2 in {lines:,} lines, 0 of them malformed"
    ):
        analyze_sweep(longer, group_id="quiet-3")


def test_a_folder_is_not_shared_by_two_sweeps(spark: SparkSession, tmp_path: Path) -> None:
    """Their runs would be mixed, and the figures of neither."""
    (tmp_path / "sweep.json").write_text('{"scenario": "storm"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="holds another sweep"):
        play_sweep(spark, Sweep("quiet", range(2)), tmp_path)


@pytest.mark.parametrize(
    "arguments", [("nonsense", range(3)), ("quiet", range(0)), ("quiet", range(3), ("no.such=1",))]
)
def test_what_cannot_be_played_is_refused_before_spark_starts(arguments: tuple[str, range]) -> None:
    """A typing error costs a second, and not a cluster's hour."""
    with pytest.raises(ConfigError):
        Sweep(*arguments)


def test_parts_begin_at_the_same_seeds_for_every_range() -> None:
    """So that a longer sweep finds what a shorter one has played."""
    assert Sweep("quiet", range(3, 12), part=5).parts() == [range(3, 5), range(5, 10), range(10, 12)]


def test_a_longer_sweep_plays_only_the_seeds_that_were_not_played() -> None:
    """The last part of the shorter one ended in the middle; its seeds would be played again, and counted twice."""
    longer = Sweep("quiet", range(12), part=5)
    assert longer.parts([range(5), range(5, 7)]) == [range(7, 10), range(10, 12)]
    assert longer.parts([range(2, 4)]) == [range(2), range(4, 5), range(5, 10), range(10, 12)]
    assert longer.parts([range(20)]) == []


def test_rebalances_are_those_of_the_report() -> None:
    """A sweep and a report of the same run must count the same rebalances."""
    report = run(scenario_of("mixed", seed=2), seed=2)
    (timeline,) = build_timelines(to_event_log(report.lines))
    counted = [r.end_ms - r.start_ms for r in figures_of(timeline).rebalances if r.end_ms is not None]
    assert [rebalance["ms"] for rebalance in rebalances_of(report.history.entries)] == counted


def test_plays_of_a_real_groups_shape_come_to_the_same_on_spark(spark: SparkSession) -> None:
    """A sweep on a cluster is faster than on one machine, and gives the same results."""
    shape = Shape(members=3, topics={"orders": 6})
    jobs = [Job("one joins", Setting("as it is"), seed) for seed in range(3)]
    assert play_on_spark(spark, shape, jobs) == [play_job(shape, job) for job in jobs]
