"""TransactionCoordinator: the transaction coordinator without its network, clock and disk.

How a shell drives it (single-threaded; each outcome is finished before the next question)::

    for key, value in log:                              # start
        coordinator.replay(transaction_of(key, value))
    for transaction in coordinator.ending():            # what a crash interrupted
        write_markers(transaction)

    outcome = coordinator.end(..., now_ms=now)          # a request
    log.append(map(record_of, outcome.changes))         # if this fails, drop the outcome: nothing has changed
    for transaction in outcome.changes:
        coordinator.replay(transaction)
    answer(outcome.error, outcome.producer_id, outcome.epoch)
    if outcome.transaction is not None and outcome.transaction.is_ending:
        write_markers(outcome.transaction)              # control batches, ends of pending offsets
        finish(coordinator.completed(transactional_id, now_ms=now))

Times are milliseconds since 1970, since they outlive the process. One transition is one record, decided, kept, replayed
and then answered, so there is no state between two transitions that a request could meet.

Source:
    apache/kafka ``TransactionCoordinator``, ``TransactionMetadata``; KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.transactions.transaction import (
    EPOCH_MAX,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)

_DEADLINES_KEPT: Final = 1_000
"""Deadlines of transactions that have ended, before all of these are thrown away."""

_LAST_GIVEN_EPOCH: Final = EPOCH_MAX - 1
_NONE: Final = -1
_OVER: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TransactionAnswer(msgspec.Struct, frozen=True):
    """The answer to one request, and the new state.

    Attributes:
        error: for the answer.
        producer_id: for the answer; -1 if it has none.
        epoch: likewise.
        transaction: the new state, to be kept and replayed; None if nothing changes.
        forgotten: the end of another id, to be kept and replayed before *transaction* by the coordinator that has it;
            None if all stay.
    """

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = -1
    epoch: int = -1
    transaction: TransactionMetadata | None = None
    forgotten: TransactionMetadata | None = None

    @property
    def changes(self) -> tuple[TransactionMetadata, ...]:
        """The new states to store and replay, in this order."""
        changes = () if self.transaction is None else (self.transaction,)
        return changes if self.forgotten is None else (self.forgotten, *changes)


_DONE: Final = TransactionAnswer()


class TransactionCoordinator:
    """All transactional ids of one coordinator.

    Args:
        timeout_ms_max: the longest time that a producer may ask for (``transaction.max.timeout.ms``).
        expiration_ms: how long an id without an open transaction is remembered (``transactional.id.expiration.ms``).
        ids_max: how many ids are remembered (``kip848.transactional.ids.max``). For one more, the one that was not used
            for longest is forgotten, as if its time were over.
        new_producer_id: makes an id that no producer had before; its exceptions reach the caller.
    """

    def __init__(
        self,
        *,
        timeout_ms_max: int,
        expiration_ms: int,
        ids_max: int,
        new_producer_id: Callable[[], int],
        others: Callable[[], Iterable[TransactionCoordinator]] = tuple,
    ) -> None:
        self._timeout_ms_max: Final = timeout_ms_max
        self._ids_max: Final = ids_max
        self._expiration_ms: Final = expiration_ms
        self._new_producer_id: Final = new_producer_id
        self._others: Final = others
        # The one that was not used for longest comes first.
        self._transactions: Final[OrderedDict[str, TransactionMetadata]] = OrderedDict()
        # May hold deadlines that have passed away: what counts is the transaction's own.
        self._deadlines: Final[list[tuple[int, str]]] = []

    # --- requests

    def init_producer_id(
        self, transactional_id: str, *, timeout_ms: int, producer_id: int = -1, epoch: int = -1, now_ms: int
    ) -> TransactionAnswer:
        """Give the transactional id to a new life of its producer; older lives are fenced.

        A transaction that the last life left open is aborted first: the answer is CONCURRENT_TRANSACTIONS until that
        is done, and the client asks again.

        Args:
            producer_id: the id that the producer had and wants to renew, with its *epoch*; both -1 if it had none.
        """
        if not transactional_id or (producer_id == _NONE) != (epoch == _NONE):
            return TransactionAnswer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._timeout_ms_max:
            return TransactionAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self._transactions.get(transactional_id)
        if known is None:
            forgotten = None
            everyone = [self, *(each for each in self._others() if each is not self)]
            if sum(len(each._transactions) for each in everyone) >= self._ids_max:  # noqa: SLF001  of its own class
                idle = [found for each in everyone if (found := each._longest_idle()) is not None]  # noqa: SLF001
                if not idle:
                    return TransactionAnswer(ErrorCode.POLICY_VIOLATION)
                oldest = min(idle, key=lambda found: (found.updated_ms, found.producer_id))
                forgotten = TransactionMetadata.forgotten(oldest.transactional_id)
            new = TransactionMetadata(
                transactional_id=transactional_id,
                producer_id=self._new_producer_id(),
                epoch=0,
                timeout_ms=timeout_ms,
                updated_ms=now_ms,
            )
            return replace(_initialised(new), forgotten=forgotten)
        is_given = producer_id != _NONE
        if is_given and not _holds(known, producer_id=producer_id, epoch=epoch):
            return TransactionAnswer(ErrorCode.PRODUCER_FENCED)
        if known.is_ending:
            return TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TransactionState.ONGOING:
            return TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS, transaction=_fenced(known, now_ms=now_ms))
        renewed = replace(
            known,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=-1,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
        if is_given and epoch != known.epoch:
            # Either the answer to the last request was lost, or the producer is a zombie.
            return _initialised(renewed) if epoch == known.last_epoch else TransactionAnswer(ErrorCode.PRODUCER_FENCED)
        last_epoch = known.epoch if is_given else -1
        if known.epoch < _LAST_GIVEN_EPOCH:
            return _initialised(replace(renewed, epoch=known.epoch + 1, last_epoch=last_epoch))
        return _initialised(
            replace(
                renewed,
                producer_id=self._new_producer_id(),
                previous_producer_id=known.producer_id,
                epoch=0,
                last_epoch=last_epoch,
            )
        )

    def add_partitions(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        partitions: Collection[TransactionPartition],
        now_ms: int,
        client_version: int = 1,
    ) -> TransactionAnswer:
        """Make *partitions* part of the transaction; the first ones begin it.

        Args:
            client_version: 2 if the client adds them by writing to them (KIP-890).
        """
        known, error = self._writable(transactional_id, producer_id=producer_id, epoch=epoch)
        if known is None:
            return TransactionAnswer(error)
        is_open = known.state is TransactionState.ONGOING
        if is_open and known.partitions.issuperset(partitions):
            return _DONE
        together = known.partitions.union(partitions) if is_open else frozenset(partitions)
        return TransactionAnswer(
            transaction=replace(
                known,
                state=TransactionState.ONGOING,
                partitions=together,
                started_ms=known.started_ms if is_open else now_ms,
                updated_ms=now_ms,
                client_version=client_version,
            )
        )

    def verify(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition
    ) -> ErrorCode:
        """Whether the producer may write to *partition* now; TRANSACTION_ABORTABLE if it was not added."""
        known, error = self._writable(transactional_id, producer_id=producer_id, epoch=epoch)
        if known is None:
            return error
        is_in = known.state is TransactionState.ONGOING and partition in known.partitions
        return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE

    def end(
        self, transactional_id: str, *, producer_id: int, epoch: int, commit: bool, moves_epoch: bool, now_ms: int
    ) -> TransactionAnswer:
        """Commit or abort.

        Args:
            moves_epoch: each end moves the epoch on, and the answer carries it (version 5 of EndTxn, KIP-890).
        """
        if not transactional_id:
            return TransactionAnswer(ErrorCode.INVALID_REQUEST)
        known = self._transactions.get(transactional_id)
        if known is None:
            return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if moves_epoch:
            return self._end_moving(known, producer_id=producer_id, epoch=epoch, commit=commit, now_ms=now_ms)
        if producer_id != known.producer_id:
            return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if epoch != known.epoch:
            return TransactionAnswer(ErrorCode.PRODUCER_FENCED)
        if known.state is not TransactionState.ONGOING:
            return TransactionAnswer(_already(known, commit=commit))
        ending = replace(known, state=_prepared(commit), updated_ms=now_ms, client_version=1)
        return TransactionAnswer(producer_id=known.producer_id, epoch=known.epoch, transaction=ending)

    def completed(self, transactional_id: str, *, now_ms: int) -> TransactionAnswer:
        """The end is written everywhere."""
        known = self._transactions.get(transactional_id)
        if known is None or not known.is_ending:
            return _DONE
        complete = replace(
            known,
            state=TransactionState.COMPLETE_COMMIT if known.commits else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        if known.next_producer_id != _NONE:
            complete = replace(
                complete,
                producer_id=known.next_producer_id,
                epoch=0,
                previous_producer_id=known.producer_id,
                next_producer_id=_NONE,
            )
        return TransactionAnswer(transaction=complete)

    def abort(self, transactional_id: str, *, now_ms: int) -> TransactionAnswer:
        """Abort an open transaction against its producer's will, and fence the producer."""
        known = self._transactions.get(transactional_id)
        if known is None:
            return TransactionAnswer(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if known.state is not TransactionState.ONGOING:
            return TransactionAnswer(ErrorCode.INVALID_TXN_STATE)
        return TransactionAnswer(transaction=_fenced(known, now_ms=now_ms))

    # --- time

    def deadline_ms(self) -> int | None:
        """When `expire` has something to do next, in ms since 1970; None if never."""
        while self._deadlines:
            deadline_ms, transactional_id = self._deadlines[0]
            known = self._transactions.get(transactional_id)
            if known is not None and known.deadline_ms == deadline_ms:
                return deadline_ms
            heapq.heappop(self._deadlines)
        return None

    def expire(self, *, now_ms: int) -> TransactionAnswer:
        """Abort the transaction that has taken too long, and fence its producer; nothing if none has."""
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or deadline_ms >= now_ms:
            return _DONE
        return TransactionAnswer(transaction=_fenced(self._transactions[self._deadlines[0][1]], now_ms=now_ms))

    def expiration_ms(self) -> int | None:
        """When `forget` may have something to do next, in ms since 1970; None if there are no ids."""
        oldest = next(iter(self._transactions.values()), None)
        return None if oldest is None else oldest.updated_ms + self._expiration_ms

    def forget(self, *, now_ms: int) -> TransactionAnswer:
        """Forget the id that was not used for too long; nothing if there is none.

        Its producer is told INVALID_PRODUCER_ID_MAPPING from now on. The next one with this id gets a new producer id.
        """
        for known in self._transactions.values():
            if known.updated_ms > now_ms - self._expiration_ms:
                break
            if known.state in _OVER:
                return TransactionAnswer(transaction=TransactionMetadata.forgotten(known.transactional_id))
        return _DONE

    # --- state

    def replay(self, transaction: TransactionMetadata) -> None:
        """Bring the state of a transactional id to this; the only way that state changes."""
        if transaction.state is TransactionState.DEAD:
            self._transactions.pop(transaction.transactional_id, None)
            return
        self._transactions[transaction.transactional_id] = transaction
        self._transactions.move_to_end(transaction.transactional_id)
        if transaction.deadline_ms is not None:
            heapq.heappush(self._deadlines, (transaction.deadline_ms, transaction.transactional_id))
            if len(self._deadlines) > 2 * len(self._transactions) + _DEADLINES_KEPT:
                self._deadlines[:] = [
                    (known.deadline_ms, known.transactional_id) for known in self if known.deadline_ms is not None
                ]
                heapq.heapify(self._deadlines)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of one transactional id, or None."""
        return self._transactions.get(transactional_id)

    def __iter__(self) -> Iterator[TransactionMetadata]:
        """The state of every transactional id, by id."""
        return iter([self._transactions[name] for name in sorted(self._transactions)])

    # --- internals

    def _longest_idle(self) -> TransactionMetadata | None:
        """The id without an open transaction that was not used for longest."""
        return next((each for each in self._transactions.values() if each.state in _OVER), None)

    def _writable(
        self, transactional_id: str, *, producer_id: int, epoch: int
    ) -> tuple[TransactionMetadata | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        known = self._transactions.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return None, ErrorCode.PRODUCER_FENCED
        if known.is_ending:
            return None, ErrorCode.CONCURRENT_TRANSACTIONS
        return known, ErrorCode.NONE

    def _end_moving(
        self, known: TransactionMetadata, *, producer_id: int, epoch: int, commit: bool, now_ms: int
    ) -> TransactionAnswer:
        moved_on = producer_id == known.previous_producer_id and epoch == _LAST_GIVEN_EPOCH and known.epoch == 0
        if producer_id != known.producer_id and not moved_on:
            return TransactionAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_retry = moved_on or epoch == known.epoch - 1
        if not is_retry and epoch != known.epoch:
            return TransactionAnswer(ErrorCode.PRODUCER_FENCED)
        if is_retry:
            if known.state in (TransactionState.EMPTY, TransactionState.ONGOING):
                return TransactionAnswer(ErrorCode.PRODUCER_FENCED)
            error = _already(known, commit=commit)
            return (
                TransactionAnswer(error)
                if error
                else TransactionAnswer(producer_id=known.producer_id, epoch=known.epoch)
            )
        if known.is_ending:
            return TransactionAnswer(ErrorCode.PRODUCER_FENCED)
        if known.state in _OVER and commit:
            return TransactionAnswer(ErrorCode.INVALID_TXN_STATE)
        ending = replace(
            known,
            state=_prepared(commit),
            epoch=known.epoch + 1,
            started_ms=known.started_ms if known.state is TransactionState.ONGOING else now_ms,
            last_epoch=known.epoch,
            updated_ms=now_ms,
            client_version=2,
        )
        if ending.epoch <= _LAST_GIVEN_EPOCH:
            return TransactionAnswer(producer_id=ending.producer_id, epoch=ending.epoch, transaction=ending)
        ending = replace(ending, next_producer_id=self._new_producer_id())
        return TransactionAnswer(producer_id=ending.next_producer_id, epoch=0, transaction=ending)


def _initialised(transaction: TransactionMetadata) -> TransactionAnswer:
    return TransactionAnswer(producer_id=transaction.producer_id, epoch=transaction.epoch, transaction=transaction)


def _holds(known: TransactionMetadata, *, producer_id: int, epoch: int) -> bool:
    """Whether the producer is the one of this id, or was it until its epochs were used up."""
    return producer_id == known.producer_id or (
        producer_id == known.previous_producer_id and epoch >= _LAST_GIVEN_EPOCH
    )


def _fenced(known: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """The abort of an open transaction, under an epoch that its producer does not have."""
    return replace(
        known,
        state=TransactionState.PREPARE_ABORT,
        epoch=min(known.epoch + 1, EPOCH_MAX),
        last_epoch=known.epoch,
        updated_ms=now_ms,
    )


def _prepared(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _already(known: TransactionMetadata, *, commit: bool) -> ErrorCode:
    """The answer to an end of what has no open transaction: done, being done, or a contradiction."""
    if known.state is TransactionState.EMPTY or known.commits != commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.is_ending else ErrorCode.NONE
