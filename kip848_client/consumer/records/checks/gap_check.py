"""Finds records that librdkafka leaves out without an error: of a gzip batch in several members it reads the first.

Offsets with nothing between them are common: compaction, markers of transactions, aborted records. So the gap check
asks for the batch at a gap, at most once a second. If it has a record for each of its offsets, those in the gap exist
and were not delivered. As long as gaps turn out to be sound, they are checked less often.

The check runs on a thread of its own, over connections of its own. Does not own: reading (`fetcher`),
partitions of which nothing comes (`stalls`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.common.addresses import BootstrapServer
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.records.checks.leaders import leaders_of
from kip848_client.consumer.records.data_plane import Message
from kip848_client.errors import Kip848Error, OutOfResourcesError, ProtocolError
from kip848_client.network.connection_opener import ConnectionOpener

_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 64.0
_SCAN_PAUSE_S: Final = 0.05


class Gap(msgspec.Struct, frozen=True):
    """Offsets of which no record came.

    Args:
        start: the first of them.
        end: of the record that came next.
        delivered: whether the record before *start* was delivered; else reading began there.
    """

    partition: NamedPartition
    start: int
    end: int
    delivered: bool


class GapCheck:
    """Checks one gap at a time.

    Args:
        report: called with the error, on the thread of the check.
    """

    def __init__(
        self, opener: ConnectionOpener, servers: Iterable[BootstrapServer], *, report: Callable[[Kip848Error], object]
    ) -> None:
        self._opener: Final = opener
        self._servers: Final = tuple(servers)
        self._report: Final = report
        self._busy = False
        self._due_s = self._scan_s = 0.0
        self._pause_s = _PAUSE_S

    def look(
        self,
        batch: Sequence[Message],
        *,
        expected: Mapping[NamedPartition, OffsetAndMetadata],
        starts: Mapping[NamedPartition, OffsetAndMetadata],
        now_s: float,
    ) -> None:
        """Look at records that were just read: at the first and the last, and now and then at all.

        Args:
            expected: the positions before them.
            starts: where reading began.
        """
        if self._busy or now_s < self._due_s or (now_s < self._scan_s and not _may_have_gap(batch, expected)):
            return
        self._scan_s = now_s + _SCAN_PAUSE_S
        gap = find_gap(batch, expected=expected, starts=starts)
        if gap is not None:
            self._busy = True
            try:
                daemon_thread(self._check, "kip848-gap", gap).start()
            except OutOfResourcesError:
                self._busy = False  # the next gap is checked

    def _check(self, gap: Gap) -> None:
        try:
            data = asyncio.run(self._fetch(gap))
            failure = left_out(gap, data) if data else None
            self._pause_s = _PAUSE_S if failure is not None else min(_PAUSE_S_MAX, 2 * self._pause_s)
            if failure is not None:
                self._report(failure)
        except* (Kip848Error, OSError):  # alone, or in the group of the tasks of its connections
            pass  # the next gap is checked
        finally:
            self._due_s = time.monotonic() + self._pause_s
            self._busy = False

    async def _fetch(self, gap: Gap) -> bytes:
        """The batch at the beginning of the gap; empty if there is none."""
        async with leaders_of({gap.partition.topic}, self._opener, self._servers) as leaders:
            found = await leaders.fetch(gap.partition, gap.start, max_bytes=1)
        return bytes(found.records or b"")


def _may_have_gap(batch: Sequence[Message], expected: Mapping[NamedPartition, OffsetAndMetadata]) -> bool:
    """Whether the ends of *batch* do not fit: not a record behind the other, or not of one partition."""
    first, last = batch[0], batch[-1]
    begin, end = first.offset(), last.offset()
    if begin is None or end is None or end - begin != len(batch) - 1:
        return True
    topic, number = first.topic(), first.partition()
    position = None if topic is None or number is None else expected.get(NamedPartition(topic, number))
    return position is not None and position.offset != begin


def find_gap(
    batch: Iterable[Message],
    *,
    expected: Mapping[NamedPartition, OffsetAndMetadata],
    starts: Mapping[NamedPartition, OffsetAndMetadata],
) -> Gap | None:
    """The first gap in front of, or between, the records of *batch*; see `GapCheck.look`."""
    following: dict[NamedPartition, int] = {}  # of partitions before the one that was met last
    partition: NamedPartition | None = None
    behind = -1
    for message in batch:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or number is None or offset is None:
            continue
        if offset == behind and partition is not None and number == partition.partition and topic == partition.topic:
            behind += 1  # nearly all follow the one before them
            continue
        if partition is not None:
            following[partition] = behind
        partition = NamedPartition(topic, number)
        wanted = following.get(partition)
        delivered = wanted is not None
        if wanted is None and (position := expected.get(partition)) is not None:
            wanted = position.offset
            delivered = position != starts.get(partition)
        if wanted is not None and offset > wanted >= 0:
            return Gap(partition, wanted, offset, delivered)
        behind = offset + 1
    return None


def left_out(gap: Gap, data: bytes) -> ProtocolError | None:
    """The error if *data*, the batch at the beginning of the gap, has records there.

    Raises:
        ProtocolError: *data* is no batch.
    """
    from kip848_client.wire.record_batch import parse_batch_header  # here: gaps are rare

    header = parse_batch_header(data)
    last = header.base_offset + header.last_offset_delta
    if header.is_control or not header.base_offset <= gap.start <= last:
        return None
    if header.record_count != header.last_offset_delta + 1:
        return None  # compacted
    if header.is_transactional and not (gap.delivered and gap.start > header.base_offset):
        return None  # an aborted one is left out as a whole
    return ProtocolError(
        f"records {gap.start} to {min(gap.end - 1, last)} of {gap.partition} exist and were not delivered: librdkafka "
        f"cannot read all of the batch at offset {header.base_offset}. Of a gzip batch in several members it reads the "
        "first; have the producer write one member for each batch"
    )
