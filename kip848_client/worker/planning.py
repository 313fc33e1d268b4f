"""A worker's part in client-side assignment: requests for a plan, rounds, and when the next plan is due.

Part of the pure core. One round at a time: Prepare, the assignor, Install. A round that fails is dropped: the
coordinator asks again with the next heartbeat, or asks another worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan, WorkerSpec
from kip848_client.common.model import Unit
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.wire.messages.connect_group_heartbeat import ClientAssignor, UnitsOfName
from kip848_client.wire.messages.connect_group_install_assignment import (
    ConnectGroupInstallAssignmentRequest,
    ConnectGroupInstallAssignmentResponse,
    Member,
)
from kip848_client.wire.messages.connect_group_prepare_assignment import (
    ConnectGroupPrepareAssignmentRequest,
    ConnectGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.connect_protocol import PlanMetadata, WorkerMetadata, decode, encode
from kip848_client.worker.events import Plan, WorkerEffect, WorkerRequest

REASON_NONE: Final = 0
REASON_DELAY_DUE: Final = 1
REASON_REQUESTED: Final = 2
REASON_DRAINING: Final = 3

CLASSIC_VERSION: Final = -1
"""Version of the metadata of workers on the classic protocol; our assignors need nothing of it."""

ASSIGNOR_RAISED: Final = 1
"""Error of an Install whose assignor raised."""

RETRY_MS: Final = 1_000
"""How long after its first failure in a row the assignor is called again; each further failure doubles it."""
RETRY_MS_MAX: Final = 30_000


class Planning:
    """The state of a worker with client-side assignors.

    Args:
        names: of its assignors, the most preferred first.
        send: sends a request; returns its number.
        emit: adds an effect.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        *,
        group_id: str,
        member_id: str,
        worker_url: str | None,
        send: Callable[[WorkerRequest], int],
        emit: Callable[[WorkerEffect], None],
        note: Callable[..., None],
    ) -> None:
        self._names: Final = names
        self._group_id: Final = group_id
        self._member_id: Final = member_id
        self._worker_url: Final = worker_url
        self._send: Final = send
        self._emit: Final = emit
        self._note: Final = note
        self._trigger_seq = 0
        self._reason = REASON_NONE
        self._draining = False
        self._request_id: int | None = None
        """Prepare or Install without an answer."""
        self._plans = 0
        self._plan_id: int | None = None
        """The assignor that is running."""
        self._prepared: ConnectGroupPrepareAssignmentResponse | None = None
        self.says_offers: bool
        """The next heartbeat has something new about the assignors; a join has them in any case."""
        self.due_ms: int | None = None
        """When this worker asks for the next plan, because the last one delays units."""
        self.retry_ms: int | None = None
        """When it asks for another one, because its assignor failed: units of a lost worker would stay without one."""
        self._retry_after_ms = RETRY_MS
        self.catalogue_offset: int = -1
        """Offset (version) of the list of units from which the last plan was made."""

    def offers(self) -> tuple[ClientAssignor, ...]:
        """The assignors, for a heartbeat."""
        data = encode(WorkerMetadata(trigger_seq=self._trigger_seq, draining=self._draining))
        return tuple(
            ClientAssignor(name=name, minimum_version=CLASSIC_VERSION, reason=self._reason, metadata_bytes=data)
            for name in self._names
        )

    def trigger(self, reason: int) -> None:
        """Ask for a new plan: a second request must differ from the first one, hence the counter."""
        self._trigger_seq += 1
        self._reason = reason
        self._draining = self._draining or reason == REASON_DRAINING
        self.says_offers = True

    def accepted(self) -> None:
        """A heartbeat with `offers` was accepted: the reason is taken back with the next one."""
        if self._reason != REASON_NONE:
            self._reason = REASON_NONE
            self.says_offers = True

    def plan_received(self, data: bytes, *, version: int, error: int, now_ms: int, session_ms: int) -> None:
        """A plan arrived with these bytes. It replaces the one before."""
        self.due_ms = None
        if not error:
            self.retry_ms = None
        if version == 0 and data:
            with contextlib.suppress(ProtocolError):  # bytes of an assignor that is not ours
                metadata = decode(PlanMetadata, data)
                self.catalogue_offset = metadata.catalog_offset
                if metadata.delay_ms > 0:
                    # The others ask only if the worker that computed the plan does not.
                    backup_ms = 0 if metadata.leader == self._member_id else session_ms
                    self.due_ms = now_ms + metadata.delay_ms + backup_ms

    def tick(self, *, now_ms: int) -> bool:
        """Whether a delay is over; asks for a plan then."""
        if self.retry_ms is not None and now_ms >= self.retry_ms:
            self.retry_ms = None
            self.trigger(REASON_REQUESTED)
            return True
        if self.due_ms is None or now_ms < self.due_ms:
            return False
        self.due_ms = None
        self.trigger(REASON_DELAY_DUE)
        return True

    # --- rounds

    def compute(self, *, epoch: int) -> None:
        """The coordinator asks this worker for a plan."""
        if self._request_id is None and self._plan_id is None:
            self.retry_ms = None
            self._request_id = self._send(
                ConnectGroupPrepareAssignmentRequest(
                    group_id=self._group_id, member_id=self._member_id, member_epoch=epoch
                )
            )

    def drop(self) -> None:
        """This worker is not in the group any more."""
        self._request_id = self._plan_id = self._prepared = None
        self.due_ms = self.retry_ms = None

    def is_waiting_for(self, request_id: int) -> bool:
        """Whether the request is one of a round."""
        return request_id == self._request_id

    def not_answered(self) -> None:
        """The request of the round failed."""
        self._request_id = None

    def answered(self, response: object) -> bool:
        """Take the answer to Prepare or Install; True if a plan was installed."""
        self._request_id = None
        if isinstance(response, ConnectGroupPrepareAssignmentResponse):
            if response.error_code:
                self._note("not_prepared", error=ErrorCode(response.error_code).name)
                return False
            self._prepared = response
            self._plans += 1
            self._plan_id = self._plans
            self._emit(Plan(self._plan_id, response.assignor_name, _group(response)))
        elif isinstance(response, ConnectGroupInstallAssignmentResponse):
            if not response.error_code:
                return True
            self._note("not_installed", error=response.error_message or ErrorCode(response.error_code).name)
        return False

    def planned(self, plan_id: int, plan: WorkerPlan | None, *, epoch: int, now_ms: int) -> None:
        """The assignor returned: hand its plan in. It failed: say so, and try again later."""
        prepared = self._prepared
        if plan_id != self._plan_id or prepared is None:
            return
        self._plan_id = self._prepared = None
        failed = ConnectGroupInstallAssignmentRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            group_epoch=prepared.group_epoch,
            error=ASSIGNOR_RAISED,
        )
        if plan is None:
            self.retry_ms = now_ms + self._retry_after_ms
            self._retry_after_ms = min(2 * self._retry_after_ms, RETRY_MS_MAX)
            self._request_id = self._send(failed)
            return
        self._retry_after_ms = RETRY_MS
        classic = {each.member_id for each in prepared.members if each.metadata_version == CLASSIC_VERSION}
        metadata = encode(
            PlanMetadata(
                leader=self._member_id,
                leader_url=self._worker_url,
                catalog_offset=prepared.catalog.offset,
                delay_ms=plan.delay_ms,
            )
        )
        self._request_id = self._send(
            replace(
                failed,
                error=0,
                members=tuple(
                    Member(
                        member_id=member_id,
                        units=units_on_wire(units),
                        metadata_bytes=b"" if member_id in classic else metadata,
                    )
                    for member_id, units in plan.units.items()
                ),
                deferred=units_on_wire(plan.deferred),
                assignor_state=plan.state,
                state_version=plan.state_version,
            )
        )


def units_on_wire(units: Iterable[Unit]) -> tuple[UnitsOfName, ...]:
    """Units for a request."""
    by_name: dict[str, list[int]] = {}
    for unit in sorted(units):
        by_name.setdefault(unit.name, []).append(unit.index)
    return tuple(UnitsOfName(name=name, indexes=tuple(indexes)) for name, indexes in by_name.items())


def _group(response: ConnectGroupPrepareAssignmentResponse) -> WorkerGroup:
    return WorkerGroup(
        workers=tuple(
            WorkerSpec(
                member_id=member.member_id,
                worker_id=member.worker_id,
                target=_units(member.target),
                reconciled=member.reconciled,
                draining=_is_draining(member.metadata_bytes, version=member.metadata_version),
            )
            for member in response.members
        ),
        units=frozenset(_units(response.catalog.units)),
        state=response.assignor_state,
        state_version=response.state_version,
        state_age_ms=response.state_age_ms,
    )


def _units(units: Iterable[UnitsOfName]) -> tuple[Unit, ...]:
    return tuple(Unit(item.name, index) for item in units for index in item.indexes)


def _is_draining(data: bytes, *, version: int) -> bool:
    if version or not data:
        return False
    try:
        return decode(WorkerMetadata, data).draining
    except ProtocolError:
        return False
