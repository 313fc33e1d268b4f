"""Server-side assignors on the grid of Kafka's own benchmark (``ServerSideAssignorBenchmark``).

::

    python benchmarks/assignors.py              # five minutes
    python benchmarks/assignors.py --quick

``full`` assigns to members that have nothing; ``incremental`` assigns to all but one and then measures one joining.
Homogeneous members subscribe to all topics, heterogeneous ones to one of five sets of them. With ``uniform-rack-aware``
members and partitions are spread over three racks, one replica a partition: the hardest case. The peers are client-side
assignors of kafka-python, in Python as ours are, on the sizes that they can bear. Kafka's published figures (JMH, on
another machine) stand beside ours in docs/performance.md.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from report_file import keep, machine, options, table, versions

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import GroupSpec

MEMBERS = (100, 500, 1_000, 5_000, 10_000)
PARTITIONS_PER_MEMBER = (5, 10, 50)
TOPICS = (10, 100, 1_000)
BUCKETS = 5
RACKS = ("a", "b", "c")
ROUNDS = 5
ROUND_BUDGET_S = 0.8
GOALS_MS = {
    "uniform homogeneous full 10000 x 50, 100 topics": 15.0,
    "uniform homogeneous incremental 10000 x 50, 100 topics": 1.0,
    "uniform heterogeneous full 10000 x 5, 10 topics": 100.0,
}


def spec_of(*, members: int, per_member: int, topics: int, heterogeneous: bool, racks: bool = False) -> GroupSpec:
    """The group of one cell of the grid."""
    count = max(1, members * per_member // topics)
    ids = [uuid.UUID(int=number + 1) for number in range(topics)]
    everything = tuple(ids)
    buckets = [tuple(ids[number::BUCKETS]) for number in range(BUCKETS)]
    return GroupSpec(
        subscriptions={
            f"member-{number:05}": buckets[number % BUCKETS] if heterogeneous else everything
            for number in range(members)
        },
        topics=dict.fromkeys(ids, count),
        rack_ids={f"member-{number:05}": RACKS[number % 3] for number in range(members)} if racks else {},
        partition_racks=(
            dict.fromkeys(ids, tuple(frozenset(RACKS[number % 3]) for number in range(count))) if racks else {}
        ),
    )


def timed_ms(work: Callable[[], object]) -> tuple[float, float]:
    """(best, median) milliseconds of this thread's CPU, over some rounds within a budget."""
    times: list[float] = []
    until = time.perf_counter() + ROUND_BUDGET_S
    while len(times) < ROUNDS and (not times or time.perf_counter() < until):
        gc.collect()
        begun = time.thread_time()
        work()
        times.append((time.thread_time() - begun) * 1000)
    return min(times), statistics.median(times)


def measure(name: str, *, members: int, per_member: int, topics: int, heterogeneous: bool) -> list[dict[str, Any]]:
    """One cell, full and incremental."""
    assign = SERVER_ASSIGNORS[name].assign
    whole = spec_of(
        members=members,
        per_member=per_member,
        topics=topics,
        heterogeneous=heterogeneous,
        racks=name == "uniform-rack-aware",
    )
    *others, _last = whole.subscriptions
    before = assign(replace(whole, subscriptions={member: whole.subscriptions[member] for member in others}))
    joined = replace(whole, target=before)
    cells = []
    for mode, spec in (("full", whole), ("incremental", joined)):
        best, middle = timed_ms(lambda spec=spec: assign(spec))  # type: ignore[misc]
        cells.append(
            {
                "assignor": name,
                "subscriptions": "heterogeneous" if heterogeneous else "homogeneous",
                "mode": mode,
                "members": members,
                "partitions_per_member": per_member,
                "topics": topics,
                "best_ms": round(best, 3),
                "median_ms": round(middle, 3),
            }
        )
    return cells


def peers(members: int, per_member: int, topics: int) -> dict[str, Any]:
    """kafka-python's assignors beside ours, on one small group."""
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    count = members * per_member // topics
    names = [f"topic-{number}" for number in range(topics)]

    class Cluster:
        def partitions_for_topic(self, _topic: str) -> set[int]:
            return set(range(count))

        def topics(self) -> set[str]:
            return set(names)

    spec = spec_of(members=members, per_member=per_member, topics=topics, heterogeneous=False)
    ours, _ = timed_ms(lambda: SERVER_ASSIGNORS["uniform"].assign(spec))
    found: dict[str, Any] = {"members": members, "partitions": count * topics, "ours_ms": round(ours, 3)}
    for peer in (RoundRobinPartitionAssignor, StickyPartitionAssignor):
        theirs, _ = timed_ms(lambda peer=peer: _assign_by(peer, Cluster(), list(spec.subscriptions), names))  # type: ignore[misc]
        found[peer.name] = {"ms": round(theirs, 3), "times_ours": round(theirs / ours, 1)}
    return found


def _assign_by(peer: Any, cluster: Any, member_ids: list[str], names: list[str]) -> object:
    assignor = peer()
    members = [
        SimpleNamespace(member_id=member_id, group_instance_id=None, metadata=assignor.metadata(names))
        for member_id in member_ids
    ]
    return assignor.assign(cluster, members)


def main() -> int:
    """Measure and print."""
    arguments = options(__doc__).parse_args()
    sizes: tuple[tuple[int, int, int], ...] = ((100, 5, 10), (1_000, 10, 100), (10_000, 5, 10), (10_000, 50, 100))
    if not arguments.quick:
        sizes = tuple((m, p, t) for m in MEMBERS for p in PARTITIONS_PER_MEMBER for t in TOPICS if m * p >= t)
    cells: list[dict[str, Any]] = []
    rows: list[list[object]] = [["best ms", "homog. full", "joining", "heterog. full", "joining"]]
    for name in SERVER_ASSIGNORS:
        for members, per_member, topics in sizes:
            row: list[object] = [f"{name} {members} members x {per_member}, {topics} topics"]
            for heterogeneous in (False, True):
                found = measure(
                    name, members=members, per_member=per_member, topics=topics, heterogeneous=heterogeneous
                )
                cells += found
                row += [cell["best_ms"] for cell in found]
            rows.append(row)
        print(f"  {name} done", flush=True)
    compared = [peers(100, 5, 10)] if arguments.quick else [peers(100, 5, 10), peers(200, 10, 10)]
    reached = {}
    for cell in cells:
        key = "{assignor} {subscriptions} {mode} {members} x {partitions_per_member}, {topics} topics".format(**cell)
        if key in GOALS_MS:
            reached[key] = cell["best_ms"]
    result = {
        "benchmark": "assignors",
        "machine": machine(),
        "versions": versions("kafka-python"),
        "cells": cells,
        "peers": compared,
        "goals_ms": GOALS_MS,
        "reached_ms": reached,
    }
    table(rows)
    for row_ in compared:
        print(row_)
    for key, goal in GOALS_MS.items():
        print(f"{key}: {reached.get(key)} ms (goal {goal})")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
