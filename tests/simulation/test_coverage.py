"""Every cell of state x event x error that can be reached is reached; the others are listed, each with its reason.

A table of faults that never met a state proves nothing about that state.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.core.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.core.events import FailureKind
from kip848_client.member.core.states import HEARTBEATING, Phase
from kip848_client.testing.faults import ALWAYS, Rule, error
from kip848_client.testing.faults.rules import Match
from kip848_client.testing.simulation import Behaviour, NetworkFaults, Scenario, run
from kip848_client.wire.api_keys import ApiKey
from tests.simulation.cells import Cell, Cells, named

pytestmark = pytest.mark.slow

SEEDS: Final = range(150)

SLOW: Final = Scenario(
    name="slow",
    members=4,
    members_max=5,
    topics={"orders": 4, "audit": 2},
    duration_ms=12_000,
    faults=NetworkFaults(loss=0.04, duplicate=0.03, break_connection=0.03, delay_ms=(0, 300)),
    behaviour=Behaviour(
        think_ms=(10, 100), listener_ms=(100, 1_500), listener_raises=0.15, commit=0.05, stall=0.01, hang=0.01
    ),
    joins=0.5,
    leaves=0.5,
    crashes=0.1,
    cuts=0.1,
    resubscriptions=0.6,
    refusals=4.0,
    deletions=0.1,
    coordinator_crashes=0.1,
    coordinator_crashes_after_append=0.0,
    coordinator_crashes_before_append=0.0,
    failovers=0.1,
    statics=0.3,
    double_starts=0.1,
    auto_commit_ms=5_000,
    heartbeat_interval_ms=500,
    session_timeout_ms=3_000,
    max_poll_interval_ms=5_000,
    request_timeout_ms=900,
    trials=0,
)
"""Listeners, commits and messages that take long: every phase lasts, so that everything can happen in it."""

COMMITTING: Final = replace(
    SLOW,
    name="committing",
    behaviour=Behaviour(think_ms=(10, 50), listener_ms=(0, 20), commit=0.0),
    faults=NetworkFaults(loss=0.02, break_connection=0.02, delay_ms=(0, 150)),
    topics={"orders": 6},
    joins=0.8,
    leaves=0.3,
    resubscriptions=0.0,
    refusals=0.5,
    crashes=0.05,
    produce_ms=60,
)
"""Applications that read more than they wait, and so have something to commit when partitions are taken away."""

_CLASSIC_PHASES: Final = {Phase.REJOIN_DUE, Phase.REJOINING}
"""Phases of the classic protocol, which simulated consumers do not speak."""
_ANSWERED: Final = [phase for phase in Phase if phase in HEARTBEATING and phase not in _CLASSIC_PHASES]

WANTED: Final[frozenset[Cell]] = frozenset(
    {
        *((phase, "heartbeat", kind) for phase in _ANSWERED for kind in HeartbeatErrorClass),
        *((phase, "heartbeat", 0) for phase in _ANSWERED),
        *((phase, "assignment", 0) for phase in _ANSWERED),
        *((phase, "RequestFailed", FailureKind.TIMED_OUT) for phase in _ANSWERED),
        *((phase, "RequestFailed", FailureKind.DISCONNECTED) for phase in _ANSWERED),
        *((phase, "SubscriptionChanged", None) for phase in _ANSWERED),
        *((phase, "LeaveRequested", None) for phase in _ANSWERED),
        *((phase, "CoordinatorDisconnected", None) for phase in _ANSWERED),
        *((phase, "CoordinatorConnected", None) for phase in _ANSWERED),
        *((phase, "ListenerDone", raised) for phase in _ANSWERED for raised in (False, True)),
        *((phase, "ListenerDone", False) for phase in (Phase.FENCED_RELEASE, Phase.STALE_RELEASE, Phase.FATAL_RELEASE)),
        *((phase, "AppPolled", None) for phase in (Phase.AWAITING_POLL, Phase.PENDING)),
    }
)

_NO_LISTENER: Final = "no listener call is under way in this phase"
UNREACHABLE: Final[dict[Cell, str]] = {
    (Phase.JOINING, "heartbeat", 0): "the coordinator answers every join with an assignment, be it empty",
    (Phase.LEAVE_REVOKING, "LeaveRequested", None): "one caller closes a consumer, and once (R135: tests/spec)",
    (Phase.LEAVE_REVOKING, "SubscriptionChanged", None): "a closed consumer subscribes to nothing (R128: tests/member)",
    **{
        (phase, "ListenerDone", raised): _NO_LISTENER
        for phase in (Phase.JOINING, Phase.IN_SYNC, Phase.PENDING, Phase.COMMITTING, Phase.ACK_DUE)
        for raised in (False, True)
    },
}


def rules_for(seed: int) -> list[Rule]:
    """Heartbeats of every class of error; for two seeds of three also commits that take several attempts."""
    heartbeats = Match(apis=frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT}))
    if not seed % 3:
        return [Rule(heartbeats, [error(ErrorCode.NOT_COORDINATOR)], times=ALWAYS, probability=0.1)]
    passing = (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    codes = (
        (*passing, *passing, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if seed % 3 == 1
        else (*passing, *passing, ErrorCode.UNKNOWN_MEMBER_ID, *passing, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    )
    commits = Match(apis=frozenset({ApiKey.OFFSET_COMMIT}))
    return [
        Rule(commits, [error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)], times=ALWAYS, probability=0.95),
        Rule(heartbeats, [error(code) for code in codes], times=ALWAYS, probability=0.15 if seed % 3 == 1 else 0.25),
    ]


def by_class(cell: Cell) -> Cell:
    """The cell with the class of a heartbeat's error in place of its code."""
    phase, what, code = cell
    if what != "heartbeat" or not isinstance(code, int) or not code:
        return cell
    return phase, what, heartbeat_error_class(code, joining=phase is Phase.JOINING)


@pytest.fixture(scope="module")
def reached() -> Counter[Cell]:
    """Cells, and how often they were reached in all seeds together."""
    cells = Cells()
    for seed in SEEDS:
        scenario = COMMITTING if seed % 3 == 1 else SLOW
        report = run(scenario, seed=seed, rules=rules_for(seed), watch=[cells.watch], keep_history=False)
        assert report.violation is None, f"seed {seed}: {report.violation}"
    found: Counter[Cell] = Counter()
    for cell, count in cells.reached.items():
        found[by_class(cell)] += count
    return found


def test_every_cell_that_can_be_reached_is_reached(reached: Counter[Cell]) -> None:
    """A fault in a phase that no run was in is not tested, however many seeds are green."""
    missing = {named(cell) for cell in WANTED - UNREACHABLE.keys() if not reached[cell]}
    assert not missing


def test_what_is_called_unreachable_is_not_reached(reached: Counter[Cell]) -> None:
    """A cell that a run does reach must be covered, and its reason for being unreachable is wrong."""
    assert not {named(cell) for cell in UNREACHABLE if reached[cell]}
    assert UNREACHABLE.keys() <= WANTED
