"""Record batches that a client with a fault would send, by name: what is wrong with each, and its bytes.

Owns the bytes, and reads what Apache Kafka answers to them (`kafka_answers`). Every batch has the checksum of its bytes
unless its name says otherwise, so that a broker has to look at the records.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cramjam
import msgspec

from kip848_client.wire.record_batch import crc32c

ANSWERS_PATH: Final = Path(__file__).parent.parent / "golden" / "damaged_batches.json"
"""Name of a batch -> the error code that Apache Kafka 4.4.0 answers."""

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_CODECS: Final = {"plain": _NONE, "gzip": _GZIP}
_NOW_MS: Final = 1_700_000_000_000
_INT32_MAX: Final = 2**31 - 1


def damaged_batches() -> dict[str, bytes]:
    """Every batch, by a name that says what is wrong with it."""
    return dict([*_frames(), *_headers(), *_records(), *_gzips(), *_snappies(), *_lz4s(), *_zstds()])


def kafka_answers() -> dict[str, int]:
    """The error code that Apache Kafka answers to each batch, by its name."""
    return msgspec.json.decode(ANSWERS_PATH.read_bytes(), type=dict[str, int])


def sealed(batch: bytes | bytearray) -> bytes:
    """*batch*, changed somewhere, with the checksum that belongs to its bytes."""
    return _patched(bytes(batch), 17, ">I", crc32c(batch[21:]))


def _frames() -> Iterator[tuple[str, bytes]]:
    good = _batch()
    yield "nothing", b""
    yield "ten bytes", good[:10]
    yield "as far as the format", good[:17]
    yield "half a header", good[:40]
    yield "a header alone", good[:61]
    yield "the last byte is missing", good[:-1]
    yield "a byte more", good + b"\0"
    yield "twelve bytes more", good + bytes(12)
    yield "another batch behind it", good + good
    yield "length 0", _patched(good, 8, ">i", 0)
    yield "length of a header less one", _patched(good, 8, ">i", 48)
    yield "length -1", _patched(good, 8, ">i", -1)
    yield "length of 2 GiB", _patched(good, 8, ">i", _INT32_MAX)
    yield "length one too long", _patched(good, 8, ">i", len(good) - 11)
    yield "length one too short", _patched(good, 8, ">i", len(good) - 13)
    for magic in (0, 1, 3, 127, -1):
        yield f"format {magic}", _patched(good, 16, ">b", magic)
    yield "checksum 0", _patched(good, 17, ">I", 0)
    yield "a bit of the checksum flipped", _flipped(good, 20)
    yield "a bit of a value flipped", _flipped(good, len(good) - 2)
    yield "a bit of the attributes flipped", _flipped(good, 22)


def _headers() -> Iterator[tuple[str, bytes]]:
    yield "sound", _batch()
    for offset in (1, 5, -1):
        yield f"base offset {offset}", _patched(_batch(), 0, ">q", offset)
    yield "leader epoch 77", _patched(_batch(), 12, ">i", 77)
    for codec in (5, 6, 7):
        yield f"codec {codec}", _batch(attributes=codec)
    yield "log append time", _batch(attributes=0x08)
    yield "transactional without a producer", _batch(attributes=0x10)
    yield "control batch", _batch(attributes=0x20)
    yield "control batch of a transaction", _batch(attributes=0x30, producer=(5, 0, 0))
    yield "a delete horizon", _batch(attributes=0x40)
    yield "an unknown attribute", _batch(attributes=0x80)
    yield "the last attribute", _batch(attributes=0x4000)
    for delta in (0, 2, 4, -1, _INT32_MAX):
        yield f"last offset delta {delta} of 4", _batch(last_offset_delta=delta)
    for count in (-1, 0, 3, 5, _INT32_MAX):
        yield f"record count {count} of 4", _batch(count=count)
    for name, codec in _CODECS.items():
        for count in (1, 3, 5, 100, _INT32_MAX):
            yield f"{name}: {count} records claimed, 4 there", _batch(codec, count=count, last_offset_delta=count - 1)
        yield f"{name}: no record", _batch(codec, [], count=0, last_offset_delta=-1)
        yield f"{name}: no record, one claimed", _batch(codec, [], count=1, last_offset_delta=0)
        yield f"{name}: 0 records claimed, last offset delta -1", _batch(codec, count=0, last_offset_delta=-1)
    yield "base timestamp -1", _batch(base_timestamp=-1, max_timestamp=-1)
    yield "base timestamp -5", _batch(base_timestamp=-5, max_timestamp=-5)
    yield "latest timestamp too early", _batch(max_timestamp=_NOW_MS - 10_000)
    yield "latest timestamp too late", _batch(max_timestamp=_NOW_MS + 10_000)
    yield "latest timestamp -1", _batch(max_timestamp=-1)
    yield "latest timestamp too early in gzip", _batch(_GZIP, max_timestamp=_NOW_MS - 10_000)
    yield "a producer without an epoch", _batch(producer=(5, -1, 0))
    yield "a producer without a sequence", _batch(producer=(5, 0, -1))
    yield "an epoch and a sequence without a producer", _batch(producer=(-1, 3, 4))
    yield "producer -2", _batch(producer=(-2, 0, 0))
    yield "a sequence below -1", _batch(producer=(-1, -1, -7))


def _records() -> Iterator[tuple[str, bytes]]:
    body = _body()
    size = len(body)
    last = {
        "a length of 0": b"\0",
        "a length of 0 and its bytes": b"\0" + body,
        "a length of -1": _varint(-1) + body,
        "a length one too short": _varint(size - 1) + body,
        "a length one too long": _varint(size + 1) + body,
        "a length one too long, and a byte": _varint(size + 1) + body + b"\0",
        "a length of 2 GiB": _varint(_INT32_MAX) + body,
        "a length in 6 bytes": b"\xff\xff\xff\xff\xff\x01" + body,
        "a length in 11 bytes": b"\xff" * 10 + b"\x01" + body,
        "a length of 1": _varint(1) + body[:1],
        "a length that ends after the offset": _varint(3) + body[:3],
        "a length with a needless byte": bytes([size << 1 | 0x80, 0]) + body,
        "attributes 1": _record(_body(attributes=1)),
        "attributes 255": _record(_body(attributes=255)),
        "a timestamp in 11 bytes": _record(_body(timestamp=b"\xff" * 10 + b"\1")),
        "a timestamp of 10 bytes": _record(_body(timestamp=_varint(-(2**63)))),
        "an offset in 6 bytes": _record(_body(offset=b"\xff" * 5 + b"\1")),
        "an offset before": _record(_body(offset=_varint(0))),
        "an offset after": _record(_body(offset=_varint(9))),
        "an offset below 0": _record(_body(offset=_varint(-1))),
        "the largest offset": _record(_body(offset=_varint(_INT32_MAX))),
        "a key of length -2": _record(_body(key=_varint(-2))),
        "a key beyond the record": _record(_body(key=_varint(200) + b"key")),
        "a key of 2 GiB": _record(_body(key=_varint(_INT32_MAX) + b"key")),
        "a key into the value": _record(_body(key=_varint(5) + b"key")),
        "a key without a value": _record(_body(value=b"", headers=b"")),
        "a value of length -2": _record(_body(value=_varint(-2))),
        "a value beyond the record": _record(_body(value=_varint(200) + b"value")),
        "a value into the headers": _record(_body(value=_varint(6) + b"value")),
        "a value one too short": _record(_body(value=_varint(4) + b"value")),
        "a value of null": _record(_body(value=_varint(-1))),
        "no headers' count": _record(_body(headers=b"")),
        "a headers' count of -1": _record(_body(headers=_varint(-1))),
        "a headers' count of -2": _record(_body(headers=_varint(-2))),
        "a headers' count of 1 without one": _record(_body(headers=_varint(1))),
        "a headers' count of 1 with two": _record(_body(headers=_varint(1) + b"\2h\2v" * 2)),
        "a headers' count of 2 with one": _record(_body(headers=_varint(2) + b"\2h\2v")),
        "a headers' count of 2 GiB": _record(_body(headers=_varint(_INT32_MAX) + b"\2h\2v")),
        "a header": _record(_body(headers=_varint(1) + b"\2h\2v")),
        "a header without a name": _record(_body(headers=_varint(1) + b"\1\2v")),
        "a header with a name of length -2": _record(_body(headers=_varint(1) + _varint(-2) + b"\2v")),
        "a header with a name that is not text": _record(_body(headers=_varint(1) + b"\4\xff\xfe\2v")),
        "a header with a name beyond the record": _record(_body(headers=_varint(1) + _varint(200) + b"h\2v")),
        "a header with a value of null": _record(_body(headers=_varint(1) + b"\2h\1")),
        "a header with a value of length -2": _record(_body(headers=_varint(1) + b"\2h" + _varint(-2))),
        "a header with a value beyond the record": _record(_body(headers=_varint(1) + b"\2h" + _varint(200))),
        "a byte behind it": _record(body) + b"\0",
        "half a record behind it": _record(body) + b"\x14\0\0",
        "a record behind it": _record(body) + _record(_body(offset=_varint(4))),
        "nothing": b"",
    }
    for name, codec in _CODECS.items():
        for damage, content in last.items():
            yield f"{name}: the last record with {damage}", _batch(codec, [*_first_three(), content])
        yield f"{name}: offsets descend", _batch(codec, [_record(_body(offset=_varint(3 - n))) for n in range(4)])
        yield f"{name}: all offsets are 0", _batch(codec, [_record(_body(offset=_varint(0))) for _ in range(4)])
        yield f"{name}: offsets begin at 1", _batch(codec, [_record(_body(offset=_varint(n + 1))) for n in range(4)])
        yield f"{name}: bytes that are no records", _batch(codec, [b"\xde\xad\xbe\xef" * 9])
        yield (
            f"{name}: a timestamp a century ahead",
            _batch(codec, [*_first_three(), _record(_body(timestamp=_varint(36_500 * 86_400_000)))]),
        )


def _gzips() -> Iterator[tuple[str, bytes]]:
    records = b"".join(_four())
    half = len(records) // 2
    sound = gzip.compress(records, mtime=0)
    members = gzip.compress(records[:half], mtime=0) + gzip.compress(records[half:], mtime=0)
    yield from _packed(
        _GZIP,
        "gzip",
        {
            "sound": sound,
            "nothing": b"",
            "of nothing": gzip.compress(b"", mtime=0),
            "not packed": records,
            "cut off": sound[:-9],
            "without its trailer": sound[:-8],
            "a bit flipped": _flipped(sound, len(sound) // 2),
            "a wrong checksum": _flipped(sound, len(sound) - 8),
            "a wrong size": _flipped(sound, len(sound) - 4),
            "two members": members,
            "bytes behind it": sound + b"behind",
            "zeros behind it": sound + bytes(8),
        },
    )
    yield "plain: packed with gzip", _sealed(_NONE, sound)


def _snappies() -> Iterator[tuple[str, bytes]]:
    records = b"".join(_four())
    raw = bytes(cramjam.snappy.compress_raw(records))
    xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    block = struct.pack(">i", len(raw)) + raw
    half = len(records) // 2
    halves = [bytes(cramjam.snappy.compress_raw(part)) for part in (records[:half], records[half:])]
    yield from _packed(
        _SNAPPY,
        "snappy",
        {
            "sound": raw,
            "nothing": b"",
            "not packed": records,
            "cut off": raw[:-3],
            "a byte behind it": raw + b"\0",
            "a wrong size": _flipped(raw, 0),
            "framed": bytes(cramjam.snappy.compress(records)),
            "blocks of Java": xerial + block,
            "two blocks of Java": xerial + b"".join(struct.pack(">i", len(part)) + part for part in halves),
            "no block of Java": xerial,
            "a block of Java, cut off": xerial + block[:-3],
            "a block of Java of length -1": xerial + struct.pack(">i", -1) + raw,
            "a block of Java of length 0": xerial + struct.pack(">i", 0) + block,
            "a block of Java and a byte": xerial + block + b"\0",
            "blocks of Java of version 9": b"\x82SNAPPY\0" + struct.pack(">ii", 9, 9) + block,
            "half a header of Java": xerial[:12],
        },
    )


def _lz4s() -> Iterator[tuple[str, bytes]]:
    records = b"".join(_four())
    half = len(records) // 2
    yield from _packed(
        _LZ4,
        "lz4",
        {
            "sound": bytes(cramjam.lz4.compress(records)),
            "stored": _lz4([records]),
            "two blocks": _lz4([records[:half], records[half:]]),
            "linked blocks": _lz4([records[:half], records[half:]], flags=0x40),
            "two frames": _lz4([records[:half]]) + _lz4([records[half:]]),
            "nothing": b"",
            "no block": _lz4([]),
            "not packed": records,
            "cut off": _lz4([records])[:-9],
            "without its end": _lz4([records])[:-4],
            "bytes behind it": _lz4([records]) + b"behind",
            "a wrong magic": _flipped(_lz4([records]), 0),
            "a wrong checksum of its header": _flipped(_lz4([records]), 6),
            "a checksum": _lz4([records], flags=0x64),
            "a wrong checksum": _flipped(_lz4([records], flags=0x64), -1),
            "checksums of blocks": _lz4([records], flags=0x70),
            "a wrong checksum of a block": _flipped(_lz4([records], flags=0x70), -5),
            "its size": _lz4([records], flags=0x68),
            "a wrong size": _lz4([records], flags=0x68, size=len(records) + 1),
            "version 2": _lz4([records], flags=0xA0),
            "a reserved flag": _lz4([records], flags=0x62),
            "a dictionary": _lz4([records], flags=0x61),
            "blocks of an unknown size": _lz4([records], blocks=0x30),
            "blocks of 4 MiB": _lz4([records], blocks=0x70),
            "a skippable frame before it": b"\x50\x2a\x4d\x18\2\0\0\0ab" + _lz4([records]),
        },
    )


def _zstds() -> Iterator[tuple[str, bytes]]:
    records = b"".join(_four())
    sound = bytes(cramjam.zstd.compress(records))
    half = len(records) // 2
    yield from _packed(
        _ZSTD,
        "zstd",
        {
            "sound": sound,
            "stored": _zstd(records),
            "nothing": b"",
            "of nothing": _zstd(b""),
            "not packed": records,
            "cut off": sound[:-5],
            "a bit flipped": _flipped(sound, 5),
            "a wrong magic": _flipped(sound, 0),
            "two frames": _zstd(records[:half]) + _zstd(records[half:]),
            "a skippable frame before it": b"\x50\x2a\x4d\x18\2\0\0\0ab" + sound,
            "a wrong checksum": _zstd(records, flags=0x04) + bytes(4),
            "bytes behind it": sound + b"behind",
            "zeros behind it": sound + bytes(8),
        },
    )


def _packed(codec: int, name: str, contents: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for damage, content in contents.items():
        yield f"{name}: {damage}", _sealed(codec, content)


def _four() -> list[bytes]:
    return [*_first_three(), _record(_body())]


def _first_three() -> list[bytes]:
    return [_record(_body(offset=_varint(number))) for number in range(3)]


def _record(body: bytes) -> bytes:
    return _varint(len(body)) + body


def _body(
    *,
    attributes: int = 0,
    timestamp: bytes = b"\0",
    offset: bytes = b"\6",
    key: bytes = b"\6key",
    value: bytes = b"\x0avalue",
    headers: bytes = b"\0",
) -> bytes:
    """A record without its length; by default the fourth of a batch."""
    return bytes([attributes]) + timestamp + offset + key + value + headers


def _batch(
    codec: int = _NONE,
    records: list[bytes] | None = None,
    *,
    attributes: int = 0,
    count: int = 4,
    last_offset_delta: int = 3,
    base_timestamp: int = _NOW_MS,
    max_timestamp: int = _NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    content = b"".join(_four() if records is None else records)
    return _sealed(
        codec | attributes,
        gzip.compress(content, mtime=0) if codec == _GZIP else content,
        count=count,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer=producer,
    )


def _sealed(
    attributes: int,
    content: bytes,
    *,
    count: int = 4,
    last_offset_delta: int = 3,
    base_timestamp: int = _NOW_MS,
    max_timestamp: int = _NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    checked = struct.pack(">hiqqqhii", attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count)
    checked += content
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _patched(batch: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


def _flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1
    return bytes(changed)


def _varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _lz4(blocks_of: list[bytes], *, flags: int = 0x60, blocks: int = 0x40, size: int | None = None) -> bytes:
    """A frame of stored blocks. Flags: 32 independent blocks, 16 their checksums, 8 size, 4 checksum, 1 dictionary."""
    content = b"".join(blocks_of)
    descriptor = bytes([flags, blocks])
    if flags & 0x08:
        descriptor += struct.pack("<q", len(content) if size is None else size)
    if flags & 0x01:
        descriptor += struct.pack("<I", 7)
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([_xxh32(descriptor) >> 8 & 0xFF])
    for block in blocks_of:
        frame += struct.pack("<I", len(block) | 0x8000_0000) + block
        if flags & 0x10:
            frame += struct.pack("<I", _xxh32(block))
    frame += bytes(4)
    return frame + struct.pack("<I", _xxh32(content)) if flags & 0x04 else frame


def _zstd(content: bytes, *, flags: int = 0) -> bytes:
    """A frame of one stored block; a checksum that *flags* announce is the caller's."""
    header = b"\x28\xb5\x2f\xfd" + bytes([flags, 0])
    return header + (len(content) << 3 | 1).to_bytes(3, "little") + content


def _xxh32(data: bytes) -> int:
    """The hash of LZ4 frames. Source: github.com/Cyan4973/xxHash, doc/xxhash_spec.md."""
    one, two, three, four, five = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFF_FFFF

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [one + two & mask, two, 0, -one & mask]
        while at <= len(data) - 16:
            for lane, (word,) in enumerate(struct.iter_unpack("<I", data[at : at + 16])):
                lanes[lane] = turned(lanes[lane] + word * two & mask, 13) * one & mask
            at += 16
        value = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = five
    value = value + len(data) & mask
    while at <= len(data) - 4:
        (word,) = struct.unpack_from("<I", data, at)
        value = turned(value + word * three & mask, 17) * four & mask
        at += 4
    for byte in data[at:]:
        value = turned(value + byte * five & mask, 11) * one & mask
    value = (value ^ value >> 15) * two & mask
    value = (value ^ value >> 13) * three & mask
    return value ^ value >> 16
