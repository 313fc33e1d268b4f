"""SyncGroup (14): the leader of a classic group hands its assignment in, the others fetch theirs.

3: static members. 4: flexible. 5: protocol type and name, to be checked against the group's.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BYTES,
    INT16,
    INT32,
    STRING,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "SyncGroupRequest",
    "SyncGroupResponse",
    "SyncGroupRequestAssignment",
]


@value
class SyncGroupRequestAssignment:
    """The leader's assignment for one member."""

    member_id: str = wire(STRING, "0+")
    assignment: bytes = wire(BYTES, "0+")


@value
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """`assignments` is empty unless the leader sends it."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SYNC_GROUP, "0-5", flexible="4+")

    group_id: str = wire(STRING, "0+")
    generation_id: int = wire(INT32, "0+")
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(array(SyncGroupRequestAssignment), "0+")


@value
class SyncGroupResponse(Response):
    """The assignment of the member that asked, as its assignor wrote it."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SYNC_GROUP, "0-5", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = wire(BYTES, "0+")
