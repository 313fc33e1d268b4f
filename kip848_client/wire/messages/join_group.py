"""JoinGroup (11): join a classic group; answered when the rebalance has all its members.

1: rebalance time-out. 4: a member without an id is sent one first (MEMBER_ID_REQUIRED). 5: static members.
6: flexible. 7: protocol type in the answer. 8: a reason. 9: whether the leader may skip its assignment.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class JoinGroupRequestProtocol(WireStruct, frozen=True):
    """An assignor that the member knows, and the member's subscription in its format."""

    name: Annotated[str, wire("0+")] = ""
    metadata: Annotated[bytes, wire("0+")] = b""


class JoinGroupRequest(Request["JoinGroupResponse"], frozen=True):
    """Protocols (assignors) in order of preference, with the member's subscription."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.JOIN_GROUP, "0-9", flexible="6+")

    group_id: Annotated[str, wire("0+")] = ""
    session_timeout_ms: Annotated[Int32, wire("0+")] = 0
    rebalance_timeout_ms: Annotated[Int32, wire("1+", ignorable=True)] = -1
    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("5+", nullable="5+")] = None
    protocol_type: Annotated[str, wire("0+")] = ""
    protocols: Annotated[tuple[JoinGroupRequestProtocol, ...], wire("0+")] = ()
    reason: Annotated[str | None, wire("8+", nullable="8+", ignorable=True)] = None


class JoinGroupResponseMember(WireStruct, frozen=True):
    """A member, as the leader is told of it."""

    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    metadata: Annotated[bytes, wire("0+")] = b""


class JoinGroupResponse(Response, frozen=True):
    """The generation; the leader is also told all members."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.JOIN_GROUP, "0-9", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    generation_id: Annotated[Int32, wire("0+")] = -1
    protocol_type: Annotated[str | None, wire("7+", nullable="7+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire("0+", nullable="7+")] = ""
    leader: Annotated[str, wire("0+")] = ""
    skip_assignment: Annotated[bool, wire("9+")] = False
    member_id: Annotated[str, wire("0+")] = ""
    members: Annotated[tuple[JoinGroupResponseMember, ...], wire("0+")] = ()
