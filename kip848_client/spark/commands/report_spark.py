"""``kip848 report --spark``: logs of many machines and groups, counted on Spark. Tables, a page, a few sentences."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kip848_client.cli.shared.properties import read_properties
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.tools.comparing.report_periods import draw, tell_comparison
from kip848_client.tools.report.periods import parse_period
from kip848_client.tools.report.pictures.summary import render_summary, sentences
from kip848_client.tools.shared.spark_options import read_conf, read_master

if TYPE_CHECKING:
    from kip848_client.spark.analytics.group_records import Update
    from kip848_client.tools.report.periods import Comparison
    from kip848_client.tools.report.pictures.summary import Summary


def _tell(update: Update) -> None:
    print(
        f"run {update.run}: {counted(update.records, 'record')}, {counted(update.events, 'event')} of "
        f"{counted(update.groups, 'group')}, {counted(update.commits, 'commit')}",
        file=sys.stderr,
    )
    for reason, count in sorted(update.left_out.items()):
        print(f"  {counted(count, 'record')} left out: {reason}", file=sys.stderr)


def run_spark(arguments: argparse.Namespace) -> int:
    """Count, write, and print.

    Raises:
        ConfigError: an option does not go with --spark, or nothing is there.
        Kip848Error: PySpark or a Java is missing; there is no event of any group; the page cannot be written.
    """
    periods = [parse_period(text) for text in arguments.period]
    conf = read_conf(arguments)
    from kip848_client.spark.session.session import require_pyspark, spark_session  # they take a second

    require_pyspark()
    from kip848_client.spark.analytics.analytics import analyze
    from kip848_client.spark.analytics.analytics_page import in_parts, summarize
    from kip848_client.spark.analytics.analytics_periods import compare_periods
    from kip848_client.spark.analytics.group_records import GroupHistory

    paths: Sequence[str] = arguments.logs
    if paths and arguments.bootstrap is not None:
        raise ConfigError("give FILEs or --bootstrap, one of the two")
    if not paths and arguments.out is None:
        raise ConfigError(
            "without a FILE a cluster is read, which needs --out: a folder for what is read, for the next run, too"
        )
    history: GroupHistory | None = None
    spark = spark_session("kip848 report", master=read_master(arguments), config=conf)
    try:
        if paths:
            analysis = analyze(spark, paths, group_id=arguments.group)
            if arguments.out is not None:
                analysis.write(arguments.out)
        else:
            from kip848_client.tools.groups.offsets_reader import topic_names  # here: logs need no client

            client = read_properties(arguments)
            groups = () if arguments.group is None else (arguments.group,)
            history = GroupHistory(spark, arguments.out, client, groups=groups, topic_names=topic_names(client))
            _tell(history.update())
            analysis = history.analysis()
            history.write(analysis)
        comparison = compare_periods(analysis, periods) if periods else in_parts(analysis)
        if periods:
            return tell_comparison(comparison, arguments)
        summary = summarize(analysis, comparison.periods)
        if history is not None:  # its commits are counted, and are not events
            totals = {**summary.totals, "commits accepted": history.commit_count()}
            summary = replace(summary, totals=totals, tables=[history.busiest(), *summary.tables])
    finally:
        spark.stop()
    return _tell_summary(summary, comparison, arguments)


def _tell_summary(summary: Summary, comparison: Comparison, arguments: argparse.Namespace) -> int:
    html: Path | None = arguments.html
    png: Path | None = arguments.png
    if html is not None:
        try:
            html.write_text(render_summary(summary), encoding="utf-8")
        except OSError as error:
            raise Kip848Error(f"the page cannot be written: {error}") from error
    if png is not None:
        draw(comparison, png)
    if arguments.json:
        print(to_json({**summary.to_plain(), **comparison.to_plain()}))
        return 0
    print("\n".join(map(printable, sentences(summary))))
    found = next(table for table in summary.tables if table.links or table.title.startswith("What went wrong"))
    print(f"{found.title}:" if found.rows else "nothing went wrong")
    print("\n".join(printable(f"  {when}  {group}: {text}") for when, group, text in found.rows))
    malformed = next(table for table in summary.tables if table.header[1] == "line")
    for row in malformed.rows:
        print(printable(f"    {row[0]}:{row[1]}: {row[2]}"))
    for written in (arguments.out, html, png):
        if written is not None:
            print(f"written: {written}")
    return 0
