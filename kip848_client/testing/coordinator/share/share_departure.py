"""How a member of a share group ceases to be one: it leaves, or its session ends."""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CancelTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.testing.coordinator.share.share_group import (
    ShareGroup,
    ShareGroupMember,
    member_tombstones,
)
from kip848_client.wire.messages import share_group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def leave(state: CoordinatorState, request: ApiRequest, message: ShareGroupHeartbeatRequest) -> CoordinatorResult:
    """Answer a heartbeat with epoch -1.

    Raises:
        Refused: GROUP_ID_NOT_FOUND or UNKNOWN_MEMBER_ID; nothing changed.
    """
    group = state.existing(ShareGroup, message.group_id)
    member = group.members.get(message.member_id)
    if member is None:
        raise unknown_member(group, message.member_id)
    batch = Batch(group.group_id)
    _remove(state, group, batch, member, reason="leave")
    response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=message.member_epoch)
    return batch.result(Reply(request.request_id, response))


def time_is_up(state: CoordinatorState, group: ShareGroup, key: TimerKey) -> CoordinatorResult:
    """Remove the member whose session has ended."""
    member = group.members.get(key.member_id)
    if member is None:
        return CoordinatorResult(soft=(CancelTimer(key),))
    batch = Batch(group.group_id)
    _remove(state, group, batch, member, reason="session_timeout")
    return batch.result()


def unknown_member(group: ShareGroup, member_id: str) -> Refused:
    """UNKNOWN_MEMBER_ID: the member was removed, or never joined; it must join again."""
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _remove(state: CoordinatorState, group: ShareGroup, batch: Batch, member: ShareGroupMember, *, reason: str) -> None:
    """The next heartbeat of another member leads to the new target; without one, the target is current and empty."""
    group_id, epoch = group.group_id, group.group_epoch + 1
    topics = group.subscribed_topics_with(without=member.member_id)
    batch.records += member_tombstones(group_id, member.member_id)
    batch.records.append(
        GroupRecord(
            wire.ShareGroupMetadataKey(group_id=group_id),
            wire.ShareGroupMetadataValue(epoch=epoch, metadata_hash=state.image.metadata_hash(topics)),
        )
    )
    if group.size == 1:
        batch.records.append(
            GroupRecord(
                wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
                wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
            )
        )
    batch.cancel_timers(member.member_id)
    batch.happened("member_left", member=member, group_epoch=group.group_epoch, fields={"reason": reason})
    batch.happened("group_epoch_bumped", group_epoch=epoch, fields={"reason": f"member_left ({reason})"})
    left = GroupState.EMPTY if group.size == 1 else GroupState.STABLE
    batch.state_changed(old=group.state, new=left, group_epoch=epoch)
