"""What is kept of transactional ids: the latest state of each in memory, or records of ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kip848_client.testing.broker.storage.group_log import GroupLog
from kip848_client.testing.transactions.records import record_of, transaction_of
from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionState


class MemoryTransactionLog:
    """Keeps the latest state of every transactional id, for as long as the object lives.

    Clients cannot read these states, so they need no bytes.
    """

    def __init__(self) -> None:
        self._latest: Final[dict[str, TransactionMetadata]] = {}

    def load(self) -> Iterator[TransactionMetadata]:
        """Yield the latest state of every id, in the order of their last change."""
        yield from tuple(self._latest.values())

    def append(self, records: Iterable[TransactionMetadata]) -> None:
        """Keep these states; the last state of an id removes it."""
        for transaction in records:
            self._latest.pop(transaction.transactional_id, None)
            if transaction.state is not TransactionState.DEAD:
                self._latest[transaction.transactional_id] = transaction


class FolderTransactionLog:
    """Keeps each state as the record that Kafka writes.

    Args:
        log: of the records, in a folder.
    """

    def __init__(self, log: GroupLog) -> None:
        self._log: Final = log

    def load(self) -> Iterator[TransactionMetadata]:
        """Yield every state, in the order in which they were decided.

        Raises:
            DataDirError: the log cannot be read.
            ProtocolError: a record of the log is not what its version says.
        """
        return (transaction_of(key, value) for key, value in self._log.load())

    def append(self, records: Iterable[TransactionMetadata]) -> None:
        """Keep the states of one decision.

        Raises:
            DataDirError: they were not kept.
        """
        self._log.append(tuple([record_of(each) for each in records]))
