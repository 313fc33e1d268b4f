"""Plays many seeds in several processes, and shows the progress. `kip848_client.testing.simulation` defines a run."""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import importlib.util
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low
from typing import Final

import msgspec

from kip848_client.common.plain_text import counted
from kip848_client.errors import ConfigError
from kip848_client.testing.simulation.observer import Watch
from kip848_client.testing.simulation.run import Report, run
from kip848_client.testing.simulation.virtual.history import FAULTS
from kip848_client.testing.simulation.virtual.scenario import scenario_of

_PLAIN_EVERY_S: Final = 5.0
_BATCH_MAX: Final = 10
"""Runs that a process plays before it reports their results."""
_FAILURES_MAX: Final = 20
"""Failures after which `play_many` stops: more would say nothing new."""


class SeedPlan(msgspec.Struct, frozen=True):
    """The plan of the runs: a scenario by name, changes of it, and observers besides the checkers.

    Args:
        watch: names of functions, ``module:function``, as `observers_of` takes them.
    """

    name: str
    changes: tuple[str, ...]
    watch: tuple[str, ...] = ()


class PlayedSeeds(msgspec.Struct):
    """The results of some runs that one process played one after the other."""

    members: list[int] = msgspec.field(default_factory=list)
    events: list[int] = msgspec.field(default_factory=list)
    faults: list[int] = msgspec.field(default_factory=list)
    simulated_ms: int = 0
    handed_out_twice: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    digests: list[tuple[int, str]] = msgspec.field(default_factory=list)
    failures: list[Report] = msgspec.field(default_factory=list)


class SeedResults(msgspec.Struct):
    """The results of all runs so far."""

    scenario: str
    seeds: range
    runs: int = 0
    simulated_ms: int = 0
    handed_out_twice: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    members: Counter[int] = msgspec.field(default_factory=Counter)
    events: Counter[int] = msgspec.field(default_factory=Counter)
    faults: Counter[int] = msgspec.field(default_factory=Counter)
    """Number of members, events and faults of a run -> runs that had so many."""
    digests: list[tuple[int, str]] = msgspec.field(default_factory=list)
    failures: list[Report] = msgspec.field(default_factory=list)
    """Runs in which an invariant broke, with their history."""
    began_s: float = msgspec.field(default_factory=time.monotonic)
    elapsed_s: float = 0.0

    @property
    def runs_per_s(self) -> float:
        """Runs a second, over all processes."""
        return self.runs / self.elapsed_s if self.elapsed_s else 0.0

    def add(self, batch: PlayedSeeds) -> None:
        """Count some more."""
        self.runs += len(batch.events)
        self.members.update(batch.members)
        self.events.update(batch.events)
        self.faults.update(batch.faults)
        self.simulated_ms += batch.simulated_ms
        self.handed_out_twice += batch.handed_out_twice
        self.counts.update(batch.counts)
        self.digests += batch.digests
        self.failures += batch.failures
        self.elapsed_s = time.monotonic() - self.began_s

    @property
    def medians(self) -> Mapping[str, int]:
        """Median number of members, events and faults of a run."""
        of = {"members": self.members, "events": self.events, "faults": self.faults}
        return {name: median_low(counts.elements()) if counts else 0 for name, counts in of.items()}

    @property
    def digest(self) -> str:
        """Digest of the histories of all runs, in the order of seeds, if it was asked for."""
        return hashlib.sha256("".join(digest for _, digest in sorted(self.digests)).encode()).hexdigest()


def play_many(
    work: SeedPlan, seeds: range, *, jobs: int, quiet: bool, digests: bool = False, within_s: float | None = None
) -> SeedResults:
    """Play every seed; stop early after many failures, or when *within_s* seconds are over.

    Args:
        quiet: show no progress.
        digests: work out the digest of each run's history, which takes a tenth of its time.
    """
    total = SeedResults(work.name, seeds)
    with _display(total, quiet=quiet) as show, _batches(work, seeds, jobs=jobs, digests=digests) as batches:
        for batch in batches:
            total.add(batch)
            show()
            if len(total.failures) >= _FAILURES_MAX or (within_s is not None and total.elapsed_s >= within_s):
                break
    total.failures.sort(key=lambda report: report.seed)
    return total


@contextmanager
def _batches(work: SeedPlan, seeds: range, *, jobs: int, digests: bool) -> Iterator[Iterator[PlayedSeeds]]:
    play = functools.partial(_play, work, digests)
    size = max(1, min(_BATCH_MAX, len(seeds) // (4 * jobs)))
    parts = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    if jobs == 1 or len(seeds) == 1:
        yield map(play, parts)
        return
    # Not by fork: the caller may have threads, and their locks would be copied as they are.
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(parts)), initializer=_begin) as pool:
        yield pool.imap_unordered(play, parts)


def _play(work: SeedPlan, digests: bool, seeds: range) -> PlayedSeeds:
    batch = PlayedSeeds()
    watch = observers_of(work.watch)
    for seed in seeds:
        scenario = scenario_of(work.name, seed=seed, changes=work.changes)
        report = run(scenario, seed=seed, watch=watch, keep_history=digests)
        if report.violation is not None and not digests:
            report = run(scenario, seed=seed, watch=watch)  # once more, for those who want to read what happened
        counts = report.history.counts
        batch.members.append(report.scenario.members)
        batch.events.append(report.events)
        batch.faults.append(sum(counts.get(name, 0) for name in FAULTS))
        batch.simulated_ms += report.simulated_ms
        batch.handed_out_twice += report.handed_out_twice
        batch.counts.update(counts)
        if digests:
            batch.digests.append((seed, report.digest))
        if report.violation is not None:
            batch.failures.append(report)
    return batch


def observers_of(names: Iterable[str]) -> list[Watch]:
    """The functions of these names, ``module:function``; modules of the working directory are found, too.

    Raises:
        ConfigError: there is no such function.
    """
    found = []
    for name in names:
        module, _, function = name.partition(":")
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # a console script begins with its own folder
        try:
            found.append(getattr(importlib.import_module(module), function))
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"--watch {name!r}: give module:function, such as my_tests:checkers ({error})") from error
    return found


def _begin() -> None:
    """Ctrl-C reaches every process of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A run leaves little garbage, in cycles. Looking for it after every 700 objects takes a tenth of the time.
    gc.freeze()
    gc.set_threshold(50_000)


@contextmanager
def _display(total: SeedResults, *, quiet: bool) -> Iterator[Callable[[], None]]:
    if quiet:
        yield lambda: None
    elif sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
        with _bar(total) as show:
            yield show
    else:
        next_s = total.began_s + _PLAIN_EVERY_S
        told = 0

        def show() -> None:
            nonlocal next_s, told
            for line in _broken(total, told):
                print(line, file=sys.stderr, flush=True)
            told = len(total.failures)
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + _PLAIN_EVERY_S
                print(_line(total), file=sys.stderr, flush=True)

        yield show


def _broken(total: SeedResults, told: int) -> list[str]:
    """A line for each failure after the first *told* ones, so that the user of a long run can look at it now."""
    return [f"seed {report.seed} broke {report.violation}" for report in total.failures[told:]]


def _line(total: SeedResults) -> str:
    lost = total.counts["request_lost"] + total.counts["answer_lost"]
    return (
        f"{total.runs} of {counted(len(total.seeds), 'run')}, {total.runs_per_s:.1f} a second, "
        f"{len(total.failures)} broken, {total.counts['member_left']:,} departures, {lost:,} messages lost"
    )


@contextmanager
def _bar(total: SeedResults) -> Iterator[Callable[[], None]]:
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
        told = 0

        def show() -> None:
            nonlocal told
            for line in _broken(total, told):
                bar.console.print(line, markup=False, highlight=False)
            told = len(total.failures)
            state = f"{total.runs_per_s:.1f}/s, {len(total.failures)} broken"
            bar.update(task, completed=total.runs, state=state)

        yield show
