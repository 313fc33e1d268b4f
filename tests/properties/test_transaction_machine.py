"""Any order of transactions, with a crash before any durable write: committed records are read, all of a transaction.

The coordinator and the logs of the partitions are the production classes. A crash loses what is in memory: another
coordinator reads the log of transactions, the partitions read their batches, and what was decided is ended again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.transactions.coordinator import TransactionAnswer, TransactionCoordinator
from kip848_client.testing.transactions.records import record_of, transaction_of
from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionPartition
from kip848_client.wire.record_batch import Record, build_batch, parse_batch_header, records_of

IDS = st.sampled_from(["a", "b"])
PARTITIONS: tuple[TransactionPartition, ...] = (("foo", 0), ("foo", 1))
FUSES = st.one_of(st.none(), st.integers(0, 5))
"""After how many durable writes the process dies; None is never."""
TIMEOUT_MS = 1_000
TRANSACTIONAL = 0b01_0000


class Crash(Exception):
    """The process died before a durable write."""


class Life(msgspec.Struct):
    """A producer between two calls of InitProducerId: it may be a zombie."""

    name: str
    producer_id: int
    epoch: int
    sequences: dict[TransactionPartition, int] = {}


class TransactionMachine(RuleBasedStateMachine):
    """Producers that come back, write, end and are fenced; a process that dies and comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.ids = itertools.count(100)
        self.tokens = itertools.count()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.batches: dict[TransactionPartition, list[bytes]] = {partition: [] for partition in PARTITIONS}
        self.fuse: int | None = None
        self.lives: list[Life] = []
        self.written: dict[bytes, tuple[int, int]] = {}
        """Record -> producer id and epoch of its transaction."""
        self.fate: dict[tuple[int, int], bool] = {}
        """Transaction -> whether its end that was decided is a commit."""
        self.seen: dict[str, TransactionMetadata] = {}
        self.load()

    # --- the host

    def load(self) -> None:
        """Read what is durable."""
        self.coordinator = TransactionCoordinator(
            timeout_ms_max=TIMEOUT_MS, expiration_ms=2 * TIMEOUT_MS, ids_max=100, new_producer_id=lambda: next(self.ids)
        )
        for key, value in self.records:
            self.coordinator.replay(transaction_of(key, value))
        self.logs = {partition: PartitionLog() for partition in PARTITIONS}
        for partition, batches in self.batches.items():
            for batch in batches:
                self.logs[partition].restore(batch)

    def durable(self) -> None:
        """Something is about to become durable."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Crash

    def run(self, fuse: int | None, action: Callable[[], None]) -> bool:
        """Do something; a process that dies comes back, and ends what was decided. Returns whether it lived."""
        self.fuse = fuse
        try:
            action()
        except Crash:
            self.fuse = None
            self.load()
            for transaction in self.coordinator:
                if transaction.is_ending:
                    self.write_end(transaction)
            return False
        return True

    def finish(self, outcome: TransactionAnswer) -> TransactionAnswer:
        """Keep and replay an outcome, and write the end that it decides."""
        for after in outcome.changes:
            self.durable()
            self.records.append(record_of(after))
            self.coordinator.replay(after)
            if after.is_ending:
                self.fate[after.producer_id, after.last_epoch] = after.commits
                self.write_end(after)
        return outcome

    def write_end(self, transaction: TransactionMetadata) -> None:
        """Markers, then the record that says that they are there."""
        for partition in sorted(transaction.partitions):
            log = self.logs[partition]
            self.durable()
            marker = log.prepare_marker(
                transaction.producer_id,
                epoch=transaction.epoch,
                commit=transaction.commits,
                timestamp_ms=self.now_ms,
            )
            log.commit(marker)
            self.batches[partition].append(marker.batch)
        self.finish(self.coordinator.completed(transaction.transactional_id, now_ms=self.now_ms))

    # --- rules

    @rule(name=IDS, fuse=FUSES)
    def begin_a_life(self, name: str, fuse: int | None) -> None:
        """A producer starts: what the one before left open is aborted."""

        def init() -> None:
            for _ in range(2):
                found = self.finish(self.coordinator.init_producer_id(name, timeout_ms=TIMEOUT_MS, now_ms=self.now_ms))
                if found.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
            assert found.error is ErrorCode.NONE
            self.lives.append(Life(name, found.producer_id, found.epoch))

        self.run(fuse, init)

    @rule(number=st.integers(0, 20), partition=st.sampled_from(PARTITIONS), fuse=FUSES)
    def write(self, number: int, partition: TransactionPartition, fuse: int | None) -> None:
        """A producer, perhaps a zombie, writes one record."""
        if not self.lives:
            return
        life = self.lives[-1 - number % len(self.lives)]
        lived = self.run(fuse, lambda: self._write(life, partition))
        if not lived:
            self.lives.remove(life)  # it does not know what became of its record

    def _write(self, life: Life, partition: TransactionPartition) -> None:
        added = self.finish(
            self.coordinator.add_partitions(
                life.name,
                producer_id=life.producer_id,
                epoch=life.epoch,
                partitions=(partition,),
                now_ms=self.now_ms,
                client_version=2,
            )
        )
        if added.error:
            return
        newest = next(one for one in reversed(self.lives) if one.name == life.name)
        assert life is newest, "T4: a fenced producer writes"
        token = str(next(self.tokens)).encode()
        sequence = life.sequences.get(partition, 0)
        batch = build_batch(
            [Record(key=None, value=token, timestamp=self.now_ms)],
            producer_id=life.producer_id,
            producer_epoch=life.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        prepared = self.logs[partition].prepare(batch)
        self.durable()
        self.written[token] = (life.producer_id, life.epoch)
        self.logs[partition].commit(prepared)
        self.batches[partition].append(prepared.batch)
        life.sequences[partition] = sequence + 1

    @rule(number=st.integers(0, 20), commit=st.booleans(), fuse=FUSES)
    def end(self, number: int, commit: bool, fuse: int | None) -> None:
        """A producer commits or aborts, and asks once more, as after an answer that was lost (T9)."""
        if not self.lives:
            return
        life = self.lives[-1 - number % len(self.lives)]

        def ask() -> TransactionAnswer:
            return self.coordinator.end(
                life.name,
                producer_id=life.producer_id,
                epoch=life.epoch,
                commit=commit,
                moves_epoch=True,
                now_ms=self.now_ms,
            )

        def end() -> None:
            ended = self.finish(ask())
            if not ended.error:
                again = ask()
                assert (again.error, again.producer_id, again.epoch) == (ErrorCode.NONE, ended.producer_id, ended.epoch)
                assert again.transaction is None, "T9: a retry changes something"
                life.producer_id, life.epoch, life.sequences = ended.producer_id, ended.epoch, {}

        if not self.run(fuse, end):
            self.lives.remove(life)

    @rule(fuse=FUSES)
    def let_time_pass(self, fuse: int | None) -> None:
        """Transactions that take too long are aborted, and their producers fenced (T6)."""
        self.now_ms += TIMEOUT_MS + 1

        def expire() -> None:
            while self.finish(self.coordinator.expire(now_ms=self.now_ms)).transaction is not None:
                pass

        self.run(fuse, expire)

    # --- invariants

    @invariant()
    def what_is_read_was_committed(self) -> None:
        """T1, T2: below the last stable offset exactly the records of committed transactions are read, in order."""
        for partition, log in self.logs.items():
            records = [
                (parse_batch_header(batch), records_of(batch)[0].value or b"") for batch in self.batches[partition]
            ]
            data = [(header.base_offset, value) for header, value in records if not header.is_control]
            undecided = [offset for offset, value in data if self.written[value] not in self.fate]
            stable = min(undecided, default=log.log_end_offset)
            assert log.last_stable_offset == stable, "T2"
            aborted = log.aborted_between(0, stable)
            read = [
                value
                for header, value in records
                if not header.is_control
                and header.base_offset < stable
                and not any(
                    header.producer_id == one.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                    for one in aborted
                )
            ]
            committed = [value for offset, value in data if offset < stable and self.fate[self.written[value]]]
            assert read == committed, "T1"

    @invariant()
    def epochs_never_fall(self) -> None:
        """T3, T7: and the log leads to what is in memory."""
        now: Mapping[str, TransactionMetadata] = {one.transactional_id: one for one in self.coordinator}
        for name, before in self.seen.items():
            after = now[name]
            assert after.producer_id != before.producer_id or after.epoch >= before.epoch, "T3"
        self.seen = dict(now)
        live = list(self.coordinator)
        self.load()
        assert live == list(self.coordinator), "T7"

    def teardown(self) -> None:
        """T6: nothing stays open."""
        self.let_time_pass(None)
        assert not any(log.open_transactions for log in self.logs.values())
        self.what_is_read_was_committed()


TestTransactionMachine = TransactionMachine.TestCase
