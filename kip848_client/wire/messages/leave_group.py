"""LeaveGroup (13): members leave a classic group.

Up to 2 one member (`member_id`), from 3 on several (`members`). 4: flexible. 5: a reason.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberIdentity",
    "MemberResponse",
]


@value
class MemberIdentity:
    """A member that leaves; static members are named by their instance id alone."""

    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    reason: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


@value
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """Who leaves."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LEAVE_GROUP, "0-5", flexible="4+")

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0-2")
    members: tuple[MemberIdentity, ...] = wire(array(MemberIdentity), "3+")


@value
class MemberResponse:
    """Whether the member was removed."""

    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+")
    error_code: int = wire(INT16, "3+")


@value
class LeaveGroupResponse(Response):
    """One answer per member from version 3 on."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LEAVE_GROUP, "0-5", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    members: tuple[MemberResponse, ...] = wire(array(MemberResponse), "3+")
