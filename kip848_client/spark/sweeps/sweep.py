"""The simulation over many seeds, on Spark: a row a run, in Parquet. Resumable; one machine or a cluster.

Seeds are played in parts. A part that is written is never played again: a sweep that was stopped goes on where it was,
and one with more seeds plays only the new ones.

Source: KIP-848 "Test Plan", which names simulation as its primary method; It runs `kip848_client.testing.simulation`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import ConfigError
from kip848_client.spark.session.arrow_map import map_in_arrow
from kip848_client.spark.session.folder import Folder
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.simulation.run import Report, run
from kip848_client.testing.simulation.virtual.history import FAULTS, Line, to_event_log
from kip848_client.testing.simulation.virtual.scenario import SCENARIOS, scenario_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Traces: TypeAlias = Literal["none", "failures", "all"]

RUNS: Final = pa.schema(
    [
        ("seed", pa.int64()),
        ("scenario", pa.string()),
        ("members", pa.int32()),
        ("events", pa.int64()),
        ("faults", pa.int64()),
        ("simulated_ms", pa.int64()),
        ("handed_out_twice", pa.int64()),
        ("invariant", pa.string()),
        ("message", pa.string()),
        ("replay", pa.string()),
        ("rebalances", pa.list_(pa.struct([("members", pa.int32()), ("ms", pa.int64())]))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("log", pa.list_(pa.string())),
    ]
)
"""One row a run. `rebalances` has each one's duration and the members that there were at its end; `counts` how often
each thing happened; `log` the event log, one JSON line each, of runs whose trace was asked for."""

_DDL: Final = (
    "seed long, scenario string, members int, events long, faults long, simulated_ms long, handed_out_twice long, "
    "invariant string, message string, replay string, rebalances array<struct<members: int, ms: long>>, "
    "counts map<string, long>, log array<string>"
)
_ROWS_PER_BATCH: Final = 50
_PART: Final = re.compile(r"seeds-(\d+)-(\d+)")
_AT_REST: Final = {"Stable", "Empty", "Dead"}


class Sweep(msgspec.Struct, frozen=True):
    """The plan of a sweep.

    Args:
        scenario: a name of ``kip848_client.testing.simulation.SCENARIOS``.
        seeds: the first one and the one after the last.
        changes: ``name=value``, as ``kip848 simulate --set``.
        traces: the runs whose event log is kept.
        part: seeds of one part.

    Raises:
        ConfigError: no such scenario or number, no seeds.
    """

    scenario: str
    seeds: range
    changes: tuple[str, ...] = ()
    traces: Traces = "failures"
    part: int = 5_000

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise ConfigError(f"there is no scenario {self.scenario!r}; there are {', '.join(sorted(SCENARIOS))}")
        if not self.seeds or self.seeds.step != 1 or self.part < 1:
            raise ConfigError("a sweep needs at least one seed, and parts of at least one")
        scenario_of(self.scenario, seed=self.seeds.start, changes=self.changes)  # refuses unknown names

    def parts(self, played: Iterable[range] = ()) -> list[range]:
        """The ranges to play: the seeds without those that were *played*, cut at multiples of `part`."""
        left: list[range] = []
        first = self.seeds.start
        for done in sorted(played, key=lambda seeds: seeds.start):
            if done.start > first:
                left.append(range(first, min(done.start, self.seeds.stop)))
            first = max(first, done.stop)
        left.append(range(first, self.seeds.stop))
        return [
            range(max(cut, seeds.start), min(cut + self.part, seeds.stop))
            for seeds in left
            for cut in range(seeds.start - seeds.start % self.part, seeds.stop, self.part)
        ]


def play_sweep(
    spark: SparkSession,
    sweep: Sweep,
    out: str | Path,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> DataFrame:
    """Play the missing runs, and return all runs of the sweep.

    Args:
        out: a folder that all workers see, on any file system that Spark writes to; made if it is not there.
        on_progress: called now and then with (runs done, all runs), on a thread of its own.

    Raises:
        ConfigError: the folder holds another sweep.
    """
    folder = Folder(spark, str(out))
    _claim(folder, sweep)
    played = _played(folder)
    parts = sweep.parts(played)
    done = len(sweep.seeds) - sum(map(len, parts))
    for seeds in parts:
        slices = min(len(seeds), 8 * spark.sparkContext.defaultParallelism)
        frame = map_in_arrow(spark.range(seeds.start, seeds.stop, 1, slices).toDF("seed"), _player(sweep), _DDL)
        with _watched(spark, slices, _share(on_progress, done, seeds, sweep)):
            frame.write.mode("overwrite").parquet(folder.of(_name_of(seeds)))
        done += len(seeds)
        if on_progress is not None:
            on_progress(done, len(sweep.seeds))
    if on_progress is not None and not parts:
        on_progress(done, done)
    first, stop = sweep.seeds.start, sweep.seeds.stop
    names = [_name_of(seeds) for seeds in (*played, *parts) if seeds.start < stop and seeds.stop > first]
    runs = spark.read.schema(_DDL).parquet(*(folder.of(name) for name in names))
    return runs.where(f"seed >= {first} and seed < {stop}")


def _share(
    on_progress: Callable[[int, int], None] | None, done: int, seeds: range, sweep: Sweep
) -> Callable[[float], None]:
    def tell(share: float) -> None:
        if on_progress is not None:
            on_progress(done + int(share * len(seeds)), len(sweep.seeds))

    return tell


def _claim(folder: Folder, sweep: Sweep) -> None:
    """Write down what the folder holds; parts of different sweeps must not be mixed."""
    mine = {"scenario": sweep.scenario, "changes": list(sweep.changes), "traces": sweep.traces}
    note = folder.read("sweep.json")
    if note is None:
        folder.write("sweep.json", json.dumps(mine))
        return
    there = json.loads(note)
    if {name: value for name, value in there.items() if name != "part"} != mine:
        raise ConfigError(f"{folder} holds another sweep ({there}); choose another folder, or the same options")


def _played(folder: Folder) -> list[range]:
    """The parts that are complete, without those that others cover."""
    found: list[range] = []
    named = (_PART.fullmatch(name) for name in folder.names())
    seeds_found = [range(int(match[1]), int(match[2])) for match in named if match is not None]
    for seeds in sorted(seeds_found, key=lambda each: (each.start, -each.stop)):
        if (not found or seeds.start >= found[-1].stop) and folder.has(f"{_name_of(seeds)}/_SUCCESS"):
            found.append(seeds)
    return found


def _name_of(seeds: range) -> str:
    return f"seeds-{seeds.start:09}-{seeds.stop:09}"


@contextmanager
def _watched(spark: SparkSession, tasks: int, tell: Callable[[float], None]) -> Iterator[None]:
    """Report how many tasks of the running stage are done."""
    stopped = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not stopped.wait(0.5):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = max((info.numCompletedTasks for info in infos if info is not None), default=0)
            if done:
                tell(done / tasks)

    thread = daemon_thread(watch, "kip848-sweep-progress")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _player(sweep: Sweep) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def play(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rows.append(play_row(sweep, seed))
                if len(rows) == _ROWS_PER_BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema=RUNS)
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=RUNS)

    return play


def play_row(sweep: Sweep, seed: int) -> dict[str, Any]:
    """Play one seed; the row as `RUNS` has it."""
    report = run(scenario_of(sweep.scenario, seed=seed, changes=sweep.changes), seed=seed)
    counts = report.counts
    violation = report.violation
    traced = sweep.traces == "all" or (sweep.traces == "failures" and violation is not None)
    return {
        "seed": seed,
        "scenario": report.scenario.name,
        "members": report.scenario.members,
        "events": report.events,
        "faults": sum(counts.get(name, 0) for name in FAULTS),
        "simulated_ms": report.simulated_ms,
        "handed_out_twice": report.handed_out_twice,
        "invariant": violation and violation.invariant,
        "message": violation and violation.message,
        "replay": report.replay_command,
        "rebalances": rebalances_of(report.history.entries),
        "counts": list(counts.items()),
        "log": _log_of(report) if traced else None,
    }


def _log_of(report: Report) -> list[str]:
    group_id = f"{report.scenario.name}-{report.seed}"
    return [event.to_json() for event in to_event_log(report.lines, group_id=group_id)]


def rebalances_of(entries: Sequence[Line]) -> list[Mapping[str, int]]:
    """Each rebalance: how long it took, and how many members there were when it ended.

    It begins when the group epoch is bumped and ends when the group is at rest again, as in `tools.report`.
    """
    found: list[Mapping[str, int]] = []
    members: set[str] = set()
    began_ms: int | None = None
    for entry in entries:
        fact = entry.details
        if not isinstance(fact, GroupEvent):
            continue
        if fact.event == "member_joined" and fact.member_id:
            members.add(fact.member_id)
        elif fact.event == "member_left" and fact.member_id and fact.fields.get("reason") != "static_leave":
            members.discard(fact.member_id)
        elif fact.event == "group_epoch_bumped":
            began_ms = entry.at_ms if began_ms is None else began_ms
        elif fact.event == "group_state_changed" and fact.fields.get("new") in _AT_REST and began_ms is not None:
            found.append({"members": len(members), "ms": entry.at_ms - began_ms})
            began_ms = None
    return found
