"""Plans for many workers and units (`CooperativeAssignor`, `uniform`), and for many tasks (`StreamsAssignor`).

::

    python benchmarks/workers.py

The goals are 100 ms of processor time for 1,000 workers and 10,000 units, and 200 ms for 100 processes and 2,000 tasks.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from uuid import UUID

from report_file import keep, machine, options, table, versions

from kip848_client import Unit
from kip848_client.assignors import CooperativeAssignor
from kip848_client.assignors.streams import Task
from kip848_client.assignors.streams.messages import MemberInfo
from kip848_client.assignors.streams.planner import Settings, make_plan
from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerSpec
from kip848_client.assignors.units.unit_plans import plan_uniform

WORKERS = 1_000
CONNECTORS = 1_000
TASKS = 9
ROUNDS = 7
GOAL_MS = 100.0
PROCESSES = 100
STREAMS_TASKS = 2_000
STREAMS_GOAL_MS = 200.0


def main() -> int:
    asked = options(__doc__).parse_args()
    units = [Unit(f"c{number}", index) for number in range(CONNECTORS) for index in range(-1, TASKS)]
    catalogue = frozenset(units)
    ids = [f"w{number:04}" for number in range(WORKERS)]
    assignor = CooperativeAssignor()
    fresh = WorkerGroup(tuple(WorkerSpec(one, one) for one in ids), catalogue)
    plan = assignor.assign(fresh)
    workers = tuple(WorkerSpec(one, one, tuple(plan.units[one])) for one in ids)
    left = WorkerGroup(workers[:-1], catalogue, plan.state, plan.state_version, 0)
    waited = assignor.assign(left)
    due = WorkerGroup(workers[:-1], catalogue, waited.state, waited.state_version, waited.delay_ms)
    rows = {
        "cooperative, from nothing": _median_ms(lambda: assignor.assign(fresh)),
        "cooperative, a worker left": _median_ms(lambda: assignor.assign(left)),
        "cooperative, the delay is over": _median_ms(lambda: assignor.assign(due)),
        "uniform, a worker left": _median_ms(lambda: plan_uniform(ids[:-1], units, plan.units)),
    }
    header = (f"{WORKERS:,} workers, {len(units):,} units", "ms", "goal")
    table([header, *[(name, f"{ms:.1f}", f"{GOAL_MS:g}") for name, ms in rows.items()]])
    streams = {f"{standbys} standbys in other zones": _streams_ms(standbys) for standbys in (0, 1, 2)}
    header = (f"{PROCESSES} processes, {STREAMS_TASKS:,} tasks", "ms", "goal")
    table([header, *[(name, f"{ms:.1f}", f"{STREAMS_GOAL_MS:g}") for name, ms in streams.items()]])
    keep({"machine": machine(), "versions": versions(), "ms": rows | streams}, asked)
    return 0 if max(rows.values()) <= GOAL_MS and max(streams.values()) <= STREAMS_GOAL_MS else 1


def _streams_ms(standbys: int) -> float:
    """One task in two is stateful, and no process has state yet."""
    tasks = {Task(str(number), part): number % 2 == 0 for number in range(4) for part in range(STREAMS_TASKS // 4)}
    members = {
        f"m{number:03}": MemberInfo(UUID(int=number + 1), None, (("zone", "abc"[number % 3]),), UUID(int=1), {})
        for number in range(PROCESSES)
    }
    asked = Settings(standbys=standbys, rack_tags=("zone",))
    return _median_ms(lambda: make_plan(tasks, members, {}, asked))


def _median_ms(plan: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        plan()
        times.append((time.process_time() - begin) * 1_000)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
