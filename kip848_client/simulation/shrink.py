"""Makes a failing scenario smaller: fewer kinds of faults, fewer members, less time, while it fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kip848_client.simulation.play import Report, run
from kip848_client.simulation.scenario import Scenario, change, numbers

_NEVER: Final = frozenset({"heal_ms", "heartbeat_interval_ms", "session_timeout_ms", "max_poll_interval_ms", "members"})
"""Numbers that are no cause of trouble by being there."""


def shrink(report: Report, *, runs_max: int = 200, on_run: Callable[[int], None] = lambda _: None) -> Report:
    """Find a smaller scenario in which *report*'s seed breaks the same invariant.

    Every change of a number changes what happens after it, so this is a search and may find nothing. Numbers are set to
    0 one by one, members are taken away, time is halved; until nothing helps, or after *runs_max* runs.

    Args:
        on_run: told after each run how many there were.

    Returns:
        The report of the smallest scenario that failed; *report* itself if none did, or if it did not fail.
    """
    smallest, runs = report, 0
    progress = report.violation is not None
    while progress:
        progress = False
        for attempt in _smaller(smallest.scenario):
            if runs >= runs_max:
                return smallest
            found = run(attempt, seed=report.seed)
            runs += 1
            on_run(runs)
            if found.violation and report.violation and found.violation.invariant == report.violation.invariant:
                smallest, progress = found, True
                break
    return smallest


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.duration_ms > 2_000:
        yield change(scenario, [f"duration_ms={scenario.duration_ms // 2}"])
        yield change(scenario, [f"duration_ms={scenario.duration_ms * 4 // 5}"])
    for path, value in numbers(scenario):
        if value and path not in _NEVER | {"duration_ms", "members_max", "behaviour.rows_per_poll"}:
            yield change(scenario, [f"{path}=0"])
    for path in ("members_max", "members"):
        if (value := int(dict(numbers(scenario))[path])) > 1:
            yield change(scenario, [f"{path}={value - 1}"])
