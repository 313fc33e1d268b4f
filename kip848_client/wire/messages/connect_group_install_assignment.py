"""ConnectGroupInstallAssignment (private key 30852): the chosen worker hands in what its assignor computed."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import UnitsOfName
from kip848_client.wire.schema import (
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class Member(WireStruct, frozen=True):
    """The whole target of one worker, and what its assignor should hear."""

    member_id: Annotated[str, wire("0+")] = ""
    units: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConnectGroupInstallAssignmentRequest(Request["ConnectGroupInstallAssignmentResponse"], frozen=True):
    """A target for all workers of the snapshot, or the assignor's error.

    Args:
        deferred: units that no worker should run for now; each unit of the catalogue is either here or with one worker.
        assignor_state: what the next run of the assignor should be given, wherever it runs.
    """

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    group_epoch: Annotated[Int32, wire("0+")] = 0
    error: Annotated[Int8, wire("0+")] = 0
    members: Annotated[tuple[Member, ...], wire("0+")] = ()
    deferred: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    assignor_state: Annotated[bytes | None, wire("0+", nullable="0+")] = None
    state_version: Annotated[Int16, wire("0+")] = 0


class ConnectGroupInstallAssignmentResponse(Response, frozen=True):
    """Whether the target was taken."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONNECT_GROUP_INSTALL_ASSIGNMENT, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
