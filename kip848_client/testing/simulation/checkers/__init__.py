"""The invariants that are checked in every run, one file per subject; docs/simulation.md says each in one sentence.

- `ownership`: one owner per partition; targets, epochs and states; a replay of the log leads to the same state
- `fencing`: requests that do not count, and members that may be removed
- `reading`: a consumer reads only what it owns, without gaps, from the right place
- `members`: calls of a listener and states that an application sees; heartbeats, commits and lookups of a member
- `classic`: rounds of classic groups, what their members read, and groups that change their kind
- `processing`: what `process()` handles, and what it commits
- `transactions`: what readers of committed records see, and who may write

A checker is an `Observer` that calls `fail`. `run` and `trials` check that a group comes to rest. Some modules check
the code that they run: `simulated_consumer` (close() in time, no needless wake-up), `user_assignor` (one call at a
time), `cluster` (equal results when a request is decided twice), `simulated_workers` (units).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kip848_client.testing.simulation.checkers.classic import ClassicReading, ClassicRounds, Conversions
from kip848_client.testing.simulation.checkers.fencing import HeartbeatFencing, OffsetFencing, Removals
from kip848_client.testing.simulation.checkers.members import (
    AwaitedLeave,
    BoundedWork,
    ListenerPairs,
    OneHeartbeat,
    ShownStates,
    TrueCommits,
)
from kip848_client.testing.simulation.checkers.ownership import (
    Durability,
    EpochOrder,
    GroupStates,
    InstalledTargets,
    OwnAssertions,
    RevokeFirst,
    SingleOwner,
    TargetLegality,
)
from kip848_client.testing.simulation.checkers.processing import Processed, Transacted
from kip848_client.testing.simulation.checkers.reading import ExclusiveReading, NoRecordLost, ToldOwnership
from kip848_client.testing.simulation.observer import Checker, Observer, RunState

_CHECKERS: Final[tuple[type[Checker], ...]] = (
    SingleOwner,
    ClassicRounds,
    ClassicReading,
    Conversions,
    TargetLegality,
    EpochOrder,
    RevokeFirst,
    GroupStates,
    HeartbeatFencing,
    Durability,
    OffsetFencing,
    Removals,
    ExclusiveReading,
    ListenerPairs,
    ToldOwnership,
    ShownStates,
    OneHeartbeat,
    TrueCommits,
    AwaitedLeave,
    BoundedWork,
    NoRecordLost,
    OwnAssertions,
    InstalledTargets,
)
"""If several invariants break in one step, the first in this order is reported."""


def every_checker(run_state: RunState) -> Iterator[Observer]:
    """The checkers of one run."""
    scenario = run_state.scenario
    checkers = (*_CHECKERS, Processed) if scenario.handlers else _CHECKERS
    if scenario.slice_records:
        checkers = (*checkers, Transacted)
    return (checker(run_state) for checker in checkers)
