"""Plays many seeds in several processes, and shows how far it is. What a run is: `kip848_client.simulation`."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from kip848_client.simulation.play import Report, run
from kip848_client.simulation.scenario import Scenario

_PLAIN_EVERY_S: Final = 5.0
_FAILURES_MAX: Final = 20
"""After so many the rest would say nothing new."""


@dataclass(slots=True)
class Progress:
    """What all runs so far come to."""

    scenario: str
    seeds: range
    runs: int = 0
    simulated_ms: int = 0
    handed_out_twice: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Report] = field(default_factory=list)
    """Runs in which an invariant broke, with their history."""
    began_s: float = field(default_factory=time.monotonic)
    elapsed_s: float = 0.0

    @property
    def runs_per_s(self) -> float:
        """Runs a second, over all processes."""
        return self.runs / self.elapsed_s if self.elapsed_s else 0.0

    def add(self, report: Report) -> None:
        """Count one more."""
        self.runs += 1
        self.simulated_ms += report.simulated_ms
        self.handed_out_twice += report.handed_out_twice
        self.counts.update(report.counts)
        self.elapsed_s = time.monotonic() - self.began_s
        if report.violation is not None:
            self.failures.append(report)


def play_many(scenario: Scenario, seeds: range, *, jobs: int, quiet: bool) -> Progress:
    """Play every seed; stop early after many failures.

    Args:
        quiet: show no progress.
    """
    total = Progress(scenario.name, seeds)
    with _display(total, quiet=quiet) as show, _reports(scenario, seeds, jobs=jobs) as reports:
        for report in reports:
            total.add(report)
            show()
            if len(total.failures) >= _FAILURES_MAX:
                break
    total.failures.sort(key=lambda report: report.seed)
    return total


@contextmanager
def _reports(scenario: Scenario, seeds: range, *, jobs: int) -> Iterator[Iterator[Report]]:
    play = functools.partial(_play, scenario)
    if jobs == 1 or len(seeds) == 1:
        yield map(play, seeds)
        return
    # Not by fork: the caller may have threads, and their locks would be copied as they are.
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(seeds)), initializer=_ignore_interrupts) as pool:
        yield pool.imap_unordered(play, seeds, chunksize=4)


def _play(scenario: Scenario, seed: int) -> Report:
    report = run(scenario, seed=seed)
    return report if report.violation else replace(report, lines=())


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _display(total: Progress, *, quiet: bool) -> Iterator[Callable[[], None]]:
    if quiet:
        yield lambda: None
    elif sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
        with _bar(total) as show:
            yield show
    else:
        next_s = total.began_s + _PLAIN_EVERY_S

        def show() -> None:
            nonlocal next_s
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + _PLAIN_EVERY_S
                print(_line(total), file=sys.stderr, flush=True)

        yield show


def _line(total: Progress) -> str:
    lost = total.counts["request_lost"] + total.counts["answer_lost"]
    return (
        f"{total.runs} of {len(total.seeds)} runs, {total.runs_per_s:.1f} a second, {len(total.failures)} broken, "
        f"{total.counts['member_left']:,} departures, {lost:,} messages lost"
    )


@contextmanager
def _bar(total: Progress) -> Iterator[Callable[[], None]]:
    from rich.console import Console  # rich is an extra, and slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(total.scenario, total=len(total.seeds), state="")

        def show() -> None:
            state = f"{total.runs_per_s:.1f}/s, {len(total.failures)} broken"
            bar.update(task, completed=total.runs, state=state)

        yield show
