"""Stricter checks in the runs with probes (`Scenario.probes`), through the seam of the simulation.

`kip848 simulate --watch tests.simulation.probes:probes` adds them to a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kip848_client.simulation import Report, Scenario, run
from kip848_client.simulation.observer import Observer, Scene
from tests.simulation.probes.deadlines import TrueDeadlines
from tests.simulation.probes.foreign_walk import ForeignWalk
from tests.simulation.probes.logs import ReplayedLogs


def probes(scene: Scene) -> Iterator[Observer]:
    """The observers of a run with probes; every run with classic members has the one that is cheap."""
    if scene.probing or scene.scenario.classic:
        yield TrueDeadlines()
    if scene.probing:
        yield ReplayedLogs(scene)
        yield ForeignWalk(scene)


def play(scenario: Scenario, *, seed: int, **options: Any) -> Report:
    """Play one run with the probes, if it is one of those that are asked."""
    return run(scenario, seed=seed, watch=[probes], **options)
