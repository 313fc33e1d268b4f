"""ConnectGroupDescribe (private key 30853): the workers of connect groups, and what each runs."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import AssignedUnits, UnitsOfName
from kip848_client.wire.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class ConnectGroupDescribeRequest(Request["ConnectGroupDescribeResponse"], frozen=True):
    """Which groups."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.CONNECT_GROUP_DESCRIBE, "0", flexible="0+", answered_by={"group_ids": "groups"}
    )

    group_ids: Annotated[tuple[str, ...], wire("0+")] = ()


class Member(WireStruct, frozen=True):
    """One worker: units that it runs (with tokens), units that it has to stop and has not confirmed, and its target."""

    member_id: Annotated[str, wire("0+")] = ""
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_url: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    state: Annotated[str, wire("0+")] = ""
    assigned: Annotated[tuple[AssignedUnits, ...], wire("0+")] = ()
    pending_revocation: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    target: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()


class DescribedGroup(WireStruct, frozen=True):
    """One group, or why it cannot be described.

    Args:
        assignor_status: as in ConnectGroupHeartbeat.
        computing_member: the worker that was asked for the next target; None if none was.
    """

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    group_id: Annotated[str, wire("0+")] = ""
    group_state: Annotated[str, wire("0+")] = ""
    group_epoch: Annotated[Int32, wire("0+")] = 0
    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    assignor_name: Annotated[str, wire("0+")] = ""
    assignor_status: Annotated[Int8, wire("0+")] = 0
    is_client_side: Annotated[bool, wire("0+")] = False
    catalog_offset: Annotated[Int64, wire("0+")] = -1
    unit_count: Annotated[Int32, wire("0+")] = 0
    deferred: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    computing_member: Annotated[str | None, wire("0+", nullable="0+")] = None
    members: Annotated[tuple[Member, ...], wire("0+")] = ()


class ConnectGroupDescribeResponse(Response, frozen=True):
    """One entry for each group that was named."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONNECT_GROUP_DESCRIBE, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    groups: Annotated[tuple[DescribedGroup, ...], wire("0+")] = ()
