"""Why a position does not move, according to the leader of its partition. Used by `stalls`."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.consumer.records.checks.leaders import Leaders
from kip848_client.errors import ProtocolError

if TYPE_CHECKING:
    from kip848_client.wire.record_batch import BatchHeader

_BYTES: Final = 65_536
_FETCHES_MAX: Final = 20
"""Of one partition, over markers and aborted records."""

_GZIP: Final = 1
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_GZIP_WRAPPED: Final = 31


class StallKind(enum.Enum):
    """Why a position stays where it is. The value: how long that must last, in ms, to be told."""

    RECORDS = 4_000
    """There are records, and librdkafka does not deliver them."""
    FAILURE = 20_000
    """The leader cannot be asked. Elections take seconds."""
    OPEN = 900_000
    """A transaction is open: longer than brokers allow by default (transaction.max.timeout.ms)."""


class Reason(msgspec.Struct, frozen=True):
    """What was found out about one position."""

    kind: StallKind
    text: str


class LeaderAnswer(msgspec.Struct, frozen=True):
    """What the leader said about one position.

    Args:
        offset: the position.
        high: the end of the log; -1 if the leader did not say.
        reason: why the position should have moved, or cannot; None if all is as it should be.
    """

    offset: int
    high: int = -1
    reason: Reason | None = None


async def examine(leaders: Leaders, partition: NamedPartition, offset: int, *, read_committed: bool) -> LeaderAnswer:
    """Ask the leader whether a record from *offset* on is to be delivered.

    Raises:
        Kip848Error: it cannot be asked, or refuses.
    """
    from kip848_client.wire.record_batch import batches_of  # here: checks are rare

    if offset < 0:
        await leaders.check(partition)
        text = "its position is not known yet: the coordinator, or the leader, did not tell where to begin"
        return LeaderAnswer(offset, reason=Reason(StallKind.FAILURE, text))
    at, high = offset, -1
    for _ in range(_FETCHES_MAX):
        found = await leaders.fetch(partition, at, max_bytes=_BYTES, read_committed=read_committed)
        high = found.high_watermark
        data = bytes(found.records or b"")
        if not data:
            stable = found.last_stable_offset
            if read_committed and 0 <= stable <= at < high:
                text = f"a transaction has been open since offset {stable}, and isolation.level is read_committed"
                return LeaderAnswer(offset, high, Reason(StallKind.OPEN, text))
            return LeaderAnswer(offset, high)
        aborted = {each.producer_id: each.first_offset for each in found.aborted_transactions or ()}
        try:
            for begin, header in batches_of(data, allow_partial=True):
                if deliverable(header, at, aborted):
                    text = describe_batch(header, data[begin : begin + header.size])
                    return LeaderAnswer(offset, high, Reason(StallKind.RECORDS, text))
                at = max(at, header.next_offset)
        except ProtocolError as error:
            return LeaderAnswer(
                offset, high, Reason(StallKind.RECORDS, f"the log has a batch at {at} that is no batch: {error}")
            )
    return LeaderAnswer(offset, high)


def deliverable(header: BatchHeader, offset: int, aborted: Mapping[int, int]) -> bool:
    """Whether a batch has a record at *offset* or behind it that an application gets.

    Args:
        aborted: producer id -> first offset, of aborted transactions.
    """
    if header.is_control or not header.record_count or header.last_offset < offset:
        return False
    if header.is_transactional and aborted.get(header.producer_id, header.last_offset + 1) <= header.base_offset:
        return False
    # Of a compacted batch the last records may be gone.
    return header.base_offset >= offset or header.record_count == header.last_offset_delta + 1


def describe_batch(header: BatchHeader, batch: bytes) -> str:
    """What librdkafka does not deliver, and what to do."""
    from kip848_client.wire.record_batch import HEADER_SIZE

    codec = _CODECS[header.compression] if header.compression < len(_CODECS) else str(header.compression)
    packed = "" if header.compression == 0 else f", compressed with {codec}"
    text = (
        f"librdkafka does not deliver the batch at offset {header.base_offset} ({header.record_count} records, "
        f"{header.size} bytes{packed}), which the leader has"
    )
    if header.compression == _GZIP and _has_members(batch[HEADER_SIZE:]):
        text += (
            ". Its gzip has several members, cut inside a record, which librdkafka cannot read: have the producer "
            f"write one member for each batch; seek() to offset {header.next_offset} leaves the rest of this one out"
        )
    return text


def _has_members(packed: bytes) -> bool:
    first = zlib.decompressobj(_GZIP_WRAPPED)
    try:
        while packed and not first.eof:
            first.decompress(packed, _BYTES)
            packed = first.unconsumed_tail
    except zlib.error:
        return False
    return bool(first.unused_data)
