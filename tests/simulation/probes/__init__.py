"""Stricter checks in the runs with probes (`Scenario.probes`), through the seam of the simulation.

`kip848 simulate --watch tests.simulation.probes:probes` adds them to a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kip848_client.testing.simulation import Report, Scenario, run
from kip848_client.testing.simulation.observer import Observer, RunState
from tests.simulation.probes.deadlines import TrueDeadlines
from tests.simulation.probes.foreign_walk import ForeignWalk
from tests.simulation.probes.logs import ReplayedLogs


def probes(run_state: RunState) -> Iterator[Observer]:
    """The observers of a run with probes; every run with classic members has the one that is cheap."""
    if run_state.probing or run_state.scenario.classic:
        yield TrueDeadlines()
    if run_state.probing:
        yield ReplayedLogs(run_state)
        yield ForeignWalk(run_state)


def play(scenario: Scenario, *, seed: int, **options: Any) -> Report:
    """Play one run with the probes, if it is one of those that are asked."""
    return run(scenario, seed=seed, watch=[probes], **options)
