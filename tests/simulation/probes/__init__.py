"""Stricter checkers and walks, in the runs with probes (`Scenario.probes`), through the seam of the simulation.

The checkers look at the whole group; the walks lead other members through it at the end of a run.
`kip848 simulate --watch tests.simulation.probes:probes` adds them to a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kip848_client.simulation import Report, Scenario, run
from kip848_client.simulation.observer import Observer, Scene
from tests.simulation.probes.asked import AskedMembers
from tests.simulation.probes.derived import AccountedTopics, CountedMembers, DamagedLogs
from tests.simulation.probes.foreign_walk import ForeignWalk
from tests.simulation.probes.inputs import AssignorInputs
from tests.simulation.probes.offset_walk import OffsetWalk
from tests.simulation.probes.patterns import Refreshes, Resolutions
from tests.simulation.probes.round_walk import RoundWalk
from tests.simulation.probes.timers import RunningTimers


def probes(scene: Scene) -> Iterator[Observer]:
    """The observers of a run with probes; of any other run only the one that knows who is asked for targets."""
    world, cluster, mirror, config, scenario = scene.world, scene.cluster, scene.mirror, scene.config, scene.scenario
    if scenario.assignors:
        yield AskedMembers(cluster, mirror, waits=config.consumer_assignment_interval_ms > 0)
    if not scene.probing:
        return
    yield AssignorInputs(world, cluster, mirror, config)
    yield AccountedTopics(cluster, mirror, config)
    yield DamagedLogs(cluster, mirror, config)
    yield CountedMembers(world, cluster, config, group_id=mirror.group_id)
    yield RunningTimers(world, cluster, mirror, session_ms=scenario.session_timeout_ms)
    yield Resolutions(
        world,
        cluster,
        mirror,
        refresh_ms=config.consumer_regex_refresh_interval_ms,
        rest_ms=config.consumer_regex_refresh_min_interval_ms,
        settle_ms=3 * scenario.heartbeat_interval_ms,
    )
    yield Refreshes(cluster, mirror, config)
    yield RoundWalk(world, cluster, mirror, config)
    yield OffsetWalk(world, cluster, mirror, config)
    yield ForeignWalk(world, cluster, mirror, config)


def play(scenario: Scenario, *, seed: int, **options: Any) -> Report:
    """Play one run with the probes, if it is one of those that are asked."""
    return run(scenario, seed=seed, watch=[probes], **options)
