"""``kip848 report``: who read which partition when, from the event logs of clients, brokers and simulations.

::

    kip848 report broker.jsonl consumer-*.jsonl                  # numbers, as a table
    kip848 report history.jsonl --html timeline.html             # one page, with a slider
    kip848 report history.jsonl --png timeline.png --group orders
    kip848 report week.jsonl --period 2026-11-09..2026-11-16 --period 2026-11-16..2026-11-23   # side by side
    kip848 report --bootstrap kafka:9092 --group billing --html billing.html                   # of a cluster, up to now
    kip848 report --spark --bootstrap kafka:9092 --out groups    # of a cluster; again, and it goes on where it ended
    kip848 report --spark /logs 's3a://more/*.jsonl.gz' --out tables --html summary.html   # more than one machine holds
"""

from __future__ import annotations

import argparse
import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import ConfigError, Kip848Error, join_names
from kip848_client.journal import read_journal
from kip848_client.tools.comparing.report_periods import tell_comparison
from kip848_client.tools.report import Figures, Timeline, build_timelines, figures_of
from kip848_client.tools.report.findings import Finding, at_rest, findings_of_all
from kip848_client.tools.report.periods import compare_periods, parse_period
from kip848_client.tools.report.pictures.html import render_html
from kip848_client.tools.report.pictures.png import draw_timeline
from kip848_client.tools.report.timeline.lanes import LogOrder
from kip848_client.tools.report.wording import bounds_sentence, clock, duration, is_date, spread_sentence
from kip848_client.tools.shared.spark_options import add_spark_arguments

_SHOWN: Final = 30
"""Findings in the terminal."""
_SHOWN_OF_A_KIND: Final = 3
"""Findings of one kind in one group."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("logs", metavar="FILE", nargs="*", help="event logs (JSON lines); mixed by time")
    parser.add_argument("--group", metavar="ID", help="this group only; with --bootstrap a pattern: orders-* (all)")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one self-contained page")
    parser.add_argument(
        "--png", metavar="FILE", type=Path, help="draw the timeline of one group, or the periods (.png or .svg)"
    )
    parser.add_argument(
        "--period",
        metavar="FROM..TO",
        action="append",
        default=[],
        help="count what began in this time (2026-11-09..2026-11-16, in UTC); again, and they are compared",
    )
    parser.add_argument(
        "--what-if", action="store_true", help="play what other settings would have saved in the worst stand-stills"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_spark_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, draw, and print the numbers.

    Raises:
        Kip848Error: a file cannot be read or written, or is not an event log; no such group.
    """
    if arguments.spark and arguments.what_if:
        raise ConfigError("--what-if does not go with --spark: kip848 sweep --like GROUP asks for the shape of a group")
    if arguments.spark:
        return _run_on_spark(arguments)
    if arguments.logs and arguments.bootstrap is not None:
        raise ConfigError("give FILEs or --bootstrap, one of the two")
    if not arguments.logs and arguments.bootstrap is None:
        raise ConfigError("there is no FILE to report on, and no cluster (--bootstrap)")
    if arguments.out is not None or arguments.master is not None or arguments.conf:
        raise ConfigError("--out, --master and --conf go with --spark")
    timelines = _of_cluster(arguments) if arguments.bootstrap is not None else _read(arguments.logs, arguments.group)
    if arguments.period:
        periods = [parse_period(text) for text in arguments.period]
        return tell_comparison(compare_periods(timelines, periods), arguments)
    try:
        if arguments.html is not None:
            arguments.html.write_text(render_html(timelines), encoding="utf-8")
        if arguments.png is not None:
            if len(timelines) > 1:
                names = join_names(timeline.group_id for timeline in timelines)
                raise ConfigError(f"--png draws one group, the log has several: choose one with --group ({names})")
            draw_timeline(timelines[0], arguments.png)
    except (OSError, ValueError) as error:
        if isinstance(error, Kip848Error):
            raise
        raise Kip848Error(f"the picture cannot be written: {error}") from error
    figures = [figures_of(timeline) for timeline in timelines]
    findings = findings_of_all(timelines)
    if arguments.json:
        plain: dict[str, object] = {"findings": findings, "groups": [each.to_plain() for each in figures]}
        print(to_json(plain | {"what_if": list(_savings(timelines, findings))} if arguments.what_if else plain))
        return 0
    print("\n".join(map(printable, _findings(findings))))
    print("\n".join(map(printable, at_rest(timelines, findings))))
    for timeline in timelines:
        if timeline.backwards_ms:
            print(f"CAREFUL: {printable(timeline.group_id)}: the times of the log run backwards, see its note")
    if arguments.what_if:
        print("\n".join(map(printable, _savings(timelines, findings))))
    for each in figures:
        print("\n".join(map(printable, _sentences(each))))
    for path in (arguments.html, arguments.png):
        if path is not None:
            print(f"written: {path}")
    return 0


def _run_on_spark(arguments: argparse.Namespace) -> int:
    try:
        on_spark = importlib.import_module("kip848_client.spark.commands.report_spark")  # by name: another house
    except ModuleNotFoundError as error:
        raise ConfigError(f"--spark needs the folder spark of kip848_client: {error}") from error
    return int(on_spark.run_spark(arguments))


def _savings(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> Iterator[str]:
    from kip848_client.tools.comparing.report_what_if import savings  # here: it loads the simulation

    return savings(timelines, findings)


def _of_cluster(arguments: argparse.Namespace) -> list[Timeline]:
    from kip848_client.tools.groups.read import LastMoves, read_cluster  # here: files need no client

    moves = LastMoves()
    timelines = build_timelines(moves.watch(read_cluster(arguments)))
    if not timelines:
        wanted = "of any group" if arguments.group is None else f"of group {arguments.group!r}"
        raise Kip848Error(f"no record {wanted} in __consumer_offsets")
    return moves.with_held(timelines, arguments)


def _read(logs: Sequence[str], group_id: str | None) -> list[Timeline]:
    try:
        order = LogOrder()
        events = chain.from_iterable(order.watch(read_journal(path)) for path in logs)
        timelines = order.noted(build_timelines(events))
    except OSError as error:
        raise Kip848Error(f"{error.filename or 'the event log'} cannot be read: {error.strerror or error}") from error
    known = ", ".join(timeline.group_id for timeline in timelines)
    if group_id is not None:
        timelines = [timeline for timeline in timelines if timeline.group_id == group_id]
        if not timelines:
            raise ConfigError(f"--group {group_id}: the log has no such group; it has {known or 'none'}")
    if not timelines:
        raise Kip848Error(f"no event of any group in {', '.join(map(str, logs))}")
    return timelines


def _sentences(figures: Figures) -> list[str]:
    lines = [
        f"group {figures.group_id}: {counted(figures.members, 'member')}, "
        f"{counted(figures.partitions, 'partition')}, {figures.log_ms / 1000:.1f} s of log",
        f"  {'rebalances':<24} {spread_sentence(figures.rebalance)}" + _at_least(figures),
        f"  {'until all had their part':<24} {spread_sentence(figures.change)}",
        f"  {'without a reader':<24} {spread_sentence(figures.without_reader)}{bounds_sentence(figures.bounds)}",
        f"  {'partitions moved':<24} {figures.moves}, and {figures.bounces} moved for nothing"
        + ("" if figures.stayed is None else f"; {figures.stayed:.1%} stayed in a rebalance"),
    ]
    if figures.empty_ms:
        lines.append(f"  {'empty':<24} {duration(figures.empty_ms)}, and nothing is known to have waited")
    lines += [f"  {name:<24} {spread_sentence(times)}" for name, times in figures.listener_calls.items()]
    if figures.heartbeats:
        lines.append(f"  {'heartbeats late by':<24} {spread_sentence(figures.late)}")
    commits = figures.commits
    ends = {
        "done": commits.done, "failed": commits.failed, "accepted": commits.accepted, "refused": commits.refused
    }  # fmt: skip
    lines.append(f"  {'commits':<24} " + (", ".join(f"{n:,} {end}" for end, n in ends.items() if n) or "none"))
    lines += [f"    {error}: {count:,}" for error, count in commits.errors.items()]
    if figures.marks:
        lines.append(f"  {'marks':<24} " + ", ".join(f"{count:,} {kind}" for kind, count in figures.marks.items()))
    lines += [f"  note: {note}" for note in figures.notes]
    if figures.two_readers:
        lines.append(f"  {'READ BY TWO AT ONCE':<24} {', '.join(figures.two_readers)}")
    return lines


def _at_least(figures: Figures) -> str:
    count = sum(each.at_least for each in figures.rebalances)
    return f" ({count:,} at least: the join phase of a classic group is not in the log)" if count else ""


def _findings(findings: Sequence[Finding]) -> list[str]:
    zone = " (UTC)" if findings and is_date(findings[0].start_ms) else ""
    lines = [f"what went wrong, the worst first{zone}:"] if findings else ["nothing went wrong"]
    like_it: Counter[tuple[str, str]] = Counter()
    shown = []
    for each in findings:
        like_it[each.group_id, each.kind] += 1
        if like_it[each.group_id, each.kind] <= _SHOWN_OF_A_KIND:
            shown.append(each)
    lines += [f"  {clock(each.start_ms)}  {each.group_id}: {each.text}" for each in shown[:_SHOWN]]
    left_out = len(findings) - len(shown[:_SHOWN])
    if left_out:
        lines.append(f"  and {left_out:,} more, most of them like these: --html or --json")
    return lines
