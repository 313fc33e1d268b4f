"""Record batches of format v2: their header, stepping over them, patching an offset in place, and their records.

Owns the layout of a batch. A log needs no more than the header: the base offset (bytes 0 to 7) and the partition's
leader epoch (12 to 15) lie before the checksummed part, so an append patches them and leaves the rest as the producer
made it. `records_of` reads every record of a share consumer, so its loop spells out the short forms of numbers;
`build_batch` is for tests, tools and the simulation, where clear code wins over speed.

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
from kip848_client.wire.compression import COMPRESSION_GZIP, COMPRESSION_NONE, unpack

HEADER_SIZE: Final = 61
"""Bytes before the first record."""

_SIZE_BEFORE_LENGTH_COUNTS: Final = 12
"""Base offset and length itself are not counted by the length."""

CRC_START: Final = 21
"""From the attributes on, the checksum covers everything."""

_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_LOW_AT: Final = 22
_MAX_TIMESTAMP_AT: Final = 35
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED_HEADER: Final = struct.Struct(">hiqqqhii")
_UNCHECKED_HEADER: Final = struct.Struct(">qiibI")
_OFFSET: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")

UNPACKED_MAX: Final = 64 * 1024 * 1024
"""A batch that unpacks to more is refused unless the caller allows it: a few bytes of gzip can claim gigabytes."""

_RECORD_SIZE_MIN: Final = 7
"""Each of the seven numbers of a record takes at least one byte."""
_OFFSET_MIN: Final = -(2**63)
_OFFSET_MAX: Final = 2**63 - 1
_INT32_BYTES: Final = 5
_INT64_BYTES: Final = 10
"""The longest that a number of so many bits may be, in groups of seven bits."""

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
    """Offset and timestamp of one record, and whether it has a key."""

    offset: int
    timestamp: int
    has_key: bool = True


class BatchContent(NamedTuple):
    """The result of `inspect_records`. Timestamps are in milliseconds since 1970."""

    earliest: int
    """Lowest timestamp, or the batch's base timestamp if that is lower."""
    latest: int
    """Highest timestamp."""
    keyless: int
    """Records without a key."""
    in_order: bool
    """Whether the records count their offsets from 0, one by one."""


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
            computed = crc32c(data[position + CRC_START : stop])
            if computed != header.crc:
                raise ProtocolError(
                    f"the record batch at byte {position} says checksum {header.crc:#010x}; "
                    f"its bytes give {computed:#010x}"
                )
        yield position, header
        position = stop


def records_of(
    data: bytes | bytearray | memoryview,
    position: int = 0,
    *,
    first: int = _OFFSET_MIN,
    last: int = _OFFSET_MAX,
    unpacked_max: int = UNPACKED_MAX,
) -> tuple[Record, ...]:
    """The records of the batch at *position*, in any compression.

    Args:
        first, last: offsets of the first and the last record that is wanted. Others are stepped over, or not looked
            at: a member of a share group gets whole batches although it may have acquired one record. By default all,
            also those whose offset lies outside of their batch.
        unpacked_max: bytes that compressed records may unpack to.

    Raises:
        ProtocolError: not a batch, records that end early or unpack to more, or a compression that is not read here.
    """
    header = parse_batch_header(data, position)
    content = _content_of(data, position, header, unpacked_max)
    try:
        return tuple(_read_records(content, header, first, last))
    except IndexError as failure:
        raise ProtocolError(f"the records of the batch at byte {position} are damaged: {failure}") from failure


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


def inspect_records(
    data: bytes | bytearray | memoryview, header: BatchHeader, *, unpacked_max: int = UNPACKED_MAX
) -> BatchContent:
    """Step over every number of every record of a batch, and make sure that the bytes are what the numbers say.

    Keys, values and headers are not copied, so this is several times faster than `records_of`. It takes what Kafka
    takes: any attributes, any offsets, a negative length for a key or a value of null, and names that are not text.

    Raises:
        DamagedCompressionError: the records cannot be unpacked.
        UnpackedSizeError: they unpack to more than *unpacked_max*.
        ProtocolError: a record is not what its lengths say, or there are more or fewer than the header says.
    """
    content, count = _roomy_content_of(data, header, unpacked_max), header.record_count
    end, at, stop, index = len(content), 0, 0, 0
    # Zigzag: even numbers stand for themselves halved, odd ones are negative.
    latest, earliest = -1, 0
    keyless, in_order = 0, True
    try:
        for index in range(count):
            number = content[at]
            at += 1
            if number > 127:
                if content[at] < 128:
                    number += (content[at] << 7) - 128
                    at += 1
                else:
                    number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
            stop = at + (number >> 1)
            if number & 1 or stop > end:
                raise ProtocolError(
                    f"record {index} of the batch claims {_unzigzag(number)} bytes; {end - at} are there"
                )
            at += 2
            number = content[at - 1]  # the timestamp, after the attributes
            if number > 127:
                number, at = _read_raw_varint(content, at - 1, _INT64_BYTES)
            if number & 1:
                if number > earliest:
                    earliest = number
            elif number > latest:
                latest = number
            number = content[at]
            at += 1
            if number > 127:
                if content[at] < 128:
                    number += (content[at] << 7) - 128
                    at += 1
                else:
                    number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
            if number != index << 1:
                in_order = False
            number = content[at]
            at += 1
            if number > 127:
                if content[at] < 128:
                    number += (content[at] << 7) - 128
                    at += 1
                else:
                    number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
            if number & 1:
                keyless += 1
            else:
                at += number >> 1
            number = content[at]
            at += 1
            if number > 127:
                if content[at] < 128:
                    number += (content[at] << 7) - 128
                    at += 1
                else:
                    number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
            if not number & 1:
                at += number >> 1
            at = _after_headers(content, at, stop) if content[at] or at + 1 != stop else stop
            if at != stop:
                raise ProtocolError(
                    f"record {index} of the batch is {at - stop:+d} bytes off the length that it claims"
                )
    except IndexError as failure:
        raise ProtocolError(f"record {index} of the batch goes on behind the last byte") from failure
    if at != end:
        raise ProtocolError(f"the batch has {end - at} bytes after the last of its {count} records")
    if latest < 0:  # all are earlier than the base timestamp, which clients do not write
        latest = 2 * (max(record_positions(data), key=_timestamp_of).timestamp - header.base_timestamp)
    return BatchContent(
        earliest=header.base_timestamp + _unzigzag(earliest),
        latest=header.base_timestamp + (latest >> 1),
        keyless=keyless,
        in_order=in_order,
    )


def check_room(data: bytes | bytearray | memoryview, header: BatchHeader, *, unpacked_max: int = UNPACKED_MAX) -> None:
    """Make sure that a batch has room for as many records as its header says, without looking at them.

    Raises:
        ProtocolError: as `inspect_records`.
    """
    _roomy_content_of(data, header, unpacked_max)


def set_latest_timestamp(batch: bytes, timestamp: int, *, is_log_append_time: bool = False) -> bytes:
    """*batch* with another latest timestamp in its header, and the checksum that belongs to it.

    Args:
        is_log_append_time: the broker's clock gave the timestamp; it is that of every record.
    """
    changed = bytearray(batch)
    if is_log_append_time:
        changed[_ATTRIBUTES_LOW_AT] |= _LOG_APPEND_TIME
    _OFFSET.pack_into(changed, _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[CRC_START:]))
    return bytes(changed)


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
        length = len(checked) + len(content) + CRC_START - _SIZE_BEFORE_LENGTH_COUNTS
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
    length = len(checked) + CRC_START - _SIZE_BEFORE_LENGTH_COUNTS
    return _UNCHECKED_HEADER.pack(header.base_offset, length, header.leader_epoch, 2, crc32c(checked)) + checked


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C (Castagnoli)."""
    return _checksum()(bytes(data))


@functools.cache
def _checksum() -> Callable[[bytes], int]:
    import fastcrc  # here: consumers never need it

    return fastcrc.crc32.iscsi


def _is_cut_off(data: bytes | bytearray | memoryview, position: int) -> bool:
    left = len(data) - position
    if left < HEADER_SIZE:
        return left <= _MAGIC_AT or data[position + _MAGIC_AT] == 2
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    return length + _SIZE_BEFORE_LENGTH_COUNTS > left


def _content_of(data: bytes | bytearray | memoryview, position: int, header: BatchHeader, unpacked_max: int) -> bytes:
    """The records' bytes. Every batch that is opened goes through here, so that none unpacks without a limit."""
    content = bytes(data[position + HEADER_SIZE : position + header.size])
    return unpack(header.compression, content, unpacked_max=unpacked_max, where=f"the batch at byte {position}")


def _roomy_content_of(data: bytes | bytearray | memoryview, header: BatchHeader, unpacked_max: int) -> bytes:
    content = _content_of(data, 0, header, unpacked_max)
    if header.record_count * _RECORD_SIZE_MIN > len(content):
        raise ProtocolError(
            f"the batch claims {header.record_count} records; its {len(content)} bytes have room for fewer"
        )
    return content


def _after_headers(content: bytes, at: int, stop: int) -> int:
    """Skip the headers of a record, from *at* on, where their count is; returns the place after them."""
    count, at = _read_raw_varint(content, at, _INT32_BYTES)
    if count & 1 or count >> 1 > stop - at:
        raise ProtocolError(f"a record claims {_unzigzag(count)} headers; {stop - at} bytes are left of it")
    for _ in range(count >> 1):
        size, at = _read_raw_varint(content, at, _INT32_BYTES)
        if size & 1:
            raise ProtocolError("the header of a record has no name")
        size, at = _read_raw_varint(content, at + (size >> 1), _INT32_BYTES)
        if not size & 1:
            at += size >> 1
    return at


def _timestamp_of(position: RecordPosition) -> int:
    return position.timestamp


def _read_records(content: bytes, header: BatchHeader, first: int, last: int) -> list[Record]:
    """The records from offset *first* to *last*, from the bytes of all.

    Zigzag: even numbers are twice what they say, odd ones are negative.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    end, at = len(content), 0
    records: list[Record] = []
    left = header.record_count
    if left == header.last_offset_delta + 1:  # none was removed, so their offsets need not be read to count them
        skipped = min(max(first - base_offset, 0), left)
        at = _after_records(content, skipped)
        left -= skipped
    for _ in range(left):
        number = content[at]
        at += 1
        if number > 127:
            if content[at] < 128:
                number += (content[at] << 7) - 128
                at += 1
            else:
                number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
        stop = at + (number >> 1)
        if number & 1 or stop > end:
            raise ProtocolError(f"a record claims {_unzigzag(number)} bytes; {end - at} are there")
        time_delta = content[at + 1]  # after the attributes: none is defined for records
        at += 2
        if time_delta > 127:
            if content[at] < 128:
                time_delta += (content[at] << 7) - 128
                at += 1
            else:
                time_delta, at = _read_raw_varint(content, at - 1, _INT64_BYTES)
        offset_delta = content[at]
        at += 1
        if offset_delta > 127:
            if content[at] < 128:
                offset_delta += (content[at] << 7) - 128
                at += 1
            else:
                offset_delta, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
        key, value = None, None
        size = content[at]
        at += 1
        if size > 127:
            if content[at] < 128:
                size += (content[at] << 7) - 128
                at += 1
            else:
                size, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
        if not size & 1:  # Java takes any negative length for null
            key = content[at : at + (size >> 1)]
            at += size >> 1
        size = content[at]
        at += 1
        if size > 127:
            if content[at] < 128:
                size += (content[at] << 7) - 128
                at += 1
            else:
                size, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
        if not size & 1:
            value = content[at : at + (size >> 1)]
            at += size >> 1
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if at + 1 == stop and not content[at]:
            at = stop
        elif at < stop:
            headers, at = _read_headers(content, at, stop)
        if at != stop:
            raise ProtocolError(f"a record is {at - stop:+d} bytes off the length that it claims")
        offset = base_offset + (offset_delta >> 1 ^ -(offset_delta & 1))
        if offset < first:
            continue
        if offset > last:
            return records
        timestamp = append_time
        if timestamp is None:
            timestamp = base_timestamp + (time_delta >> 1 ^ -(time_delta & 1))
        records.append(Record(value, key, headers, timestamp, offset))
        if offset == last < header.last_offset:
            return records
    if at != end:
        raise ProtocolError(f"a batch has {end - at} bytes after its last record")
    return records


def _after_records(content: bytes, count: int) -> int:
    """The place after *count* records, by their lengths alone."""
    at = 0
    for _ in range(count):
        number = content[at]
        at += 1
        if number > 127:
            if content[at] < 128:
                number += (content[at] << 7) - 128
                at += 1
            else:
                number, at = _read_raw_varint(content, at - 1, _INT32_BYTES)
        if number & 1:
            raise ProtocolError(f"a record claims {_unzigzag(number)} bytes")
        at += number >> 1
    return at


def _read_headers(content: bytes, at: int, stop: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers of a record, from *at* on, where their count is, and the place after them."""
    count, at = _read_varint(content, at)
    if not 0 <= count <= stop - at:
        raise ProtocolError(f"a record claims {count} headers; {stop - at} bytes are left of it")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _read_varint(content, at)
        if size < 0:
            raise ProtocolError("the header of a record has no name")
        name = content[at : at + size].decode(errors="replace")
        size, at = _read_varint(content, at + size)
        if size < 0:
            headers.append((name, None))
            continue
        headers.append((name, content[at : at + size]))
        at += size
    return tuple(headers), at


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
    byte = data[position]
    if byte < 128:  # nearly all of them
        return byte >> 1 ^ -(byte & 1), position + 1
    value, position = _read_raw_varint(data, position, _INT64_BYTES)
    return _unzigzag(value), position


def _read_raw_varint(data: bytes, position: int, bytes_max: int) -> tuple[int, int]:
    """A number in zigzag, still folded, and where it ends."""
    value = shift = 0
    for at in range(position, position + bytes_max):
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7
    raise ProtocolError(f"the number at byte {position} of the records is longer than {bytes_max} bytes")


def _unzigzag(value: int) -> int:
    return value >> 1 ^ -(value & 1)
