"""What each version of Produce and TxnOffsetCommit is told when a transaction may not write, and in which words."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.coordinators.transaction_admission import TransactionAdmission, code_in
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.transactions.transaction import TransactionPartition
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.record_batch import HEADER_SIZE, Record, build_batch
from tests.support.transactions import TRANSACTIONAL

PRODUCER_ID, EPOCH = 7, 2


class Coordinator(TransactionAdmission):
    """Gives one answer, and keeps whether it was asked to add a partition."""

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.error = error
        self.asked: list[tuple[TransactionPartition, bool]] = []

    def admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition, is_adding: bool
    ) -> ErrorCode:
        assert (transactional_id, producer_id, epoch) == ("tx", PRODUCER_ID, EPOCH)
        self.asked.append((partition, is_adding))
        return self.error


def a_batch(*, sequence: int = 0) -> bytes:
    return build_batch(
        [Record(b"v")],
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )


@pytest.mark.parametrize(
    ("answer", "version", "code", "says"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE, "foo-3 was not added to"),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE, "foo-3 was not added to"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS, "'tx' is still being ended"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS, "'tx' is still being ended"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS, "'tx' has no coordinator now"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, STORAGE_FAILED, "'tx' cannot write to foo-3"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH, "another producer has taken"),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "not held by this"),
    ],
)
def test_a_batch_that_may_not_be_written_is_refused_in_the_words_of_its_version(
    answer: ErrorCode, version: int, code: ErrorCode, says: str
) -> None:
    """Broken: a producer gives up where it should try again, or its user looks for the mistake in the wrong place."""
    with pytest.raises(BrokerError, match=says) as refused:
        Coordinator(answer).admit_batch("tx", a_batch(), "foo", 3, PartitionLog(), api_version=version)
    assert refused.value.code == code


@pytest.mark.parametrize("size", [HEADER_SIZE - 1, HEADER_SIZE])
def test_a_batch_needs_a_header_to_be_one_of_a_transaction(size: int) -> None:
    """Broken: bytes that are no batch end the broker's connection, or a transaction is written past its coordinator."""
    with pytest.raises(BrokerError, match="without a transactional id") if size == HEADER_SIZE else nullcontext():
        Coordinator().admit_batch(None, a_batch()[:size], "foo", 3, PartitionLog(), api_version=12)


@pytest.mark.parametrize(("version", "is_adding"), [(11, False), (12, True)])
def test_the_coordinator_is_asked_once_for_each_partition(version: int, is_adding: bool) -> None:
    """Broken: every batch costs a question, or the partition never becomes part of the transaction."""
    coordinator, log = Coordinator(), PartitionLog()
    for sequence in (0, 1):
        batch = a_batch(sequence=sequence)
        coordinator.admit_batch("tx", batch, "foo", 3, log, api_version=version)
        log.append(batch)
    assert coordinator.asked == [(("foo", 3), is_adding)]


@pytest.mark.parametrize(
    ("answer", "version", "code"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NONE, 5, ErrorCode.NONE),
    ],
)
def test_offsets_are_refused_in_the_words_of_their_version(answer: ErrorCode, version: int, code: ErrorCode) -> None:
    """Broken: an old client meets a code that it does not know."""
    coordinator = Coordinator(answer)
    request = TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=PRODUCER_ID, producer_epoch=EPOCH, topics=()
    )
    assert coordinator.admit_offsets(request, api_version=version) == code
    assert [is_adding for _, is_adding in coordinator.asked] == [version >= 5]


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_fence_has_its_own_code_from_one_version_on(version: int, code: ErrorCode) -> None:
    """Broken: an old client meets a code that it does not know."""
    assert code_in(ErrorCode.PRODUCER_FENCED, version, fenced_from=2) == code
    assert code_in(ErrorCode.NONE, version, fenced_from=2) == ErrorCode.NONE
