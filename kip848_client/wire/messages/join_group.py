"""JoinGroup (11): join a classic group; answered when the rebalance has all its members.

1: rebalance time-out. 4: a member without an id is sent one first (MEMBER_ID_REQUIRED). 5: static members.
6: flexible. 7: protocol type in the answer. 8: a reason. 9: whether the leader may skip its assignment.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
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
    "JoinGroupRequest",
    "JoinGroupResponse",
    "JoinGroupRequestProtocol",
    "JoinGroupResponseMember",
]


@value
class JoinGroupRequestProtocol:
    """An assignor that the member knows, and the member's subscription in its format."""

    name: str = wire(STRING, "0+")
    metadata: bytes = wire(BYTES, "0+")


@value
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """Protocols (assignors) in order of preference, with the member's subscription."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.JOIN_GROUP, "0-9", flexible="6+")

    group_id: str = wire(STRING, "0+")
    session_timeout_ms: int = wire(INT32, "0+")
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = wire(STRING, "0+")
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(array(JoinGroupRequestProtocol), "0+")
    reason: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)


@value
class JoinGroupResponseMember:
    """A member, as the leader is told of it."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = wire(BYTES, "0+")


@value
class JoinGroupResponse(Response):
    """The generation; the leader is also told all members."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.JOIN_GROUP, "0-9", flexible="6+")

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    generation_id: int = wire(INT32, "0+", default=-1)
    protocol_type: str | None = wire(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "0+", nullable="7+")
    leader: str = wire(STRING, "0+")
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STRING, "0+")
    members: tuple[JoinGroupResponseMember, ...] = wire(array(JoinGroupResponseMember), "0+")
