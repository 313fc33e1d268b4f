"""The opaque bytes of Kafka Connect's workers in JoinGroup and SyncGroup: of themselves, and their units.

The bytes are a version (int16) and a plain struct; no version is flexible. Version 0 is that of the protocol `default`
(eager), 1 of `compatible` and 2 of `sessioned`; the last two have one layout. An assignment of version 0 is everything
that the worker should run. One of version 1 or 2 is an increment: new units, and units that the worker has to stop.

Source: apache/kafka ``ConnectProtocol``, ``IncrementalCooperativeConnectProtocol``, ``ExtendedAssignment``; KIP-415.
"""

from __future__ import annotations

import struct
from typing import Annotated, ClassVar, Final, TypeVar

from kip848_client.errors import ProtocolError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import Int16, Int32, Int64, MessageSpec, RecordPart, WireStruct, record, wire

CONNECT_PROTOCOL: Final = "connect"
"""The protocol type of groups whose bytes have these layouts."""

PROTOCOL_VERSIONS: Final = {"default": 0, "compatible": 1, "sessioned": 2}
"""Name of a protocol that a worker offers -> version of the bytes."""

_NO_TYPE: Final = 0
"""These are not records of a log; the number of a record type means nothing here."""
_INT16: Final = struct.Struct(">h")


class ConnectorTasks(WireStruct, frozen=True):
    """Units of one connector: numbers of its tasks, and -1 for the connector itself."""

    connector: Annotated[str, wire("0+")] = ""
    tasks: Annotated[tuple[Int32, ...], wire("0+")] = ()


class ClassicWorker(RecordPart, frozen=True):
    """A worker's description of itself. `allocation` is all that it runs, as the bytes of a `ClassicAssignment`."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0-2", flexible="none")

    url: Annotated[str, wire("0+")] = ""
    config_offset: Annotated[Int64, wire("0+")] = 0
    allocation: Annotated[bytes | None, wire("1+", nullable="1+", ignorable=True)] = None


class ClassicAssignment(RecordPart, frozen=True):
    """The leader's assignment for a worker. `leader` is a member id, `delay_ms` counts until the next rebalance."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0-2", flexible="none")

    error: Annotated[Int16, wire("0+")] = 0
    leader: Annotated[str, wire("0+")] = ""
    leader_url: Annotated[str, wire("0+")] = ""
    config_offset: Annotated[Int64, wire("0+")] = 0
    assigned: Annotated[tuple[ConnectorTasks, ...] | None, wire("0+", nullable="1+")] = ()
    revoked: Annotated[tuple[ConnectorTasks, ...] | None, wire("1+", nullable="1+", ignorable=True)] = ()
    delay_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0


PartT = TypeVar("PartT", ClassicWorker, ClassicAssignment)


def decode_classic_worker(data: bytes) -> ClassicWorker:
    """Read a worker's metadata of a JoinGroup.

    Raises:
        ProtocolError: the bytes are not metadata of a worker.
    """
    return _decode(ClassicWorker, data)


def decode_classic_assignment(data: bytes) -> ClassicAssignment:
    """Read a worker's assignment of a SyncGroup, or the allocation in its metadata.

    Raises:
        ProtocolError: the bytes are not an assignment.
    """
    return _decode(ClassicAssignment, data)


def encode_classic(part: ClassicWorker | ClassicAssignment, *, version: int) -> bytes:
    """Write the bytes of a worker, or of its assignment."""
    pieces = [_INT16.pack(version)]
    encode_body(part, version, pieces)
    return b"".join(pieces)


def _decode(cls: type[PartT], data: bytes) -> PartT:
    if len(data) < _INT16.size:
        raise ProtocolError(f"embedded Connect protocol of {len(data)} bytes; its version alone needs two")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"embedded Connect protocol has version {version}")
    return decode_body(cls, min(version, cls.WIRE.versions.last), data, _INT16.size, allow_trailing=True)
