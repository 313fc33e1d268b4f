"""The record log of one partition: what it refuses, finds and forgets.

What it says after any order of appends, transactions, deletions and truncations is in properties/test_log_machine.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.errors import BrokerError, ErrorCode, RefusedRecordsError
from kip848_client.testing.partitions import producer_batches
from kip848_client.testing.partitions.partition_log import (
    EpochEndOffset,
    PartitionLog,
    PreparedAppend,
    TimestampAndOffset,
)
from kip848_client.testing.partitions.producer_batches import (
    PRODUCERS_KEPT,
    RecordAllowance,
    RecordRules,
    check_records,
)
from kip848_client.wire.compression import COMPRESSION_GZIP
from kip848_client.wire.record_batch import HEADER_SIZE, Record, batches_of, build_batch, parse_batch_header, records_of
from tests.support.damaged_batches import sealed
from tests.support.work import lines_run

TRANSACTIONAL, CONTROL = 0b01_0000, 0b10_0000
REFUSALS = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
NOT_FOUND = TimestampAndOffset(-1, -1, -1)


def a_batch(
    *timestamps: int, producer: tuple[int, int, int] = (-1, -1, -1), attributes: int = 0, value: bytes = b"v"
) -> bytes:
    """A batch as a producer sends it; *producer* is (id, epoch, first sequence)."""
    return build_batch(
        [Record(value=value, timestamp=timestamp) for timestamp in timestamps],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        attributes=attributes,
    )


def a_log(*batches: Sequence[int]) -> PartitionLog:
    """A log of batches, each given by the timestamps of its records."""
    log = PartitionLog()
    for timestamps in batches:
        log.append(a_batch(*timestamps))
    return log


def offsets_in(data: bytes) -> list[int]:
    return [record.offset for at, _ in batches_of(data, check_crc=True) for record in records_of(data, at)]


def code_of(error: pytest.ExceptionInfo[BrokerError]) -> int:
    return error.value.code


# --- append and read


def test_an_append_writes_offset_and_leader_epoch_and_leaves_the_rest() -> None:
    """Broken: consumers with check.crcs refuse every batch, or see the producer's offsets."""
    log = PartitionLog(leader_epoch=3)
    sent = a_batch(10, 11)
    log.append(sent)

    prepared = log.append(sent)

    assert (prepared.base_offset, prepared.last_offset, prepared.duplicate) == (2, 3, False)
    header = parse_batch_header(prepared.batch)
    assert (header.base_offset, header.leader_epoch) == (2, 3)
    assert prepared.batch[16:] == sent[16:]
    assert offsets_in(log.read(0, 10_000)) == [0, 1, 2, 3]
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 4, 4)


def test_prepare_alone_changes_nothing() -> None:
    """Broken: a batch that could not be written to disk is served all the same."""
    log = PartitionLog()

    log.prepare(a_batch(1, producer=(1, 0, 0)))

    assert (log.log_end_offset, log.read(0, 100)) == (0, b"")
    assert log.prepare(a_batch(1, producer=(1, 0, 0))).duplicate is False


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_an_offset_outside_the_log_is_refused(offset: int) -> None:
    """Broken: a consumer at an offset that is gone gets silence instead of its reset policy."""
    log = a_log([1, 2], [3, 4, 5])
    log.delete_records(2)

    with pytest.raises(BrokerError, match="which holds 2 to 5") as error:
        log.read(offset, 100)

    assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(BrokerError, match="which holds 2 to 5"):
        log.readable_bytes(offset)
    assert log.read(5, 100) == b""


class ModelLog(msgspec.Struct):
    """What a log is: batches of records, and a start."""

    batches: list[bytes] = msgspec.field(default_factory=list)
    bases: list[int] = msgspec.field(default_factory=list)
    end: int = 0

    def append(self, batch: bytes, count: int) -> int:
        base = self.end
        self.batches.append(batch)
        self.bases.append(base)
        self.end += count
        return base

    def read(self, offset: int, max_bytes: int) -> list[int]:
        """Base offsets of the batches that a read returns."""
        found: list[int] = []
        size = 0
        for index, base in enumerate(self.bases):
            next_base = self.bases[index + 1] if index + 1 < len(self.bases) else self.end
            if next_base <= offset:
                continue
            size += len(self.batches[index])
            if found and size > max_bytes:
                break
            found.append(base)
        return found


@given(
    counts=st.lists(st.integers(1, 4), max_size=12),
    reads=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=12),
)
def test_a_log_reads_back_what_a_simple_list_of_batches_would(counts: list[int], reads: list[tuple[int, int]]) -> None:
    """Broken: some offsets return the wrong batch, none, or more than was asked for."""
    log, model = PartitionLog(), ModelLog()
    for index, count in enumerate(counts):
        batch = a_batch(*range(count), value=b"x" * (index * 7))
        assert log.append(batch).base_offset == model.append(batch, count)

    assert log.size_bytes == sum(map(len, model.batches))
    for offset, max_bytes in reads:
        if offset > model.end:
            with pytest.raises(BrokerError):
                log.read(offset, max_bytes)
            continue
        data = log.read(offset, max_bytes)
        assert [header.base_offset for _, header in batches_of(data)] == model.read(offset, max_bytes)
        assert log.readable_bytes(offset) == len(log.read(offset, 10**9))
        if len(data) > max_bytes:
            assert log.read(offset, max_bytes, at_least_one=False) == b""


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=8), data=st.data())
def test_deleted_records_are_gone_and_the_others_keep_their_offsets(counts: list[int], data: st.DataObject) -> None:
    """Broken: after records were deleted, timestamps, epochs or offsets point at the wrong records."""
    log = PartitionLog()
    for count in counts:
        first = log.log_end_offset * 10
        log.append(a_batch(*range(first, first + count * 10, 10)))
    end = log.log_end_offset
    start = data.draw(st.integers(0, end))

    assert log.delete_records(start) == start

    assert (log.log_start_offset, log.log_end_offset) == (start, end)
    assert log.append(a_batch(10 * end)).base_offset == end
    for offset in range(start, end + 1):
        assert offsets_in(log.read(offset, 10**6))[-1] == end
        assert offset in offsets_in(log.read(offset, 1))
        assert log.offset_for_timestamp(10 * offset).offset == offset
        assert log.epoch_at(offset) == 0
    assert log.offset_for_timestamp(0).offset == start
    assert log.delete_records(0) == start
    assert log.delete_records(-1) == end + 1
    assert log.read(end + 1, 100) == b""
    assert log.append(a_batch(1)).base_offset == end + 1


@pytest.mark.parametrize("before", [-2, 3])
def test_records_that_are_not_there_cannot_be_deleted(before: int) -> None:
    """Broken: the start of a log passes its end."""
    log = a_log([1, 2])

    with pytest.raises(BrokerError, match="holds 0 to 2") as error:
        log.delete_records(before)

    assert (code_of(error), log.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


# --- batches that are refused


def _with(offset: int, value: bytes, *, batch: bytes | None = None) -> bytes:
    changed = bytearray(a_batch(1, 2) if batch is None else batch)
    changed[offset : offset + len(value)] = value
    return sealed(changed)


HEADER_ALONE = _with(8, (HEADER_SIZE - 12).to_bytes(4, "big"))[:HEADER_SIZE]


@pytest.mark.parametrize(
    ("records", "error", "says"),
    [
        (b"", ErrorCode.INVALID_RECORD, "needs one whole record batch"),
        (b"\0" * 16, ErrorCode.CORRUPT_MESSAGE, "length 0"),
        (b"\0" * 16 + b"\2", ErrorCode.CORRUPT_MESSAGE, "length 0"),
        (_with(16, b"\1"), ErrorCode.INVALID_RECORD, "only format 2"),
        (_with(16, b"\3"), ErrorCode.CORRUPT_MESSAGE, "format 3"),
        (_with(8, b"\0\0\0\1"), ErrorCode.CORRUPT_MESSAGE, "length 1"),
        (_with(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE, "length -1"),
        (a_batch(1, 2)[:-1], ErrorCode.INVALID_RECORD, "needs one whole record batch"),
        (a_batch(1, 2)[:40], ErrorCode.INVALID_RECORD, "needs one whole record batch"),
        (a_batch(1) + a_batch(2), ErrorCode.INVALID_RECORD, "exactly one record batch"),
        (_with(0, (7).to_bytes(8, "big")), ErrorCode.INVALID_RECORD, "must be 0, got 7"),
        (_with(57, (3).to_bytes(4, "big")), ErrorCode.INVALID_RECORD, "counts 3 records"),
        (_with(57, bytes(4)), ErrorCode.INVALID_RECORD, "counts 0 records"),
        (_with(57, bytes(4), batch=HEADER_ALONE), ErrorCode.INVALID_RECORD, "counts 0 records"),
        (_with(57, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD, "claims -1 records"),
        (_with(22, b"\x20"), ErrorCode.INVALID_RECORD, "control"),
        (_with(22, b"\x08"), ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
        (a_batch(1, producer=(0, 0, -1)), ErrorCode.INVALID_RECORD, "sequence -1"),
        (a_batch(1, producer=(5, -1, 0)), ErrorCode.INVALID_RECORD, "epoch -1"),
        (_with(8, b"\1"), ErrorCode.INVALID_RECORD, "needs one whole record batch"),
        (a_batch(1, value=b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes=1000"),
    ],
)
def test_what_is_not_one_batch_of_a_producer_is_refused(records: bytes, error: ErrorCode, says: str) -> None:
    """Broken: one bad producer makes a partition unreadable for every consumer."""
    log = PartitionLog()

    with pytest.raises(BrokerError, match=says) as raised:
        log.append(records, max_bytes=1000)

    assert (code_of(raised), log.log_end_offset) == (error, 0)


@pytest.mark.parametrize(
    ("rules", "error", "refused"),
    [
        (RecordRules(), None, []),
        (RecordRules(keys_required=True), ErrorCode.INVALID_RECORD, [1]),
        (RecordRules(timestamp_min=10, timestamp_max=30), None, []),
        (RecordRules(timestamp_min=11), ErrorCode.INVALID_TIMESTAMP, [0]),
        (RecordRules(timestamp_min=21, timestamp_max=29), ErrorCode.INVALID_TIMESTAMP, [0, 1, 2]),
        (RecordRules(timestamp_max=29), ErrorCode.INVALID_TIMESTAMP, [2]),
    ],
)
@pytest.mark.parametrize("is_opened", [True, False])
def test_records_that_break_a_rule_of_the_topic_are_named(
    rules: RecordRules, error: ErrorCode | None, refused: list[int], is_opened: bool
) -> None:
    """Broken: a topic takes what Kafka refuses, or a producer isn't told which of its records are wrong.

    Records that are not opened can be refused for the latest timestamp only, which stands in the header.
    """
    times = {10: b"k", 20: None, 30: b"k", -1: b"k"}
    batch = build_batch([Record(b"v", key, timestamp=time) for time, key in times.items()])
    header = parse_batch_header(batch)
    if not is_opened and (rules.timestamp_max is None or rules.timestamp_max >= 30):
        error = None
    with nullcontext() if error is None else pytest.raises(RefusedRecordsError) as raised:
        check_records(batch, header, rules, allowance=RecordAllowance(4 if is_opened else 3))
    if raised is not None:
        assert (raised.value.code, sorted(raised.value.records)) == (error, refused if is_opened else [])


@given(st.binary(max_size=200) | st.binary(max_size=HEADER_SIZE + 20).map(lambda tail: sealed(a_batch(1)[:21] + tail)))
def test_any_bytes_are_stored_or_refused_with_an_error_code(records: bytes) -> None:
    """Broken: hostile bytes raise an unexpected error, or end the reading of the partition."""
    log = PartitionLog()
    refused = None
    try:
        log.append(records)
    except BrokerError as error:
        refused = error.code
    assert refused in (None, *REFUSALS)
    assert (log.log_end_offset == 0) == (refused is not None)
    if refused is None:
        assert len(records_of(log.read(0, 10**6))) == log.log_end_offset


def test_the_longest_batch_that_a_topic_allows_is_taken() -> None:
    """Broken: a producer that fills its batches to the limit is refused."""
    batch = a_batch(1, value=b"x" * 100)
    assert PartitionLog().append(batch, max_bytes=len(batch)).base_offset == 0


def test_a_batch_that_unpacks_to_very_much_is_taken_without_a_look_at_its_records() -> None:
    """Broken: unpacking it holds up every other client, or a producer of large records is refused."""
    batch = a_batch(1, value=bytes(9_000_000), attributes=COMPRESSION_GZIP)
    PartitionLog().append(batch, rules=RecordRules(keys_required=True, timestamp_min=10**15))


def test_records_that_are_not_opened_are_counted_all_the_same() -> None:
    """Broken: a wrong count lets the log's end jump ahead, and readers wait for records that never come."""
    batch = _with(57, (100_000).to_bytes(4, "big"), batch=_with(23, (99_999).to_bytes(4, "big")))
    with pytest.raises(BrokerError, match="have room for fewer") as raised:
        PartitionLog().append(batch)
    assert code_of(raised) == ErrorCode.INVALID_RECORD


# --- idempotent producers


def test_any_of_a_producers_last_five_batches_is_known_when_it_comes_again() -> None:
    """Broken: an answer that was lost makes duplicates, with up to five requests in flight."""
    log = PartitionLog()
    batches = [a_batch(1, 2, producer=(9, 0, 2 * number)) for number in range(6)]
    for batch in batches:
        log.append(batch)

    for number in range(1, 6):
        again = log.append(batches[number])
        assert (again.duplicate, again.base_offset, again.last_offset) == (True, 2 * number, 2 * number + 1)
    with pytest.raises(BrokerError) as error:
        log.append(batches[0])

    assert code_of(error) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 12


def test_a_gap_in_the_sequence_is_refused_and_filled_later() -> None:
    """Broken: records overtake each other when a request is lost on the way."""
    log = PartitionLog()
    log.append(a_batch(1, producer=(9, 0, 0)))

    with pytest.raises(BrokerError, match="sent sequence 2, expected 1") as error:
        log.append(a_batch(1, producer=(9, 0, 2)))

    assert code_of(error) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(a_batch(1, producer=(9, 0, 1))).base_offset == 1
    assert log.append(a_batch(1, producer=(9, 0, 2))).base_offset == 2


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_sequence_0() -> None:
    """Broken: a zombie producer writes on after its successor has taken over."""
    log = PartitionLog()
    log.append(a_batch(1, producer=(9, 1, 40)))

    with pytest.raises(BrokerError, match="its current epoch is 1") as fenced:
        log.append(a_batch(1, producer=(9, 0, 41)))
    with pytest.raises(BrokerError, match="expected 0") as not_first:
        log.append(a_batch(1, producer=(9, 2, 41)))

    assert code_of(fenced) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(not_first) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(a_batch(1, producer=(9, 2, 0))).duplicate is False


def test_sequence_numbers_wrap() -> None:
    """Broken: a producer that lives long enough fails for ever after two billion records."""
    log = PartitionLog()
    log.append(a_batch(1, 2, producer=(9, 0, 2**31 - 1)))

    assert log.append(a_batch(1, producer=(9, 0, 1))).base_offset == 2
    assert log.append(a_batch(1, 2, producer=(9, 0, 2**31 - 1))).duplicate is True


def test_producers_do_not_disturb_each_other_and_the_most_silent_is_forgotten() -> None:
    """Broken: memory grows with every producer that ever wrote."""
    log = PartitionLog()
    first, second = a_batch(1, producer=(1, 0, 0)), a_batch(1, producer=(2, 0, 0))
    log.append(first)
    log.append(second)
    assert log.append(first).duplicate is True
    log.append(a_batch(1, producer=(1, 0, 1)))

    for producer_id in range(10, 10 + PRODUCERS_KEPT - 1):
        log.append(a_batch(1, producer=(producer_id, 0, 0)))

    assert log.append(first).duplicate is True
    assert log.append(second).duplicate is False


def test_a_batch_with_only_its_first_sequence_number_in_common_is_no_retry() -> None:
    """Broken: a producer with a mistake is told that records are stored which are not."""
    log = PartitionLog()
    log.append(a_batch(1, 2, producer=(1, 0, 0)))
    for other in (a_batch(1, producer=(1, 0, 0)), a_batch(1, producer=(1, 0, 1))):
        with pytest.raises(BrokerError, match="expected 2"):
            log.append(other)


def test_a_log_tells_what_it_knows_of_its_producers() -> None:
    """DescribeProducers shows an operator which producer holds up the readers of committed records."""
    log = _written(commit_epochs=(2,))
    log.commit(log.prepare_marker(3, epoch=1, commit=True, timestamp_ms=7, coordinator_epoch=4))
    log.append(a_batch(5, 6, producer=(1, 0, 0)))
    assert log.producers() == ((1, 0, 1, 6, -1), (3, 1, -1, 7, 4), (9, 5, 0, 1, 2))
    assert [log.epoch_of(producer_id) for producer_id in (9, 8)] == [5, -1]


# --- transactions


def _written(*, commit_epochs: tuple[int, ...] = ()) -> PartitionLog:
    """A log in which producer 9 with epoch 4 has a transaction open, after these coordinators ended others."""
    log = PartitionLog()
    log.append(a_batch(1, producer=(9, 4, 0), attributes=TRANSACTIONAL))
    for coordinator_epoch in commit_epochs:
        log.commit(_end(log, epoch=5, coordinator_epoch=coordinator_epoch))
        log.append(a_batch(1, producer=(9, 5, 0), attributes=TRANSACTIONAL))
    return log


def _end(log: PartitionLog, *, epoch: int, coordinator_epoch: int = 0, moves_epoch: bool = True) -> PreparedAppend:
    return log.prepare_marker(
        9, epoch=epoch, commit=True, timestamp_ms=1, coordinator_epoch=coordinator_epoch, moves_epoch=moves_epoch
    )


def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused() -> None:
    """Broken: readers of committed records never see the batch, or see one that is rolled back."""
    log = _written()

    with pytest.raises(BrokerError, match="producer 9 has a transaction open") as error:
        log.append(a_batch(2, producer=(9, 4, 1)))

    assert code_of(error) == ErrorCode.INVALID_TXN_STATE
    assert log.append(a_batch(2)).base_offset == 1


@pytest.mark.parametrize(
    ("epoch", "moves_epoch", "says"),
    [(3, False, "has epoch 3"), (3, True, "has epoch 3"), (4, True, "has epoch 4"), (4, False, None), (5, True, None)],
)
def test_the_end_of_a_transaction_needs_an_epoch_that_fits(epoch: int, moves_epoch: bool, says: str | None) -> None:
    """Broken: the end of an earlier transaction, late on the way, ends the one that is open."""
    log = _written()
    if says is None:
        assert _end(log, epoch=epoch, moves_epoch=moves_epoch).base_offset == 1
        return
    with pytest.raises(BrokerError, match=f"{says}, the producer's current epoch is 4") as error:
        _end(log, epoch=epoch, moves_epoch=moves_epoch)
    assert code_of(error) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinator_that_was_replaced_ends_no_transaction() -> None:
    """Broken: a coordinator that lost its office aborts what its successor commits."""
    log = _written(commit_epochs=(2,))

    with pytest.raises(BrokerError, match="coordinator epoch 1, epoch 2 wrote before") as error:
        _end(log, epoch=6, coordinator_epoch=1)

    assert code_of(error) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert _end(log, epoch=6, coordinator_epoch=2).duplicate is False


@pytest.mark.parametrize("commit", [False, True])
def test_the_end_of_a_transaction_has_the_form_of_any_other_batch(commit: bool) -> None:
    """Broken: clients refuse the batch, or read on behind it, and an aborted record counts."""
    log = PartitionLog(start_offset=5)
    log.append(a_batch(1, producer=(9, 4, 0), attributes=TRANSACTIONAL))

    end = log.prepare_marker(9, epoch=5, commit=commit, timestamp_ms=7, coordinator_epoch=3)

    record = Record(key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, 3), timestamp=7)
    built = build_batch(
        [record],
        base_offset=6,
        leader_epoch=0,
        producer_id=9,
        producer_epoch=5,
        attributes=TRANSACTIONAL | CONTROL,
    )
    assert (end.batch, end.header) == (built, parse_batch_header(built))
    log.commit(end)
    assert [(each.first_offset, each.last_offset) for each in log.aborted_between(5, 7)] == ([] if commit else [(5, 6)])


def test_a_stored_end_of_a_transaction_that_says_nothing_is_refused() -> None:
    """Broken: a damaged folder is served, and a transaction stays open for ever."""
    damaged = build_batch([Record(b"", b"")], producer_id=9, producer_epoch=0, attributes=TRANSACTIONAL | CONTROL)

    with pytest.raises(BrokerError, match="offset 0 does not end a transaction") as error:
        PartitionLog().restore(damaged)

    assert code_of(error) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("asked", "adds_partition", "sent", "highest"),
    [
        ([(0, 5)], False, 6, 5),
        ([(0, 5), (0, 3), (0, 7)], False, 5, 3),
        ([(0, 5), (1, 8)], False, 9, 8),
        ([(1, 8), (0, 3)], False, 9, 8),
        ([(0, 5)], True, 5, 0),
        ([(0, -1)], False, 9, None),
    ],
)
def test_a_transaction_begins_with_the_lowest_sequence_that_was_sent(
    asked: list[tuple[int, int]], adds_partition: bool, sent: int, highest: int | None
) -> None:
    """Broken: a batch that was refused for the moment is overtaken by the one after it, and lost."""
    log = PartitionLog()
    for epoch, sequence in asked:
        log.expect_transaction(0, epoch=epoch, sequence=sequence, adds_partition=adds_partition)
    batch = a_batch(1, producer=(0, 1, sent), attributes=TRANSACTIONAL)

    if highest is None:
        assert log.append(batch).base_offset == 0
        return
    with pytest.raises(BrokerError, match=f"with sequence {sent}, expected at most {highest}") as error:
        log.append(batch)
    assert code_of(error) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(a_batch(1, producer=(0, 1, highest), attributes=TRANSACTIONAL)).base_offset == 0


def test_transactions_that_never_write_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a program whose first batch is always refused fills the memory of the broker."""
    monkeypatch.setattr(producer_batches, "PRODUCERS_KEPT", 2)
    log = PartitionLog()
    for producer_id in (1, 2, 3):
        log.expect_transaction(producer_id, epoch=0, sequence=0, adds_partition=False)
    for producer_id in (2, 3):
        with pytest.raises(BrokerError, match="expected at most 0"):
            log.append(a_batch(1, producer=(producer_id, 0, 5), attributes=TRANSACTIONAL))
    assert log.append(a_batch(1, producer=(1, 0, 5), attributes=TRANSACTIONAL)).base_offset == 0


def test_a_zombie_begins_no_transaction() -> None:
    """Broken: the coordinator is asked for a producer that its successor has fenced."""
    log = _written()

    with pytest.raises(BrokerError, match="sent epoch 3, its current epoch is 4") as error:
        log.expect_transaction(9, epoch=3, sequence=0, adds_partition=False)

    assert code_of(error) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_end_of_the_transaction_before_does_not_end_what_is_expected() -> None:
    """Broken: a late end makes a transaction begin in the middle, without the batch that is still on its way."""
    log = _written()
    log.expect_transaction(9, epoch=5, sequence=0, adds_partition=True)
    log.commit(_end(log, epoch=5))

    with pytest.raises(BrokerError, match="expected at most 0"):
        log.append(a_batch(1, producer=(9, 5, 1), attributes=TRANSACTIONAL))


# --- timestamps


def test_a_timestamp_finds_the_first_record_that_is_not_older() -> None:
    """Broken: offsets_for_times starts a replay too late, or far too early."""
    log = a_log([100, 300, 200], [50, 60], [400, 500])

    found = [log.offset_for_timestamp(timestamp)[:2] for timestamp in (0, 100, 101, 201, 301, 450, 500)]

    assert found == [(100, 0), (100, 0), (300, 1), (300, 1), (400, 5), (500, 6), (500, 6)]
    assert log.offset_for_timestamp(501) == NOT_FOUND
    assert PartitionLog().offset_for_timestamp(0) == NOT_FOUND


@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=8),
    timestamp=st.integers(0, 55),
    compression=st.sampled_from([0, COMPRESSION_GZIP]),
)
def test_timestamps_agree_with_a_walk_over_all_records(
    batches: list[list[int]], timestamp: int, compression: int
) -> None:
    """Broken: the index over batches skips one that holds the record."""
    log = PartitionLog()
    for timestamps in batches:
        log.append(a_batch(*timestamps, attributes=compression))
    records = list(enumerate(time_ms for timestamps in batches for time_ms in timestamps))

    first = next(((time_ms, offset, 0) for offset, time_ms in records if time_ms >= timestamp), NOT_FOUND)
    latest = max(records, key=lambda record: (record[1], -record[0]), default=None)

    assert log.offset_for_timestamp(timestamp) == first
    assert log.offset_of_max_timestamp() == (NOT_FOUND if latest is None else (latest[1], latest[0], 0))


def test_a_batch_that_cannot_be_opened_is_named_by_its_first_readable_offset() -> None:
    """Broken: with damaged records in an old data folder a replay by time misses others or fails."""
    log = a_log([10, 20])
    log.restore(
        _with(
            22,
            b"\2",
            batch=build_batch([Record(timestamp=time) for time in (30, 40, 50)], base_offset=2, leader_epoch=0),
        )
    )

    assert log.offset_for_timestamp(35) == TimestampAndOffset(50, 2, 0)
    assert log.offset_of_max_timestamp() == TimestampAndOffset(50, 2, 0)
    log.delete_records(3)
    assert log.offset_for_timestamp(35) == TimestampAndOffset(50, 3, 0)


def test_no_more_records_are_searched_one_by_one_than_the_request_may() -> None:
    """Broken: one search by time holds up every heartbeat of the broker for seconds, in one batch or in many."""
    log = a_log([10, 20], [30, 40, 50])
    allowance = RecordAllowance(4)

    assert log.offset_for_timestamp(15, allowance=allowance) == TimestampAndOffset(20, 1, 0)
    assert log.offset_for_timestamp(35, allowance=allowance) == TimestampAndOffset(50, 2, 0)
    assert log.offset_for_timestamp(15, allowance=allowance) == TimestampAndOffset(20, 1, 0)
    assert log.offset_for_timestamp(15, allowance=allowance) == TimestampAndOffset(20, 0, 0)


def test_a_batch_that_unpacks_to_very_much_is_not_searched_one_by_one() -> None:
    """Broken: sixty kilobytes of gzip and one search by time hold up every heartbeat for half a second."""
    log = PartitionLog()
    values = [Record(value=bytes(5 * 1024 * 1024), timestamp=time) for time in (10, 20)]
    log.append(build_batch(values, attributes=COMPRESSION_GZIP))

    assert log.offset_for_timestamp(15) == TimestampAndOffset(20, 0, 0)


# --- leader epochs


def test_the_end_of_each_leader_epoch_is_known() -> None:
    """Broken: a consumer cannot tell that its position was truncated, or is told so without reason."""
    log = PartitionLog(leader_epoch=1)
    log.append(a_batch(1, 2))
    log.set_leader_epoch(3)
    log.append(a_batch(3))
    log.set_leader_epoch(4)
    log.set_leader_epoch(6)

    ends = {epoch: log.offset_for_leader_epoch(epoch) for epoch in range(-1, 8)}

    assert ends == {
        -1: EpochEndOffset(-1, -1),
        0: EpochEndOffset(0, 0),
        1: EpochEndOffset(1, 2),
        2: EpochEndOffset(1, 2),
        3: EpochEndOffset(3, 3),
        4: EpochEndOffset(3, 3),
        5: EpochEndOffset(3, 3),
        6: EpochEndOffset(6, 3),
        7: EpochEndOffset(-1, -1),
    }
    assert [log.epoch_at(offset) for offset in range(4)] == [1, 1, 3, 6]


def test_a_leader_epoch_does_not_go_back() -> None:
    """Broken: two leaders write under one epoch, and their records cannot be told apart."""
    log = PartitionLog(leader_epoch=2)

    with pytest.raises(ValueError, match="leader epoch 1 is below the current 2"):
        log.set_leader_epoch(1)


# --- other batches


@pytest.mark.parametrize(("end", "left"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2), (5, 5), (6, 6), (9, 6)])
def test_a_log_that_loses_its_newest_records_ends_with_a_whole_batch(end: int, left: int) -> None:
    """Broken: after the loss of a leader a consumer reads half a batch, or the log forgets epochs and producers."""
    log = PartitionLog(leader_epoch=1)
    log.append(a_batch(10, 20, producer=(9, 0, 0)))
    log.set_leader_epoch(2)
    log.append(a_batch(30, 40, 50, producer=(9, 0, 2)))
    log.append(a_batch(60, producer=(9, 0, 5)))

    assert log.truncate(end) == log.log_end_offset == left

    assert offsets_in(log.read(0, 10**6)) == list(range(left))
    assert (log.leader_epoch, log.log_start_offset) == (2, 0)
    assert [log.epoch_at(offset) for offset in range(left)] == [1, 1, 2, 2, 2, 2][:left]
    assert log.append(a_batch(70, producer=(9, 0, left))).base_offset == left
    assert log.offset_for_timestamp(65) == TimestampAndOffset(70, left, 2)


def test_a_log_cannot_lose_records_below_its_start() -> None:
    """Broken: the start of the log is beyond its end, and consumers are sent from one to the other."""
    log = a_log([10], [20], [30])
    log.delete_records(2)

    with pytest.raises(BrokerError, match="begins at 2; it cannot end at 1") as error:
        log.truncate(1)

    assert (code_of(error), log.log_end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)
    assert (log.truncate(2), log.log_start_offset) == (2, 2)


def test_only_an_empty_log_begins_elsewhere() -> None:
    """Broken: records of a restored log get other offsets."""
    log = PartitionLog(leader_epoch=3)
    log.begin_at(7)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (7, 7, 3)
    assert log.append(a_batch(1)).base_offset == 7
    with pytest.raises(ValueError, match="holds batches"):
        log.begin_at(9)


def test_compaction_replaces_batches_and_moves_no_offset() -> None:
    """Broken: after compaction a search by time or a read by size finds other records."""
    log = a_log([10, 90], [20], [30])
    _, *rest = log.batches()
    shorter = build_batch([Record(b"", timestamp=10)])

    log.replace_batches([shorter, *rest])

    assert log.batches() == (shorter, *rest)
    assert log.read(2, len(rest[0])) == rest[0]
    assert (log.size_bytes, log.readable_bytes(2)) == (len(shorter) + len(rest[0]) + len(rest[1]), len(b"".join(rest)))
    assert log.offset_of_max_timestamp() == TimestampAndOffset(30, 3, 0)
    assert log.offset_for_timestamp(15) == TimestampAndOffset(20, 2, 0)
    assert log.end_of_read(0, len(shorter)) == 2
    for wrong in (rest, [rest[0], shorter, rest[1]]):
        with pytest.raises(ValueError, match="do not begin where"):
            log.replace_batches(wrong)


# --- restore


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (b"", "needs 61"),
        (a_batch(1) + b"x", "takes up"),
        (_with(0, (5).to_bytes(8, "big")), "begins at offset 5, the log ends at 0"),
        (_with(16, b"\1"), "format 1"),
    ],
)
def test_a_stored_batch_that_does_not_fit_is_refused(batch: bytes, says: str) -> None:
    """Broken: a damaged folder is served as if it were whole."""
    with pytest.raises(BrokerError, match=says) as error:
        PartitionLog().restore(batch)

    assert code_of(error) == ErrorCode.CORRUPT_MESSAGE


def test_a_long_log_is_appended_to_and_read_without_walking_it() -> None:
    """Broken: a fetch or a search by time takes longer the more records there are, and the broker stalls."""
    batch = a_batch(5, value=b"x" * 100)
    logs = []
    for size in (100, 20_000):
        log = PartitionLog()
        for _ in range(size):
            log.append(batch)
        logs.append(log)

    def work(log: PartitionLog) -> list[int]:
        middle = log.log_end_offset // 2
        return [
            lines_run(lambda: log.append(batch)),
            lines_run(lambda: log.read(middle, 10_000)),
            lines_run(lambda: log.offset_for_timestamp(5)),
        ]

    small, large = map(work, logs)

    assert small == large
    assert sum(large) < 500
