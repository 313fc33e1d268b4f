"""Functions that compiled encoders and decoders call: varints, ids, tags to skip, and the errors of bad bytes.

Owns the few operations on bytes that are not inlined into generated code. Knows no message.
"""

from __future__ import annotations

import struct
import uuid
from typing import Final, NoReturn

from kip848_client.errors import MessageValueError, ProtocolError

STRING_LENGTH_MAX: Final = 32767
"""Kafka counts the bytes of a string in an int16; compact strings keep that limit."""

ARRAY_LENGTH_MAX: Final = 1_000_000
"""Elements of one array. Kafka refuses more of them, and more tagged fields, since 4.4 (``MessageUtil``)."""

_TAGS_MAX: Final = 10_000
"""Tagged fields of one struct."""

_UVARINT_SHIFT_MAX: Final = 28
"""The fifth byte of a varint carries bits 28 to 34; of those only the lowest four fit 32 bits."""


def encode_uvarint(value: int) -> bytes:
    """*value* as an unsigned varint of 1 to 5 bytes."""
    if not 0 <= value < 2**32:
        raise MessageValueError(f"a length of {value} does not fit an unsigned varint of 32 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_UVARINTS: Final = tuple(encode_uvarint(value) for value in range(256))
"""The varints that nearly all lengths need, ready made."""


def encode_string_length(value: int) -> bytes:
    """*value* = length + 1 of a compact string, as a varint; refuses what Kafka refuses."""
    if value > STRING_LENGTH_MAX + 1:
        raise MessageValueError(f"a string of {value - 1} bytes; Kafka's strings hold at most {STRING_LENGTH_MAX}")
    return encode_uvarint(value)


def rest_of_uvarint(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose *first* byte (above 127) was read; *position* is that of the second.

    Returns:
        (value, position after it).

    Raises:
        ProtocolError: more than five bytes, or more than 32 bits.
        IndexError: the data ends inside; callers map it as any early end.
    """
    value = first & 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        if shift == _UVARINT_SHIFT_MAX and byte > 15:
            raise ProtocolError(f"a varint before byte {position} is longer than 32 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def decode_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint at *position*: (value, position after it). Raises as `rest_of_uvarint`."""
    first = data[position]
    return (first, position + 1) if first < 128 else rest_of_uvarint(data, position + 1, first)


def rest_of_string_length(data: bytes, position: int, first: int) -> tuple[int, int]:
    """As `rest_of_uvarint`, for the length + 1 of a compact string, which has a limit of its own."""
    value, position = rest_of_uvarint(data, position, first)
    if value > STRING_LENGTH_MAX + 1:
        raise ProtocolError(f"a string of {value - 1} bytes before byte {position}; the limit is {STRING_LENGTH_MAX}")
    return value, position


def rest_of_array_length(data: bytes, position: int, first: int) -> tuple[int, int]:
    """As `rest_of_uvarint`, for the length + 1 of a compact array."""
    value, position = rest_of_uvarint(data, position, first)
    if value > ARRAY_LENGTH_MAX + 1:
        too_long_array(position, value - 1)
    return value, position


def rest_of_tag_count(data: bytes, position: int, first: int) -> tuple[int, int]:
    """As `rest_of_uvarint`, for the number of tagged fields."""
    count, position = rest_of_uvarint(data, position, first)
    if count > _TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields before byte {position}; the limit is {_TAGS_MAX}")
    return count, position


def skip_tags(data: bytes, position: int, end: int, count: int) -> int:
    """Step over *count* tagged fields that we do not know; returns the position after.

    KIP-482: a peer may add tagged fields at any time, and those who do not know them pass them by.
    """
    for _ in range(count):
        _, position = decode_uvarint(data, position)
        size, position = decode_uvarint(data, position)
        position += size
        if position > end:
            bad_tag_size(position)
    return position


KNOWN_UUIDS: Final[dict[bytes, uuid.UUID]] = {}
"""Topic ids seen before. The same few travel in every message, and making one costs ten times a look-up."""

_KNOWN_UUIDS_MAX: Final = 4096


_set_int: Final = uuid.UUID.__dict__["int"].__set__
_set_is_safe: Final = uuid.UUID.__dict__["is_safe"].__set__


def uuid_of(data: bytes) -> uuid.UUID:
    """The id in 16 bytes, remembered in `KNOWN_UUIDS` (which is emptied when it grows too large).

    Writes the two slots itself: the constructor parses and checks what here is known to be 16 bytes.
    """
    made = object.__new__(uuid.UUID)
    _set_int(made, int.from_bytes(data, "big"))
    _set_is_safe(made, uuid.SafeUUID.unknown)
    if len(KNOWN_UUIDS) >= _KNOWN_UUIDS_MAX:
        KNOWN_UUIDS.clear()
    KNOWN_UUIDS[data] = made
    return made


PACK_INT32S: Final = tuple(struct.Struct(f">{count}i").pack for count in range(32))
UNPACK_INT32S: Final = tuple(struct.Struct(f">{count}i").unpack_from for count in range(32))


def bad_length(position: int, length: int) -> NoReturn:
    """A string or bytes field that is null where it may not be, or longer than the remaining bytes."""
    raise ProtocolError(f"the field at byte {position} claims a length of {length}, which it cannot have")


def bad_array_length(position: int, count: int) -> NoReturn:
    """An array that is null where it may not be, or has more elements than bytes are left."""
    raise ProtocolError(f"the array at byte {position} claims {count} elements, which it cannot have")


def too_long_array(position: int, count: int) -> NoReturn:
    """An array with more elements than Kafka takes."""
    raise ProtocolError(f"the array at byte {position} claims {count} elements; the limit is {ARRAY_LENGTH_MAX}")


def too_many_elements() -> NoReturn:
    """All arrays and structs together have more elements and tagged fields than the caller allows."""
    raise ProtocolError(
        "its arrays have more elements together than the reader allows; an embedded broker takes more with "
        "kip848.request.max.elements"
    )


def bad_tag_size(position: int) -> NoReturn:
    """A tagged field whose size is not that of its content."""
    raise ProtocolError(f"a tagged field that ends near byte {position} does not have the size it claims")
