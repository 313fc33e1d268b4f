"""Key and value of the records in ``__transaction_state``: one transactional id, and where its transaction stands.

A key starts with its version (int16, always 0), a value with its own.

Source: apache/kafka ``TransactionLogKey.json``, ``TransactionLogValue.json``; KIP-98, KIP-890.
"""

from __future__ import annotations

import struct
from typing import Annotated, ClassVar, Final

from kip848_client.errors import ProtocolError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.schema import (
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
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1


class TransactionLogKey(RecordPart, frozen=True):
    """Which transactional id this is."""

    WIRE: ClassVar[MessageSpec] = record(0, "0", flexible="none")

    transactional_id: Annotated[str, wire("0+")] = ""


class TransactionLogPartitions(WireStruct, frozen=True):
    """Partitions of one topic that the transaction writes to."""

    topic: Annotated[str, wire("0+")] = ""
    partition_ids: Annotated[tuple[Int32, ...], wire("0+")] = ()


class TransactionLogValue(RecordPart, frozen=True):
    """The state of one transactional id. Times are milliseconds since 1970."""

    WIRE: ClassVar[MessageSpec] = record(0, "0-1", flexible="1+")

    producer_id: Annotated[Int64, wire("0+")] = 0
    previous_producer_id: Annotated[Int64, wire("1+", tag=0, ignorable=True)] = -1
    next_producer_id: Annotated[Int64, wire("1+", tag=1, ignorable=True)] = -1
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    next_producer_epoch: Annotated[Int16, wire("1+", tag=3, ignorable=True)] = -1
    transaction_timeout_ms: Annotated[Int32, wire("0+")] = 0
    transaction_status: Annotated[Int8, wire("0+")] = 0
    transaction_partitions: Annotated[tuple[TransactionLogPartitions, ...] | None, wire("0+", nullable="0+")] = None
    transaction_last_update_timestamp_ms: Annotated[Int64, wire("0+")] = 0
    transaction_start_timestamp_ms: Annotated[Int64, wire("0+")] = 0
    client_transaction_version: Annotated[Int16, wire("1+", tag=2, ignorable=True)] = 0
    last_producer_epoch: Annotated[Int16, wire("1+", tag=10_000, ignorable=True)] = -1
    """Ours: with which epoch a retry of the last request comes. Kafka forgets it when a coordinator moves."""


def encode_transaction_record(key: TransactionLogKey, value: TransactionLogValue | None) -> tuple[bytes, bytes | None]:
    """The bytes of one record; a *value* of None is a tombstone."""
    return _bytes_of(key, _KEY_VERSION), None if value is None else _bytes_of(value, _VALUE_VERSION)


def decode_transaction_record(key: bytes, value: bytes | None) -> tuple[TransactionLogKey, TransactionLogValue | None]:
    """Read one record of ``__transaction_state``.

    Raises:
        ProtocolError: the bytes are not what their version says, or the key's version is not known.
        UnsupportedVersionError: the value's version is not known.
    """
    try:
        (version,) = _INT16.unpack_from(key)
        value_version: int = 0 if value is None else _INT16.unpack_from(value)[0]
    except struct.error as error:
        raise ProtocolError("a transaction record is too short for its version") from error
    if version != _KEY_VERSION:
        raise ProtocolError(f"the key of a transaction record has version {version}; only {_KEY_VERSION} is known")
    read = decode_body(TransactionLogKey, _KEY_VERSION, key, 2)
    return read, None if value is None else decode_body(TransactionLogValue, value_version, value, 2)


def _bytes_of(part: RecordPart, version: int) -> bytes:
    pieces = [_INT16.pack(version)]
    encode_body(part, version, pieces)
    return b"".join(pieces)
