"""ConnectGroupHeartbeat of a worker that joins or stays: find it, check its fields, and answer.

The steps are in `worker_steps`, leaving is in `worker_departure`.
"""

from __future__ import annotations

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup
from kip848_client.testing.coordinator.connect import worker_departure
from kip848_client.testing.coordinator.connect.catalogue import write_held, write_units
from kip848_client.testing.coordinator.connect.connect_conversion import upgrade
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup, GroupWorker, WorkerMetadata
from kip848_client.testing.coordinator.connect.heard import Heard, HeardHeartbeats
from kip848_client.testing.coordinator.connect.worker_steps import WorkerSteps
from kip848_client.testing.coordinator.connect.worker_validation import ReadHeartbeat, read_heartbeat
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern.member_lookup import find_member
from kip848_client.testing.coordinator.modern.member_record import JOIN_EPOCH, Current
from kip848_client.testing.coordinator.modern.refused_heartbeat import refuse_heartbeat
from kip848_client.wire.messages.classic_connect_protocol import CONNECT_PROTOCOL
from kip848_client.wire.messages.connect_group_heartbeat import (
    Assignment,
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConnectGroupHeartbeat. One that is refused changes nothing."""
    try:
        read = read_heartbeat(message, bytes_max=state.config.client_assignors_bytes_max)
        _check_sequence(state, message)
        if message.member_epoch < 0:
            return worker_departure.leave(state, request, message, now_ms=now_ms)
        return _WorkerHeartbeat(state, request, message, read, now_ms=now_ms).run()
    except Refused as refused:
        response = ConnectGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
        group = state.find(ConnectGroup, message.group_id)
        return refuse_heartbeat(state, request, message, refused, response, group=group)


def _check_sequence(state: CoordinatorState, message: ConnectGroupHeartbeatRequest) -> None:
    """Refuse a heartbeat that the worker gave up, and that arrives after a later one.

    It says what the worker ran then: as a confirmation that units were stopped it would be wrong.

    Raises:
        Refused: COORDINATOR_NOT_AVAILABLE, after which a worker tries again; nothing changed.
    """
    group = state.find(ConnectGroup, message.group_id)
    logged = -1 if group is None else group.logged_sequences.get(message.member_id, -1)
    heard = max(logged, state.part(HeardHeartbeats).latest(message.group_id, message.member_id))
    if -1 < message.sequence <= heard:
        raise Refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"Heartbeat {message.sequence} of worker {message.member_id} came after heartbeat {heard}; it is too late.",
        )


class _WorkerHeartbeat:
    """One heartbeat: finds the sender, checks the fields, and answers."""

    def __init__(
        self,
        state: CoordinatorState,
        request: ApiRequest,
        message: ConnectGroupHeartbeatRequest,
        read: ReadHeartbeat,
        *,
        now_ms: int,
    ) -> None:
        self._state = state
        self._request = request
        self._message = message
        self._read = read
        self._now_ms = now_ms
        self._batch = Batch(message.group_id)
        self._group = self._find_group()

    def run(self) -> CoordinatorResult:
        """Take the steps and answer.

        Raises:
            Refused: the code for the answer.
        """
        state, read, message = self._state, self._read, self._message
        found = find_member(state, self._group, message, owned=read.owned, size_max=state.config.connect_max_size)
        steps = WorkerSteps(
            state,
            self._group,
            self._batch,
            owned=read.owned,
            catalogue=read.catalogue,
            sequence=message.sequence,
            repeats=_has_all(message),
            now_ms=self._now_ms,
        )
        metadata = self._updated_metadata(found.member.metadata)
        updated = steps.run(found, metadata, is_join=message.member_epoch == JOIN_EPOCH)
        self._batch.soft.append(Heard(message.group_id, updated.member_id, message.sequence))
        answer = self._answer(steps, updated, before=found.member)
        return self._batch.result(Reply(self._request.request_id, answer))

    # --- the sender

    def _find_group(self) -> ConnectGroup:
        state, group_id = self._state, self._message.group_id
        group = state.find(ConnectGroup, group_id)
        if group is not None:
            return group
        other = state.groups.get(group_id)
        is_join = self._message.member_epoch == JOIN_EPOCH
        if isinstance(other, ClassicGroup) and other.members and is_join:
            return self._upgrade(other)
        is_left = isinstance(other, ClassicGroup) and not other.size
        if (other is not None and not is_left) or state.offsets.has_group(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a connect group.")
        if not is_join:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Connect group {group_id} not found.")
        if other is not None:
            self._batch.records += other.tombstones()
        return ConnectGroup(group_id)

    def _upgrade(self, classic: ClassicGroup) -> ConnectGroup:
        """Take over a classic group of workers; the catalogue is that of this one.

        Raises:
            Refused: the group cannot be converted, or not by this worker.
        """
        read = self._read
        if classic.protocol_type == CONNECT_PROTOCOL:
            if read.catalogue is None:
                raise invalid_request("Catalog can't be null when a worker takes over a classic group.")
            for offer in read.offers or ():
                if offer.minimum_version > -1:
                    raise invalid_request(
                        f"Client assignor {offer.name} must read metadata of version -1, which classic workers have; "
                        f"its MinimumVersion is {offer.minimum_version}."
                    )
        return upgrade(self._state, classic, self._batch, now_ms=self._now_ms, wall_ms=self._request.wall_ms)

    # --- checking the fields

    def _updated_metadata(self, before: WorkerMetadata) -> WorkerMetadata:
        """Apply the fields that are given: null, and -1 for the timeout, mean unchanged."""
        message, request, offers = self._message, self._request, self._read.offers
        server_assignor = before.server_assignor
        if message.server_assignor is not None:
            server_assignor = message.server_assignor or None
        elif message.member_epoch == JOIN_EPOCH:
            server_assignor = None
        after = WorkerMetadata(
            instance_id=before.instance_id if message.instance_id is None else message.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms
            ),
            server_assignor=server_assignor,
            client_assignors=before.client_assignors if offers is None else offers,
            worker_id=before.worker_id if message.worker_id is None else message.worker_id,
            worker_url=before.worker_url if message.worker_url is None else message.worker_url,
        )
        return before if after == before else after

    # --- the answer

    def _answer(self, steps: WorkerSteps, worker: GroupWorker, *, before: GroupWorker) -> ConnectGroupHeartbeatResponse:
        state, message, current = self._state, self._message, worker.current
        config = state.group_config(message.group_id)
        assignment = None
        if _has_all(message) or _is_news(current, before=before.current):
            assignment = Assignment(
                error=current.metadata.error,
                assigned=write_held(current.assigned),
                pending=write_units(steps.waiting(current)),
                metadata_version=current.metadata.version,
                metadata_bytes=current.metadata.data,
            )
        planner = steps.planner
        return ConnectGroupHeartbeatResponse(
            member_id=worker.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=config.connect_heartbeat_interval_ms,
            session_timeout_ms=config.connect_session_timeout_ms,
            should_compute_assignment=planner is not None and planner.notify(worker, now_ms=self._now_ms),
            assignor_status=steps.status,
            catalog_offset=steps.catalogue.offset,
            assignment=assignment,
        )


def _has_all(message: ConnectGroupHeartbeatRequest) -> bool:
    """Whether it has every field, as the first one after a failure: the answer repeats the assignment."""
    return (
        message.rebalance_timeout_ms != -1
        and message.owned_units is not None
        and not (message.client_assignors is None and message.server_assignor is None)
    )


def _is_news(current: Current[str], *, before: Current[str]) -> bool:
    """Whether the answer must repeat the worker's assignment; a change of the previous epoch alone is no reason."""
    return replace(current, previous_member_epoch=before.previous_member_epoch) != before
