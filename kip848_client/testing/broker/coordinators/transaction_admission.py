"""Whether a transaction may write: to a partition (Produce), or offsets of a group (TxnOffsetCommit); and what each
version of these requests answers if it may not. The transaction coordinator decides.

Source:
    apache/kafka ``AddPartitionsToTxnManager``, ``ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Final

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.transactions.transaction import TransactionPartition, offsets_partition
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.record_batch import HEADER_SIZE

_FIRST_ADDING_PRODUCE: Final = 12
"""The first version of Produce that makes a partition part of its transaction by writing to it (KIP-890)."""
_FIRST_ABORTABLE_PRODUCE: Final = 11
_FIRST_ADDING_COMMIT: Final = 5
_FIRST_ABORTABLE_COMMIT: Final = 4

_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


class TransactionAdmission(ABC):
    """Asks a transaction coordinator, one of this process, before something is written."""

    def admit_batch(
        self,
        transactional_id: str | None,
        records: bytes,
        topic: str,
        partition: int,
        log: PartitionLog,
        *,
        api_version: int,
    ) -> None:
        """See whether a batch of a Produce request may be written; one that no transaction claims always may.

        Raises:
            BrokerError: it may not.
        """
        if len(records) < HEADER_SIZE or not records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
            return
        if transactional_id is None:
            raise BrokerError(
                "a transactional batch in a request without a transactional id",
                code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )
        if records[_ATTRIBUTES_AT] & _CONTROL:
            return  # the log refuses it
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if log.is_open(producer_id, epoch=epoch):
            return
        is_adding = api_version >= _FIRST_ADDING_PRODUCE
        log.expect_transaction(producer_id, epoch=epoch, sequence=sequence, adds_partition=is_adding)
        error = self.admit(
            transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partition=(topic, partition),
            is_adding=is_adding,
        )
        if error:
            reason = _reason(error, transactional_id, f"{topic}-{partition}")
            raise BrokerError(reason, code=_code_in_produce(error, api_version))

    def admit_offsets(self, request: TxnOffsetCommitRequest, *, api_version: int) -> ErrorCode:
        """Whether the transaction may commit offsets of the group."""
        error = self.admit(
            request.transactional_id,
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
            partition=offsets_partition(request.group_id),
            is_adding=api_version >= _FIRST_ADDING_COMMIT,
        )
        if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_ABORTABLE_COMMIT:
            return ErrorCode.INVALID_TXN_STATE
        return error

    @abstractmethod
    def admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition, is_adding: bool
    ) -> ErrorCode:
        """Ask the coordinator of *transactional_id*; with *is_adding* the partition becomes part of the transaction.

        COORDINATOR_NOT_AVAILABLE: it could not be kept. COORDINATOR_LOAD_IN_PROGRESS: there is no coordinator now.
        """


def code_in(error: ErrorCode, api_version: int, *, fenced_from: int) -> ErrorCode:
    """The code as *api_version* writes it: PRODUCER_FENCED is known from version *fenced_from* on."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _code_in_produce(error: ErrorCode, api_version: int) -> ErrorCode:
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return STORAGE_FAILED
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which every client takes for "try again"
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_ABORTABLE_PRODUCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < _FIRST_ADDING_PRODUCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which older clients take for "try again"
    return error


def _reason(error: ErrorCode, transactional_id: str, where: str) -> str:
    match error:
        case ErrorCode.INVALID_TXN_STATE | ErrorCode.TRANSACTION_ABORTABLE:
            return f"{where} was not added to the transaction of {transactional_id!r}"
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"another producer has taken the transactional id {transactional_id!r}, or its transaction timed out"
        case ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return f"the transactional id {transactional_id!r} is not held by this producer id"
        case ErrorCode.CONCURRENT_TRANSACTIONS:
            return f"the last transaction of {transactional_id!r} is still being ended"
        case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return f"the transactional id {transactional_id!r} has no coordinator now"
        case _:
            return f"the transaction of {transactional_id!r} cannot write to {where}"
