"""LeaveGroup (13): members leave a classic group.

Up to 2 one member (`member_id`), from 3 on several (`members`). 4: flexible. 5: a reason.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class MemberIdentity(WireStruct, frozen=True):
    """A member that leaves; static members are named by their instance id alone."""

    member_id: Annotated[str, wire("3+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+")] = None
    reason: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None


class LeaveGroupRequest(Request["LeaveGroupResponse"], frozen=True):
    """The members that leave."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.LEAVE_GROUP,
        "0-5",
        flexible="4+",
        answered_by={"members": "members"},
    )

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0-2")] = ""
    members: Annotated[tuple[MemberIdentity, ...], wire("3+")] = ()


class MemberResponse(WireStruct, frozen=True):
    """Whether the member was removed."""

    member_id: Annotated[str, wire("3+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+")] = ""
    error_code: Annotated[Int16, wire("3+")] = 0


class LeaveGroupResponse(Response, frozen=True):
    """One answer per member from version 3 on."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LEAVE_GROUP, "0-5", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    members: Annotated[tuple[MemberResponse, ...], wire("3+")] = ()
