"""The records of one partition: stored batches, offsets, timestamps, leader epochs and producers. Pure.

Batches are kept as the bytes that the producer sent. Only the base offset and the leader epoch are written into them,
which are outside the checksummed part, and the latest timestamp if the producer's is wrong. Broker and simulation use
the same log: waiting requests and a folder behind the log belong to the caller.

Transactions: the log knows which producers have one open and which were aborted. Whether a producer may write to a
transaction at all is the business of its coordinator (`transactions`).

Left out: retention and compaction (records go only by `PartitionLog.delete_records`), replicas (the high watermark is
the log's end), and the timestamps of single records inside a batch that is compressed with anything but gzip, or very
long.

`producer_batches` decides what a producer may append.

Source:
    apache/kafka ``UnifiedLog``, ``LeaderEpochFileCache``, ``ProducerStateManager``; KIP-98, KIP-890.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kip848_client.errors import BrokerError, ErrorCode, ProtocolError
from kip848_client.testing.partitions.markers import build_marker, read_marker
from kip848_client.testing.partitions.producer_batches import (
    MESSAGE_BYTES_MAX_DEFAULT,
    NO_RULES,
    RECORDS_UNPACKED_MAX,
    ProducerSequences,
    ProducerState,
    RecordAllowance,
    RecordRules,
    check_batch,
    check_records,
)
from kip848_client.wire.record_batch import (
    BatchHeader,
    parse_batch_header,
    record_positions,
    set_latest_timestamp,
)

_OFFSET_AND_EPOCH: Final = struct.Struct(">qii")


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp. (-1, -1, -1) stands for "none"."""

    timestamp: int
    offset: int
    leader_epoch: int


_NOT_FOUND: Final = TimestampAndOffset(-1, -1, -1)


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset after its last record. (-1, -1) if the epoch is unknown."""

    leader_epoch: int
    end_offset: int


class AbortedTransaction(NamedTuple):
    """A range that readers of committed records skip: the producer's records from first to last offset (the marker)."""

    producer_id: int
    first_offset: int
    last_offset: int


class PreparedAppend(msgspec.Struct, frozen=True):
    """A batch that was checked and is ready to be committed, or a retry of one that is in the log already.

    Attributes:
        batch: the bytes as they are stored; empty for a duplicate.
        base_offset: offset of the first record.
        last_offset: offset of the last record.
        duplicate: the producer sent this batch before; nothing is to be written.
        header: as the producer sent it, except for the base offset and the leader epoch.
    """

    batch: bytes
    base_offset: int
    last_offset: int
    duplicate: bool
    header: BatchHeader


class PartitionLog:
    """The records of one partition.

    Offsets are monotonic, and within one log every stored batch begins where the one before it ended. All operations
    are O(log batches) or better, except `delete_records`.

    Args:
        leader_epoch: the epoch of the leader that writes; >= 0.
        start_offset: offset of the first record to come.
    """

    def __init__(self, *, leader_epoch: int = 0, start_offset: int = 0) -> None:
        self._batches: list[bytes] = []
        self._base_offsets: list[int] = []
        # One entry more than there are batches: the position where each begins, and where the last one ends.
        self._positions: list[int] = [0]
        # Highest timestamp up to and including each batch. It never falls, so it can be searched.
        self._running_max_timestamps: list[int] = []
        self._log_start_offset = start_offset
        self._log_end_offset = start_offset
        self._epochs: list[tuple[int, int]] = [(leader_epoch, start_offset)]
        self._leader_epoch = leader_epoch
        self._producers = ProducerSequences()
        # Producer id -> first offset; in the order of the offsets, since a transaction is opened at the end of the log.
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []
        # Offsets of the ends of transactions, ascending.
        self._markers: list[int] = []

    # --- contents

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log_end_offset

    def count_markers(self, start_offset: int, end_offset: int) -> int:
        """How many ends of transactions there are from *start_offset* to before *end_offset*: they are no records."""
        return bisect_left(self._markers, end_offset) - bisect_left(self._markers, start_offset)

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read. One replica: everything."""
        return self._log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what ``read_committed`` may read: the start of the oldest open transaction, or everything."""
        for first_offset in self._open.values():
            return max(first_offset, self._log_start_offset)
        return self._log_end_offset

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id -> offset of its first record, for every transaction that has no end yet; the oldest first."""
        return self._open

    def is_open(self, producer_id: int, *, epoch: int) -> bool:
        """Whether the producer has a transaction open here, begun with this epoch."""
        return producer_id in self._open and self._producers.epoch_of(producer_id) == epoch

    def epoch_of(self, producer_id: int) -> int:
        """The producer's current epoch here; -1 if it is not remembered."""
        return self._producers.epoch_of(producer_id)

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions with records or the marker at or after *start_offset*, begun before *end_offset*."""
        first = bisect_left(self._aborted, start_offset, key=_last_offset_of)
        return tuple([aborted for aborted in self._aborted[first:] if aborted.first_offset < end_offset])

    def producers(self) -> tuple[ProducerState, ...]:
        """Every idempotent producer that is remembered, by ascending id."""
        return tuple(sorted(self._producers.states()))

    @property
    def leader_epoch(self) -> int:
        """Epoch that is written into new batches."""
        return self._leader_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches that are kept."""
        return self._positions[-1] - self._positions[0]

    # --- writing

    def append(
        self, records: bytes, *, max_bytes: int = MESSAGE_BYTES_MAX_DEFAULT, rules: RecordRules = NO_RULES
    ) -> PreparedAppend:
        """Check and store one batch: `prepare` and `commit` in one.

        Raises:
            BrokerError: as `prepare`; the log is unchanged.
        """
        prepared = self.prepare(records, max_bytes=max_bytes, rules=rules)
        self.commit(prepared)
        return prepared

    def expect_transaction(self, producer_id: int, *, epoch: int, sequence: int, adds_partition: bool) -> None:
        """Before the coordinator is asked about a batch that begins a transaction here.

        Raises:
            BrokerError: as `ProducerSequences.expect_transaction`.
        """
        self._producers.expect_transaction(producer_id, epoch=epoch, sequence=sequence, adds_partition=adds_partition)

    def prepare(
        self,
        records: bytes,
        *,
        max_bytes: int = MESSAGE_BYTES_MAX_DEFAULT,
        rules: RecordRules = NO_RULES,
        allowance: RecordAllowance | None = None,
    ) -> PreparedAppend:
        """Check one batch and give it its offset, without changing the log. The folder is written in between.

        Args:
            records: exactly one record batch of format 2, with base offset 0.
            max_bytes: the longest batch allowed.
            rules: what the topic demands of single records.
            allowance: how many of them may be looked at.

        Raises:
            BrokerError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP or UNKNOWN_SERVER_ERROR
                for the batch itself, see `check_batch` and `check_records`;
                INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER for its place in the producer's sequence;
                INVALID_TXN_STATE: it is not transactional, and its producer has a transaction open here.
        """
        header = check_batch(records, max_bytes=max_bytes)
        latest = check_records(records, header, rules, allowance=allowance)
        records = records[: header.size]
        if rules.append_time_ms is not None:
            records = set_latest_timestamp(records, rules.append_time_ms, is_log_append_time=True)
            header = parse_batch_header(records)
        elif latest != header.max_timestamp:
            records = set_latest_timestamp(records, latest)
            header = parse_batch_header(records)
        retry_of = self._producers.base_offset_of_retry(header)
        if retry_of is not None:
            return PreparedAppend(
                batch=b"",
                base_offset=retry_of,
                last_offset=retry_of + header.last_offset_delta,
                duplicate=True,
                header=header,
            )
        if header.producer_id in self._open and not header.is_transactional:
            raise BrokerError(
                f"producer {header.producer_id} has a transaction open and sent a batch that is not part of it",
                code=ErrorCode.INVALID_TXN_STATE,
            )
        return self._placed(records, header)

    def prepare_marker(
        self,
        producer_id: int,
        *,
        epoch: int,
        commit: bool,
        timestamp_ms: int,
        coordinator_epoch: int = 0,
        moves_epoch: bool = True,
    ) -> PreparedAppend:
        """Make the control batch that ends a producer's transaction here, to be committed as any other batch.

        Args:
            timestamp_ms: milliseconds since 1970.
            coordinator_epoch: of the coordinator that ends it.
            moves_epoch: *epoch* is the one after the transaction's (KIP-890), and not its own.

        Raises:
            BrokerError: as `ProducerSequences.check_marker`.
        """
        self._producers.check_marker(
            producer_id,
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            is_open=producer_id in self._open,
            moves_epoch=moves_epoch,
        )
        base_offset = self._log_end_offset
        batch, header = build_marker(
            base_offset=base_offset,
            leader_epoch=self._leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=commit,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
        )
        return PreparedAppend(batch, base_offset, base_offset, duplicate=False, header=header)

    def _placed(self, records: bytes, header: BatchHeader) -> PreparedAppend:
        base_offset = self._log_end_offset
        return PreparedAppend(
            batch=_OFFSET_AND_EPOCH.pack(base_offset, header.length, self._leader_epoch) + records[16:],
            base_offset=base_offset,
            last_offset=base_offset + header.last_offset_delta,
            duplicate=False,
            header=BatchHeader(base_offset, header.length, self._leader_epoch, *header[3:]),
        )

    def commit(self, prepared: PreparedAppend) -> None:
        """Store what `prepare` returned; nothing else may have been committed in between."""
        if prepared.duplicate:
            return
        assert prepared.base_offset == self._log_end_offset, "another batch was committed after prepare()"
        self._store(prepared.batch, prepared.header)

    def restore(self, batch: bytes) -> None:
        """Append a batch that was in a log before, with the offset and leader epoch that stand in it.

        Raises:
            BrokerError: CORRUPT_MESSAGE: not a batch, or it does not continue the log.
        """
        try:
            header = parse_batch_header(batch)
        except ProtocolError as error:
            raise BrokerError(str(error), code=ErrorCode.CORRUPT_MESSAGE) from error
        if header.size != len(batch):
            raise BrokerError(
                f"a stored batch of {header.size} bytes takes up {len(batch)}", code=ErrorCode.CORRUPT_MESSAGE
            )
        if header.base_offset != self._log_end_offset:
            raise BrokerError(
                f"batch begins at offset {header.base_offset}, the log ends at {self._log_end_offset}",
                code=ErrorCode.CORRUPT_MESSAGE,
            )
        if header.leader_epoch > self._leader_epoch:
            self.set_leader_epoch(header.leader_epoch)
        self._store(batch, header)

    def set_leader_epoch(self, leader_epoch: int) -> None:
        """A new leader begins at the end of the log; lower epochs are fenced from now on.

        Raises:
            ValueError: *leader_epoch* is below the current one.
        """
        if leader_epoch < self._leader_epoch:
            raise ValueError(f"leader epoch {leader_epoch} is below the current {self._leader_epoch}")
        if leader_epoch == self._leader_epoch:
            return
        self._leader_epoch = leader_epoch
        if self._epochs[-1][1] == self._log_end_offset:
            self._epochs.pop()  # that epoch wrote nothing
        self._epochs.append((leader_epoch, self._log_end_offset))

    def delete_records(self, before_offset: int) -> int:
        """Make everything below *before_offset* unreadable; whole batches below it are dropped.

        Args:
            before_offset: the new start; -1 means the high watermark. Below the current start it changes nothing.

        Returns:
            The log start offset afterwards.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: above the high watermark, or negative but not -1.
        """
        target = self.start_after_deletion(before_offset)
        if target == self._log_start_offset:
            return target
        self._log_start_offset = target
        dropped = len(self._batches) if target == self._log_end_offset else self._index_of(target)
        self._aborted = [aborted for aborted in self._aborted if aborted.last_offset >= target]
        del self._markers[: bisect_left(self._markers, target)]
        if dropped:
            del self._batches[:dropped], self._base_offsets[:dropped], self._positions[:dropped]
            self._rebuild_timestamps()
        kept = bisect_right(self._epochs, target, key=_start_of) - 1
        self._epochs = [(self._epochs[kept][0], target), *self._epochs[kept + 1 :]]
        return target

    def truncate(self, end_offset: int) -> int:
        """Lose the newest records, as a leader does that had not replicated them: nothing from *end_offset* on is left.

        Whole batches go, so the log may end before *end_offset*. Producers and transactions are those of the remaining
        batches.

        Returns:
            The log end offset afterwards.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: below the start of the log.
        """
        if end_offset < self._log_start_offset:
            raise BrokerError(
                f"the log begins at {self._log_start_offset}; it cannot end at {end_offset}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if end_offset >= self._log_end_offset:
            return self._log_end_offset
        kept = self._batches[: max(self._index_of(end_offset), 0)]
        start = self._base_offsets[0] if kept else self._log_start_offset
        shorter = PartitionLog(leader_epoch=min(self._epochs)[0], start_offset=start)
        for batch in kept:
            shorter.restore(batch)
        shorter.delete_records(self._log_start_offset)
        shorter.set_leader_epoch(self._leader_epoch)
        vars(self).update(vars(shorter))
        return self._log_end_offset

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at *offset*, as one that lost its older batches did.

        Raises:
            ValueError: it holds batches.
        """
        if self._batches:
            raise ValueError(f"the log holds batches, so it cannot begin at {offset}")
        vars(self).update(vars(PartitionLog(leader_epoch=self._leader_epoch, start_offset=offset)))

    def batches(self) -> tuple[bytes, ...]:
        """Every stored batch, oldest first; the first may hold records below the start of the log."""
        return tuple(self._batches)

    def replace_batches(self, batches: Sequence[bytes]) -> None:
        """Store other bytes for the same batches: compaction takes records out of them, and moves no offset.

        Raises:
            ValueError: they are not as many, or one begins elsewhere.
        """
        begins = [parse_batch_header(batch).base_offset for batch in batches]
        if begins != self._base_offsets:
            raise ValueError("the batches do not begin where those of the log do")
        self._batches = list(batches)
        self._positions = list(itertools.accumulate(map(len, batches), initial=0))
        self._rebuild_timestamps()

    def start_after_deletion(self, before_offset: int) -> int:
        """The log start offset that `delete_records` would lead to; changes nothing.

        Raises:
            BrokerError: as `delete_records`.
        """
        target = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= self.high_watermark:
            raise BrokerError(
                f"cannot delete records before offset {before_offset}: the log holds "
                f"{self._log_start_offset} to {self.high_watermark}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        return max(target, self._log_start_offset)

    # --- reading

    def check_offset(self, offset: int) -> None:
        """Refuse an offset that a fetch cannot begin at.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: below the start or above the high watermark.
        """
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise BrokerError(
                f"offset {offset} is outside the log, which holds {self._log_start_offset} to {self._log_end_offset}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )

    def readable_bytes(self, offset: int, *, committed: bool = False) -> int:
        """Bytes from the batch that holds *offset* to the end of the log.

        Args:
            committed: to the last stable offset.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        self.check_offset(offset)
        if offset == self._log_end_offset or (committed and offset >= self.last_stable_offset):
            return 0
        end = self._stable_count() if committed else len(self._batches)
        return self._positions[end] - self._positions[self._index_of(offset)]

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        committed: bool = False,
        last_offset: int | None = None,
    ) -> bytes:
        """Whole batches from the one that holds *offset*; the reader skips the records before it.

        Args:
            max_bytes: no further batch is begun beyond this many bytes.
            at_least_one: return the first batch even if it alone is longer than *max_bytes*.
            committed: nothing from the last stable offset on.
            last_offset: nothing after the batch that holds this offset.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
        """
        self.check_offset(offset)
        if offset == self._log_end_offset or (committed and offset >= self.last_stable_offset):
            return b""
        first = self._index_of(offset)
        end = bisect_right(self._positions, self._positions[first] + max_bytes, lo=first) - 1
        if committed and self._open:
            end = min(end, self._stable_count())
        if last_offset is not None:
            end = min(end, self._index_of(last_offset) + 1)
        if end <= first:
            return self._batches[first] if at_least_one else b""
        return self._batches[first] if end == first + 1 else b"".join(self._batches[first:end])

    def end_of_read(self, offset: int, size_bytes: int) -> int:
        """The offset after the last record of what `read` returned from *offset*, which was *size_bytes* long."""
        if not size_bytes:
            return offset
        after = bisect_left(self._positions, self._positions[self._index_of(offset)] + size_bytes)
        return self._base_offsets[after] if after < len(self._batches) else self._log_end_offset

    def offset_for_timestamp(self, timestamp: int, *, allowance: RecordAllowance | None = None) -> TimestampAndOffset:
        """The first record that is not older than *timestamp* (milliseconds), or (-1, -1, -1).

        Exact, except for a batch that unpacks to more than 8 MiB or has more records than *allowance* has left
        (`RECORDS_OPENED_MAX` by default): there the result is the batch's first record, so a reader may see some older
        records first and misses none.
        """
        allowance = allowance or RecordAllowance()
        index = bisect_left(self._running_max_timestamps, timestamp)
        while index < len(self._batches):
            found = self._first_at_or_after(index, timestamp, allowance)
            if found is not None:
                return found
            index += 1
        return _NOT_FOUND

    def offset_of_max_timestamp(self, *, allowance: RecordAllowance | None = None) -> TimestampAndOffset:
        """The first record with the highest timestamp, or (-1, -1, -1) of an empty log."""
        if not self._batches:
            return _NOT_FOUND
        return self.offset_for_timestamp(self._running_max_timestamps[-1], allowance=allowance)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that *offset* was, or would be, written under; -1 below the log's start."""
        index = bisect_right(self._epochs, offset, key=_start_of) - 1
        return self._epochs[index][0] if index >= 0 else -1

    def offset_for_leader_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Where *leader_epoch*, or the nearest epoch below it, ended. A reader that is further on was truncated."""
        if leader_epoch < 0 or leader_epoch > self._leader_epoch:
            return EpochEndOffset(-1, -1)
        if leader_epoch == self._leader_epoch:
            return EpochEndOffset(leader_epoch, self._log_end_offset)
        index = bisect_right(self._epochs, leader_epoch, key=_epoch_of)
        epoch = self._epochs[index - 1][0] if index else leader_epoch
        return EpochEndOffset(epoch, self._epochs[index][1])

    # --- internals

    def _store(self, batch: bytes, header: BatchHeader) -> None:
        self._batches.append(batch)
        self._base_offsets.append(header.base_offset)
        self._positions.append(self._positions[-1] + len(batch))
        running = self._running_max_timestamps
        running.append(max(running[-1], header.max_timestamp) if running else header.max_timestamp)
        self._log_end_offset = header.base_offset + header.last_offset_delta + 1
        self._producers.appended(header)
        if header.is_transactional and header.is_control:
            self._end_transaction(batch, header)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    def _end_transaction(self, batch: bytes, header: BatchHeader) -> None:
        marker = read_marker(batch)
        if marker is None:
            raise BrokerError(
                f"the control batch at offset {header.base_offset} does not end a transaction",
                code=ErrorCode.CORRUPT_MESSAGE,
            )
        self._producers.ended(header.producer_id, coordinator_epoch=marker.coordinator_epoch)
        self._markers.append(header.base_offset)
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is not None and marker.is_abort:
            self._aborted.append(AbortedTransaction(header.producer_id, first_offset, header.base_offset))

    def _stable_count(self) -> int:
        """How many batches are below the last stable offset."""
        if not self._open:
            return len(self._batches)
        return bisect_left(self._base_offsets, self.last_stable_offset)

    def _index_of(self, offset: int) -> int:
        return bisect_right(self._base_offsets, offset) - 1

    def _rebuild_timestamps(self) -> None:
        latest = [parse_batch_header(batch).max_timestamp for batch in self._batches]
        self._running_max_timestamps = list(itertools.accumulate(latest, max))

    def _first_at_or_after(self, index: int, timestamp: int, allowance: RecordAllowance) -> TimestampAndOffset | None:
        batch = self._batches[index]
        header = parse_batch_header(batch)
        if header.max_timestamp < timestamp:
            return None
        try:
            opened = allowance.take(header.record_count)
            positions = record_positions(batch, unpacked_max=RECORDS_UNPACKED_MAX) if opened else None
        except ProtocolError:
            positions = None  # too much of it, or records that are damaged
        if positions is None:
            offset = max(header.base_offset, self._log_start_offset)
            return TimestampAndOffset(header.max_timestamp, offset, header.leader_epoch)
        for position in positions:
            if position.timestamp >= timestamp and position.offset >= self._log_start_offset:
                return TimestampAndOffset(position.timestamp, position.offset, header.leader_epoch)
        return None


def _last_offset_of(aborted: AbortedTransaction) -> int:
    return aborted.last_offset


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
