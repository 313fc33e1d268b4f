"""``kip848 simulate --shrink``: make a failing scenario smaller, so that its story is short.

The smaller one has fewer planned events, kinds of faults and members, or less time, and fails the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.testing.simulation.observer import Watch
from kip848_client.testing.simulation.run import Report, run
from kip848_client.testing.simulation.virtual.environment import plan_of
from kip848_client.testing.simulation.virtual.scenario import Scenario, change, values
from kip848_client.testing.simulation.virtual.scheduler import Scheduler

_NEVER: Final = frozenset(
    {
        "heartbeat_interval_ms",
        "session_timeout_ms",
        "max_poll_interval_ms",
        "request_timeout_ms",
        "members",
        "members_max",
        "duration_ms",
        "produce_ms",
        "auto_commit_ms",
        "one_way",
        "deposed",
        "behaviour.rows_per_poll",
        "behaviour.poll_ms",
        "behaviour.think_ms",
    }
)
"""Numbers that cause no fault."""


def shrink(
    report: Report,
    *,
    watch: Sequence[Watch] = (),
    runs_max: int = 200,
    on_run: Callable[[int], None] = lambda _: None,
) -> Report:
    """Find a smaller scenario in which *report*'s seed breaks the same invariant.

    Planned events are left out, half of them at a time and then one by one; numbers are set to 0, members are taken
    away, time is halved; until nothing helps, or after *runs_max* runs. Every change may change what happens after it,
    so this is a search and may find nothing.

    Args:
        watch: observers beside the checkers, as `run` had them.
        on_run: called after each run with the number of runs so far.

    Returns:
        The report of the smallest scenario that failed; *report* itself if none did, or if it did not fail.
    """
    smallest, runs = report, 0
    progress = report.violation is not None
    while progress:
        progress = False
        for attempt in _smaller(smallest.scenario, smallest.seed):
            if runs >= runs_max:
                return smallest
            found = run(attempt, seed=report.seed, watch=watch)
            runs += 1
            on_run(runs)
            if found.violation and report.violation and found.violation.invariant == report.violation.invariant:
                smallest, progress = found, True
                break
    return smallest


def _smaller(scenario: Scenario, seed: int) -> Iterator[Scenario]:
    planned = [one.number for one in plan_of(scenario, Scheduler(seed))]
    half = len(planned) // 2
    parts = [planned[half:], planned[:half]] if half > 1 else []
    for part in [planned, *parts, *([number] for number in planned)]:
        if part:
            yield replace(scenario, skip=scenario.skip | frozenset(part))
    if scenario.duration_ms > 1_000:
        yield change(scenario, [f"duration_ms={scenario.duration_ms // 2}"])
        yield change(scenario, [f"duration_ms={scenario.duration_ms * 4 // 5}"])
    for path, value in values(scenario):
        zero = (0, 0) if isinstance(value, tuple) else 0
        if path not in _NEVER and isinstance(value, int | float | tuple) and value != zero:
            yield change(scenario, [f"{path}=0,0" if zero else f"{path}=0"])
    for path, count in (("members_max", scenario.members_max), ("members", scenario.members)):
        if count > 1:
            yield change(scenario, [f"{path}={count - 1}"])
