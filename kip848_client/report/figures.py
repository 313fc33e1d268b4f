"""Numbers of one group: how long rebalances took, how long partitions had no reader, how much moved, what was refused.

Definitions (the same that the analytics on Spark use):

* A **rebalance** begins when the group epoch is bumped and ends when the group is Stable or Empty again; bumps in
  between belong to it. One that the log does not see the end of is counted as open and has no duration.
* A partition is **without a reader** from the end of one owner's span to the beginning of the next one's. Before its
  first owner and after its last one it is not counted. Where clients wrote logs, owning means reading; else it means
  being counted as the owner by the coordinator.
* A **move** is a partition whose next owner is another member. A partition that comes back to the member it left is a
  **bounce**: it was taken away for nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kip848_client.report.timeline import PartitionLane, Span, Timeline
from kip848_client.values import value

_AT_REST = {"Stable", "Empty", "Dead"}


@value
class Percentiles:
    """Nearest-rank percentiles of durations in milliseconds; all None if there were none."""

    count: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@value
class Rebalance:
    """One rebalance. `end_ms` is None if the log ends first."""

    start_ms: float
    end_ms: float | None
    first_epoch: int
    last_epoch: int
    reasons: Sequence[str]


@value
class Figures:
    """Everything that is counted of one group."""

    group_id: str
    log_ms: float
    members: int
    partitions: int
    rebalances: Sequence[Rebalance]
    rebalance: Percentiles
    without_reader: Percentiles
    without_reader_by_partition_ms: Mapping[str, float]
    moves: int
    bounces: int
    two_readers: Sequence[str]
    listener_calls: Mapping[str, Percentiles]
    marks: Mapping[str, int]

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        plain = dataclasses.asdict(self)
        plain["rebalances"] = [dataclasses.asdict(rebalance) for rebalance in self.rebalances]
        return plain


def figures_of(timeline: Timeline) -> Figures:
    """Count."""
    rebalances = _rebalances(timeline)
    gaps: dict[str, list[float]] = {}
    moves = bounces = 0
    two_readers = []
    for lane in timeline.partitions:
        owners = _owners(lane)
        gaps[lane.partition] = []
        for before, after in itertools.pairwise(owners):
            gaps[lane.partition].append(max(0.0, after.start_ms - before.end_ms))
            if before.text != after.text:
                moves += 1
            else:
                bounces += 1
        two_readers += [lane.partition] if _overlap(lane.read) else []
    calls: dict[str, list[float]] = {}
    for member in timeline.members:
        for call in member.calls:
            calls.setdefault(call.text.partition("(")[0], []).append(call.end_ms - call.start_ms)
    return Figures(
        group_id=timeline.group_id,
        log_ms=timeline.end_ms - timeline.start_ms,
        members=len(timeline.members),
        partitions=len(timeline.partitions),
        rebalances=rebalances,
        rebalance=percentiles(r.end_ms - r.start_ms for r in rebalances if r.end_ms is not None),
        without_reader=percentiles(gap for times in gaps.values() for gap in times if gap > 0),
        without_reader_by_partition_ms={partition: sum(times) for partition, times in gaps.items()},
        moves=moves,
        bounces=bounces,
        two_readers=two_readers,
        listener_calls={name: percentiles(times) for name, times in sorted(calls.items())},
        marks=dict(sorted(Counter(mark.kind for mark in timeline.marks).items())),
    )


def percentiles(durations_ms: Iterable[float]) -> Percentiles:
    """Nearest rank, so that each figure is one that was seen."""
    ordered = sorted(durations_ms)
    if not ordered:
        return Percentiles(0, None, None, None, None)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(len(ordered), rank(0.5), rank(0.9), rank(0.99), ordered[-1])


def _rebalances(timeline: Timeline) -> list[Rebalance]:
    rests = [span.start_ms for span in timeline.states if span.text in _AT_REST]
    found: list[Rebalance] = []
    open_: list[tuple[float, int, str]] = []
    bumps = list(timeline.epochs)
    for rest in [*rests, None]:
        while bumps and (rest is None or bumps[0][0] <= rest):
            open_.append(bumps.pop(0))
        if open_:
            found.append(
                Rebalance(
                    start_ms=open_[0][0],
                    end_ms=rest,
                    first_epoch=open_[0][1],
                    last_epoch=open_[-1][1],
                    reasons=[reason for _, _, reason in open_],
                )
            )
            open_ = []
    return found


def _owners(lane: PartitionLane) -> Sequence[Span]:
    return lane.read or lane.held


def _overlap(spans: Sequence[Span]) -> bool:
    """Whether two spans of different owners have time in common."""
    last: Span | None = None
    for span in spans:
        if last is not None and span.start_ms < last.end_ms and span.text != last.text:
            return True
        if last is None or span.end_ms > last.end_ms:
            last = span
    return False
