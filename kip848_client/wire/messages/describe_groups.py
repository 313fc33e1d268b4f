"""DescribeGroups (15): the state of classic groups.

3: authorized operations. 4: static members. 5: flexible. 6: GROUP_ID_NOT_FOUND instead of state Dead, with a message.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], frozen=True):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+", answered_by={"groups": "groups"}
    )

    groups: Annotated[tuple[str, ...], wire("0+")] = ()
    include_authorized_operations: Annotated[bool, wire("3+")] = False


class DescribedGroupMember(WireStruct, frozen=True):
    """One member, with subscription and assignment as its assignor wrote them."""

    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("4+", nullable="4+", ignorable=True)] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    member_metadata: Annotated[bytes, wire("0+")] = b""
    member_assignment: Annotated[bytes, wire("0+")] = b""


class DescribedGroup(WireStruct, frozen=True):
    """One classic group."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("6+", nullable="6+")] = None
    group_id: Annotated[str, wire("0+")] = ""
    group_state: Annotated[str, wire("0+")] = ""
    protocol_type: Annotated[str, wire("0+")] = ""
    protocol_data: Annotated[str, wire("0+")] = ""
    members: Annotated[tuple[DescribedGroupMember, ...], wire("0+")] = ()
    authorized_operations: Annotated[Int32, wire("3+")] = -2147483648


class DescribeGroupsResponse(Response, frozen=True):
    """One entry per group that was asked for."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    groups: Annotated[tuple[DescribedGroup, ...], wire("0+")] = ()
