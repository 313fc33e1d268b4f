"""Record batches of format v2: their header, stepping over them, patching an offset in place, and their records.

Owns the layout of a batch. A log needs no more than the header: the base offset (bytes 0 to 7) and the partition's
leader epoch (12 to 15) lie before the checksummed part, so an append patches them and leaves the rest as the producer
made it. `build_batch` and `records_of` are for tests, tools and the simulation; no record that an application reads
comes this way, so clear code wins over speed here.

Batches of the formats 0 and 1 are refused: brokers since 4.0 do not store them.

Source: KIP-98; apache/kafka ``DefaultRecordBatch``, ``DefaultRecord``.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kip848_client.errors import MessageValueError, ProtocolError

__all__ = [
    "BatchHeader",
    "Record",
    "RecordPosition",
    "parse_batch_header",
    "batches_of",
    "patch_batch",
    "records_of",
    "record_positions",
    "build_batch",
    "keep_records",
    "crc32c",
    "HEADER_SIZE",
    "COMPRESSION_NONE",
    "COMPRESSION_GZIP",
    "UNPACKED_MAX",
]

HEADER_SIZE: Final = 61
"""Bytes before the first record."""

_SIZE_BEFORE_LENGTH_COUNTS: Final = 12
"""Base offset and length itself are not counted by the length."""

_CRC_START: Final = 21
"""From the attributes on, the checksum covers everything."""

_MAGIC_AT: Final = 16
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED_HEADER: Final = struct.Struct(">hiqqqhii")
_UNCHECKED_HEADER: Final = struct.Struct(">qiibI")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")

COMPRESSION_NONE: Final = 0
COMPRESSION_GZIP: Final = 1
UNPACKED_MAX: Final = 64 * 1024 * 1024
"""A batch that unpacks to more is refused unless the caller allows it: a few bytes of gzip can claim gigabytes."""

_FIRST_BUFFER: Final = 64 * 1024

_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_SIZE: Final = 16
"""The mark, a version and the oldest version that can read it."""

_COMPRESSION_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_NULL_LENGTH: Final = 1
"""-1 in zigzag: the length of a key that is not there."""

_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, in their order. Timestamps are in milliseconds."""

    base_offset: int
    length: int
    """Bytes after this field; `size` is what most want."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    """-1 if the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + _SIZE_BEFORE_LENGTH_COUNTS

    @property
    def last_offset(self) -> int:
        """Offset of the last record (which compaction may have removed)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock gave the timestamps."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of records."""
        return bool(self.attributes & _CONTROL)


class Record(msgspec.Struct, frozen=True):
    """One record as an application sees it."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    """Milliseconds since 1970."""
    offset: int = 0
    """Set by `records_of`; `build_batch` counts from its base offset instead."""


class RecordPosition(NamedTuple):
    """Where and when one record is, and whether it has a key."""

    offset: int
    timestamp: int
    has_key: bool = True


def parse_batch_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header of the batch that starts at *position*.

    Raises:
        ProtocolError: too few bytes for the header or for the length it claims, or a format other than 2.
    """
    left = len(data) - position
    if left > _MAGIC_AT and data[position + _MAGIC_AT] != 2:
        raise ProtocolError(
            f"a record batch of format {data[position + _MAGIC_AT]} at byte {position}; only 2 is known"
        )
    if left < HEADER_SIZE:
        raise ProtocolError(f"a record batch at byte {position} has {left} bytes; its header needs {HEADER_SIZE}")
    header = BatchHeader._make(_HEADER.unpack_from(data, position))
    if not HEADER_SIZE <= header.size <= left:
        raise ProtocolError(f"a record batch at byte {position} claims {header.size} bytes; {left} are there")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise ProtocolError(
            f"a record batch at byte {position} claims {header.record_count} records, "
            f"the last one {header.last_offset_delta} after the first"
        )
    return header


def batches_of(
    data: bytes | bytearray | memoryview, *, check_crc: bool = False, allow_partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Step over the batches of *data*: (position, header) of each.

    Args:
        data: batches, one after the other, as in Produce and Fetch.
        check_crc: compare the checksum of each batch.
        allow_partial: end quietly at a batch that is cut off, which a Fetch answer may end with.

    Raises:
        ProtocolError: not such batches, or a checksum that differs.
    """
    position, end = 0, len(data)
    while position < end:
        if allow_partial and _is_cut_off(data, position):
            return
        header = parse_batch_header(data, position)
        stop = position + header.size
        if check_crc:
            computed = crc32c(data[position + _CRC_START : stop])
            if computed != header.crc:
                raise ProtocolError(
                    f"the record batch at byte {position} says checksum {header.crc:#010x}; "
                    f"its bytes give {computed:#010x}"
                )
        yield position, header
        position = stop


def patch_batch(data: bytearray | memoryview, position: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into the batch at *position*, in place; its checksum stays right."""
    _OFFSET.pack_into(data, position, base_offset)
    _EPOCH.pack_into(data, position + _SIZE_BEFORE_LENGTH_COUNTS, leader_epoch)


def records_of(
    data: bytes | bytearray | memoryview, position: int = 0, *, unpacked_max: int = UNPACKED_MAX
) -> tuple[Record, ...]:
    """The records of the batch at *position*, in any compression.

    Args:
        unpacked_max: bytes that compressed records may unpack to.

    Raises:
        ProtocolError: not a batch, records that end early or unpack to more, or a compression that is not read here.
    """
    header = parse_batch_header(data, position)
    content = _content_of(data, position, header, unpacked_max)
    records = []
    try:
        at = 0
        for _ in range(header.record_count):
            record, at = _read_record(content, at, header)
            records.append(record)
    except (IndexError, UnicodeDecodeError) as failure:
        raise ProtocolError(f"the records of the batch at byte {position} are damaged: {failure}") from failure
    if at != len(content):
        raise ProtocolError(f"the batch at byte {position} has {len(content) - at} bytes after its last record")
    return tuple(records)


def record_positions(
    data: bytes | bytearray | memoryview, position: int = 0, *, unpacked_max: int = UNPACKED_MAX
) -> tuple[RecordPosition, ...]:
    """Offset and timestamp of each record of the batch at *position*, and whether it has a key.

    Steps by the records' lengths and does not look at keys, values and headers, so it is several times faster than
    `records_of` and does not see damage in them. Takes and raises as `records_of` else.
    """
    header = parse_batch_header(data, position)
    content = _content_of(data, position, header, unpacked_max)
    end = len(content)
    same_time = header.is_log_append_time
    found = []
    try:
        at = 0
        for _ in range(header.record_count):
            length, at = _read_varint(content, at)
            stop = at + length
            if length < 0 or stop > end:
                raise ProtocolError(f"a record claims {length} bytes; {end - at} are there")
            timestamp_delta, at = _read_varint(content, at + 1)
            offset_delta, at = _read_varint(content, at)
            timestamp = header.max_timestamp if same_time else header.base_timestamp + timestamp_delta
            found.append(RecordPosition(header.base_offset + offset_delta, timestamp, content[at] != _NULL_LENGTH))
            at = stop
    except IndexError as failure:
        raise ProtocolError(f"the records of the batch at byte {position} are damaged: {failure}") from failure
    return tuple(found)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = COMPRESSION_NONE,
) -> bytes:
    """A batch of *records*, with offsets counted from *base_offset*; compressed with gzip if *attributes* say so.

    Raises:
        MessageValueError: no record, a number that does not fit, or a compression that is not written here.
    """
    if not records:
        raise MessageValueError("a batch needs at least one record")
    first = records[0].timestamp
    content = b"".join(_write_record(record, index, record.timestamp - first) for index, record in enumerate(records))
    compression = attributes & _COMPRESSION_MASK
    if compression == COMPRESSION_GZIP:
        packer = zlib.compressobj(wbits=31)
        content = packer.compress(content) + packer.flush()
    elif compression != COMPRESSION_NONE:
        raise MessageValueError(f"compression {compression} is not written here; use 0 (none) or 1 (gzip)")
    latest = max(record.timestamp for record in records)
    last = len(records) - 1
    try:
        checked = _CHECKED_HEADER.pack(
            attributes, last, first, latest, producer_id, producer_epoch, base_sequence, last + 1
        )
        length = len(checked) + len(content) + _CRC_START - _SIZE_BEFORE_LENGTH_COUNTS
        checked += content
        return _UNCHECKED_HEADER.pack(base_offset, length, leader_epoch, 2, crc32c(checked)) + checked
    except struct.error as failure:
        raise MessageValueError(f"a number of the batch's header does not fit its field: {failure}") from failure


def keep_records(batch: bytes, keep: Callable[[Record], bool]) -> bytes:
    """*batch* without the records that *keep* refuses, as compaction leaves it: offsets and sequences stay.

    The result is not compressed, and may hold no record. It is *batch* itself if all are kept.

    Raises:
        ProtocolError: the records cannot be read.
    """
    header, records = parse_batch_header(batch), records_of(batch)
    kept = [record for record in records if keep(record)]
    if len(kept) == len(records):
        return batch
    content = b"".join(
        _write_record(record, record.offset - header.base_offset, record.timestamp - header.base_timestamp)
        for record in kept
    )
    checked = _CHECKED_HEADER.pack(
        header.attributes & ~_COMPRESSION_MASK,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        len(kept),
    )
    checked += content
    length = len(checked) + _CRC_START - _SIZE_BEFORE_LENGTH_COUNTS
    return _UNCHECKED_HEADER.pack(header.base_offset, length, header.leader_epoch, 2, crc32c(checked)) + checked


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C (Castagnoli). About 0.1 s for a megabyte: never on the path of an application's records."""
    table = _crc32c_table()
    value = 0xFFFFFFFF
    for byte in bytes(data):
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@functools.cache
def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def _is_cut_off(data: bytes | bytearray | memoryview, position: int) -> bool:
    left = len(data) - position
    if left < HEADER_SIZE:
        return left <= _MAGIC_AT or data[position + _MAGIC_AT] == 2
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    return length + _SIZE_BEFORE_LENGTH_COUNTS > left


def _content_of(data: bytes | bytearray | memoryview, position: int, header: BatchHeader, unpacked_max: int) -> bytes:
    """The records' bytes. Every batch that is opened goes through here, so that none unpacks without a limit."""
    content = bytes(data[position + HEADER_SIZE : position + header.size])
    if header.compression == COMPRESSION_NONE:
        return content
    where = f"the batch at byte {position}"
    if header.compression == COMPRESSION_GZIP:
        return _ungzipped(content, unpacked_max, where)
    known = header.compression < len(_COMPRESSION_NAMES)
    name = _COMPRESSION_NAMES[header.compression] if known else str(header.compression)
    unpack = _unpackers().get(name)
    if unpack is None:
        raise ProtocolError(f"records compressed with {name} are not read here")
    return _unpacked(unpack, content, unpacked_max, where=where, name=name)


def _ungzipped(content: bytes, unpacked_max: int, where: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(content, unpacked_max)
    except zlib.error as failure:
        raise ProtocolError(f"the gzip of {where} is damaged: {failure}") from failure
    if not unpacker.eof:
        raise ProtocolError(f"the gzip of {where} is cut off or unpacks to over {unpacked_max:,} bytes")
    return plain


def _unpacked(
    unpack: Callable[[bytes, bytearray], int], content: bytes, unpacked_max: int, *, where: str, name: str
) -> bytes:
    """Unpack into buffers of growing size: none of these formats must say how long it will be."""
    size = min(unpacked_max, max(_FIRST_BUFFER, 4 * len(content)))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: unpack(content, buffer)])
        except ValueError as failure:
            if size >= unpacked_max:
                raise ProtocolError(
                    f"the {name} of {where} is damaged or unpacks to over {unpacked_max:,} bytes: {failure}"
                ) from failure
        size = min(unpacked_max, size * 8)


@functools.cache
def _unpackers() -> dict[str, Callable[[bytes, bytearray], int]]:
    """Name of a compression -> a function that unpacks into a buffer, returns the size, and raises ValueError."""
    import cramjam  # here: consumers never need it, librdkafka unpacks what they read

    def unpacker(unpack: Callable[[bytes, bytearray], int]) -> Callable[[bytes, bytearray], int]:
        def checked(content: bytes, buffer: bytearray) -> int:
            try:
                return unpack(content, buffer)
            except cramjam.DecompressionError as failure:
                raise ValueError(str(failure)) from failure

        return checked

    raw = unpacker(cramjam.snappy.decompress_raw_into)
    return {
        "snappy": lambda content, buffer: _unsnapped(raw, content, buffer),
        "lz4": unpacker(cramjam.lz4.decompress_into),
        "zstd": unpacker(cramjam.zstd.decompress_into),
    }


def _unsnapped(raw: Callable[[bytes, bytearray], int], content: bytes, buffer: bytearray) -> int:
    """Unpack snappy as librdkafka writes it, or in the blocks of Java's snappy-java (xerial)."""
    if not content.startswith(_XERIAL):
        return raw(content, buffer)
    at, filled = _XERIAL_HEADER_SIZE, 0
    while at < len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "big")
        block = bytearray(len(buffer) - filled)
        size = raw(content[at + 4 : end], block)
        buffer[filled : filled + size] = block[:size]
        at, filled = end, filled + size
    return filled


def _read_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = _read_varint(data, position)
    stop = position + length
    if length < 0 or stop > len(data):
        raise ProtocolError(f"a record claims {length} bytes; {len(data) - position} are there")
    position += 1  # attributes: none is defined for records
    timestamp_delta, position = _read_varint(data, position)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_nullable(data, position)
    value, position = _read_nullable(data, position)
    count, position = _read_varint(data, position)
    if not 0 <= count <= stop - position:
        raise ProtocolError(f"a record claims {count} headers; {stop - position} bytes are left of it")
    headers = []
    for _ in range(count):
        name, position = _read_nullable(data, position)
        if name is None:
            raise ProtocolError("the header of a record has no name")
        content, position = _read_nullable(data, position)
        headers.append((name.decode(), content))
    if position != stop:
        raise ProtocolError(f"a record is {position - stop:+d} bytes off the length that it claims")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(value, key, tuple(headers), timestamp, header.base_offset + offset_delta), stop


def _write_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    parts: list[bytes] = [b"\0", _varint(timestamp_delta), _varint(offset_delta)]
    parts += _nullable(record.key)
    parts += _nullable(record.value)
    parts.append(_varint(len(record.headers)))
    for name, content in record.headers:
        parts += _nullable(name.encode())
        parts += _nullable(content)
    body = b"".join(parts)
    return _varint(len(body)) + body


def _nullable(content: bytes | None) -> Iterable[bytes]:
    return (_varint(-1),) if content is None else (_varint(len(content)), content)


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length == -1:
        return None, position
    stop = position + length
    if length < 0 or stop > len(data):
        raise ProtocolError(f"a key, value or header claims {length} bytes; {len(data) - position} are there")
    return data[position:stop], stop


def _varint(value: int) -> bytes:
    """*value* in zigzag, as records spell all their numbers."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ProtocolError(f"a number before byte {position} of the records is longer than 64 bits")
