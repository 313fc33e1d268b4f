"""Every move a member can make: phases, rows, public states. The only file where the state of a member changes.

A member is in one `Phase`. Each phase belongs to one public `MemberState`, which is what logs, metrics and
applications see. `PHASE_ROWS` lists the legal moves: a machine of the ``transitions`` library makes them, the tests and
the diagrams of the documentation are derived from them, and so are `TRANSITIONS`, the moves between public states. A
move that has no row raises.

::

    UNJOINED --polled, answer has an assignment--> RECONCILING --acknowledged--> STABLE
       ^                                            |  ^  |                        |
       |                       leaving, fenced      |  |  +---- new assignment ----+
       +--------------------------------------------+  |
       ^                                               |
       +-- lost callback over -- RELEASING_ASSIGNMENT <+-- fenced, or poll() came too late (also from STABLE, UNJOINED)

    any state but RELEASING_ASSIGNMENT --an error that no retry cures--> FATAL

Does not own: when a move is made (`membership`, `reconciler`), or what is sent because of it (`heartbeat`).

Source: KIP-848; Kafka's ``MemberState`` and ``AbstractMembershipManager``. Each phase names its Kafka counterpart.
Rules: R1 to R9 in docs/protocol.md.
"""

from __future__ import annotations

import enum
import functools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kip848_client.errors import IllegalStateError

if TYPE_CHECKING:
    from transitions import Machine

__all__ = [
    "HEARTBEATING",
    "IN_GROUP",
    "MEMBER",
    "PHASE_ROWS",
    "TRANSITIONS",
    "MemberState",
    "Phase",
    "PhaseRow",
    "Transition",
    "move",
]


class MemberState(enum.Enum):
    """The five states that the outside sees."""

    UNJOINED = "UNJOINED"
    """Not a member: never subscribed, about to join, or removed and waiting for a poll."""
    STABLE = "STABLE"
    """A member that has what the coordinator gave it."""
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
    WAIT_FIRST_POLL = "wait_first_poll"
    """Kafka UNSUBSCRIBED, subscription updated. Sends nothing. Ends with poll(): rebalances happen only inside it."""
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
    """Kafka ACKNOWLEDGING. Sends what it has at once. Ends when that heartbeat is built, not when it is answered."""
    REJOIN_DUE = "rejoin_due"
    """Classic protocol: has to revoke before it joins again. Heartbeats on the interval. Ends when poll() does it."""
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

    __hash__ = object.__hash__  # enum hashes in Python code, and a step asks for membership in sets of phases often

    state: MemberState
    """The public state that this phase belongs to."""


_STATE_OF: Final[dict[Phase, MemberState]] = {
    Phase.IDLE: MemberState.UNJOINED,
    Phase.WAIT_FIRST_POLL: MemberState.UNJOINED,
    Phase.JOINING: MemberState.UNJOINED,
    Phase.AWAITING_POLL: MemberState.UNJOINED,
    Phase.IN_SYNC: MemberState.STABLE,
    Phase.PENDING: MemberState.RECONCILING,
    Phase.COMMITTING: MemberState.RECONCILING,
    Phase.REVOKING: MemberState.RECONCILING,
    Phase.ASSIGNING: MemberState.RECONCILING,
    Phase.ACK_DUE: MemberState.RECONCILING,
    Phase.REJOIN_DUE: MemberState.RECONCILING,
    Phase.REJOINING: MemberState.RECONCILING,
    Phase.LEAVE_REVOKING: MemberState.RECONCILING,
    Phase.LEAVE_DUE: MemberState.RECONCILING,
    Phase.FENCED_RELEASE: MemberState.RELEASING_ASSIGNMENT,
    Phase.STALE_RELEASE: MemberState.RELEASING_ASSIGNMENT,
    Phase.FATAL_RELEASE: MemberState.FATAL,
    Phase.FATAL_DONE: MemberState.FATAL,
}
for _phase, _state in _STATE_OF.items():
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

    trigger: str
    source: Phase
    dest: Phase


def _rows() -> tuple[PhaseRow, ...]:
    p = Phase
    member = sorted(MEMBER, key=lambda phase: phase.value)
    rows = [
        # Joining. Nothing is sent before the first poll().
        PhaseRow("subscribed", p.IDLE, p.WAIT_FIRST_POLL),
        PhaseRow("unsubscribed", p.WAIT_FIRST_POLL, p.IDLE),
        PhaseRow("polled", p.WAIT_FIRST_POLL, p.JOINING),
        PhaseRow("joined", p.JOINING, p.IN_SYNC),
        # Reconciliation: commit, revoked, assigned, acknowledgement.
        PhaseRow("assignment_received", p.JOINING, p.PENDING),
        PhaseRow("assignment_received", p.IN_SYNC, p.PENDING),
        PhaseRow("assignment_received", p.ACK_DUE, p.PENDING),
        PhaseRow("commit_started", p.PENDING, p.COMMITTING),
        PhaseRow("revocation_started", p.PENDING, p.REVOKING),
        PhaseRow("revocation_started", p.COMMITTING, p.REVOKING),
        PhaseRow("assignment_started", p.PENDING, p.ASSIGNING),
        PhaseRow("assignment_started", p.REVOKING, p.ASSIGNING),
        PhaseRow("run_contradicted", p.REVOKING, p.PENDING),
        PhaseRow("listener_failed", p.REVOKING, p.PENDING),
        PhaseRow("listener_failed", p.ASSIGNING, p.PENDING),
        PhaseRow("reconciled", p.ASSIGNING, p.ACK_DUE),
        PhaseRow("nothing_to_reconcile", p.PENDING, p.ACK_DUE),
        PhaseRow("acknowledged", p.ACK_DUE, p.IN_SYNC),
        PhaseRow("acknowledged_in_part", p.ACK_DUE, p.PENDING),
        # The classic protocol: revoke, join again, apply the leader's assignment.
        PhaseRow("rejoin_wanted", p.IN_SYNC, p.REJOIN_DUE),
        PhaseRow("rejoin_wanted", p.PENDING, p.REJOIN_DUE),
        PhaseRow("rejoin_wanted", p.ASSIGNING, p.REJOIN_DUE),
        PhaseRow("rejoin_wanted", p.REJOINING, p.REJOIN_DUE),
        PhaseRow("commit_started", p.REJOIN_DUE, p.COMMITTING),
        PhaseRow("revocation_started", p.REJOIN_DUE, p.REVOKING),
        PhaseRow("preparation_failed", p.REVOKING, p.REJOIN_DUE),
        PhaseRow("prepared", p.IN_SYNC, p.REJOINING),
        PhaseRow("prepared", p.PENDING, p.REJOINING),
        PhaseRow("prepared", p.ASSIGNING, p.REJOINING),
        PhaseRow("prepared", p.REJOIN_DUE, p.REJOINING),
        PhaseRow("prepared", p.REVOKING, p.REJOINING),
        PhaseRow("rejoin_wanted", p.REVOKING, p.REJOIN_DUE),
        PhaseRow("assignment_received", p.REJOINING, p.PENDING),
        PhaseRow("taken_up", p.ASSIGNING, p.IN_SYNC),
        # Leaving.
        PhaseRow("leave_released", p.LEAVE_REVOKING, p.LEAVE_DUE),
        PhaseRow("left", p.LEAVE_DUE, p.IDLE),
        PhaseRow("fenced_while_leaving", p.LEAVE_REVOKING, p.IDLE),
        PhaseRow("fenced_while_leaving", p.LEAVE_DUE, p.IDLE),
        # After the lost callback.
        PhaseRow("released", p.FENCED_RELEASE, p.JOINING),
        PhaseRow("released", p.STALE_RELEASE, p.AWAITING_POLL),
        PhaseRow("released", p.FATAL_RELEASE, p.FATAL_DONE),
        PhaseRow("unsubscribed", p.FENCED_RELEASE, p.IDLE),
        PhaseRow("unsubscribed", p.AWAITING_POLL, p.IDLE),
        PhaseRow("polled", p.AWAITING_POLL, p.JOINING),
        # A failure while leaving: the revoked callback ran or runs, so nothing is lost.
        PhaseRow("failed", p.LEAVE_REVOKING, p.FATAL_DONE),
        PhaseRow("failed", p.LEAVE_DUE, p.FATAL_DONE),
    ]
    for phase in member:
        rows += [
            PhaseRow("fenced", phase, p.FENCED_RELEASE),
            PhaseRow("poll_expired", phase, p.STALE_RELEASE),
            PhaseRow("leave_requested", phase, p.LEAVE_REVOKING),
            PhaseRow("failed", phase, p.FATAL_RELEASE),
        ]
    return tuple(rows)


PHASE_ROWS: Final = _rows()
"""Every legal move."""


class Transition(NamedTuple):
    """One row of the public machine."""

    trigger: str
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


def move(member: HasPhase, trigger: str) -> None:
    """Make the move *trigger*: the machine of the ``transitions`` library sets ``member.phase``.

    All members of a process share one ``Machine``, because building one costs milliseconds, and it keeps nothing about
    what it moves.

    Raises:
        IllegalStateError: no row of `PHASE_ROWS` has this trigger and the present phase; nothing changed.
    """
    from transitions import MachineError  # here, because this import costs more than the rest of the package

    try:
        _machine().events[trigger].trigger(member)
    except (MachineError, KeyError) as error:
        raise IllegalStateError(f"a member in phase {member.phase.name} cannot take the move {trigger!r}") from error


_MACHINE_NAME: Final = "kip848 member"
_LOGGER: Final = logging.getLogger("kip848_client.member")


def _wanted(record: logging.LogRecord) -> bool:
    """Whether a line of the ``transitions`` library is wanted: it tells each step of each move, at INFO.

    The lines about our machine are wanted only if ``kip848_client.member`` is logged at DEBUG. Other machines of the
    process go on logging as their owners set them up.
    """
    ours = isinstance(record.args, tuple) and record.args[:1] == (f"{_MACHINE_NAME}: ",)
    return not ours or _LOGGER.isEnabledFor(logging.DEBUG)


@functools.cache
def _machine() -> Machine:
    from transitions import Machine

    logging.getLogger("transitions.core").addFilter(_wanted)
    return Machine(
        model=None,
        name=_MACHINE_NAME,
        states=Phase,
        initial=Phase.IDLE,
        transitions=[row._asdict() for row in PHASE_ROWS],
        auto_transitions=False,
        model_attribute="phase",
    )
