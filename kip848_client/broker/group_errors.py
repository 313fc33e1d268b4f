"""The answer to a group request that could not be kept: one error code, wherever its response has room for one.

Only for requests that write. No rule of the protocol is here: those errors are the coordinator's.
"""

from __future__ import annotations

from kip848_client.coordinator.requests import GroupMessage
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kip848_client.wire.schema import Response

__all__ = ["error_response"]


def error_response(message: GroupMessage, *, code: int, reason: str) -> Response | None:
    """Answer *message* with *code* throughout; None for a request that never writes."""
    match message:
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=reason)
        case JoinGroupRequest(member_id=member_id):
            return JoinGroupResponse(error_code=code, protocol_name="", member_id=member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case ConsumerGroupInstallAssignmentRequest():
            return ConsumerGroupInstallAssignmentResponse(error_code=code, error_message=reason)
        case OffsetCommitRequest(topics=topics):
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=tuple(
                            OffsetCommitResponsePartition(partition_index=item.partition_index, error_code=code)
                            for item in topic.partitions
                        ),
                    )
                    for topic in topics
                )
            )
        case TxnOffsetCommitRequest():
            return txn_offset_commit_error(message, code)
        case DeleteGroupsRequest(groups_names=group_ids):
            return DeleteGroupsResponse(
                results=tuple(DeletableGroupResult(group_id=group_id, error_code=code) for group_id in group_ids)
            )
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code)
        case _:
            return None


def txn_offset_commit_error(message: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    """The same code for every partition."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=item.partition_index, error_code=code)
                    for item in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )
