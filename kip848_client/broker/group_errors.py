"""Builds the answer to a group request that no coordinator handles: one error code, wherever its response has room.

For requests whose records could not be written, and for those sent to a node that does not coordinate the group. The
errors of the protocol are the coordinator's.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.core.requests import GroupMessage
from kip848_client.faults.replies import refused
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.schema import Response

__all__ = ["FIRST_BATCHED_OFFSET_FETCH", "error_response", "refusal"]

FIRST_BATCHED_OFFSET_FETCH: Final = 8
"""From this version on OffsetFetch names several groups."""
_WRITING: Final = frozenset(
    {
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT),
        *(ApiKey.CONNECT_GROUP_HEARTBEAT, ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT),
        *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS),
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.TXN_OFFSET_COMMIT),
    }
)
"""APIs whose requests may write records."""


def error_response(message: GroupMessage, *, code: int, reason: str, api_version: int) -> Response | None:
    """Answer *message* with *code* throughout; None for a request that never writes."""
    if message.WIRE.api_key not in _WRITING:
        return None
    return refusal(message, code=code, api_version=api_version, reason=reason)


def refusal(message: GroupMessage, *, code: int, api_version: int, reason: str | None = None) -> Response:
    """Answer *message* with *code* throughout, because its group is not coordinated here, or not yet.

    Source:
        apache/kafka ``getErrorResponse`` of each request.
    """
    answer: Response = refused(message, api_version=api_version, code=code, message=reason)
    if isinstance(message, JoinGroupRequest):
        return replace(answer, protocol_name="", member_id=message.member_id)
    return answer
