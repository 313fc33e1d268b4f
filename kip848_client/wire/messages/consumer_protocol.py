"""The opaque bytes of consumers in JoinGroup and SyncGroup: their subscription, and their assignment.

The bytes are a version (int16) and a plain struct; no version is flexible. A reader takes the fields that it knows of a
newer version and ignores the rest, as every client does.

Source: apache/kafka ``ConsumerProtocolSubscription.json``, ``ConsumerProtocolAssignment.json``, ``ConsumerProtocol``.
"""

from __future__ import annotations

import struct
from typing import Annotated, ClassVar, Final, TypeVar

from kip848_client.errors import ProtocolError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import Int32, MessageSpec, RecordPart, WireStruct, record, wire

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups whose bytes have these layouts."""

_NO_TYPE: Final = 0
"""These are not records of a log; the number of a record type means nothing here."""
_INT16: Final = struct.Struct(">h")


class TopicPartition(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class ConsumerProtocolSubscription(RecordPart, frozen=True):
    """The wishes of a member. 1: owned partitions (cooperative). 2: the generation in which it got them. 3: rack."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0-3", flexible="none")

    topics: Annotated[tuple[str, ...], wire("0+")] = ()
    user_data: Annotated[bytes | None, wire("0+", nullable="0+")] = None
    owned_partitions: Annotated[tuple[TopicPartition, ...], wire("1+", ignorable=True)] = ()
    generation_id: Annotated[Int32, wire("2+", ignorable=True)] = -1
    rack_id: Annotated[str | None, wire("3+", nullable="3+", ignorable=True)] = None


class ConsumerProtocolAssignment(RecordPart, frozen=True):
    """The leader's assignment for a member. All versions are alike."""

    WIRE: ClassVar[MessageSpec] = record(_NO_TYPE, "0-3", flexible="none")

    assigned_partitions: Annotated[tuple[TopicPartition, ...], wire("0+")] = ()
    user_data: Annotated[bytes | None, wire("0+", nullable="0+")] = None


MessageT = TypeVar("MessageT", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def embedded_version(data: bytes) -> int:
    """The version that *data* says it has.

    Raises:
        ProtocolError: it is too short, or the version is negative.
    """
    if len(data) < _INT16.size:
        raise ProtocolError(f"embedded consumer protocol of {len(data)} bytes; its version alone needs two")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"embedded consumer protocol has version {version}")
    return version


def decode_subscription(data: bytes, *, version: int | None = None) -> ConsumerProtocolSubscription:
    """Read a member's metadata of a JoinGroup.

    Args:
        version: read it as this version, which must not be above its own; by default as its own.

    Raises:
        ProtocolError: the bytes are not a subscription.
    """
    return _decode(ConsumerProtocolSubscription, data, version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read a member's assignment of a SyncGroup.

    Raises:
        ProtocolError: the bytes are not an assignment.
    """
    return _decode(ConsumerProtocolAssignment, data, None)


def encode_subscription(subscription: ConsumerProtocolSubscription, *, version: int = 3) -> bytes:
    """Write a member's metadata for a JoinGroup."""
    return _encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, *, version: int = 3) -> bytes:
    """Write a member's assignment for a SyncGroup."""
    return _encode(assignment, version)


def _decode(cls: type[MessageT], data: bytes, version: int | None) -> MessageT:
    written = embedded_version(data)
    read_as = min(written if version is None else version, cls.WIRE.versions.last)
    return decode_body(cls, read_as, data, _INT16.size, allow_trailing=True)


def _encode(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    pieces = [_INT16.pack(version)]
    encode_body(message, version, pieces)
    return b"".join(pieces)
