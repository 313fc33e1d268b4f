"""The summary of an analysis: totals, spreads, histograms and the worst of everything. Only these reach the driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from pyspark.sql import Window
from pyspark.sql import functions as sf

from kip848_client.spark.analytics.analytics import Analysis
from kip848_client.spark.analytics.analytics_columns import cause_of, percentiles_of
from kip848_client.spark.analytics.analytics_periods import compare_periods
from kip848_client.tools.report.figures import Percentiles
from kip848_client.tools.report.periods import CAUSES, Comparison, PeriodFigures, equal_parts
from kip848_client.tools.report.pictures.minute import minute_svg
from kip848_client.tools.report.pictures.summary import Bar, Picture, Summary, Table
from kip848_client.tools.report.timeline.lanes import AT_REST
from kip848_client.tools.report.timeline.timeline import Span
from kip848_client.tools.report.wording import clock, duration, duration_or_dash

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_WORST: Final = 20
_PERIODS: Final = 24
_AROUND_MS: Final = 30_000
_DRAWN: Final = 200
"""Periods of ownership in the picture of a moment, those first that end in it."""
_RESTLESS_SHARE: Final = 0.5
_EDGES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000)
_TWO: Final = "partitions read by two"
_MALFORMED: Final = "malformed lines"


def in_parts(analysis: Analysis) -> Comparison:
    """The log in periods of one length."""
    bounds = analysis.bounds
    return compare_periods(analysis, equal_parts(bounds.start_ms, bounds.end_ms, _PERIODS))


def summarize(analysis: Analysis, parts: Sequence[PeriodFigures] | None = None) -> Summary:
    """Compute the figures of *analysis* that the page shows.

    Args:
        parts: what `in_parts` counted, if it was called already.
    """
    bounds = analysis.bounds
    if parts is None:
        parts = in_parts(analysis).periods
    late = analysis.heartbeats
    findings, pictures = _findings(analysis)
    rebalances = analysis.rebalances
    gaps = analysis.ownership.where("gap_ms > 0")
    return Summary(
        title=f"Consumer groups from {clock(bounds.start_ms)} to {clock(bounds.end_ms)}",
        totals=_totals(analysis),
        shares={"stayed in a rebalance": _first(analysis.groups.agg(sf.avg("stayed").alias("share")))["share"]},
        spreads={
            "rebalances": _spread(rebalances, "ms"),
            "without a reader": _spread(gaps, "gap_ms"),
            "until all had their part": _spread(analysis.changes, "ms"),
            "heartbeats late by": _spread(late, "late_ms"),
        },
        charts={
            "How long rebalances took": _histogram(rebalances, "ms"),
            "How long partitions had no reader": _histogram(gaps, "gap_ms"),
            "How late heartbeats were": _histogram(late, "late_ms"),
            "How long changes took until all had their part": _histogram(analysis.changes, "ms"),
            "Rebalances over time": [Bar(clock(each.start_ms), each.rebalances) for each in parts],
            "Causes of rebalances": _causes(rebalances),
        },
        tables=[findings, *_tables(analysis, late, parts)],
        alarming=frozenset({_TWO, _MALFORMED}),
        pictures=pictures,
    )


def _findings(analysis: Analysis) -> tuple[Table, list[Picture]]:
    """What went wrong, worst first, with a picture of each moment."""
    worst = analysis.findings.orderBy(sf.desc("badness"), "start_ms", "group_id").limit(_WORST).collect()
    windows = [
        (index, row["group_id"], row["start_ms"] - _AROUND_MS, row["start_ms"] + (row["ms"] or 0.0) + _AROUND_MS)
        for index, row in enumerate(worst)
    ]
    owners: dict[int, dict[str, list[Span]]] = {}
    if windows:
        spark = analysis.ownership.sparkSession
        around = spark.createDataFrame(windows, "finding int, group_id string, from_ms double, to_ms double")
        seen = (
            analysis.ownership.join(sf.broadcast(around), "group_id")
            .where("start_ms < to_ms and end_ms > from_ms")
            .withColumn("gap", sf.expr("end_ms between from_ms and to_ms and next_owner is not null"))
        )
        few = Window.partitionBy("finding").orderBy(sf.desc("gap"), "partition", "start_ms")
        for row in seen.withColumn("place", sf.row_number().over(few)).where(f"place <= {_DRAWN}").collect():
            span = Span(row["start_ms"], row["end_ms"], row["owner"])
            owners.setdefault(row["finding"], {}).setdefault(row["partition"], []).append(span)
    pictures = [
        Picture(
            f"finding-{index}",
            f"{row['group_id']}: {row['text']}",
            minute_svg(
                owners.get(index, {}),
                start_ms=windows[index][2],
                end_ms=windows[index][3],
                marked=(row["start_ms"], row["start_ms"] + (row["ms"] or 0.0)),
            ),
        )
        for index, row in enumerate(worst)
    ]
    rows = [(clock(row["start_ms"]), row["group_id"], row["text"]) for row in worst]
    links = [f"#finding-{index}" for index in range(len(worst))]
    return Table("What went wrong, the worst first", ("when", "group", "what"), rows, links), pictures


def _totals(analysis: Analysis) -> dict[str, int]:
    summed = ("members", "partitions", "moves", "bounces", "heartbeats", "done", "failed", "accepted", "refused")
    marks = ("fault", "refusal", "failure")
    row = _first(
        analysis.groups.agg(
            sf.count("*").alias("groups"),
            *(sf.sum(name).alias(name) for name in summed),
            sf.sum(sf.size("two_readers")).alias("two"),
        )
    )
    kinds = _first(analysis.marks.agg(*(sf.count_if(sf.col("kind") == kind).alias(kind) for kind in marks)))
    return {
        "groups": row["groups"],
        "members": row["members"],
        "partitions": row["partitions"],
        "partitions moved": row["moves"],
        "moved for nothing": row["bounces"],
        "heartbeats": row["heartbeats"],
        "commits done": row["done"],
        "commits failed": row["failed"],
        "commits accepted": row["accepted"],
        "commits refused": row["refused"],
        **{f"{kind} marks": kinds[kind] for kind in marks},
        _TWO: row["two"] or 0,
        "events": analysis.bounds.events,
        _MALFORMED: analysis.bounds.malformed,
    }


def _tables(analysis: Analysis, late: DataFrame, parts: Sequence[PeriodFigures]) -> list[Table]:
    partitions = analysis.partitions
    return [
        _worst(
            analysis.rebalances.where("ms is not null"), "ms",
            "Slowest rebalances", ("group", "began", "took", "epochs", "moved", "without a reader", "why"),
            lambda row: (
                row["group_id"], clock(row["start_ms"]), ("at least " if row["at_least"] else "") + duration(row["ms"]),
                f"{row['first_epoch']} to {row['last_epoch']}", f"{row['moved']:,}",
                duration(row["without_reader_ms"]),
                ", ".join(dict.fromkeys(row["reasons"])).replace("_", " "),
            ),
        ),
        _worst(
            _restless(analysis), "busy",
            "Groups that never rest", ("group", "in a rebalance", "rebalances"),
            lambda row: (row["group_id"], f"{row['busy']:.1%}", f"{row['rebalances']:,}"),
        ),
        _worst(
            analysis.revocations, sf.col("took.max_ms"),
            "Slowest to give partitions up", ("group", "member", "times", "median", "longest"),
            lambda row: (
                row["group_id"], row["member"], f"{row['took']['count']:,}", duration(row["took"]["p50_ms"]),
                duration(row["took"]["max_ms"]),
            ),
        ),
        _periods(parts),
        _worst(
            analysis.ownership.where("gap_ms > 0"), "gap_ms",
            "Longest without a reader", ("group", "partition", "from", "for", "before", "after"),
            lambda row: (
                row["group_id"], row["partition"], clock(row["end_ms"]),
                ("" if row["rests"] == "exact" else f"{row['rests']} ") + duration(row["gap_ms"]), row["owner"],
                row["next_owner"],
            ),
        ),
        _worst(
            partitions.where("moves + returned > 0"), sf.expr("moves + returned"),
            "Most restless partitions", ("group", "partition", "moved", "for nothing", "without a reader"),
            lambda row: (
                row["group_id"], row["partition"], f"{row['moves']:,}", f"{row['returned']:,}",
                duration(row["without_reader_ms"]),
            ),
        ),
        _worst(
            partitions.where("two_readers"), "moves",
            "Partitions read by two at once", ("group", "partition"),
            lambda row: (row["group_id"], row["partition"]),
        ),
        _worst(
            late.where("late_ms > 0"), "late_ms",
            "Latest heartbeats", ("group", "member", "sent", "late by"),
            lambda row: (row["group_id"], row["member"], clock(row["sent_ms"]), duration(row["late_ms"])),
        ),
        _worst(
            analysis.commit_errors.groupBy("group_id", "end", "error").agg(sf.sum("count").alias("count")), "count",
            "Commits that were not taken", ("group", "how", "reason", "times"),
            lambda row: (row["group_id"], row["end"], row["error"], f"{row['count']:,}"),
        ),
        _worst(
            analysis.groups, sf.col("rebalance.max_ms"),
            "Groups, the slowest first",
            ("group", "members", "partitions", "rebalances", "median", "longest", "moved", "late by, 99 %", "refused"),
            lambda row: (
                row["group_id"], f"{row['members']:,}", f"{row['partitions']:,}",
                f"{row['rebalance']['count']:,}",
                duration_or_dash(row["rebalance"]["p50_ms"]), duration_or_dash(row["rebalance"]["max_ms"]),
                f"{row['moves']:,}", duration_or_dash(row["late"]["p99_ms"]), f"{row['failed'] + row['refused']:,}",
            ),
        ),
        Table(
            "Lines that are not events", ("file", "line", "what is wrong"),
            [
                (unquote(urlparse(row["file"]).path or row["file"]), f"{row['line']:,}", row["problem"])
                for row in analysis.malformed.orderBy("file", "line").limit(_WORST).collect()
            ],
        ),
    ]  # fmt: skip


def _worst(
    table: DataFrame, by: str | Column, title: str, header: Sequence[str], cells: Callable[[Row], Sequence[str]]
) -> Table:
    """The worst rows. Rows of one group with the same value are shown as one, with their number: a rebalance of
    thirty partitions would fill the list.
    """
    column = sf.col(by) if isinstance(by, str) else by
    alike = (
        table.withColumn("_by", column)
        .groupBy("group_id", "_by")
        .agg(sf.min_by(sf.struct(*table.columns), sf.struct(*table.columns[:2])).alias("one"), sf.count("*").alias("n"))
        .orderBy(sf.desc_nulls_last("_by"), "group_id")
        .limit(_WORST)
        .collect()
    )
    if all(row["n"] == 1 for row in alike):
        return Table(title, header, [cells(row["one"]) for row in alike])
    return Table(title, (*header, "such"), [(*cells(row["one"]), f"{row['n']:,}") for row in alike])


def _first(table: DataFrame) -> Row:
    row = table.first()
    assert row is not None, "an aggregate without groups has one row"
    return row


def _spread(table: DataFrame, column: str) -> Percentiles:
    return Percentiles(*_first(table.agg(percentiles_of(column).alias("spread")))["spread"])


def _histogram(table: DataFrame, column: str) -> list[Bar]:
    """Bars of a 1-2-5 scale, without the empty ones at both ends."""
    edges = sf.array(*(sf.lit(float(edge)) for edge in _EDGES_MS))
    bucket = sf.size(sf.filter(edges, lambda edge: edge <= sf.col(column)))
    rows = table.where(sf.col(column).isNotNull()).groupBy(bucket.alias("bucket")).count().collect()
    counts = {row["bucket"]: row["count"] for row in rows}
    if not counts:
        return []
    edges_told = ["0", *(duration(edge).replace(".00 s", " s") for edge in _EDGES_MS)]
    labels = [f"{low} to {high}" for low, high in itertools.pairwise(edges_told)] + [f"over {edges_told[-1]}"]
    return [Bar(labels[index], counts.get(index, 0)) for index in range(min(counts), max(counts) + 1)]


def _causes(rebalances: DataFrame) -> list[Bar]:
    """Why rebalances began; what stands in brackets differs from case to case."""
    rows = rebalances.groupBy(cause_of("reasons").alias("cause")).count().orderBy(sf.desc("count"), "cause")
    return [Bar(row["cause"], row["count"]) for row in rows.limit(CAUSES).collect()]


def _restless(analysis: Analysis) -> DataFrame:
    """Groups by the share of their known time that they were not at rest."""
    rests = ", ".join(f"'{state}'" for state in sorted(AT_REST))
    lasted = sf.col("end_ms") - sf.col("start_ms")
    busy = analysis.states.groupBy("group_id").agg(
        (sf.sum(sf.when(sf.expr(f"state in ({rests})"), 0.0).otherwise(lasted)) / sf.sum(lasted)).alias("busy")
    )
    counted = analysis.rebalances.groupBy("group_id").agg(sf.count("*").alias("rebalances"))
    return busy.join(counted, "group_id").where(f"busy > {_RESTLESS_SHARE}")


def _periods(parts: Sequence[PeriodFigures]) -> Table:
    """The log in equal periods, to compare one with another."""
    header = (
        "from", "rebalances", "until all had their part: median", "90 %", "longest", "moved", "without a reader",
    )  # fmt: skip
    return Table("Period by period", header, [
        (
            clock(each.start_ms), f"{each.rebalances:,}",
            *map(duration_or_dash, (each.change.p50_ms, each.change.p90_ms, each.change.max_ms)),
            f"{each.moves:,}", duration(each.without_reader_ms),
        )
        for each in parts
    ])  # fmt: skip
