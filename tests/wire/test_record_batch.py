"""Record batches against kafka-python's builder and reader, and against damage."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from typing import Any

import cramjam
import hypothesis.strategies as st
import pytest
from hypothesis import given

from kip848_client.errors import MessageValueError, ProtocolError
from kip848_client.wire.compression import COMPRESSION_GZIP
from kip848_client.wire.record_batch import (
    HEADER_SIZE,
    Record,
    batches_of,
    build_batch,
    crc32c,
    keep_records,
    parse_batch_header,
    record_positions,
    records_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

_NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
_RECORDS = st.lists(
    st.builds(
        Record,
        value=st.none() | st.binary(max_size=200),
        key=st.none() | st.binary(max_size=10),
        headers=st.lists(st.tuples(_NAMES, st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
        timestamp=st.integers(0, 2**45),
    ),
    min_size=1,
    max_size=5,
)


def test_the_checksum_is_castagnolis() -> None:
    """The usual CRC-32 would make every client with check.crcs drop our batches."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(_RECORDS, st.integers(0, 2**40), st.sampled_from([0, COMPRESSION_GZIP]))
def test_kafka_python_reads_what_we_build(records: list[Record], base_offset: int, attributes: int) -> None:
    """Tests and the simulation fetch such batches through real clients."""
    data = build_batch(records, base_offset=base_offset, leader_epoch=3, attributes=attributes)

    (batch,) = list(MemoryRecords(data))
    assert batch.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]


@given(_RECORDS, st.sampled_from([0, 1]))
def test_we_read_what_kafka_python_builds(records: list[Record], compression: int) -> None:
    """The broker looks into batches of real producers to answer for timestamps."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=1 << 20)
    for record in records:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    data = bytes(builder.buffer())

    ((position, header),) = batches_of(data, check_crc=True)
    assert (position, header.size, header.record_count) == (0, len(data), len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    read = records_of(data)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read] == [
        (r.key, r.value, r.headers, r.timestamp) for r in records
    ]


@given(
    _RECORDS, st.integers(0, 6), st.integers(0, 6), st.sets(st.integers(0, 4)), st.sampled_from([0, COMPRESSION_GZIP])
)
def test_of_a_part_of_a_batch_the_same_records_are_read(
    records: list[Record], first: int, last: int, removed: set[int], attributes: int
) -> None:
    """A worker of a share group would get a neighbour of the job that it acquired; compaction leaves holes."""
    batch = build_batch(records, base_offset=7, attributes=attributes)
    batch = keep_records(batch, lambda record: record.offset - 7 not in removed)
    wanted = tuple(record for record in records_of(batch) if 7 + first <= record.offset <= 7 + last)
    assert records_of(batch, first=7 + first, last=7 + last) == wanted


def test_numbers_of_one_two_and_three_bytes_are_read() -> None:
    """The short forms are spelled out in the loop: another form than that of most records must not be misread."""
    sizes = [0, 63, 64, 8_191, 8_192, 20_000]
    records = [
        Record(bytes(size), bytes(size), (("h", bytes(size)),), 1_000 + size, offset)
        for offset, size in enumerate(sizes * 30)
    ]
    assert records_of(build_batch(records)) == tuple(records)
    assert records_of(build_batch(records), first=150, last=170) == tuple(records[150:171])


def test_the_producer_and_the_attributes_are_in_the_header() -> None:
    """Brokers recognise duplicates and transactions by these header fields."""
    data = build_batch(
        [Record(b"a"), Record(b"b")], producer_id=77, producer_epoch=2, base_sequence=10, attributes=0x10 | 0x20
    )

    header = parse_batch_header(data)

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 10)
    assert (header.is_transactional, header.is_control, header.is_log_append_time, header.compression) == (
        True,
        True,
        False,
        0,
    )
    assert (header.last_offset_delta, header.record_count, header.magic) == (1, 2, 2)


def test_the_brokers_time_overrides_the_records() -> None:
    """With message.timestamp.type=LogAppendTime all records of a batch bear its time."""
    data = build_batch([Record(b"a", timestamp=5), Record(b"b", timestamp=9)], attributes=0x08)

    assert [record.timestamp for record in records_of(data)] == [9, 9]


def test_batches_are_stepped_over_and_a_cut_off_one_ends_a_fetch() -> None:
    """A Fetch answer may end in the middle of a batch; a Produce request may not."""
    one, two = build_batch([Record(b"a")] * 3), build_batch([Record(b"b")], base_offset=3)

    assert [position for position, _ in batches_of(one + two)] == [0, len(one)]
    for cut in range(1, len(two)):
        assert [p for p, _ in batches_of(one + two[:cut], allow_partial=True)] == [0]
        with pytest.raises(ProtocolError):
            list(batches_of(one + two[:cut]))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic: int) -> None:
    """Message sets from before 2017 have another layout altogether."""
    data = bytearray(build_batch([Record(b"a")]))
    data[16] = magic

    with pytest.raises(ProtocolError, match=f"format {magic}"):
        parse_batch_header(data)
    with pytest.raises(ProtocolError):
        list(batches_of(data[:40], allow_partial=True))


@pytest.mark.parametrize("length", [-1, 0, HEADER_SIZE - 13, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    """A length of zero would step on the spot for ever."""
    data = bytearray(build_batch([Record(b"a")]))
    data[8:12] = length.to_bytes(4, "big", signed=True)

    with pytest.raises(ProtocolError, match="claims"):
        parse_batch_header(data)


def test_a_wrong_checksum_is_told_with_both_numbers() -> None:
    """The author of a producer needs both numbers to find the mistake."""
    data = bytearray(build_batch([Record(b"a")]))
    data[-1] ^= 1

    with pytest.raises(ProtocolError, match="checksum 0x"):
        list(batches_of(data, check_crc=True))


def packed(codec: int, pack: Callable[[bytes], Any]) -> bytes:
    """A batch of two records whose content is packed by another library."""
    plain: bytes = build_batch([Record(b"a" * 100_000, key=b"k"), Record(b"b")])
    content = bytes(pack(plain[HEADER_SIZE:]))
    header = bytearray(plain[:HEADER_SIZE])
    header[8:12] = (HEADER_SIZE - 12 + len(content)).to_bytes(4, "big")
    header[22] = codec
    return bytes(header) + content


def in_java_blocks(content: bytes) -> bytes:
    """Snappy as snappy-java writes it: blocks of at most 32 KiB behind a header of its own."""
    blocks = (bytes(cramjam.snappy.compress_raw(content[at : at + 32_768])) for at in range(0, len(content), 32_768))
    return b"\x82SNAPPY\0" + bytes(8) + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def in_independent_blocks(content: bytes) -> bytes:
    """LZ4 as Kafka takes it: no block refers to another one."""
    packer = cramjam.lz4.Compressor(block_linked=False)
    packer.compress(content)
    return bytes(packer.finish())


def in_two(content: bytes) -> tuple[bytes, bytes]:
    """Two parts, cut anywhere."""
    return content[:60_000], content[60_000:]


PACKED = {
    "gzip": packed(COMPRESSION_GZIP, gzip.compress),
    "snappy": packed(2, cramjam.snappy.compress_raw),
    "snappy of Java": packed(2, in_java_blocks),
    "snappy of Java, two streams": packed(2, lambda content: b"".join(map(in_java_blocks, in_two(content)))),
    "gzip, two members": packed(COMPRESSION_GZIP, lambda content: b"".join(map(gzip.compress, in_two(content)))),
    "lz4": packed(3, in_independent_blocks),
    "zstd": packed(4, cramjam.zstd.compress),
}


@pytest.mark.parametrize("codec", PACKED)
def test_records_are_read_from_every_compression(codec: str) -> None:
    """A search by time, and a test that looks at what a service wrote, depend on no codec."""
    assert [(record.key, record.value) for record in records_of(PACKED[codec])] == [
        (b"k", b"a" * 100_000),
        (None, b"b"),
    ]


@pytest.mark.parametrize("codec", PACKED)
def test_what_unpacks_to_more_than_allowed_is_refused_in_every_compression(codec: str) -> None:
    """A few bytes can claim gigabytes; the broker, whose clients wait meanwhile, allows less than a tool does."""
    for open_batch in (records_of, record_positions):
        assert open_batch(PACKED[codec], unpacked_max=101_000)
        with pytest.raises(ProtocolError, match=r"unpacks to over 90,000 bytes"):
            open_batch(PACKED[codec], unpacked_max=90_000)


def test_an_unknown_compression_is_named() -> None:
    """A fetch may step over such batches; only looking inside is refused."""
    data = bytearray(build_batch([Record(b"a")]))
    data[22] = 7

    with pytest.raises(ProtocolError, match="names compression codec 7; 0 to 4 exist"):
        records_of(data)
    assert [header.record_count for _, header in batches_of(data)] == [1]


def test_what_cannot_be_built_is_refused() -> None:
    """A batch that no reader could decode must not reach the log."""
    with pytest.raises(MessageValueError, match="at least one"):
        build_batch([])
    with pytest.raises(MessageValueError, match="not written here"):
        build_batch([Record(b"a")], attributes=4)
    with pytest.raises(MessageValueError):
        build_batch([Record(b"a")], base_offset=2**63)
