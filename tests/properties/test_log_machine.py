"""Any order of appends, transactions, new leaders, deletions and truncations: a log says what a list of batches would.

The list is walked from its beginning for each answer; the log keeps positions, epochs, open and aborted transactions.
After each step a second log, restored from the stored bytes, must say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kip848_client.testing.partitions.partition_log import AbortedTransaction, PartitionLog, PreparedAppend
from kip848_client.testing.partitions.producer_batches import ProducerState
from kip848_client.wire.record_batch import Record, batches_of, build_batch

PRODUCERS = (0, 7, 9)
TRANSACTIONAL = 0b01_0000
TIMESTAMPS = st.lists(st.integers(0, 40), min_size=1, max_size=3)


class Batch(msgspec.Struct, frozen=True):
    """A stored batch; *committed* is None for records, or says how a marker ended the producer's transaction."""

    stored: bytes
    first_offset: int
    timestamps: list[int]
    leader_epoch: int
    producer: ProducerState | None
    committed: bool | None = None

    @property
    def end_offset(self) -> int:
        """The offset after its last record."""
        return self.first_offset + len(self.timestamps)


class LogMachine(RuleBasedStateMachine):
    """A log, and the batches that should be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.log = PartitionLog()
        self.batches: list[Batch] = []
        self.start = self.end = self.leader_epoch = 0
        self.forgotten: dict[int, ProducerState] = {}
        """Producers as the batches left them that were deleted."""
        self.begun: dict[int, int] = {}
        """Producer -> where the transaction began that it had open after the last batch that was deleted."""

    # --- steps

    @rule(timestamps=TIMESTAMPS)
    def append(self, timestamps: list[int]) -> None:
        """A producer without an id."""
        self._add(self.log.append(a_batch(timestamps)), timestamps, None)

    @rule(timestamps=TIMESTAMPS, producer_id=st.sampled_from(PRODUCERS), newer=st.booleans())
    def append_to_transaction(self, timestamps: list[int], producer_id: int, newer: bool) -> None:
        """The first of a transaction, or a further one; a transaction may begin with a newer epoch."""
        before = self._producers().get(producer_id, NEW_PRODUCER)
        is_newer = before.epoch < 0 or (newer and producer_id not in self._open())
        epoch = before.epoch + is_newer
        sequence = 0 if is_newer else before.last_sequence + 1
        after = ProducerState(
            producer_id, epoch, sequence + len(timestamps) - 1, max(timestamps), before.coordinator_epoch
        )
        batch = a_batch(timestamps, producer=(producer_id, epoch, sequence), attributes=TRANSACTIONAL)
        self._add(self.log.append(batch), timestamps, after)
        retry = self.log.append(batch)
        assert (retry.duplicate, retry.base_offset, retry.last_offset) == (
            True,
            self.batches[-1].first_offset,
            self.end - 1,
        )

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        commit=st.booleans(),
        moves=st.booleans(),
        newer_coordinator=st.booleans(),
    )
    def end_transaction(self, producer_id: int, commit: bool, moves: bool, newer_coordinator: bool) -> None:
        """With the epoch of the transaction, or the one after it."""
        before = self._producers().get(producer_id)
        if before is None:
            return
        coordinator_epoch = max(before.coordinator_epoch, 0) + newer_coordinator
        prepared = self.log.prepare_marker(
            producer_id,
            epoch=before.epoch + moves,
            commit=commit,
            timestamp_ms=50,
            coordinator_epoch=coordinator_epoch,
            moves_epoch=moves,
        )
        self.log.commit(prepared)
        last_sequence = -1 if moves else before.last_sequence
        after = ProducerState(producer_id, before.epoch + moves, last_sequence, 50, coordinator_epoch)
        self._add(prepared, [50], after, committed=commit)

    @rule(skipped=st.integers(0, 2))
    def elect(self, skipped: int) -> None:
        """A leader, the same one if nothing is skipped."""
        self.leader_epoch += skipped
        self.log.set_leader_epoch(self.leader_epoch)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Some of the oldest records, perhaps in the middle of a batch."""
        self.start = data.draw(st.integers(self.start, self.end))
        assert self.log.delete_records(self.start) == self.start
        gone = [batch for batch in self.batches if batch.end_offset <= self.start]
        self.forgotten |= {batch.producer.producer_id: batch.producer for batch in gone if batch.producer}
        self.begun, _ = transactions(gone, self.begun)
        self.batches = self.batches[len(gone) :]

    @precondition(lambda self: self.end > self.start and not self.forgotten)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """The newest batches."""
        end = data.draw(st.integers(self.start, self.end))
        if end < self.end:
            first = self._first_offset()
            self.batches = [batch for batch in self.batches if batch.end_offset <= end]
            self.end = self.batches[-1].end_offset if self.batches else max(self.start, min(first, end))
        assert self.log.truncate(end) == self.end

    # --- what must hold

    @invariant()
    def the_log_says_what_its_batches_say(self) -> None:
        """Broken: consumers are sent to wrong records, read aborted ones, or wait for ever."""
        self._check(self.log)
        assert {state.producer_id: state for state in self.log.producers()} == self._producers()
        assert dict(self.log.open_transactions) == self._open()

    @invariant()
    def a_log_that_is_restored_says_the_same(self) -> None:
        """Broken: a broker that is started again serves other records, or other epochs."""
        if self.forgotten:
            return  # the folder keeps these apart from the batches
        restored = PartitionLog(leader_epoch=self.log.epoch_at(self.start))
        restored.begin_at(self._first_offset())
        for batch in self.batches:
            restored.restore(batch.stored)
        restored.delete_records(self.start)
        restored.set_leader_epoch(self.leader_epoch)
        self._check(restored)
        assert restored.producers() == self.log.producers()

    def _check(self, log: PartitionLog) -> None:
        open_at, aborted = transactions(self.batches, self.begun)
        stable = max([min(open_at.values(), default=self.end), self.start])
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (self.start, self.end, stable)
        assert (log.leader_epoch, log.size_bytes) == (self.leader_epoch, sum(len(each.stored) for each in self.batches))
        assert log.epoch_at(self.start - 1) == -1
        for offset in range(self.start, self.end + 1):
            rest = [batch for batch in self.batches if batch.end_offset > offset]
            visible = [batch for batch in rest if batch.first_offset < stable] if offset < stable else []
            assert log.read(offset, 10**6) == b"".join(batch.stored for batch in rest)
            assert log.read(offset, 10**6, committed=True) == b"".join(batch.stored for batch in visible)
            assert log.readable_bytes(offset) == sum(len(batch.stored) for batch in rest)
            assert log.readable_bytes(offset, committed=True) == sum(len(batch.stored) for batch in visible)
            for count in range(len(rest) + 1):
                size = sum(len(batch.stored) for batch in rest[:count])
                assert log.end_of_read(offset, size) == (rest[count - 1].end_offset if count else offset)
            assert log.epoch_at(offset) == (rest[0].leader_epoch if rest else self.leader_epoch)
            for end in range(offset, self.end + 1):
                found = tuple(each for each in aborted if each.last_offset >= offset and each.first_offset < end)
                assert log.aborted_between(offset, end) == found
        for leader_epoch in range(self.leader_epoch):
            later = [batch for batch in self.batches if batch.leader_epoch > leader_epoch]
            end_offset = max(later[0].first_offset, self.start) if later else self.end
            known = [batch.leader_epoch for batch in self.batches if batch.leader_epoch <= leader_epoch]
            assert log.offset_for_leader_epoch(leader_epoch) == (max(known, default=leader_epoch), end_offset)
        records = [
            (time, offset, batch.leader_epoch)
            for batch in self.batches
            for offset, time in enumerate(batch.timestamps, batch.first_offset)
            if offset >= self.start
        ]
        for timestamp in range(0, 52, 3):
            first = next((record for record in records if record[0] >= timestamp), (-1, -1, -1))
            assert log.offset_for_timestamp(timestamp) == first

    # --- the model

    def _add(
        self,
        prepared: PreparedAppend,
        timestamps: list[int],
        producer: ProducerState | None,
        *,
        committed: bool | None = None,
    ) -> None:
        assert (prepared.duplicate, prepared.base_offset) == (False, self.end)
        self.batches.append(Batch(prepared.batch, self.end, timestamps, self.leader_epoch, producer, committed))
        self.end += len(timestamps)
        assert prepared.last_offset == self.end - 1
        assert [header.leader_epoch for _, header in batches_of(prepared.batch)] == [self.leader_epoch]

    def _first_offset(self) -> int:
        return self.batches[0].first_offset if self.batches else self.start

    def _producers(self) -> dict[int, ProducerState]:
        kept = {batch.producer.producer_id: batch.producer for batch in self.batches if batch.producer}
        return self.forgotten | kept

    def _open(self) -> dict[int, int]:
        return transactions(self.batches, self.begun)[0]


def transactions(batches: Sequence[Batch], begun: Mapping[int, int]) -> tuple[dict[int, int], list[AbortedTransaction]]:
    """Producer -> where its open transaction began, and the aborted ones, after *batches*; *begun* were open before."""
    is_open, aborted = dict(begun), []
    for batch in batches:
        if batch.producer is None:
            continue
        if batch.committed is None:
            is_open.setdefault(batch.producer.producer_id, batch.first_offset)
        else:
            first = is_open.pop(batch.producer.producer_id, None)
            if first is not None and not batch.committed:
                aborted.append(AbortedTransaction(batch.producer.producer_id, first, batch.first_offset))
    return is_open, aborted


NEW_PRODUCER = ProducerState(-1, -1, -1, -1, -1)


def a_batch(timestamps: list[int], *, producer: tuple[int, int, int] = (-1, -1, -1), attributes: int = 0) -> bytes:
    """A batch as a producer sends it; *producer* is (id, epoch, first sequence)."""
    return build_batch(
        [Record(value=b"v" * index, timestamp=timestamp) for index, timestamp in enumerate(timestamps)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        attributes=attributes,
    )


TestLog = LogMachine.TestCase
