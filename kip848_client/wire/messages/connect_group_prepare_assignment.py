"""ConnectGroupPrepareAssignment (private key 30851): the chosen worker asks for the state of its connect group."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import Catalog, UnitsOfName
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


class ConnectGroupPrepareAssignmentRequest(Request["ConnectGroupPrepareAssignmentResponse"], frozen=True):
    """Sent by the worker whose heartbeat response said `should_compute_assignment`."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0


class Member(WireStruct, frozen=True):
    """One worker of the snapshot. `target` is its part of the present target, not the units that it runs."""

    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    reconciled: Annotated[bool, wire("0+")] = False
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_url: Annotated[str | None, wire("0+", nullable="0+")] = None
    metadata_version: Annotated[Int16, wire("0+")] = 0
    reason: Annotated[Int8, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""
    target: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()


class ConnectGroupPrepareAssignmentResponse(Response, frozen=True):
    """The snapshot that an Install of `group_epoch` will be checked against.

    Args:
        assignment_epoch: of the present target.
        state_age_ms: how long ago the assignor's state was installed; -1 after the coordinator was restarted.
    """

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONNECT_GROUP_PREPARE_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    group_epoch: Annotated[Int32, wire("0+")] = 0
    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    assignor_name: Annotated[str, wire("0+")] = ""
    members: Annotated[tuple[Member, ...], wire("0+")] = ()
    catalog: Annotated[Catalog, wire("0+")] = Catalog()
    assignor_state: Annotated[bytes | None, wire("0+", nullable="0+")] = None
    state_version: Annotated[Int16, wire("0+")] = 0
    state_age_ms: Annotated[Int64, wire("0+")] = -1
