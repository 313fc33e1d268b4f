"""``kip848 report --spark``: logs of many machines and groups, counted on Spark. Tables, a page, a few sentences."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kip848_client.cli.spark_options import add_session_arguments, read_conf, read_master
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.json_text import to_json
from kip848_client.report.summary import render_summary, sentences


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this way has."""
    group = parser.add_argument_group("on Spark (pip install 'kip848_client[spark]')")
    group.add_argument(
        "--spark",
        action="store_true",
        help="count on Spark; FILE may be a folder, a pattern or an address",
    )
    group.add_argument("--out", metavar="FOLDER", help="with --spark: write the tables there, as Parquet")
    add_session_arguments(group, prefix="with --spark: ")


def run_spark(arguments: argparse.Namespace) -> int:
    """Count, write, and print.

    Raises:
        ConfigError: an option does not go with --spark, or nothing is there.
        Kip848Error: PySpark or a Java is missing; there is no event of any group; the page cannot be written.
    """
    if arguments.png is not None:
        raise ConfigError("--png draws the timeline of one group, without --spark; --html has pictures of all groups")
    conf = read_conf(arguments)
    from kip848_client.spark.session import require_pyspark, spark_session  # they take a second

    require_pyspark()
    from kip848_client.spark.analytics import analyze
    from kip848_client.spark.analytics_page import summarize

    paths: Sequence[str] = arguments.logs
    spark = spark_session("kip848 report", master=read_master(arguments), config=conf)
    try:
        analysis = analyze(spark, paths, group_id=arguments.group)
        if arguments.out is not None:
            analysis.write(arguments.out)
        summary = summarize(analysis)
    finally:
        spark.stop()
    html: Path | None = arguments.html
    if html is not None:
        try:
            html.write_text(render_summary(summary), encoding="utf-8")
        except OSError as error:
            raise Kip848Error(f"the page cannot be written: {error}") from error
    if arguments.json:
        print(to_json(summary.to_plain()))
        return 0
    print("\n".join(sentences(summary)))
    malformed = next(table for table in summary.tables if table.header[1] == "line")
    for row in malformed.rows:
        print(f"    {row[0]}:{row[1]}: {row[2]}")
    for written in (arguments.out, html):
        if written is not None:
            print(f"written: {written}")
    return 0
