"""The invariants that are checked in every run, one file per subject; docs/invariants.md says each in one sentence.

- `ownership`: the coordinator counts one owner per partition, and its log leads to the same state
- `fencing`: requests that do not count, and members that may be removed
- `reading`: a consumer reads only what it owns, without gaps, from the right place
- `listeners`: the calls of a listener, and the states that an application sees
- `requests`: heartbeats, commits, lookups, and calls that wait for them
- `assignors`: targets that members compute
- `classic`: rounds of classic groups, what their members read, and groups that change their kind
- `transactions`: what readers of committed records see, and who may write

A checker is an `Observer` that calls `fail`. `play` and `trials` check that a group comes to rest. Some modules check
their own process: `consumer` (close() in time, no needless wake-up), `user_assignor` (one call at a time),
`clientside`, `cluster` (equal results when a request is decided twice), `workers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kip848_client.simulation.checkers.assignors import InstalledTargets
from kip848_client.simulation.checkers.classic import ClassicReading, ClassicRounds, Conversions
from kip848_client.simulation.checkers.fencing import HeartbeatFencing, OffsetFencing, Removals
from kip848_client.simulation.checkers.listeners import ListenerPairs, ShownStates
from kip848_client.simulation.checkers.ownership import (
    Durability,
    EpochOrder,
    GroupStates,
    OwnAssertions,
    RevokeFirst,
    SingleOwner,
    TargetLegality,
)
from kip848_client.simulation.checkers.reading import ExclusiveReading, NoRecordLost, ToldOwnership
from kip848_client.simulation.checkers.requests import AwaitedLeave, BoundedWork, OneHeartbeat, TrueCommits
from kip848_client.simulation.observer import Observer, Scene
from kip848_client.simulation.scenario import SESSION_CHANGE_MS

__all__ = ["every_checker"]


def every_checker(scene: Scene) -> Iterator[Observer]:
    """The checkers of one run. If several invariants break in one step, the first in this order is reported."""
    world, cluster, mirror, scenario = scene.world, scene.cluster, scene.mirror, scene.scenario
    owners = SingleOwner(mirror)
    yield owners
    if scenario.classic:
        yield ClassicRounds(cluster, mirror)
        yield ClassicReading(cluster, mirror, scene.consumers)
        yield Conversions(mirror, scene.config)
    yield TargetLegality(cluster, mirror)
    yield EpochOrder(cluster, mirror)
    yield RevokeFirst(mirror)
    yield GroupStates(mirror)
    yield HeartbeatFencing(cluster, mirror, owners, max_size=scenario.group_max_size)
    yield Durability(cluster)
    yield OffsetFencing(cluster, mirror)
    yield Removals(cluster, mirror, world, session_ms=scenario.session_timeout_ms - SESSION_CHANGE_MS)
    yield ExclusiveReading(world, cluster, mirror, scene.consumers)
    yield ListenerPairs()
    yield ToldOwnership()
    yield ShownStates()
    yield OneHeartbeat()
    yield TrueCommits(cluster.topics)
    yield AwaitedLeave()
    yield BoundedWork(scene.consumers)
    yield NoRecordLost(cluster, scene.handed_out)
    yield OwnAssertions(cluster)
    yield InstalledTargets(mirror)
