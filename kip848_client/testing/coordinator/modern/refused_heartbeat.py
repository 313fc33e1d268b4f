"""The answer to a heartbeat that is refused, in any kind of group."""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern import client_assignment
from kip848_client.testing.coordinator.modern.member_lookup import MemberHeartbeat
from kip848_client.testing.coordinator.modern.member_record import KeyT, MetadataT
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup
from kip848_client.wire.schema import Response


def refuse_heartbeat(
    state: CoordinatorState,
    request: ApiRequest,
    message: MemberHeartbeat,
    refused: Refused,
    response: Response,
    *,
    group: ModernGroup[KeyT, MetadataT] | None,
) -> CoordinatorResult:
    """Answer *response*. A member that is fenced does not compute the target any more."""
    event = GroupEvent(
        event="member_fenced",
        group_id=message.group_id,
        member_id=message.member_id,
        client_id=request.client_id,
        fields={"error": refused.code.name, "sent_epoch": message.member_epoch},
    )
    batch = Batch(message.group_id)
    batch.events.append(event)
    if group is not None and refused.code is ErrorCode.FENCED_MEMBER_EPOCH:
        client_assignment.member_failed(state, group, batch, member_id=message.member_id, reason="member_fenced")
    return batch.result(Reply(request.request_id, response))
