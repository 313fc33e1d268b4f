"""The answer to a group request that no coordinator sees: one error code, wherever its response has room for one.

For requests that could not be kept, and for those that came to a node which does not coordinate the group. No rule of
the protocol is here: those errors are the coordinator's.
"""

from __future__ import annotations

from typing import Final

from kip848_client.coordinator.requests import GroupMessage
from kip848_client.wire.messages import connect_group_describe, consumer_group_describe, describe_groups
from kip848_client.wire.messages.connect_group_describe import (
    ConnectGroupDescribeRequest,
    ConnectGroupDescribeResponse,
)
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
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kip848_client.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kip848_client.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kip848_client.wire.schema import Response

__all__ = ["FIRST_BATCHED_OFFSET_FETCH", "error_response", "refusal", "txn_offset_commit_error"]

FIRST_BATCHED_OFFSET_FETCH: Final = 8
"""From this version on OffsetFetch names several groups."""
_FIRST_OFFSET_FETCH_WITH_CODE: Final = 2
_NO_OFFSET: Final = -1


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
        case ConnectGroupHeartbeatRequest():
            return ConnectGroupHeartbeatResponse(error_code=code, error_message=reason)
        case ConnectGroupInstallAssignmentRequest():
            return ConnectGroupInstallAssignmentResponse(error_code=code, error_message=reason)
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


def refusal(message: GroupMessage, *, code: int, api_version: int) -> Response:
    """Answer *message* with *code* throughout, because its group is not coordinated here, or not yet.

    Source:
        apache/kafka ``getErrorResponse`` of each request.
    """
    match message:
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=code)
        case ConsumerGroupInstallAssignmentRequest():
            return ConsumerGroupInstallAssignmentResponse(error_code=code)
        case ConsumerGroupPrepareAssignmentRequest():
            return ConsumerGroupPrepareAssignmentResponse(error_code=code)
        case ConnectGroupPrepareAssignmentRequest():
            return ConnectGroupPrepareAssignmentResponse(error_code=code)
        case ConnectGroupDescribeRequest(group_ids=group_ids):
            return ConnectGroupDescribeResponse(
                groups=tuple(
                    connect_group_describe.DescribedGroup(error_code=code, group_id=each) for each in group_ids
                )
            )
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case OffsetFetchRequest(groups=groups) if api_version >= FIRST_BATCHED_OFFSET_FETCH:
            return OffsetFetchResponse(
                groups=tuple(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in groups)
            )
        case OffsetFetchRequest() if api_version >= _FIRST_OFFSET_FETCH_WITH_CODE:
            return OffsetFetchResponse(error_code=code)
        case OffsetFetchRequest(topics=topics):
            return OffsetFetchResponse(
                topics=tuple(
                    OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            OffsetFetchResponsePartition(
                                partition_index=index, committed_offset=_NO_OFFSET, error_code=code
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in topics or ()
                ),
            )
        case DescribeGroupsRequest(groups=group_ids):
            return DescribeGroupsResponse(
                groups=tuple(describe_groups.DescribedGroup(error_code=code, group_id=each) for each in group_ids)
            )
        case ConsumerGroupDescribeRequest(group_ids=group_ids):
            return ConsumerGroupDescribeResponse(
                groups=tuple(
                    consumer_group_describe.DescribedGroup(error_code=code, group_id=each) for each in group_ids
                )
            )
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=code)
        case _:
            response = error_response(message, code=code, reason="")
            assert response is not None, message
            return response


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
