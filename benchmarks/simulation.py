"""How much faster than time the simulation is, and what an event costs.

::

    python benchmarks/simulation.py              # three minutes
    python benchmarks/simulation.py --quick

``small`` plays the scenarios that seeds draw (``brief``), as ``make simulate`` does: CPU time of a run and of an event,
every invariant checked. ``groups`` plays long lives of groups with Kafka's intervals: a heartbeat every 5 s, a poll
every second, one membership change or fault a minute; the ratio is virtual time by CPU time. ``length`` plays the group
of three for half an hour and for four times as long: an event may not become dearer.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from report_file import keep, machine, options, table, versions

from kip848_client.testing.simulation import BRIEF, Behaviour, NetworkFaults, Scenario, run

GOALS: Final = {3: 3_000, 100: 100}
"""Members -> virtual seconds in one second of CPU time."""
RUN_GOAL_MS: Final = 12.0
"""CPU time of one run, so that 50,000 take five minutes on two cores."""
_MINUTE_S: Final = 60


def group_scenario(members: int, *, minutes: float) -> Scenario:
    """A long life of a group with Kafka's intervals."""
    once_in_six_minutes = 1 / (6 * _MINUTE_S)
    return Scenario(
        name=f"{members} members",
        members=members,
        members_max=members + 2,
        topics={"orders": 2 * members},
        duration_ms=int(minutes * 60_000),
        faults=NetworkFaults(delay_ms=(0, 5)),
        behaviour=Behaviour(think_ms=(950, 1_000), poll_ms=20, commit=0.0),
        joins=once_in_six_minutes,
        leaves=once_in_six_minutes,
        crashes=once_in_six_minutes,
        cuts=once_in_six_minutes,
        coordinator_crashes=once_in_six_minutes,
        freezes=once_in_six_minutes,
        resubscriptions=0.0,
        growths=0.0,
        coordinator_crashes_after_append=0.0,
        coordinator_crashes_before_append=0.0,
        produce_ms=1_000,
        auto_commit_ms=5_000,
        trials=0,
        heartbeat_interval_ms=5_000,
        session_timeout_ms=45_000,
        max_poll_interval_ms=300_000,
        request_timeout_ms=30_000,
    )


def play(scenario: Scenario, seed: int) -> tuple[float, int, int]:
    """Run once; (CPU seconds, virtual ms, events)."""
    gc.collect()
    began_s = time.process_time()
    report = run(scenario, seed=seed, keep_history=False)
    spent_s = time.process_time() - began_s
    assert report.violation is None, f"{report.violation}\n{report.replay_command}"
    return spent_s, report.simulated_ms, report.events


def small(runs: int) -> dict[str, Any]:
    """The scenarios of ``make simulate``."""
    for seed in range(20):
        play(BRIEF, seed)
    found = [play(BRIEF, seed) for seed in range(1_000, 1_000 + runs)]
    cpu_s, events = sum(one[0] for one in found), sum(one[2] for one in found)
    run_ms = round(cpu_s / runs * 1e3, 2)
    return {
        "runs": runs,
        "events_median": statistics.median(one[2] for one in found),
        "run_ms": run_ms,
        "event_us": round(cpu_s / events * 1e6, 1),
        "runs_in_five_minutes_on_two_cores": int(600e3 / run_ms),
        "goal_ms": RUN_GOAL_MS,
    }


def group(members: int, *, minutes: float, seeds: Sequence[int]) -> dict[str, Any]:
    """The ratio of virtual to CPU time."""
    found = [play(group_scenario(members, minutes=minutes), seed) for seed in seeds]
    cpu_s = sum(one[0] for one in found)
    return {
        "members": members,
        "virtual_minutes": round(sum(one[1] for one in found) / 60_000, 1),
        "events": sum(one[2] for one in found),
        "cpu_s": round(cpu_s, 3),
        "ratio": round(sum(one[1] for one in found) / 1_000 / cpu_s),
        "goal": GOALS[members],
        "event_us": round(cpu_s / sum(one[2] for one in found) * 1e6, 1),
    }


def length(minutes: float) -> dict[str, Any]:
    """What an event costs in a run, and in one that is four times as long."""
    short = [play(group_scenario(3, minutes=minutes), seed) for seed in (1, 2, 3, 4)]
    long = [play(group_scenario(3, minutes=4 * minutes), 1)]
    costs = [sum(one[0] for one in runs) / sum(one[2] for one in runs) * 1e6 for runs in (short, long)]
    return {"minutes": minutes, "event_us": [round(cost, 1) for cost in costs], "times": round(costs[1] / costs[0], 2)}


def main() -> int:
    """Measure and print."""
    arguments = options(__doc__).parse_args()
    quick = arguments.quick
    result: dict[str, Any] = {
        "benchmark": "simulation",
        "machine": machine(),
        "versions": versions(),
        "small": small(40 if quick else 600),
        "groups": [
            group(3, minutes=10 if quick else 120, seeds=(1,) if quick else (1, 2)),
            group(100, minutes=1 if quick else 10, seeds=(1,)),
        ],
        "length": length(3 if quick else 30),
    }
    found = result["small"]
    table(
        [
            ["", "virtual : CPU", "goal", "event us"],
            *([f"{one['members']} members", one["ratio"], one["goal"], one["event_us"]] for one in result["groups"]),
        ]
    )
    print(
        f"small scenarios: {found['run_ms']} ms a run (goal {RUN_GOAL_MS}), {found['event_us']} us an event, "
        f"{found['events_median']:.0f} events in half of them; {found['runs_in_five_minutes_on_two_cores']:,} in five "
        "minutes on two cores"
    )
    print(f"four times as long: an event costs {result['length']['times']} times as much")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
