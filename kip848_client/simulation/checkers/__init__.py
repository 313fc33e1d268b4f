"""The invariants that are checked in every run, one file per subject; docs/invariants.md says each in one sentence.

- `ownership`: the coordinator counts one owner per partition, and its log leads to the same state
- `fencing`: requests that must be accepted or refused, and members that may be removed
- `reading`: a consumer reads only what it owns, without gaps, from the right place
- `listeners`: the calls of a listener, and the states that an application sees
- `heartbeats`: number, time and fields of a member's heartbeats
- `offsets`: commits, and lookups of offsets, names and the coordinator
- `assignors`: targets that members compute
- `answers`: the coordinator's answers, and its event log
- `classic`: rounds of classic groups, refused requests, and what the members send and read
- `migration`: groups that change their kind, and what they keep
- `liveness`: what must end, and that no work is needless

A checker is an `Observer` that calls `fail`. `play` and `trials` check that a group comes to rest. Some modules check
their own process: `consumer` (close() in time, no needless wake-up), `user_assignor` (one call at a time),
`offset_questions`, `clientside`, `cluster` (equal results when a request is decided twice).
"""

from __future__ import annotations

from collections.abc import Iterator

from kip848_client.simulation.checkers.answers import CountedWishes, HeartbeatAnswers, ToldFacts
from kip848_client.simulation.checkers.assignors import InstalledTargets, RoundRequests, ToldTargets
from kip848_client.simulation.checkers.classic import ClassicFencing, ClassicReading, ClassicRequests, ClassicRounds
from kip848_client.simulation.checkers.fencing import HeartbeatFencing, OffsetFencing, Removals
from kip848_client.simulation.checkers.heartbeats import HeartbeatRules
from kip848_client.simulation.checkers.listeners import LegalMoves, ListenerPairs, NoEpochOutside
from kip848_client.simulation.checkers.liveness import AwaitedLeave, BoundedWork, TrueDeadlines
from kip848_client.simulation.checkers.migration import Conversions
from kip848_client.simulation.checkers.offsets import KnownCoordinator, RetryPace, ToldOutcomes
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
from kip848_client.simulation.observer import Observer, Scene
from kip848_client.simulation.scenario import SESSION_CHANGE_MS

__all__ = ["every_checker"]


def every_checker(scene: Scene) -> Iterator[Observer]:
    """The checkers of one run. If several invariants break in one step, the first in this order is reported."""
    world, cluster, mirror, scenario = scene.world, scene.cluster, scene.mirror, scene.scenario
    owners = SingleOwner(mirror)
    yield owners
    if scenario.classic:
        yield ClassicRounds(world, cluster, mirror)
        yield ClassicFencing(cluster, mirror)
        yield ClassicRequests()
        yield ClassicReading(cluster, mirror, scene.consumers)
        yield Conversions(mirror, scene.config)
    yield TargetLegality(cluster, mirror)
    yield EpochOrder(cluster, mirror)
    yield RevokeFirst(mirror)
    yield GroupStates(mirror)
    yield HeartbeatFencing(cluster, mirror, owners, max_size=scenario.group_max_size)
    yield Durability(cluster)
    yield OffsetFencing(cluster, mirror)
    yield ExclusiveReading(world, cluster, mirror, scene.consumers)
    yield ListenerPairs()
    yield ToldOwnership()
    yield HeartbeatRules()
    yield RetryPace()
    yield KnownCoordinator()
    yield ToldOutcomes(cluster.topics)
    yield LegalMoves()
    yield NoEpochOutside()
    yield AwaitedLeave()
    yield BoundedWork(scene.consumers)
    yield NoRecordLost(cluster, scene.handed_out)
    yield Removals(cluster, mirror, world, session_ms=scenario.session_timeout_ms - SESSION_CHANGE_MS)
    yield OwnAssertions(cluster)
    yield InstalledTargets(mirror)
    yield HeartbeatAnswers(cluster, mirror)
    yield CountedWishes(cluster, mirror, interval_ms=scenario.heartbeat_interval_ms)
    if scenario.assignors:
        yield RoundRequests()
        yield ToldTargets(cluster.topics, lag_ms=scenario.metadata_lag_ms)
    yield ToldFacts(cluster, mirror)
    if scene.probing or scenario.classic:
        yield TrueDeadlines()
