"""``kip848 simulate``: play a group on a virtual clock, with faults, from one seed or from thousands.

::

    kip848 simulate --seed 39                           # the story of one run, and whether every invariant held
    kip848 simulate --seeds 0:50000                     # many runs on all cores
    kip848 simulate --scenario storm --seed 7           # another scenario
    kip848 simulate --seed 7 --set faults.loss=0.2      # a number of the scenario changed
    kip848 simulate --seed 7 --shrink                   # a failing run made smaller
    kip848 simulate --seed 7 --history run.jsonl        # its event log, for kip848 report
    kip848 simulate --seed 7 --watch my_tests:mine      # with observers of your own beside the checkers

The story is written by `simulate_story`, many runs are played by `simulate_many`, and `simulate_shrink` makes a failing
one smaller. The exit status is 1 if an invariant broke.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.testing.playing.simulate_many import SeedPlan, SeedResults, observers_of, play_many
from kip848_client.testing.playing.simulate_shrink import shrink
from kip848_client.testing.playing.simulate_story import tell
from kip848_client.testing.simulation.run import Report
from kip848_client.testing.simulation.run import run as play
from kip848_client.testing.simulation.virtual.history import FAULTS, to_event_log
from kip848_client.testing.simulation.virtual.scenario import SCENARIOS, scenario_of

_TAIL: Final = 25
"""Lines of the story that are shown of a run that failed among many."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--scenario", metavar="NAME", default="mixed", choices=sorted(SCENARIOS), help=", ".join(SCENARIOS) + " (mixed)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", metavar="N", type=int, default=0, help="play this one and tell its story (0)")
    which.add_argument("--seeds", metavar="A:B", help="play seeds A to B, B exclusive, and count")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="change a number, such as faults.loss=0.1"
    )
    parser.add_argument("--shrink", action="store_true", help="if it fails, look for a smaller scenario that does")
    parser.add_argument(
        "--history", metavar="FILE", type=Path, help="of one seed: write its event log, for kip848 report"
    )
    parser.add_argument("--verbose", action="store_true", help="tell every message and commit, too")
    parser.add_argument(
        "--watch",
        metavar="MODULE:FUNCTION",
        action="append",
        default=[],
        help="add observers of your own: a function that makes them (kip848_client.testing.simulation.Watch)",
    )
    parser.add_argument("--within", metavar="SECONDS", type=float, help="of many seeds: stop when this time is over")
    parser.add_argument("--digest", action="store_true", help="of many seeds: print a digest of all their histories")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Play the seeds that the options name.

    Raises:
        ConfigError: an option is out of range.
    """
    changes, watch = tuple(arguments.set), tuple(arguments.watch)
    watching = observers_of(watch)
    scenario = scenario_of(arguments.scenario, seed=arguments.seed, changes=changes)
    if arguments.seeds is not None:
        if arguments.history is not None:
            raise ConfigError("--history writes the event log of one run: choose it with --seed, not --seeds")
        seeds = _seed_range(arguments.seeds)
        if not 1 <= arguments.jobs <= 1024:
            raise ConfigError(f"--jobs {arguments.jobs}: between 1 and 1024")
        work = SeedPlan(arguments.scenario, changes, watch)
        total = play_many(
            work,
            seeds,
            jobs=arguments.jobs,
            quiet=arguments.json,
            digests=arguments.digest,
            within_s=arguments.within,
        )
        _print_many(total, watch=watch, as_json=arguments.json, digest=arguments.digest)
        failures = total.failures
    else:
        report = play(scenario, seed=arguments.seed, watch=watching)
        if arguments.history is not None:
            _write_history(report, arguments.history)
        _print_one(report, watch=watch, as_json=arguments.json, verbose=arguments.verbose)
        failures = [report] if report.violation else []
    if arguments.shrink and failures and not arguments.json:
        _shrink(failures[0], watch=watch)
    return 1 if failures else 0


def _write_history(report: Report, path: Path) -> None:
    try:
        path.write_text("".join(event.to_json() + "\n" for event in to_event_log(report.lines)), encoding="utf-8")
    except OSError as error:
        raise Kip848Error(f"the history cannot be written: {error}") from error


def _seed_range(text: str) -> range:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise ConfigError(f"--seeds {text!r}: give two numbers A:B, A < B, such as 0:1000")
    return range(int(first), int(last))


def _print_one(report: Report, *, watch: Sequence[str], as_json: bool, verbose: bool) -> None:
    if as_json:
        print(to_json(_plain(report, watch)))
        return
    who = "workers" if report.scenario.units else "consumers"
    print(f"scenario {report.scenario.name}, seed {report.seed}: {report.scenario.members} {who} to begin with\n")
    for sentence in tell(report.lines, verbose=verbose):
        print(sentence)
    print()
    _print_verdict(report, watch)
    print(_counted(report.counts))


def _print_verdict(report: Report, watch: Sequence[str]) -> None:
    seconds = report.simulated_ms / 1000
    if report.violation is None:
        print(f"every invariant held in {seconds:.0f} virtual seconds; records read twice: {report.handed_out_twice}")
    else:
        print(
            f"BROKEN after {seconds:.3f} virtual seconds: {report.violation}\nplay it again: {_replay(report, watch)}"
        )


def _print_many(total: SeedResults, *, watch: Sequence[str], as_json: bool, digest: bool) -> None:
    if as_json:
        answer = {
            "scenario": total.scenario,
            "seeds": [total.seeds.start, total.seeds.stop],
            "runs": total.runs,
            "seconds": round(total.elapsed_s, 3),
            "runs_per_s": round(total.runs_per_s, 2),
            "simulated_ms": total.simulated_ms,
            "handed_out_twice": total.handed_out_twice,
            "medians": dict(total.medians),
            "faults": {name: total.counts[name] for name in FAULTS},
            "counts": dict(sorted(total.counts.items())),
            "digest": total.digest if digest else None,
            "failures": [_plain(report, watch) for report in total.failures],
        }
        print(to_json(answer))
        return
    for report in total.failures:
        print(f"\nseed {report.seed}, the last that happened:")
        for sentence in tell(report.lines, verbose=True)[-_TAIL:]:
            print(sentence)
        _print_verdict(report, watch)
    hours = total.simulated_ms / 3_600_000
    print(
        f"\n{total.scenario}: {counted(total.runs, 'run')} in {total.elapsed_s:.1f} s "
        f"({total.runs_per_s:.1f} a second), {hours:.1f} virtual hours, {len(total.failures)} broken"
    )
    middle = total.medians
    print("half of the runs had at least {members} members, {events} events and {faults} faults".format(**middle))
    print(_counted(total.counts))
    print("faults: " + ", ".join(f"{total.counts[name]:,} {text}" for name, text in FAULTS.items()))
    if digest:
        print(f"digest {total.digest}")


_SHOWN: Final[Mapping[str, str]] = {
    "member_joined": "joins",
    "member_left": "departures",
    "group_epoch_bumped": "group epochs",
    "revoked_ended": "revocations",
    "lost_ended": "losses",
    "request_timed_out": "time-outs",
    "member_fenced": "heartbeats refused",
    "commit_refused": "commits refused",
    "offsets_committed": "commits",
}


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[what]:,} {text}" for what, text in _SHOWN.items() if counts.get(what))


def _replay(report: Report, watch: Sequence[str]) -> str:
    return report.replay_command + "".join(f" --watch {name}" for name in watch)


def _plain(report: Report, watch: Sequence[str]) -> dict[str, object]:
    violation = report.violation
    return {
        "scenario": msgspec.to_builtins(report.scenario) | {"skip": sorted(report.scenario.skip)},
        "seed": report.seed,
        "digest": report.digest,
        "simulated_ms": report.simulated_ms,
        "events": report.events,
        "handed_out_twice": report.handed_out_twice,
        "counts": dict(report.counts),
        "violation": violation and {"invariant": violation.invariant, "message": violation.message},
        "replay": _replay(report, watch),
        "history": [msgspec.json.decode(line) for line in report.lines],
    }


def _shrink(report: Report, *, watch: Sequence[str]) -> None:
    def tell_progress(runs: int) -> None:
        if sys.stderr.isatty():
            print(f"\rshrinking: {counted(runs, 'run')}", end="", file=sys.stderr)

    found = shrink(report, watch=observers_of(watch), on_run=tell_progress)
    print("\nnothing smaller fails the same way" if found is report else f"\nsmaller: {_replay(found, watch)}")
