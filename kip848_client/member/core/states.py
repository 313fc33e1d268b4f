"""Every move a member can make: `STATES` lists the exits of each phase, and says why. Nothing else changes a phase.

A member is in one `Phase`. Each phase belongs to one public `MemberState`, which is what logs, metrics and
applications see. A move that `STATES` does not list raises; a misspelt trigger is a type error.

A machine of the ``transitions`` library is built from `STATES`, and a move is one look-up in it. Measured for one move:
the look-up takes 0.3 us; the library's own trigger 12 us, and it logs each step of the move at INFO; its nested machine
70 us, after 25 ms more of import. The diagrams of docs/protocol.md, which the library draws, and the tests come from
the same table.

Does not own: when a move is made, or what is sent because of it.

Source: KIP-848; Kafka's ``MemberState`` and ``AbstractMembershipManager``. Each phase names its Kafka counterpart.
Rules: R1 to R9 in docs/protocol.md.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from kip848_client.errors import IllegalStateError

if TYPE_CHECKING:
    from transitions import Machine


class MemberState(enum.Enum):
    """The five states that the outside sees."""

    UNJOINED = "UNJOINED"
    """Not a member: never subscribed, about to join, or removed and waiting for a poll."""
    STABLE = "STABLE"
    """A member whose partitions are those that the coordinator gave it."""
    RECONCILING = "RECONCILING"
    """On the way from one assignment to another; leaving is the way to the empty one."""
    RELEASING_ASSIGNMENT = "RELEASING_ASSIGNMENT"
    """Removed from the group; the lost callback runs."""
    FATAL = "FATAL"
    """Stopped by an error that no retry cures; only close() is left."""


class Phase(enum.Enum):
    """One exact phase. Its docstring says what the member sends, and how the phase ends."""

    IDLE = "idle"
    """Kafka UNSUBSCRIBED. Sends nothing. Ends with subscribe(). A manual assignment lives here too."""
    JOINING = "joining"
    """Kafka JOINING. Sends a full heartbeat of epoch 0 at once. Ends with its answer."""
    AWAITING_POLL = "awaiting_poll"
    """Kafka STALE, callback over. Sends nothing. Ends with poll()."""
    IN_SYNC = "in_sync"
    """Kafka STABLE. Heartbeats on the interval. Ends with a new assignment, an error, or the wish to leave."""
    PENDING = "pending"
    """Kafka RECONCILING, no run. Heartbeats on the interval. Ends when poll() starts a run."""
    COMMITTING = "committing"
    """Kafka RECONCILING, auto-commit outstanding. Heartbeats on the interval. Ends with the commit, or its deadline."""
    REVOKING = "revoking"
    """Kafka RECONCILING, revoked callback outstanding. Heartbeats on the interval. Ends with the callback."""
    ASSIGNING = "assigning"
    """Kafka RECONCILING, assigned callback outstanding. Heartbeats on the interval. Ends with the callback."""
    ACK_DUE = "ack_due"
    """Kafka ACKNOWLEDGING. Sends at once. Ends when that heartbeat is built, not when it is answered."""
    REJOIN_DUE = "rejoin_due"
    """Has to revoke everything with the next poll(): before it joins again (classic protocol), or releases its slot.
    Heartbeats on the interval. Ends when poll() does it."""
    REJOINING = "rejoining"
    """Classic protocol: JoinGroup and SyncGroup, again. Heartbeats on the interval. Ends with an assignment."""
    LEAVE_REVOKING = "leave_revoking"
    """Kafka PREPARE_LEAVING. Heartbeats on the interval, with the epoch. Ends with the revoked (or lost) callback."""
    LEAVE_DUE = "leave_due"
    """Kafka LEAVING. Sends the leave heartbeat at once. Ends when that is built, or cannot be sent."""
    FENCED_RELEASE = "fenced_release"
    """Kafka FENCED. Sends nothing. Ends with the lost callback; then the member joins again."""
    STALE_RELEASE = "stale_release"
    """Kafka STALE. Sends nothing. Ends with the lost callback; then the member waits for poll()."""
    FATAL_RELEASE = "fatal_release"
    """Kafka FATAL, lost callback outstanding. Sends nothing, ever again."""
    FATAL_DONE = "fatal_done"
    """Kafka FATAL. Sends nothing, ever again."""

    if not TYPE_CHECKING:  # type checkers know the inherited one, which is slow Python code
        __hash__ = object.__hash__

    state: MemberState
    """The public state that this phase belongs to."""


Trigger: TypeAlias = Literal[
    # The application
    "subscribed",
    "unsubscribed",
    "polled",
    "poll_expired",
    "leave_requested",
    # The coordinator
    "joined",
    "assignment_received",
    "fenced",
    "fenced_while_leaving",
    "failed",
    # A run
    "commit_started",
    "revocation_started",
    "assignment_started",
    "run_contradicted",
    "listener_failed",
    "reconciled",
    "nothing_to_reconcile",
    "acknowledged",
    "acknowledged_in_part",
    # The classic protocol
    "rejoin_wanted",
    "preparation_failed",
    "prepared",
    "taken_up",
    # After the callback of a leave or of a removal
    "leave_released",
    "left",
    "released",
]
"""The triggers that move a member."""

Exits: TypeAlias = Mapping[Trigger, Phase]

_OUT: Final[Exits] = {
    "fenced": Phase.FENCED_RELEASE,  # removed: others may have its partitions already
    "poll_expired": Phase.STALE_RELEASE,  # it may never poll again, and the group must not wait for it
    "leave_requested": Phase.LEAVE_REVOKING,  # even while it joins: the coordinator may count it as a member
    "failed": Phase.FATAL_RELEASE,  # nothing sent later could help
}
"""The ways out of the group, which every phase of a member has (see `group_exit`)."""

STATES: Final[Mapping[MemberState, Mapping[Phase, Exits]]] = {
    MemberState.UNJOINED: {
        Phase.IDLE: {
            # At once, as in librdkafka (Java joins in poll()); what comes of it waits for poll().
            "subscribed": Phase.JOINING,
        },
        Phase.JOINING: {
            "joined": Phase.IN_SYNC,  # no assignment in the answer: there is nothing to reconcile
            "assignment_received": Phase.PENDING,
            **_OUT,
        },
        Phase.AWAITING_POLL: {
            "polled": Phase.JOINING,
            "unsubscribed": Phase.IDLE,
        },
    },
    MemberState.STABLE: {
        Phase.IN_SYNC: {
            "assignment_received": Phase.PENDING,
            # Classic: the group rebalances. Revoke inside poll(), or join at once if there is nothing to revoke.
            "rejoin_wanted": Phase.REJOIN_DUE,
            "prepared": Phase.REJOINING,
            **_OUT,
        },
    },
    MemberState.RECONCILING: {
        # A run: commit, revoke, assign, acknowledge. It starts in poll(), when all records read are processed.
        Phase.PENDING: {
            "commit_started": Phase.COMMITTING,
            "revocation_started": Phase.REVOKING,  # without auto-commit, or with nothing to commit
            "assignment_started": Phase.ASSIGNING,  # nothing to revoke
            "nothing_to_reconcile": Phase.ACK_DUE,  # the new target is what is owned already: no callback
            # Classic: the group rebalances again, and the assignment is dropped.
            "rejoin_wanted": Phase.REJOIN_DUE,
            "prepared": Phase.REJOINING,
            **_OUT,
        },
        Phase.COMMITTING: {
            "revocation_started": Phase.REVOKING,  # committed, or too late: others wait for the partitions
            **_OUT,
        },
        Phase.REVOKING: {
            "assignment_started": Phase.ASSIGNING,
            "run_contradicted": Phase.PENDING,  # a heartbeat sent meanwhile denied the partitions to add
            "listener_failed": Phase.PENDING,  # a later poll() calls the listener again
            # Classic: the run prepared a join, which lists what is still owned.
            "prepared": Phase.REJOINING,
            "rejoin_wanted": Phase.REJOIN_DUE,  # the subscription changed meanwhile: more to revoke
            "preparation_failed": Phase.REJOIN_DUE,
            **_OUT,
        },
        Phase.ASSIGNING: {
            "reconciled": Phase.ACK_DUE,
            "listener_failed": Phase.PENDING,
            # Classic: nothing to acknowledge; a join that became due during the run follows it.
            "taken_up": Phase.IN_SYNC,
            "rejoin_wanted": Phase.REJOIN_DUE,
            "prepared": Phase.REJOINING,
            **_OUT,
        },
        Phase.ACK_DUE: {
            "acknowledged": Phase.IN_SYNC,
            "acknowledged_in_part": Phase.PENDING,  # topics without a name yet, or a newer target
            "assignment_received": Phase.PENDING,
            **_OUT,
        },
        # Classic: revoke what must be revoked, join again, apply the leader's assignment.
        Phase.REJOIN_DUE: {
            "commit_started": Phase.COMMITTING,
            "revocation_started": Phase.REVOKING,
            "prepared": Phase.REJOINING,  # the subscription changed back: nothing to revoke any more
            **_OUT,
        },
        Phase.REJOINING: {
            "assignment_received": Phase.PENDING,
            "rejoin_wanted": Phase.REJOIN_DUE,  # the subscription changed before JoinGroup was sent
            **_OUT,
        },
        # A leave: the revoked callback, then one request. It always ends, whatever fails.
        Phase.LEAVE_REVOKING: {
            "leave_released": Phase.LEAVE_DUE,  # also if the callback raised
            "fenced_while_leaving": Phase.IDLE,  # no membership is left to leave
            "failed": Phase.FATAL_DONE,  # not FATAL_RELEASE: the revoked callback ran or runs, so nothing is lost
        },
        Phase.LEAVE_DUE: {
            "left": Phase.IDLE,  # sent, or there is no coordinator to tell
            "fenced_while_leaving": Phase.IDLE,
            "failed": Phase.FATAL_DONE,
        },
    },
    MemberState.RELEASING_ASSIGNMENT: {
        Phase.FENCED_RELEASE: {
            "released": Phase.JOINING,  # at once: the application did nothing wrong
            "unsubscribed": Phase.IDLE,
        },
        Phase.STALE_RELEASE: {
            "released": Phase.AWAITING_POLL,  # an application that does not poll must not be given partitions
        },
    },
    MemberState.FATAL: {
        Phase.FATAL_RELEASE: {
            "released": Phase.FATAL_DONE,
        },
        Phase.FATAL_DONE: {},
    },
}
"""Each public state, its phases, and all exits of each phase."""

for _state, _phases in STATES.items():
    for _phase in _phases:
        _phase.state = _state  # an attribute: a step asks for it often

RUN: Final = frozenset({Phase.COMMITTING, Phase.REVOKING, Phase.ASSIGNING})
"""A reconciliation run is in progress."""

IN_GROUP: Final = RUN | {Phase.IN_SYNC, Phase.PENDING, Phase.ACK_DUE, Phase.REJOIN_DUE, Phase.REJOINING}
"""The member is in the group, and is not leaving."""

MEMBER: Final = IN_GROUP | {Phase.JOINING}
"""The member is in the group or on its way into it."""

LEAVING: Final = frozenset({Phase.LEAVE_REVOKING, Phase.LEAVE_DUE})

HEARTBEATING: Final = MEMBER | {Phase.LEAVE_REVOKING}
"""Phases that send heartbeats on an interval (LEAVE_DUE sends exactly one)."""

WITH_EPOCH: Final = IN_GROUP | {Phase.LEAVE_REVOKING}
"""Phases in which commits and offset fetches carry the member's epoch."""

RELEASING: Final = frozenset({Phase.FENCED_RELEASE, Phase.STALE_RELEASE, Phase.FATAL_RELEASE})
"""The lost callback is due or running."""

FATAL: Final = frozenset({Phase.FATAL_RELEASE, Phase.FATAL_DONE})


class PhaseRow(NamedTuple):
    """One legal move."""

    trigger: Trigger
    source: Phase
    dest: Phase


PHASE_ROWS: Final = tuple(
    PhaseRow(trigger, source, dest)
    for phases in STATES.values()
    for source, exits in phases.items()
    for trigger, dest in exits.items()
)
"""Every legal move, as a row."""


class Transition(NamedTuple):
    """One row of the public machine."""

    trigger: Trigger
    source: MemberState
    dest: MemberState


def _public_rows() -> tuple[Transition, ...]:
    seen: dict[Transition, None] = {}
    for row in PHASE_ROWS:
        if row.source.state is not row.dest.state:
            seen[Transition(row.trigger, row.source.state, row.dest.state)] = None
    return tuple(seen)


TRANSITIONS: Final = _public_rows()
"""Moves between public states, derived from `PHASE_ROWS`; moves inside one state are left out."""


class HasPhase(Protocol):
    """The object whose phase the machine changes."""

    phase: Phase


def move(member: HasPhase, trigger: Trigger) -> None:
    """Make the move *trigger*.

    Raises:
        IllegalStateError: the present phase has no such exit in `STATES`; nothing changed.
    """
    event = machine().events.get(trigger)
    found = event.transitions.get(member.phase.name) if event is not None else None
    if not found:
        raise IllegalStateError(f"a member in phase {member.phase.name} cannot take the move {trigger!r}")
    dest = found[0].dest
    assert dest is not None
    member.phase = Phase[dest]


@functools.cache
def machine() -> Machine:
    """The machine of all members; it keeps nothing about any of them."""
    from transitions import Machine  # here, because this import costs more than the rest of the package

    return Machine(
        model=None,
        name="kip848 member",
        states=Phase,
        initial=Phase.IDLE,
        transitions=[row._asdict() for row in PHASE_ROWS],
        auto_transitions=False,
    )
