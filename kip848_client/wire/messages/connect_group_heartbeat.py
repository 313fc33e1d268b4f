"""ConnectGroupHeartbeat (private key 30850): a worker of a connect group joins, reports, acknowledges and leaves.

Null and -1 mean "unchanged since the last heartbeat"; an empty list means "none". `UnitsOfName` is also used by the
other messages and by the records of connect groups: names ascending, and the indexes of a name ascending.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
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


class UnitsOfName(WireStruct, frozen=True):
    """Units of one name; index -1 is the name itself (a connector, or a plain unit), 0 and up are its tasks."""

    name: Annotated[str, wire("0+")] = ""
    indexes: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Catalog(WireStruct, frozen=True):
    """All units that the group should run, and how new that list is."""

    offset: Annotated[Int64, wire("0+")] = 0
    units: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()


class ClientAssignor(WireStruct, frozen=True):
    """A client-side assignor that the worker can run, and its metadata. Versions are those of the metadata."""

    name: Annotated[str, wire("0+")] = ""
    minimum_version: Annotated[Int16, wire("0+")] = 0
    maximum_version: Annotated[Int16, wire("0+")] = 0
    reason: Annotated[Int8, wire("0+")] = 0
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConnectGroupHeartbeatRequest(Request["ConnectGroupHeartbeatResponse"], frozen=True):
    """`member_epoch` 0 joins, -1 leaves, -2 leaves a static worker's place open; else the epoch of the last answer.

    Args:
        sequence: grows with every heartbeat of a worker, so that one that arrives late counts no more; -1: not said.
    """

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONNECT_GROUP_HEARTBEAT, "0", flexible="0+")

    group_id: Annotated[str, wire("0+")] = ""
    member_id: Annotated[str, wire("0+")] = ""
    member_epoch: Annotated[Int32, wire("0+")] = 0
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    worker_url: Annotated[str | None, wire("0+", nullable="0+")] = None
    rebalance_timeout_ms: Annotated[Int32, wire("0+")] = -1
    server_assignor: Annotated[str | None, wire("0+", nullable="0+")] = None
    client_assignors: Annotated[tuple[ClientAssignor, ...] | None, wire("0+", nullable="0+")] = None
    catalog: Annotated[Catalog | None, wire("0+", nullable="0+")] = None
    owned_units: Annotated[tuple[UnitsOfName, ...] | None, wire("0+", nullable="0+")] = None
    sequence: Annotated[Int64, wire("0+", tag=0)] = -1


class AssignedUnits(WireStruct, frozen=True):
    """Units that the worker should run. `epochs` is parallel to `indexes`: the fencing token of each."""

    name: Annotated[str, wire("0+")] = ""
    indexes: Annotated[tuple[Int32, ...], wire("0+")] = ()
    epochs: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Assignment(WireStruct, frozen=True):
    """All that the worker should run now, and what it will get as soon as other workers have stopped it."""

    error: Annotated[Int8, wire("0+")] = 0
    assigned: Annotated[tuple[AssignedUnits, ...], wire("0+")] = ()
    pending: Annotated[tuple[UnitsOfName, ...], wire("0+")] = ()
    metadata_version: Annotated[Int16, wire("0+")] = 0
    metadata_bytes: Annotated[bytes, wire("0+")] = b""


class ConnectGroupHeartbeatResponse(Response, frozen=True):
    """The worker's epoch and, if it changed, what the worker should run now. A null assignment means unchanged.

    Args:
        session_timeout_ms: how long the worker may be silent; its lease.
        assignor_status: 0 as it should be; 1 no worker reads the metadata of all; 2 the assignor reported an error.
        catalog_offset: of the catalogue that the coordinator knows; -1 for none.
    """

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONNECT_GROUP_HEARTBEAT, "0", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, wire("0+")] = 0
    heartbeat_interval_ms: Annotated[Int32, wire("0+")] = 0
    session_timeout_ms: Annotated[Int32, wire("0+")] = 0
    should_compute_assignment: Annotated[bool, wire("0+")] = False
    assignor_status: Annotated[Int8, wire("0+")] = 0
    catalog_offset: Annotated[Int64, wire("0+")] = -1
    assignment: Annotated[Assignment | None, wire("0+", nullable="0+")] = None
