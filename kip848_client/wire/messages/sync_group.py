"""SyncGroup (14): the leader of a classic group hands its assignment in, the others fetch theirs.

3: static members. 4: flexible. 5: protocol type and name, to be checked against the group's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class SyncGroupRequestAssignment(WireStruct, frozen=True):
    """The leader's assignment for one member."""

    member_id: Annotated[str, wire("0+")] = ""
    assignment: Annotated[bytes, wire("0+")] = b""


class SyncGroupRequest(Request["SyncGroupResponse"], frozen=True):
    """`assignments` is empty unless the leader sends it."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.SYNC_GROUP, "0-5", flexible="4+")

    group_id: Annotated[str, wire("0+")] = ""
    generation_id: Annotated[Int32, wire("0+")] = 0
    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+")] = None
    protocol_type: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    assignments: Annotated[tuple[SyncGroupRequestAssignment, ...], wire("0+")] = ()


class SyncGroupResponse(Response, frozen=True):
    """The assignment of the member that asked, as its assignor wrote it."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SYNC_GROUP, "0-5", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    protocol_type: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire("5+", nullable="5+", ignorable=True)] = None
    assignment: Annotated[bytes, wire("0+")] = b""
