"""A bug for each invariant of transactions; see `registry`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.coordinator.offsets import offset_commit
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.partitions.producer_batches import ProducerSequences
from kip848_client.testing.simulation.actors import simulated_transactions as simulated
from kip848_client.testing.transactions import coordinator as deciding
from kip848_client.testing.transactions.coordinator import TransactionAnswer, TransactionCoordinator
from kip848_client.testing.transactions.records import transaction_of
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("what is stable grows with the end of any transaction", "X1", "X2", scenario="transactions")
def _(patch: Patch) -> None:
    def last_stable_offset(self: PartitionLog) -> int:
        return max(self._open.values(), default=self._log_end_offset)

    patch.setattr(PartitionLog, "last_stable_offset", property(last_stable_offset))


@known_bug("a reader is told of aborted transactions only where they begin", "X1", scenario="transactions")
def _(patch: Patch) -> None:
    original = PartitionLog.aborted_between

    def aborted_between(self: PartitionLog, start_offset: int, end_offset: int) -> Any:
        return original(self, start_offset, end_offset)[1:]

    patch.setattr(PartitionLog, "aborted_between", aborted_between)


@known_bug("a transaction may take for ever", "L1", scenario="transactions")
def _(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "expire", lambda self, *, now_ms: TransactionAnswer())


@known_bug("the epoch starts again with each process", "X3", scenario="transactions")
def _(patch: Patch) -> None:
    original = deciding._initialised

    def initialised(transaction: Any) -> TransactionAnswer:
        return original(replace(transaction, epoch=transaction.epoch % 2))

    patch.setattr(deciding, "_initialised", initialised)


@known_bug("a zombie may write", "X1", "X4", scenario="transactions")
def _(patch: Patch) -> None:
    judged = TransactionCoordinator._writable

    def writable(self: Any, transactional_id: str, **producer: int) -> Any:
        known, error = judged(self, transactional_id, **producer)
        return (self.get(transactional_id), ErrorCode.NONE) if error is ErrorCode.PRODUCER_FENCED else (known, error)

    original = ProducerSequences.base_offset_of_retry

    def base_offset_of_retry(self: Any, header: Any) -> int | None:
        known = self._producers.get(header.producer_id)
        return None if known is not None and header.producer_epoch < known.epoch else original(self, header)

    patch.setattr(TransactionCoordinator, "_writable", writable)
    patch.setattr(ProducerSequences, "base_offset_of_retry", base_offset_of_retry)
    patch.setattr(ProducerSequences, "expect_transaction", lambda *_, **__: None)


@known_bug("offsets of an aborted transaction count", "X5", scenario="transactions")
def _(patch: Patch) -> None:
    original = offset_commit.end_transaction
    patch.setattr(offset_commit, "end_transaction", lambda state, ended: original(state, replace(ended, commit=True)))


@known_bug("the log forgets with which epoch a retry comes", "X6", scenario="transactions")
def _(patch: Patch) -> None:
    def forgetful(key: bytes, value: bytes | None) -> Any:
        return replace(transaction_of(key, value), last_epoch=-1)

    patch.setattr(simulated, "transaction_of", forgetful)


@known_bug("an end that is asked for again is refused", "X7", scenario="transactions")
def _(patch: Patch) -> None:
    patch.setattr(deciding, "_already", lambda known, *, commit: ErrorCode.INVALID_TXN_STATE)
