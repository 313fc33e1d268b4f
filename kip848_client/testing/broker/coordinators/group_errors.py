"""Builds the answer to a group request that no coordinator handles: one error code, wherever its response has room.

For requests whose records could not be written, and for those sent to a node that does not coordinate the group. The
errors of the protocol are the coordinator's.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.testing.coordinator.core.inputs import GroupMessage
from kip848_client.testing.faults.replies import refused
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.schema import Response

_NULL_PROTOCOL_VERSION: Final = 7
"""From this version on JoinGroup has null for a protocol that was not chosen."""


def refusal(message: GroupMessage, *, code: int, api_version: int, reason: str | None = None) -> Response:
    """Answer *message* with *code* throughout, if its group is not coordinated here, or its records cannot be written.

    Source:
        apache/kafka ``getErrorResponse`` of each request.
    """
    answer: Response = refused(message, api_version=api_version, code=code, message=reason)
    if isinstance(message, JoinGroupRequest):
        name = None if api_version >= _NULL_PROTOCOL_VERSION else ""
        return replace(answer, protocol_name=name, member_id=message.member_id)
    return answer
