"""ConnectGroupDescribe. Reads only."""

from __future__ import annotations

from kip848_client.assignors.units.unit_plans import UNIT_PLANS
from kip848_client.testing.coordinator.connect.catalogue import count_units, write_held, write_units
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup, GroupWorker
from kip848_client.testing.coordinator.connect.worker_steps import assignor_status
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.modern.assignment_round import Rounds
from kip848_client.testing.coordinator.modern.assignor_votes import choose_name
from kip848_client.testing.coordinator.modern.client_assignment import client_assignor
from kip848_client.wire.messages.connect_group_describe import (
    ConnectGroupDescribeRequest,
    ConnectGroupDescribeResponse,
    DescribedGroup,
    Member,
)


def handle_describe(
    state: CoordinatorState, request: ApiRequest, message: ConnectGroupDescribeRequest
) -> CoordinatorResult:
    """Answer one ConnectGroupDescribe; each group has its own error. One that is named twice is described once."""
    groups = tuple(describe_group(state, group_id) for group_id in dict.fromkeys(message.group_ids))
    return CoordinatorResult(replies=(Reply(request.request_id, ConnectGroupDescribeResponse(groups=groups)),))


def describe_group(state: CoordinatorState, group_id: str) -> DescribedGroup:
    """One group, or GROUP_ID_NOT_FOUND."""
    try:
        group = state.existing(ConnectGroup, group_id)
    except Refused as refused:
        return DescribedGroup(group_id=group_id, error_code=refused.code, error_message=refused.message)
    flying = state.part(Rounds).in_flight.get(group_id)
    choice = client_assignor(state, group)
    return DescribedGroup(
        group_id=group_id,
        group_state=str(group.state),
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=server_assignor(group) if choice is None else choice.assignor_name,
        assignor_status=assignor_status(state, group),
        is_client_side=group.is_client_side,
        catalog_offset=group.catalogue.offset,
        unit_count=count_units(group.catalogue.units),
        deferred=write_units(group.deferred),
        computing_member=None if flying is None else flying.member_id,
        members=tuple(_member(group, group.members[member_id]) for member_id in group.sorted_member_ids),
    )


def server_assignor(group: ConnectGroup) -> str:
    """Name of the server-side assignor in use."""
    return choose_name(group, names=tuple(UNIT_PLANS))


def _member(group: ConnectGroup, worker: GroupWorker) -> Member:
    metadata, current = worker.metadata, worker.current
    return Member(
        member_id=worker.member_id,
        instance_id=metadata.instance_id,
        worker_id=metadata.worker_id,
        worker_url=metadata.worker_url,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        member_epoch=current.member_epoch,
        state=current.state.name,
        assigned=write_held(current.assigned),
        pending_revocation=write_units(current.pending_revocation),
        target=write_units(group.target_of(worker.member_id)),
    )
