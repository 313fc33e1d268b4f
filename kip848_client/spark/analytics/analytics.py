"""Event logs that do not fit one machine: the figures of `kip848_client.tools.report`, as tables, computed on Spark.

::

    from kip848_client.spark import spark_session
    from kip848_client.spark.analytics.analytics import analyze

    analysis = analyze(spark_session(), ["/logs/brokers", "/logs/consumers/*.jsonl.gz"])
    analysis.groups.orderBy("rebalance.max_ms", ascending=False).show()
    analysis.write("/reports/today")

Lines are parsed, grouped, and put in order by Spark; a task runs the report for one group after the other, and the
driver holds totals only.

Does not own: parsing (`event_rows`), the figures of a group (`figure_rows`), the page (`analytics_page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import StorageLevel
from pyspark.sql import functions as sf

from kip848_client.errors import Kip848Error
from kip848_client.spark.analytics.event_rows import event_rows, malformed_lines, read_lines
from kip848_client.spark.analytics.figure_rows import figure_rows, finding_row, with_names
from kip848_client.tools.report.findings import all_at_once
from kip848_client.tools.report.timeline.lanes import MARKS
from kip848_client.tools.report.timeline.pauses import Pauses
from kip848_client.tools.report.timeline.timeline import MarkKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES: Final[Mapping[str, str]] = {
    "groups": "group: all its figures",
    "members": "member: heartbeats, commits, partitions gained, given up and owned",
    "partitions": "partition of a group: changes of owner, time without a reader",
    "rebalances": "rebalance: start, end, group epochs, reasons, partitions moved, time without a reader",
    "findings": "thing that went wrong: kind, start, length and what that rests on, partitions, cause, clients, "
    "sentence; the worst have the highest badness",
    "pauses": "group that commits: its first and last commit, and when it made none although records waited",
    "states": "period in which a group was in a state",
    "revocations": "member: how long it took to give partitions up when it was told to",
    "changes": "group epoch: start, when every member had its part, reason",
    "ownership": "period in which a member owned a partition: the next owner and the gap between",
    "listener_calls": "callback of a group: durations",
    "commit_errors": "member and reason: commits that were not accepted",
    "marks": "fault, refusal, failure, start or end",
    "malformed": "line that is not an event: file, line, reason",
}
"""Name of each table that `Analysis.write` writes -> content of one row. Each is a folder of Parquet files."""


class LogSpan(msgspec.Struct, frozen=True):
    """The whole log: lines, how many of them are events, and its first and last time (ms)."""

    lines: int
    events: int
    start_ms: int
    end_ms: int

    @property
    def malformed(self) -> int:
        """Lines that are not events."""
        return self.lines - self.events


class Analysis:
    """The tables of `TABLES`, made by `analyze`. Spark's copies of them live as long as this object.

    The first use of one computes all of them.
    """

    def __init__(
        self, events: DataFrame, bounds: LogSpan, *, group_id: str | None, accepted: DataFrame | None = None
    ) -> None:
        self.bounds: Final = bounds
        self._accepted = accepted
        self._events = events
        self._group_id = group_id

    @cached_property
    def named(self) -> DataFrame:
        """The events of groups, with `who` each one is about."""
        of_groups = self._events.where("group_id is not null")
        if self._group_id is not None:
            of_groups = of_groups.where(sf.col("group_id") == self._group_id)
        return kept(with_names(of_groups))

    @property
    def heartbeats(self) -> DataFrame:
        """group_id, member, sent_ms, late_ms (null for joins and leaves); as many rows as the log has heartbeats."""
        beats = self.named.where("event = 'heartbeat_sent'")
        return beats.select("group_id", sf.col("who").alias("member"), "sent_ms", "late_ms")

    @cached_property
    def _rows(self) -> DataFrame:
        of_all: Counter[MarkKind] = Counter()
        for row in self._without_group.groupBy("event").count().collect():
            of_all[MARKS[row["event"]][0]] += row["count"]
        start_ms, end_ms = self.bounds.start_ms, self.bounds.end_ms
        return kept(figure_rows(self.named, start_ms=start_ms, end_ms=end_ms, marks_of_all=of_all))

    @property
    def _without_group(self) -> DataFrame:
        """Marks of no group, such as a broker's start; they are counted with every group."""
        return self._events.where("group_id is null and problem is null").where(sf.col("event").isin(*MARKS))

    def _table(self, name: str) -> DataFrame:
        return self._rows.where(sf.col(name).isNotNull()).select("group_id", f"{name}.*")

    @cached_property
    def groups(self) -> DataFrame:
        """See `TABLES`; so for all that follow."""
        groups = self._table("groups")
        if self._accepted is None:
            return groups
        joined = groups.drop("accepted").join(self._accepted, "group_id", "left").na.fill(0, ["accepted"])
        return joined.select(*groups.columns)

    @cached_property
    def members(self) -> DataFrame:  # noqa: D102
        members = self._table("members")
        if self._accepted is None:
            return members
        return members.withColumn("accepted", sf.lit(None).cast("long"))  # counted by group, not by member

    @cached_property
    def partitions(self) -> DataFrame:  # noqa: D102
        return self._table("partitions")

    @cached_property
    def rebalances(self) -> DataFrame:  # noqa: D102
        return self._table("rebalances")

    @cached_property
    def findings(self) -> DataFrame:  # noqa: D102
        findings = self._table("findings")
        pauses = {
            row["group_id"]: Pauses(
                row["first_ms"], row["last_ms"], list(zip(row["starts_ms"], row["ends_ms"], strict=True))
            )
            for row in self.pauses.collect()
        }
        together = [finding_row(each) for each in all_at_once(pauses)]
        if not together:
            return findings
        rows = [tuple(row[name] for name in findings.columns) for row in together]
        return findings.unionByName(findings.sparkSession.createDataFrame(rows, findings.schema))

    @cached_property
    def pauses(self) -> DataFrame:  # noqa: D102
        return self._table("pauses")

    @cached_property
    def states(self) -> DataFrame:  # noqa: D102
        return self._table("states")

    @cached_property
    def revocations(self) -> DataFrame:  # noqa: D102
        return self._table("revocations")

    @cached_property
    def changes(self) -> DataFrame:  # noqa: D102
        return self._table("changes")

    @cached_property
    def ownership(self) -> DataFrame:  # noqa: D102
        return self._table("ownership")

    @cached_property
    def listener_calls(self) -> DataFrame:  # noqa: D102
        return self._table("listener_calls")

    @cached_property
    def commit_errors(self) -> DataFrame:  # noqa: D102
        return self._table("commit_errors")

    @cached_property
    def marks(self) -> DataFrame:  # noqa: D102
        kind = sf.create_map(*(sf.lit(text) for name, (kind, _) in MARKS.items() for text in (name, kind)))
        others = self._without_group.select(
            sf.lit(None).cast("string").alias("group_id"),
            sf.col("ts_ms").cast("double").alias("ts_ms"),
            sf.col("source").alias("who"),
            kind[sf.col("event")].alias("kind"),
            sf.replace(sf.col("event"), sf.lit("_"), sf.lit(" ")).alias("text"),
        )
        return self._table("marks").unionByName(others)

    @cached_property
    def malformed(self) -> DataFrame:  # noqa: D102
        return malformed_lines(self._events)

    def tables(self) -> Iterator[tuple[str, DataFrame]]:
        """Every table by name."""
        for name in TABLES:
            yield name, getattr(self, name)

    def write(self, out: str | Path) -> None:
        """Write every table to *out*, any folder that Spark can write to; tables that are there are replaced."""
        for name, table in self.tables():
            table.write.mode("overwrite").parquet(f"{out}/{name}")


def kept(table: DataFrame) -> DataFrame:
    """*table*, computed now and once, with its plan cut: Spark analyzes a plan anew for every table made of it.

    It is kept in the checkpoint folder (``spark.checkpoint.dir``) if there is one. Otherwise each part is kept on two
    executors, so that one may be lost: once the plan is cut, nothing can be computed anew.
    """
    context = table.sparkSession.sparkContext
    if context.getCheckpointDir() is not None:
        return table.checkpoint()
    master = str(context.master)
    if master == "local" or master.startswith("local["):
        return table.localCheckpoint()
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)


def analyze(spark: SparkSession, paths: Sequence[str | Path], *, group_id: str | None = None) -> Analysis:
    """Analyze event logs of clients, brokers and simulations, all of them as one log.

    Args:
        paths: files, folders and patterns, on any file system that Spark knows; gzip is understood.
        group_id: this group only.

    Raises:
        ConfigError: nothing is there.
        Kip848Error: there is no event of any group, or of that one.
    """
    return analyze_lines(read_lines(spark, [str(path) for path in paths]), group_id=group_id)


def analyze_sweep(runs: DataFrame, *, group_id: str | None = None) -> Analysis:
    """Analyze the traces of a sweep (`spark.sweeps.sweep`); each run is a group, named by scenario and seed.

    Raises:
        Kip848Error: the sweep kept no traces.
    """
    lines = runs.where("log is not null").select(
        sf.explode("log").alias("value"),
        sf.concat_ws("-", "scenario", "seed").alias("file"),
        sf.lit(0).cast("long").alias("block"),
    )
    return analyze_lines(lines, group_id=group_id)


def analyze_lines(lines: DataFrame, *, group_id: str | None = None, accepted: DataFrame | None = None) -> Analysis:
    """Analyze lines that are a table already.

    Args:
        lines: columns value (a line of an event log), file (string), block (long); rows of one file and block in order.
        accepted: group_id, accepted: how many commits were accepted, if the lines have only some of them.

    Raises:
        Kip848Error: there is no event of any group, or of that one.
    """
    events = kept(event_rows(lines))
    return Analysis(events, _bounds(events, group_id), group_id=group_id, accepted=accepted)


def _bounds(events: DataFrame, group_id: str | None) -> LogSpan:
    wanted = "group_id is not null" if group_id is None else sf.col("group_id") == group_id
    row = events.agg(
        sf.count("*").alias("lines"),
        sf.count("ts_ms").alias("events"),
        sf.min("ts_ms").alias("start_ms"),
        sf.max("ts_ms").alias("end_ms"),
        sf.count_if(sf.expr(wanted) if isinstance(wanted, str) else wanted).alias("wanted"),
    ).first()
    assert row is not None, "an aggregate without groups has one row"
    if not row["wanted"]:
        known = [each["group_id"] for each in events.select("group_id").dropna().distinct().limit(10).collect()]
        told = f"of group {group_id!r}; there is {', '.join(sorted(known)) or 'none'}" if group_id else "of any group"
        raise Kip848Error(
            f"no event {told} in {row['lines']:,} lines, {row['lines'] - row['events']:,} of them malformed"
        )
    return LogSpan(row["lines"], row["events"], row["start_ms"], row["end_ms"])
