"""DescribeGroups (15): the state of classic groups.

3: authorized operations. 4: static members. 5: flexible. 6: GROUP_ID_NOT_FOUND instead of state Dead, with a message.
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
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroupMember",
    "DescribedGroup",
]


@value
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+")

    groups: tuple[str, ...] = wire(array(STRING), "0+")
    include_authorized_operations: bool = wire(BOOL, "3+")


@value
class DescribedGroupMember:
    """One member, with subscription and assignment as its assignor wrote them."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    member_metadata: bytes = wire(BYTES, "0+")
    member_assignment: bytes = wire(BYTES, "0+")


@value
class DescribedGroup:
    """One classic group."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "6+", nullable="6+", default=None)
    group_id: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "0+")
    protocol_type: str = wire(STRING, "0+")
    protocol_data: str = wire(STRING, "0+")
    members: tuple[DescribedGroupMember, ...] = wire(array(DescribedGroupMember), "0+")
    authorized_operations: int = wire(INT32, "3+", default=-2147483648)


@value
class DescribeGroupsResponse(Response):
    """One entry per group that was asked for."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_GROUPS, "0-6", flexible="5+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup), "0+")
