"""Rules for batches that producers append: the form of a batch, and its place in the producer's sequence. Pure.

Does not store anything but the last few sequence numbers of each producer: the log itself is `partition_log`.

Source:
    apache/kafka ``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords``,
    ``LogValidator.validateBatch``, ``ProducerAppendInfo``, ``ProducerStateEntry``.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kip848_client.errors import BrokerError, ErrorCode, ProtocolError, RefusedRecordsError
from kip848_client.wire.compression import DamagedCompressionError, UnpackedSizeError
from kip848_client.wire.record_batch import (
    CRC_START,
    HEADER_SIZE,
    BatchHeader,
    check_room,
    crc32c,
    inspect_records,
    parse_batch_header,
    record_positions,
)

MESSAGE_BYTES_MAX_DEFAULT: Final = 1_048_588
"""Kafka's ``max.message.bytes``: 1 MiB and the 12 bytes that stand before a batch's length is counted."""

PRODUCERS_KEPT: Final = 10_000
"""Producers remembered per log; beyond that the one that was silent longest is forgotten (Kafka: after a day)."""

RECORDS_OPENED_MAX: Final = 50_000
"""Records that are looked at one by one for one request; more would hold up everything else for a tenth of a second."""

RECORDS_UNPACKED_MAX: Final = 8 * 1024 * 1024
"""A batch that unpacks to more is not looked into either: unpacking takes some 6 ms for a megabyte."""

_CODEC_MAX: Final = 4
"""zstd, the last codec that there is."""

_NO_TIMESTAMP: Final = -1
_BAD_TIMES: Final = "One or more records have been rejected due to invalid timestamp"
_LENGTH_PREFIX: Final = 12
_LENGTH_MIN: Final = 14
"""Kafka's ``LegacyRecord.RECORD_OVERHEAD_V0``: no batch of any format is shorter."""
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_CRC_AT: Final = 17
_SEQUENCES: Final = 2**31
"""Sequence numbers wrap from 2^31 - 1 to 0."""

_BATCHES_KEPT: Final = 5
"""Kafka's: a producer has at most five requests in flight, so an older batch cannot be a retry."""


class RecordAllowance:
    """How many records may be looked at one by one for one request: more would hold up other clients."""

    __slots__ = ("_left",)

    def __init__(self, records_max: int = RECORDS_OPENED_MAX) -> None:
        self._left = records_max

    def take(self, count: int) -> bool:
        """Whether a batch of *count* records may be opened; then they are counted."""
        if count > self._left:
            return False
        self._left -= count
        return True


class RecordRules(msgspec.Struct, frozen=True):
    """A topic's demands on single records. Timestamps are milliseconds since 1970; None stands for no bound.

    Args:
        append_time_ms: the time that the records get in place of their own (``LogAppendTime``); None: they keep theirs.
    """

    keys_required: bool = False
    timestamp_min: int | None = None
    timestamp_max: int | None = None
    append_time_ms: int | None = None


NO_RULES: Final = RecordRules()
"""Demands nothing."""


def check_batch(records: bytes, *, max_bytes: int = MESSAGE_BYTES_MAX_DEFAULT) -> BatchHeader:
    """Check what a producer sent, as far as it can be seen without looking at its records.

    Raises:
        BrokerError: INVALID_RECORD: not exactly one batch of format 2 as a producer makes it; CORRUPT_MESSAGE: the
            bytes are not a batch at all, or not those that the checksum was made of; MESSAGE_TOO_LARGE: longer than
            *max_bytes*; INVALID_TIMESTAMP; UNKNOWN_SERVER_ERROR, as in Kafka: a codec that does not exist.
    """
    size = _size_of_only_batch(records)
    if size > max_bytes:
        raise BrokerError(
            f"record batch of {size} bytes is larger than max.message.bytes={max_bytes}",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    computed, crc = crc32c(records[CRC_START:size]), int.from_bytes(records[_CRC_AT:CRC_START], "big")
    if computed != crc:
        raise BrokerError(
            f"record batch says checksum {crc:#010x}, its bytes give {computed:#010x}", code=ErrorCode.CORRUPT_MESSAGE
        )
    try:
        header = parse_batch_header(records)
    except ProtocolError as error:
        raise _invalid(str(error)) from error
    if header.compression > _CODEC_MAX:
        raise BrokerError(
            f"record batch names compression codec {header.compression}; 0 to {_CODEC_MAX} exist",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    if header.base_offset != 0:
        raise _invalid(f"base offset of a produced batch must be 0, got {header.base_offset}")
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.is_log_append_time:
        raise BrokerError("only a broker may set LogAppendTime in a batch", code=ErrorCode.INVALID_TIMESTAMP)
    if header.record_count == 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"record batch counts {header.record_count} records, its last offset delta is {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )
    return header


def _size_of_only_batch(records: bytes) -> int:
    """How long the batch is at the beginning of *records*. Kafka ignores incomplete bytes behind it.

    Raises:
        BrokerError: INVALID_RECORD: there is none, or two; CORRUPT_MESSAGE: something that no batch begins with.
    """
    size = _size_of_batch(records)
    if not size:
        raise _invalid(f"a produce request needs one whole record batch per partition, got {len(records)} bytes")
    if records[_MAGIC_AT] < _MAGIC:
        raise _invalid(f"record batch has format {records[_MAGIC_AT]}; only format {_MAGIC} is accepted")
    if size < HEADER_SIZE:
        raise BrokerError(f"record batch has length {size - _LENGTH_PREFIX}", code=ErrorCode.CORRUPT_MESSAGE)
    if size < len(records) and _size_of_batch(records[size:]):
        raise _invalid(f"exactly one record batch per partition is allowed, got {len(records) - size} bytes more")
    return size


def _size_of_batch(records: bytes) -> int:
    """Bytes of the batch at the beginning of *records*, and 0 if they end before it does.

    Raises:
        BrokerError: CORRUPT_MESSAGE: no batch begins so.

    Source:
        apache/kafka ``ByteBufferLogInputStream``.
    """
    if len(records) < _LENGTH_PREFIX:
        return 0
    length = int.from_bytes(records[8:_LENGTH_PREFIX], "big", signed=True)
    if length < _LENGTH_MIN:
        raise BrokerError(f"record batch has length {length}", code=ErrorCode.CORRUPT_MESSAGE)
    if len(records) <= _MAGIC_AT:
        return 0
    if records[_MAGIC_AT] > _MAGIC:
        raise BrokerError(f"record batch has format {records[_MAGIC_AT]}", code=ErrorCode.CORRUPT_MESSAGE)
    size = _LENGTH_PREFIX + length
    return 0 if size > len(records) else size


def check_records(
    records: bytes, header: BatchHeader, rules: RecordRules, *, allowance: RecordAllowance | None = None
) -> int:
    """Check the single records of a batch that `check_batch` has let through, by the rules of its topic.

    Records that unpack to more than 8 MiB, or are more than *allowance* has left (by default `RECORDS_OPENED_MAX`), are
    not looked at one by one: of these only the latest timestamp is checked, which the header has.

    Returns:
        The latest timestamp: a client may have written another one into the header.

    Raises:
        RefusedRecordsError: INVALID_RECORD: records have no key; INVALID_TIMESTAMP: some are too old or too far ahead.
        BrokerError: INVALID_RECORD: the bytes are not as many records as the header counts, each as long as it says;
            UNKNOWN_SERVER_ERROR, as in Kafka: they cannot be unpacked, or do not count their offsets from 0 in a
            compressed batch.
    """
    opened = (allowance or RecordAllowance()).take(header.record_count)
    try:
        if not opened:
            check_room(records, header, unpacked_max=RECORDS_UNPACKED_MAX)
            return _unopened(header, rules)
        content = inspect_records(records, header, unpacked_max=RECORDS_UNPACKED_MAX)
    except UnpackedSizeError:
        return _unopened(header, rules)
    except DamagedCompressionError as error:
        raise BrokerError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
    except ProtocolError as error:
        raise _invalid(str(error)) from error
    is_too_late = rules.timestamp_max is not None and content.latest > rules.timestamp_max
    is_too_early = rules.timestamp_min is not None and content.earliest < rules.timestamp_min
    if is_too_late or is_too_early or (rules.keys_required and content.keyless):
        _refuse(records, rules)
    if header.compression and not content.in_order:
        raise BrokerError(
            "the records of a compressed batch must count their offsets from 0", code=ErrorCode.UNKNOWN_SERVER_ERROR
        )
    return max(content.latest, _NO_TIMESTAMP)


def _unopened(header: BatchHeader, rules: RecordRules) -> int:
    if rules.timestamp_max is not None and header.max_timestamp > rules.timestamp_max:
        raise RefusedRecordsError(
            f"{_BAD_TIMES}: the latest is {header.max_timestamp}, at most {rules.timestamp_max} is allowed "
            "(message.timestamp.after.max.ms)",
            code=ErrorCode.INVALID_TIMESTAMP,
            records={},
        )
    return header.max_timestamp


def _refuse(records: bytes, rules: RecordRules) -> None:
    """Name the records that break the rules."""
    positions = record_positions(records, unpacked_max=RECORDS_UNPACKED_MAX)
    keyless = {
        index: "a compacted topic needs keys"
        for index, record in enumerate(positions)
        if rules.keys_required and not record.has_key
    }
    if keyless:
        raise RefusedRecordsError(
            "One or more records have been rejected: they have no key, and the topic is compacted",
            code=ErrorCode.INVALID_RECORD,
            records=keyless,
        )
    low = -math.inf if rules.timestamp_min is None else rules.timestamp_min
    high = math.inf if rules.timestamp_max is None else rules.timestamp_max
    untimely = {
        index: f"timestamp {record.timestamp} is outside {low} to {high}"
        for index, record in enumerate(positions)
        if record.timestamp != _NO_TIMESTAMP and not low <= record.timestamp <= high
    }
    if untimely:
        raise RefusedRecordsError(
            f"{_BAD_TIMES} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
            code=ErrorCode.INVALID_TIMESTAMP,
            records=untimely,
        )


class ProducerSequences:
    """The last batches of every idempotent producer of one log, to know a retry and to see a gap."""

    def __init__(self) -> None:
        self._producers: Final[OrderedDict[int, _Producer]] = OrderedDict()
        self._expected: Final[OrderedDict[int, _ExpectedTransaction]] = OrderedDict()

    def expect_transaction(self, producer_id: int, *, epoch: int, sequence: int, adds_partition: bool) -> None:
        """Note the batch with which a producer wants to begin a transaction, before the coordinator is asked.

        Until one is written, the lowest sequence that was sent with the epoch is the highest that may begin: a batch
        that was refused for the moment is not overtaken by the one after it. A producer whose first request makes the
        partition part of its transaction begins with sequence 0.

        Args:
            adds_partition: the request makes the partition part of the transaction (KIP-890).

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH: a newer epoch of the producer wrote.

        Source:
            apache/kafka ``VerificationStateEntry``, ``UnifiedLog.maybeStartTransactionVerification``.
        """
        if producer_id < 0 or sequence < 0:
            return  # not a batch that could be written
        if epoch < self.epoch_of(producer_id):
            raise _stale(producer_id, sent=epoch, current=self.epoch_of(producer_id))
        expected = self._expected.setdefault(producer_id, _ExpectedTransaction(epoch, sequence, adds_partition))
        expected.sent(epoch, sequence)
        if len(self._expected) > PRODUCERS_KEPT:
            self._expected.popitem(last=False)

    def base_offset_of_retry(self, header: BatchHeader) -> int | None:
        """The offset at which the log has this very batch already, or None.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH: a newer epoch of the producer wrote; OUT_OF_ORDER_SEQUENCE_NUMBER: the
                batch does not continue the producer's last one.
        """
        producer = self._producers.get(header.producer_id)
        base_offset = None if producer is None else producer.base_offset_of_retry(header)
        if base_offset is not None:
            return base_offset
        if producer is not None:
            producer.check_epoch(header)
        expected = self._expected.get(header.producer_id)
        if expected is not None:
            expected.check(header, has_batches=producer is not None and bool(producer.batches))
        if producer is not None:
            producer.check_sequence(header)
        return None

    def appended(self, header: BatchHeader) -> None:
        """Remember a batch that is in the log now, at the offset in *header*."""
        if header.producer_id < 0:
            return
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer(header.producer_id, header.producer_epoch)
            if len(self._producers) > PRODUCERS_KEPT:
                self._producers.popitem(last=False)
        else:
            self._producers.move_to_end(header.producer_id)
        producer.add(header)
        expected = self._expected.get(header.producer_id)
        if expected is not None and header.is_transactional and not expected.outlives(header):
            del self._expected[header.producer_id]

    def check_marker(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, is_open: bool, moves_epoch: bool
    ) -> None:
        """Whether the end of a transaction may be written.

        Args:
            is_open: the producer has a transaction open in this log.
            moves_epoch: the end carries the epoch after the transaction's (KIP-890), and not its own.

        Raises:
            BrokerError: INVALID_PRODUCER_ID_MAPPING: the id is negative; INVALID_PRODUCER_EPOCH: a newer epoch of the
                producer wrote or ended; TRANSACTION_COORDINATOR_FENCED: a newer coordinator ended transactions of the
                producer.
        """
        if producer_id < 0:
            raise BrokerError(
                f"the end of a transaction has producer id {producer_id}; ids begin at 0",
                code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch or (moves_epoch and epoch == producer.epoch and is_open):
            raise BrokerError(
                f"the end of a transaction of producer {producer_id} has epoch {epoch}, "
                f"the producer's current epoch is {producer.epoch}",
                code=ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise BrokerError(
                f"the end of a transaction of producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, epoch {producer.coordinator_epoch} wrote before",
                code=ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    def ended(self, producer_id: int, *, coordinator_epoch: int) -> None:
        """Remember which coordinator ended a transaction, after `appended` of its marker."""
        self._producers[producer_id].coordinator_epoch = coordinator_epoch

    def epoch_of(self, producer_id: int) -> int:
        """The producer's current epoch; -1 if it is not remembered."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def states(self) -> Iterator[ProducerState]:
        """Every producer that is remembered, the one that was silent longest first."""
        return (producer.state() for producer in self._producers.values())


class ProducerState(NamedTuple):
    """One producer as its log knows it. -1 stands for "none"; `last_timestamp` is milliseconds since 1970."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int


class _ExpectedTransaction:
    """A transaction that has not written yet: its epoch, and the lowest sequence that it sent."""

    __slots__ = ("_adds_partition", "_epoch", "_lowest_sequence")

    def __init__(self, epoch: int, sequence: int, adds_partition: bool) -> None:
        self._epoch = epoch
        self._lowest_sequence = sequence
        self._adds_partition: Final = adds_partition

    def sent(self, epoch: int, sequence: int) -> None:
        if epoch > self._epoch:
            self._epoch, self._lowest_sequence = epoch, sequence
        elif epoch == self._epoch:
            self._lowest_sequence = min(self._lowest_sequence, sequence)

    def check(self, header: BatchHeader, *, has_batches: bool) -> None:
        highest = 0 if self._adds_partition and not has_batches else self._lowest_sequence
        if header.base_sequence > highest:
            raise BrokerError(
                f"producer {header.producer_id} begins a transaction with sequence {header.base_sequence}, "
                f"expected at most {highest}",
                code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )

    def outlives(self, header: BatchHeader) -> bool:
        """Whether *header* is the end of the transaction before: it carries the epoch of this one already."""
        return self._adds_partition and header.is_control and header.producer_epoch == self._epoch


class _AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id: Final = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp: int
        self.batches: deque[_AppendedBatch] = deque(maxlen=_BATCHES_KEPT)

    def base_offset_of_retry(self, header: BatchHeader) -> int | None:
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = _last_sequence(header)
        for batch in self.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return batch.base_offset
        return None

    def check_epoch(self, header: BatchHeader) -> None:
        if header.producer_epoch < self.epoch:
            raise _stale(self.producer_id, sent=header.producer_epoch, current=self.epoch)

    def check_sequence(self, header: BatchHeader) -> None:
        if header.producer_epoch > self.epoch:
            expected = 0
        else:
            # Without a batch of this epoch the epoch came with the end of a transaction.
            expected = (self.batches[-1].last_sequence + 1) % _SEQUENCES if self.batches else 0
        if header.base_sequence != expected:
            raise BrokerError(
                f"producer {self.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
                f"expected {expected}",
                code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )

    def add(self, header: BatchHeader) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches.clear()
        self.last_timestamp = header.max_timestamp
        if not header.is_control:
            self.batches.append(_AppendedBatch(header.base_sequence, _last_sequence(header), header.base_offset))

    def state(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.epoch,
            self.batches[-1].last_sequence if self.batches else -1,
            self.last_timestamp,
            self.coordinator_epoch,
        )


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def _stale(producer_id: int, *, sent: int, current: int) -> BrokerError:
    return BrokerError(
        f"producer {producer_id} sent epoch {sent}, its current epoch is {current}",
        code=ErrorCode.INVALID_PRODUCER_EPOCH,
    )


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_RECORD)
