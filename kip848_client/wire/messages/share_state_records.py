"""Key and value of the records in ``__share_group_state``: what is kept of one partition in one share group.

A snapshot has all of it, the updates after it what has changed. A key starts with its type (int16: 0 a snapshot,
1 an update), a value with its version. The end of the state is a snapshot without a value.

Source: apache/kafka ``ShareSnapshotKey.json``, ``ShareSnapshotValue.json``, ``ShareUpdateKey.json``,
``ShareUpdateValue.json``; KIP-932, KIP-1226.
"""

from __future__ import annotations

import struct
import uuid
from typing import Annotated, ClassVar, Final, TypeAlias

from kip848_client.errors import ProtocolError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    RecordPart,
    WireStruct,
    record,
    wire,
)

_INT16: Final = struct.Struct(">h")
_VALUE_VERSION: Final = 0


class ShareSnapshotKey(RecordPart, frozen=True):
    """Which group and partition a snapshot is about."""

    WIRE: ClassVar[MessageSpec] = record(0, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partition: Annotated[Int32, wire("0+")] = 0


class ShareUpdateKey(RecordPart, frozen=True):
    """Which group and partition an update is about."""

    WIRE: ClassVar[MessageSpec] = record(1, "0", flexible="none")

    group_id: Annotated[str, wire("0+")] = ""
    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    partition: Annotated[Int32, wire("0+")] = 0


class StateBatch(WireStruct, frozen=True):
    """Offsets that have the same state."""

    first_offset: Annotated[Int64, wire("0+")] = 0
    last_offset: Annotated[Int64, wire("0+")] = 0
    delivery_state: Annotated[Int8, wire("0+")] = 0
    delivery_count: Annotated[Int16, wire("0+")] = 0


class ShareSnapshotValue(RecordPart, frozen=True):
    """The whole state. Times are milliseconds since 1970."""

    WIRE: ClassVar[MessageSpec] = record(0, "0", flexible="0+")

    snapshot_epoch: Annotated[Int32, wire("0+")] = 0
    state_epoch: Annotated[Int32, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = 0
    start_offset: Annotated[Int64, wire("0+")] = 0
    delivery_complete_count: Annotated[Int32, wire("0+", tag=0)] = -1
    create_timestamp: Annotated[Int64, wire("0+")] = 0
    write_timestamp: Annotated[Int64, wire("0+")] = 0
    state_batches: Annotated[tuple[StateBatch, ...], wire("0+")] = ()


class ShareUpdateValue(RecordPart, frozen=True):
    """What has changed since the snapshot; a start offset of -1 has not."""

    WIRE: ClassVar[MessageSpec] = record(1, "0", flexible="0+")

    snapshot_epoch: Annotated[Int32, wire("0+")] = 0
    leader_epoch: Annotated[Int32, wire("0+")] = 0
    start_offset: Annotated[Int64, wire("0+")] = 0
    delivery_complete_count: Annotated[Int32, wire("0+", tag=0)] = -1
    state_batches: Annotated[tuple[StateBatch, ...], wire("0+")] = ()


ShareStateKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey
ShareStateValue: TypeAlias = ShareSnapshotValue | ShareUpdateValue

_PARTS: Final[dict[int, tuple[type[ShareStateKey], type[ShareStateValue]]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}


def encode_share_state_record(key: ShareStateKey, value: ShareStateValue | None) -> tuple[bytes, bytes | None]:
    """The bytes of one record; a *value* of None is a tombstone."""
    kind = 0 if isinstance(key, ShareSnapshotKey) else 1
    return _bytes_of(key, kind, 0), None if value is None else _bytes_of(value, _VALUE_VERSION, _VALUE_VERSION)


def decode_share_state_record(key: bytes, value: bytes | None) -> tuple[ShareStateKey, ShareStateValue | None]:
    """Read one record of ``__share_group_state``.

    Raises:
        ProtocolError: the bytes are not what their type says, or the type is not known.
        UnsupportedVersionError: the value's version is not known.
    """
    try:
        (kind,) = _INT16.unpack_from(key)
        version: int = 0 if value is None else _INT16.unpack_from(value)[0]
    except struct.error as error:
        raise ProtocolError("a record of a share group's state is too short for its type") from error
    if kind not in _PARTS:
        raise ProtocolError(f"a record of a share group's state has type {kind}; only {sorted(_PARTS)} are known")
    key_class, value_class = _PARTS[kind]
    return decode_body(key_class, 0, key, 2), None if value is None else decode_body(value_class, version, value, 2)


def _bytes_of(part: RecordPart, prefix: int, version: int) -> bytes:
    pieces = [_INT16.pack(prefix)]
    encode_body(part, version, pieces)
    return b"".join(pieces)
