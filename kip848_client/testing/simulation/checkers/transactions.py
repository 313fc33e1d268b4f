"""Rules for transactions (X1 to X6): which records readers of committed records may see, and which producers may write.

Not an observer of the group: `simulated_transactions` reports writes and decisions to the ledger, which reads the logs
    itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.testing.transactions.coordinator import TransactionCoordinator
from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionPartition, TransactionState
from kip848_client.wire.record_batch import parse_batch_header, records_of


class Writer(Protocol):
    """A process with a transactional id, as `simulated_transactions` has it."""

    name: str
    producer_id: int
    epoch: int
    acknowledged: list[bytes]
    """Records of its transaction whose write was confirmed."""


class _Written(NamedTuple):
    """A record and its transaction: the producer, and how many transactions of its id were decided before."""

    name: str
    number: int


class _Batch(NamedTuple):
    """The fields of a batch that the checker needs. Each batch has one record."""

    offset: int
    producer_id: int
    is_control: bool
    value: bytes


def _batch(data: bytes) -> _Batch:
    header = parse_batch_header(data)
    return _Batch(header.base_offset, header.producer_id, header.is_control, records_of(data)[0].value or b"")


class TransactionLedger:
    """The writes and decisions of one run, recorded independently of the classes under test.

    Args:
        logs: of the partitions that producers write to.
        committed: the offset of a group, as its coordinator answers; -1 if there is none.
    """

    def __init__(self, logs: Mapping[TransactionPartition, PartitionLog], *, committed: Callable[[str], int]) -> None:
        self._logs: Final = logs
        self._committed_now: Final = committed
        self._values: Final = itertools.count()
        self._offsets: Final = itertools.count(1)
        self._records: Final[dict[bytes, _Written]] = {}
        self._fates: Final[dict[_Written, bool]] = {}
        """Transaction -> whether it was decided that it commits."""
        self._decided: Final[dict[str, int]] = {}
        """Transactional id -> how many of its transactions were decided."""
        self._states: Final[dict[str, TransactionMetadata]] = {}
        self._initialised: Final[dict[str, tuple[int, int]]] = {}
        self._open: Final[dict[TransactionPartition, dict[int, tuple[_Written, int]]]] = {}
        """Partition -> producer id -> the transaction that has records there and no marker yet, and where it begins."""
        self._batches: Final[dict[TransactionPartition, list[_Batch]]] = {}
        self._promised: Final[set[bytes]] = set()
        """Records of transactions whose producers were told of their commit."""
        self._pending: Final[dict[str, int]] = {}
        self._committed: Final[dict[str, int]] = {}
        self._stable: Final[dict[TransactionPartition, int]] = {}

    def new_value(self) -> bytes:
        """A record that was never written."""
        return str(next(self._values)).encode()

    def new_offset(self) -> int:
        """An offset that was never committed."""
        return next(self._offsets)

    # --- told by the brokers

    def decided(self, transaction: TransactionMetadata) -> None:
        """A new state of a transactional id is durable. X3: its epoch does not fall."""
        name = transaction.transactional_id
        before = self._states.get(name)
        if before is not None and before.producer_id == transaction.producer_id and transaction.epoch < before.epoch:
            fail("X3", f"the epoch of {name} falls from {before.epoch} to {transaction.epoch}")
        self._states[name] = transaction
        if transaction.is_ending:
            number = self._decided.get(name, 0)
            self._fates[_Written(name, number)] = transaction.commits
            self._decided[name] = number + 1

    def written(self, life: Writer, partition: TransactionPartition, value: bytes, *, offset: int) -> None:
        """A record is in its log. X4: a fenced producer writes no more."""
        self._check_writer(life, f"{partition} at {offset}")
        now = _Written(life.name, self._decided.get(life.name, 0))
        here = self._open.setdefault(partition, {})
        self._records[value], _ = here.setdefault(life.producer_id, (now, offset))
        self._check_stable(partition)

    def offset_written(self, life: Writer, offset: int) -> None:
        """An offset is pending."""
        self._check_writer(life, f"offset {offset}")
        self._pending[life.name] = offset
        self._check_offsets(life.name)

    def marked(self, transaction: TransactionMetadata, partition: TransactionPartition) -> None:
        """The end of a transaction is in a partition."""
        self._open.get(partition, {}).pop(transaction.producer_id, None)
        self._check_log(partition)

    def offsets_ended(self, transaction: TransactionMetadata) -> None:
        """The end of a transaction is in the offsets of its group."""
        name = transaction.transactional_id
        offset = self._pending.pop(name, None)
        if offset is not None and transaction.commits:
            self._committed[name] = offset
        self._check_offsets(name)

    def loaded(self, before: TransactionCoordinator, after: TransactionCoordinator) -> None:
        """A coordinator has read the log. X6: it has the state of the one before."""
        if list(before) != list(after):
            fail("X6", f"the log leads to {list(after)}, in memory was {list(before)}")

    # --- told by the producers

    def initialised(self, life: Writer) -> None:
        """A producer was given an epoch."""
        self._initialised[life.name] = max(self._initialised.get(life.name, (-1, -1)), (life.producer_id, life.epoch))

    def told_committed(self, life: Writer) -> None:
        """A producer was told of its commit."""
        self._promised.update(life.acknowledged)

    # --- the end

    def open(self) -> bool:
        """Whether the end of some transaction is missing. L1: not for ever."""
        return (
            any(self._open.values())
            or bool(self._pending)
            or any(state.is_ending or state.state is TransactionState.ONGOING for state in self._states.values())
        )

    def close(self) -> None:
        """Everything has ended: every confirmed transaction is in the log."""
        visible: set[bytes] = set()
        for partition, log in self._logs.items():
            self._check_log(partition)
            visible.update(self._read(partition, log))
        lost = self._promised - visible
        if lost:
            fail("X1", f"committed records are lost: {sorted(lost)}")
        committed = {value for value, transaction in self._records.items() if self._fates[transaction]}
        if visible != committed:
            fail("X1", f"a transaction is seen in part: {sorted(visible ^ committed)}")
        for name in self._states:
            self._check_offsets(name)

    # --- internals

    def _check_writer(self, life: Writer, where: str) -> None:
        newest = self._initialised.get(life.name, (-1, -1))
        if (life.producer_id, life.epoch) < newest:
            fail("X4", f"{life.name} at epoch {life.epoch} writes {where} after epoch {newest} was given")

    def _check_stable(self, partition: TransactionPartition) -> None:
        """X2: the last stable offset is where the oldest open transaction begins, and never goes back."""
        log = self._logs[partition]
        stable = min((first for _, first in self._open.get(partition, {}).values()), default=log.log_end_offset)
        if log.last_stable_offset != stable:
            fail("X2", f"the last stable offset of {partition} is {log.last_stable_offset} and not {stable}")
        if stable < self._stable.get(partition, 0):
            fail("X2", f"the last stable offset of {partition} falls to {stable}")
        self._stable[partition] = stable

    def _check_log(self, partition: TransactionPartition) -> None:
        """X1: below the last stable offset a reader sees exactly the committed records, in order."""
        self._check_stable(partition)
        seen = self._read(partition, self._logs[partition])
        wanted = [
            batch.value
            for batch in self._batches[partition]
            if not batch.is_control
            and batch.offset < self._stable[partition]
            and self._fates[self._records[batch.value]]
        ]
        if seen != wanted:
            fail("X1", f"of {partition} a reader sees {seen} and not {wanted}")

    def _read(self, partition: TransactionPartition, log: PartitionLog) -> list[bytes]:
        """The records that a reader of committed ones returns: it drops those in the list of aborted transactions."""
        known = self._batches.setdefault(partition, [])
        known += map(_batch, log.batches()[len(known) :])
        stable = log.last_stable_offset
        aborted = log.aborted_between(0, stable)
        return [
            batch.value
            for batch in known
            if not batch.is_control
            and batch.offset < stable
            and not any(
                each.producer_id == batch.producer_id and each.first_offset <= batch.offset <= each.last_offset
                for each in aborted
            )
        ]

    def _check_offsets(self, name: str) -> None:
        """X5: the offset of a group is the one that was committed last."""
        seen = self._committed_now(name)
        if seen != (wanted := self._committed.get(name, -1)):
            fail("X5", f"the offset of {name} is {seen} and not {wanted}")
