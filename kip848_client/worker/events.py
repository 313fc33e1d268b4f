"""Events that the core of a worker takes, and effects that it asks for. Values only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan
from kip848_client.common.model import Unit
from kip848_client.errors import Kip848Error
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.wire.messages.connect_group_install_assignment import (
    ConnectGroupInstallAssignmentRequest,
    ConnectGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.connect_group_prepare_assignment import (
    ConnectGroupPrepareAssignmentRequest,
    ConnectGroupPrepareAssignmentResponse,
)

WorkerRequest: TypeAlias = (
    ConnectGroupHeartbeatRequest | ConnectGroupPrepareAssignmentRequest | ConnectGroupInstallAssignmentRequest
)
WorkerResponse: TypeAlias = (
    ConnectGroupHeartbeatResponse | ConnectGroupPrepareAssignmentResponse | ConnectGroupInstallAssignmentResponse
)


class OwnedUnit(msgspec.Struct, frozen=True, order=True):
    """A unit that this worker runs.

    Args:
        token: fencing token: grows with every change of the unit's owner, so a store that remembers the greatest token
            it has seen can reject a stale owner.
    """

    unit: Unit
    token: int

    @property
    def name(self) -> str:
        """Name of the unit."""
        return self.unit.name

    def __str__(self) -> str:
        return f"{self.unit} (token {self.token})"


class CallbackKind(enum.Enum):
    """Which callback of the application."""

    ASSIGNED = "on_assigned"
    REVOKED = "on_revoked"
    LOST = "on_lost"


class LossReason(enum.Enum):
    """Why units have to stop here."""

    MOVED = "moved"
    """The plan gives them to another worker, which waits until they have stopped here; or to none."""
    CLOSED = "closed"
    """The worker is closed, or has given up its units (``drain``, ``hand_over``)."""
    LEASE_ENDED = "lease_ended"
    """The coordinator has not answered for too long, and gives them to another worker soon."""
    REMOVED = "removed"
    """The coordinator has removed this worker: they may run elsewhere already."""
    FAILED = "failed"
    """An error that no retry cures has stopped the worker; or *on_assigned* raised, and is called again afterwards."""


class Loss(msgspec.Struct, frozen=True):
    """Why units stop, and until when they may act.

    Args:
        deadline: in seconds of ``time.monotonic()``; another worker may start the units after it. In the past if they
            may run elsewhere already.
    """

    reason: LossReason
    deadline: float


# --- events


class StartRequested(msgspec.Struct, frozen=True):
    """Join the group."""


class Answered(msgspec.Struct, frozen=True):
    """The answer to a request."""

    request_id: int
    response: WorkerResponse


class NotAnswered(msgspec.Struct, frozen=True):
    """A request failed.

    Args:
        final: a retry cannot help: refused credentials, a missing permission, or a broker without these APIs.
    """

    request_id: int
    error: Kip848Error
    final: bool = False


class Confirmed(msgspec.Struct, frozen=True):
    """While a heartbeat waits for its answer, the coordinator said that it still counts this worker in.

    Args:
        sent_ms: when the coordinator was asked.
        settled: it also said that no round waits for this worker.
    """

    sent_ms: int
    settled: bool = False


class CallbackDone(msgspec.Struct, frozen=True):
    """A callback ended.

    Args:
        failed: units for which it raised; all of them for `CallbackKind.REVOKED` and `CallbackKind.LOST`.
    """

    call_id: int
    failed: frozenset[Unit] = frozenset()


class Planned(msgspec.Struct, frozen=True):
    """The client-side assignor returned; *plan* is None if it raised."""

    plan_id: int
    plan: WorkerPlan | None


class UnitsChanged(msgspec.Struct, frozen=True):
    """The application's list of units is now this one."""

    offset: int
    units: frozenset[Unit]


class RebalanceRequested(msgspec.Struct, frozen=True):
    """The application asks for a new plan."""


class DrainRequested(msgspec.Struct, frozen=True):
    """The application wants to give all units away.

    Args:
        in_group: the coordinator is told, so the worker stays in the group, and runs its units until others are ready
            for them. Otherwise it leaves the group, unless it has a client-side assignor.
        then_close: end when nothing runs here any more.
    """

    in_group: bool = False
    then_close: bool = False


class GiveUpRequested(msgspec.Struct, frozen=True):
    """Have other workers run these units.

    Args:
        in_group: the group is told, so the worker stays in it. Otherwise it leaves the group, and joins again.
    """

    units: frozenset[Unit]
    in_group: bool = False


class CloseRequested(msgspec.Struct, frozen=True):
    """Stop all units and leave.

    Args:
        for_a_while: a static worker that will be back: its units wait for it.
        deadline_ms: when to leave even if a callback has not ended.
    """

    deadline_ms: int
    for_a_while: bool = False


class WorkerTick(msgspec.Struct, frozen=True):
    """`deadline_ms` is reached."""


WorkerEvent: TypeAlias = (
    StartRequested
    | Answered
    | NotAnswered
    | Confirmed
    | CallbackDone
    | Planned
    | UnitsChanged
    | RebalanceRequested
    | DrainRequested
    | GiveUpRequested
    | CloseRequested
    | WorkerTick
)


# --- effects


class Send(msgspec.Struct, frozen=True):
    """Send a request to the coordinator; its end is `Answered` or `NotAnswered`.

    Args:
        anew: the coordinator may be another broker now: look for it first.
    """

    request_id: int
    request: WorkerRequest
    timeout_ms: int
    anew: bool = False


class RunCallback(msgspec.Struct, frozen=True):
    """Run a callback on the application's side; its end is `CallbackDone`. There is one at a time.

    Args:
        reason: why the units stop; None if they start.
        act_until_ms: no other worker starts them before.
    """

    call_id: int
    kind: CallbackKind
    units: tuple[OwnedUnit, ...]
    reason: LossReason | None = None
    act_until_ms: int = 0


class Plan(msgspec.Struct, frozen=True):
    """Run a client-side assignor, beside everything else; its end is `Planned`."""

    plan_id: int
    assignor_name: str
    group: WorkerGroup


class ReadUnits(msgspec.Struct, frozen=True):
    """Ask the application for its list of units now; a newer one comes as `UnitsChanged`."""


class StopNow(msgspec.Struct, frozen=True):
    """The lease ends: runners of these units must stop at once, even while a callback is running."""

    units: tuple[OwnedUnit, ...]


class WorkerFailed(msgspec.Struct, frozen=True):
    """The worker has stopped for good; all its units were released."""

    error: Kip848Error


class Left(msgspec.Struct, frozen=True):
    """The worker has left the group, or nothing is left to do for it."""


class Noted(msgspec.Struct, frozen=True):
    """Something for the log."""

    what: str
    fields: Mapping[str, object]


WorkerEffect: TypeAlias = Send | RunCallback | Plan | ReadUnits | StopNow | WorkerFailed | Left | Noted


class WorkerView(msgspec.Struct, frozen=True):
    """The view that the application may read at any time; replaced as a whole.

    Args:
        assignment: units that run, ascending.
        pending: units that this worker will get as soon as others have stopped them.
        failed: units whose start raised.
        lease_ends_ms: when the units must be stopped unless a heartbeat is answered before; None without units.
        waiting: units that were given to this worker, and have not been started.
        session_timeout_ms: 0 before the coordinator has answered.
    """

    state: MemberState
    member_id: str
    member_epoch: int
    assignment: tuple[OwnedUnit, ...]
    pending: tuple[Unit, ...]
    failed: tuple[Unit, ...]
    lease_ends_ms: int | None
    waiting: tuple[Unit, ...] = ()
    session_timeout_ms: int = 0
    assignor_status: int = 0
    error: Kip848Error | None = None
