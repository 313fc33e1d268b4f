"""``kip848 sweep``: play the simulation over many seeds on Spark, and summarize the runs.

::

    kip848 sweep --seeds 0:20000 --out sweep                      # on all cores; stop it and start it again as you like
    kip848 sweep --seeds 0:1000000 --out /shared/sweep --master spark://host:7077
    kip848 sweep --scenario storm --seeds 0:5000 --out storm --traces all --plot rebalances.png
    kip848 sweep --like billing --bootstrap kafka:9092 --plot what-if.png     # what if a node dies; no Spark needed

Needs ``pip install "kip848_client[spark]"``, except for ``--like``. The exit status is 1 if an invariant broke.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kip848_client.cli.shared.properties import add_client_arguments
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted
from kip848_client.errors import ConfigError
from kip848_client.tools.shared.spark_options import add_session_arguments, read_conf, read_master

if TYPE_CHECKING:
    from kip848_client.spark.sweeps.sweep import Traces
    from kip848_client.spark.sweeps.sweep_summary import SweepSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--scenario", metavar="NAME", default="mixed", help="as of kip848 simulate (mixed)")
    parser.add_argument("--seeds", metavar="A:B", help="seeds A to B, B exclusive (with --like 0:100)")
    parser.add_argument("--out", metavar="FOLDER", help="for the runs, as Parquet: a path, s3a://, hdfs://")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="change a number of the scenario"
    )
    parser.add_argument(
        "--traces", choices=("none", "failures", "all"), default="failures", help="keep the event logs of (failures)"
    )
    parser.add_argument("--part", metavar="N", type=int, default=5_000, help="seeds between two savings (5000)")
    add_session_arguments(parser)
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the rebalance times (.png or .svg)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_like_arguments(parser)
    add_client_arguments(parser)


def _add_like_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what if: a group of the shape of a real one, in place of --scenario and --out")
    group.add_argument("--like", metavar="GROUP", help="the group; ask --bootstrap for its members, topics, settings")
    group.add_argument(
        "--try",
        dest="tries",
        metavar="SETTINGS",
        action="append",
        default=[],
        help="another setting: heartbeat=1000,static=yes,assignor=range,session=10000; may be repeated "
        "(heartbeat=1000; static=yes or no; the other assignor)",
    )
    group.add_argument(
        "--poll-ms", metavar="LEAST,MOST", default="10,200", help="time between two polls of a member (10,200)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Play the seeds, and print the summary.

    Raises:
        ConfigError: an option makes no sense.
        Kip848Error: PySpark, a Java or matplotlib is missing.
    """
    if arguments.like is not None:
        return _run_like(arguments)
    if arguments.seeds is None or arguments.out is None:
        raise ConfigError("a sweep needs --seeds and --out, or --like GROUP")
    seeds = _seeds(arguments.seeds)
    conf = read_conf(arguments)
    from kip848_client.spark.session.session import require_pyspark, spark_session  # they take a second

    require_pyspark()
    from kip848_client.spark.sweeps.sweep import Sweep, play_sweep
    from kip848_client.spark.sweeps.sweep_summary import plot_rebalances, summarize

    sweep = Sweep(
        scenario=arguments.scenario,
        seeds=seeds,
        changes=tuple(arguments.set),
        traces=cast("Traces", arguments.traces),
        part=arguments.part,
    )
    spark = spark_session("kip848 sweep", master=read_master(arguments), config=conf)
    try:
        began_s = time.monotonic()
        with _progress(quiet=arguments.json) as on_progress:
            runs = play_sweep(spark, sweep, arguments.out, on_progress=on_progress)
        elapsed_s = time.monotonic() - began_s
        summary = summarize(runs)
    finally:
        spark.stop()
    if arguments.plot is not None:
        plot_rebalances(summary, arguments.plot)
    if arguments.json:
        print(to_json(summary.to_plain() | {"seconds": round(elapsed_s, 3), "out": str(arguments.out)}))
    else:
        print("\n".join(_sentences(summary, elapsed_s)))
    return 1 if summary.broken_count else 0


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise ConfigError(f"--seeds {text!r}: give two numbers A:B, A < B, such as 0:20000")
    return range(int(first), int(last))


def _run_like(arguments: argparse.Namespace) -> int:
    """Play what a change would cost; on Spark if a master is given."""
    from kip848_client.tools.comparing import sweep_like  # here: it loads the simulation

    seeds = sweep_like.SEEDS if arguments.seeds is None else _seeds(arguments.seeds)
    if arguments.out is not None or arguments.set:
        raise ConfigError("--out and --set do not go with --like; --try changes settings")
    if arguments.master is None:
        return sweep_like.run_like(arguments, seeds)
    from kip848_client.spark.session.session import require_pyspark, spark_session  # they take a second

    require_pyspark()
    from kip848_client.spark.sweeps.what_if import play_on_spark

    spark = spark_session("kip848 sweep", master=read_master(arguments), config=read_conf(arguments))
    try:
        return sweep_like.run_like(arguments, seeds, functools.partial(play_on_spark, spark))
    finally:
        spark.stop()


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar in a terminal, a line now and then elsewhere."""
    shown = -1

    def tell(done: int, of: int) -> None:
        nonlocal shown
        share = done * 100 // of
        if quiet or share <= shown:
            return
        if sys.stderr.isatty():
            bar = "█" * (share * 40 // 100)
            print(f"\r{bar:<40} {share:3} %  {done:,} of {counted(of, 'run')}", end="", file=sys.stderr, flush=True)
        elif share // 10 > shown // 10:
            print(f"{done:,} of {counted(of, 'run')}", file=sys.stderr, flush=True)
        shown = share

    yield tell
    if sys.stderr.isatty() and not quiet:
        print(file=sys.stderr)


def _sentences(summary: SweepSummary, elapsed_s: float) -> Iterator[str]:
    yield (
        f"{counted(summary.runs, 'run')}, {counted(summary.events, 'event')}, {counted(summary.faults, 'fault')}, "
        f"{summary.simulated_ms / 3_600_000:.1f} virtual hours; {elapsed_s:.1f} s for what was not there yet"
    )
    yield f"{summary.broken_count} broken" + (":" if summary.broken else "")
    for broken in summary.broken:
        yield f"  {broken.invariant}: {broken.message}"
        yield f"    {broken.replay}"
    if summary.rebalances:
        yield "rebalances, by members at their end (virtual ms):"
        yield f"  {'members':>7} {'count':>9} {'median':>9} {'90 %':>9} {'99 %':>9} {'longest':>9}"
        for times in summary.rebalances:
            yield (
                f"  {times.members:>7} {times.count:>9,} {times.p50_ms:>9,.0f} {times.p90_ms:>9,.0f} "
                f"{times.p99_ms:>9,.0f} {times.max_ms:>9,.0f}"
            )
