"""Unpacks the records of a batch: gzip, snappy, LZ4 and zstd. It accepts the same bytes as Apache Kafka.

Nothing unpacks without a limit: a few bytes of gzip can claim gigabytes.

Source: apache/kafka ``Compression``, ``Lz4BlockInputStream``; snappy-java ``SnappyInputStream``.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Final

from kip848_client.errors import ProtocolError

COMPRESSION_NONE: Final = 0
COMPRESSION_GZIP: Final = 1
_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_FIRST_BUFFER: Final = 64 * 1024

_GZIP_MEMBER: Final = b"\x1f\x8b\x08"

_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_SIZE: Final = 16
"""The mark, a version and the oldest version that can read it."""
_BLOCK_LENGTH_SIZE: Final = 4

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_VERSION: Final = 0xC0
_LZ4_VERSION_1: Final = 0x40
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_SIZE: Final = 0x08
_LZ4_CHECKSUM: Final = 0x04
_LZ4_RESERVED: Final = 0x02
_LZ4_DICTIONARY: Final = 0x01
_LZ4_HEADER_SIZE: Final = 7
_LZ4_BLOCK_SIZE: Final = 0x7FFF_FFFF
"""The bit above it says that the block is stored as it is."""

_BUFFER_IS_FULL: Final = "failed to write whole buffer"
"""Text in cramjam's error for an output that is larger than its buffer."""


class DamagedCompressionError(ProtocolError):
    """Bytes that the codec of their batch cannot unpack, or a codec that there is not."""


class UnpackedSizeError(ProtocolError):
    """Records unpack to more than the caller allows; whether they are sound is not known."""


def unpack(codec: int, content: bytes, *, unpacked_max: int, where: str) -> bytes:
    """The records of a batch.

    Args:
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        unpacked_max: bytes that they may unpack to.
        where: names the batch in errors.

    Raises:
        DamagedCompressionError: *content* is not of that codec, is damaged, or is what Kafka does not take either: LZ4
            in linked blocks or behind a skippable frame.
        UnpackedSizeError: it unpacks to more than *unpacked_max*.
    """
    if codec == COMPRESSION_NONE:
        return content
    name = _NAMES[codec] if codec < len(_NAMES) else str(codec)
    unpacker = _unpackers().get(name)
    if unpacker is None:
        raise DamagedCompressionError(f"{where} names compression codec {name}; 0 to {len(_NAMES) - 1} exist")
    try:
        return unpacker(content, unpacked_max)
    except _Overflow as overflow:
        raise UnpackedSizeError(f"the {name} of {where} unpacks to over {unpacked_max:,} bytes") from overflow
    except ValueError as failure:
        raise DamagedCompressionError(f"the {name} of {where} is damaged: {failure}") from failure


class _Overflow(Exception):
    """More bytes than the limit."""


@functools.cache
def _unpackers() -> dict[str, Callable[[bytes, int], bytes]]:
    """Name of a codec -> a function that unpacks at most so many bytes and raises ValueError or `_Overflow`."""
    import cramjam  # here: consumers never need it, librdkafka unpacks what they read

    def filling(unpack_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, bytearray], int]:
        def fill(content: bytes, buffer: bytearray) -> int:
            try:
                return unpack_into(content, buffer)
            except cramjam.DecompressionError as failure:
                if str(failure) == _BUFFER_IS_FULL:
                    raise _Overflow from failure
                raise ValueError(str(failure)) from failure

        return fill

    snappy = filling(cramjam.snappy.decompress_raw_into)
    lz4 = filling(cramjam.lz4.decompress_into)
    zstd = filling(cramjam.zstd.decompress_into)
    return {
        "gzip": _ungzipped,
        "snappy": lambda content, unpacked_max: _unsnapped(snappy, content, unpacked_max),
        "lz4": lambda content, unpacked_max: _grown(lz4, _first_lz4_frame(content), unpacked_max),
        "zstd": lambda content, unpacked_max: _grown(zstd, content, unpacked_max) if content else b"",
    }


def _ungzipped(content: bytes, unpacked_max: int) -> bytes:
    """All members, one after the other; what is no member behind them is ignored, as in Java."""
    parts, left = [], unpacked_max
    while True:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(content, left + 1)
        except zlib.error as failure:
            raise ValueError(str(failure)) from failure
        left -= len(part)
        if left < 0:
            raise _Overflow
        if not unpacker.eof:
            raise ValueError("it is cut off")
        parts.append(part)
        content = unpacker.unused_data
        if not content.startswith(_GZIP_MEMBER):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnapped(unpack_into: Callable[[bytes, bytearray], int], content: bytes, unpacked_max: int) -> bytes:
    """Snappy as librdkafka writes it, or in the blocks of Java's snappy-java (xerial)."""
    if not content.startswith(_XERIAL):
        return _unsnapped_block(unpack_into, content, unpacked_max)
    if len(content) < _XERIAL_HEADER_SIZE:
        raise ValueError("its header is cut off")
    parts, left, at = [], unpacked_max, _XERIAL_HEADER_SIZE
    while at + _BLOCK_LENGTH_SIZE <= len(content):
        if content.startswith(_XERIAL, at):  # Java reads one stream after the other
            at += _XERIAL_HEADER_SIZE
            continue
        length = int.from_bytes(content[at : at + _BLOCK_LENGTH_SIZE], "big", signed=True)
        at += _BLOCK_LENGTH_SIZE
        if not 0 < length <= len(content) - at:
            raise ValueError(f"a block claims {length} bytes; {len(content) - at} are there")
        parts.append(_unsnapped_block(unpack_into, content[at : at + length], left))
        left -= len(parts[-1])
        at += length
    return b"".join(parts)


def _unsnapped_block(unpack_into: Callable[[bytes, bytearray], int], content: bytes, unpacked_max: int) -> bytes:
    size = shift = 0
    for byte in content[:5]:  # a block begins with its unpacked size, in groups of seven bits
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if size > unpacked_max:
        raise _Overflow
    buffer = bytearray(size)
    return bytes(memoryview(buffer)[: unpack_into(content, buffer)])


def _first_lz4_frame(content: bytes) -> bytes:
    """The first frame, without what is behind it: Kafka reads no further."""
    size = len(content)
    if size < _LZ4_HEADER_SIZE or not content.startswith(_LZ4_MAGIC):
        raise ValueError("it does not begin with a frame")
    flags = content[4]
    if flags & _LZ4_VERSION != _LZ4_VERSION_1 or flags & (_LZ4_RESERVED | _LZ4_DICTIONARY):
        raise ValueError(f"its frame has flags {flags:#04x}, which Kafka does not take")
    if not flags & _LZ4_INDEPENDENT:
        raise ValueError("its blocks are linked, which Kafka does not take; write independent blocks")
    at = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_SIZE else 0)
    while True:
        length = int.from_bytes(content[at : at + _BLOCK_LENGTH_SIZE], "little") & _LZ4_BLOCK_SIZE
        at += _BLOCK_LENGTH_SIZE
        if at > size:
            raise ValueError("it is cut off")
        if not length:
            return content[: at + (4 if flags & _LZ4_CHECKSUM else 0)]
        at += length + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0)


def _grown(unpack_into: Callable[[bytes, bytearray], int], content: bytes, unpacked_max: int) -> bytes:
    """Unpack into buffers of growing size: these formats need not say how long the result will be."""
    size = min(unpacked_max, max(_FIRST_BUFFER, 4 * len(content)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: unpack_into(content, buffer)])
        except _Overflow:
            if size >= unpacked_max:
                raise
        size = min(unpacked_max, size * 8)
