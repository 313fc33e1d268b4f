"""The host of the transaction coordinator: keeps its records, writes the ends of transactions, runs its timers.

No protocol rule but one: what each API answers in which version for an error of the coordinator. An outcome goes into
the log, then through `TransactionCoordinator.replay`; only then is it answered. The end of a transaction is written
into its partitions and groups in the same turn of the loop, or ``kip848.transaction.marker.delay.ms`` later.

Lives on the broker's loop. Timers run on the loop's time, or by `run_due` on a `ManualClock`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kip848_client.broker.config import BrokerConfig
from kip848_client.broker.group_log import GroupLog
from kip848_client.broker.groups import GroupHost
from kip848_client.broker.topics import STORAGE_FAILED, TopicRegistry
from kip848_client.clock import Clock, ManualClock
from kip848_client.errors import BrokerError, DataDirError, ErrorCode, IllegalStateError
from kip848_client.partition_log import PartitionLog
from kip848_client.transactions.coordinator import Outcome, TransactionCoordinator
from kip848_client.transactions.records import record_of, transaction_of
from kip848_client.transactions.transaction import (
    GROUP_OFFSETS_TOPIC,
    TopicPartition,
    Transaction,
    TransactionState,
    offsets_partition,
)
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kip848_client.wire.record_batch import HEADER_SIZE

__all__ = ["TransactionHost", "TransactionSnapshot", "code_in", "FIRST_ADDING_PRODUCE"]

FIRST_ADDING_PRODUCE: Final = 12
"""The first version of Produce that makes a partition part of its transaction by writing to it (KIP-890)."""
_FIRST_ABORTABLE_PRODUCE: Final = 11
_FIRST_ADDING_COMMIT: Final = 5
_FIRST_ABORTABLE_COMMIT: Final = 4
_MOVING_CLIENT: Final = 2

_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_AT: Final = 43
_RETRY_MS: Final = 500
"""Pause after the end of a transaction could not be written."""

Waiter = tuple[str, str, "concurrent.futures.Future[TransactionSnapshot]"]


class TransactionSnapshot(msgspec.Struct, frozen=True):
    """One transactional id as it is at one moment.

    Attributes:
        state: as Kafka names it, for example ``Ongoing``.
        partitions: topic and partition of everything that the open transaction has written to, ascending.
        started_ms: when the last transaction began, in ms since 1970; -1 if there was none.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    started_ms: int


class TransactionHost:
    """Runs one coordinator for all transactional ids of the broker.

    Args:
        log: where its records are kept.
        topics: where transactions write.
        groups: whose offsets they commit.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: GroupLog,
        topics: TopicRegistry,
        groups: GroupHost,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._coordinator: Final = TransactionCoordinator(
            timeout_ms_max=config.transaction_timeout_ms_max, new_producer_id=topics.new_producer_id
        )
        self._log: Final = log
        self._topics: Final = topics
        self._groups: Final = groups
        self._clock: Final = clock
        self._loop: Final = loop
        self._marker_delay_ms: Final = config.transaction_marker_delay_ms
        self._check_interval_ms: Final = config.transaction_check_interval_ms
        self._check_from_ms = 0
        # Transactional id -> when its end is to be written.
        self._ends: Final[dict[str, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[Waiter] = []
        self._closed = False

    # --- life

    def load(self) -> None:
        """Replay every record of the log, and write the ends that were decided and not written.

        Raises:
            DataDirError: the log cannot be read.
            ProtocolError: a record of the log is not what its version says.
        """
        for key, value in self._log.load():
            transaction = transaction_of(key, value)
            if transaction is not None:
                self._coordinator.replay(transaction)
        for transaction in self._coordinator:
            if transaction.is_ending:
                self._ends[transaction.transactional_id] = 0
        self._abort_orphans()
        self.run_due()

    def close(self) -> None:
        """Stop timers and let go of everybody who waits."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if future.set_running_or_notify_cancel():
                future.set_exception(IllegalStateError("the broker was stopped"))

    # --- requests

    def init_producer_id(self, request: InitProducerIdRequest) -> Outcome:
        """See `TransactionCoordinator.init_producer_id`."""
        return self._do(
            lambda now_ms: self._coordinator.init_producer_id(
                request.transactional_id or "",
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                now_ms=now_ms,
            )
        )

    def add_partitions(
        self, transactional_id: str, *, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]
    ) -> Outcome:
        """See `TransactionCoordinator.add_partitions`."""
        return self._do(
            lambda now_ms: self._coordinator.add_partitions(
                transactional_id, producer_id=producer_id, epoch=epoch, partitions=partitions, now_ms=now_ms
            )
        )

    def verify(self, transactional_id: str, *, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        """See `TransactionCoordinator.verify`."""
        return self._coordinator.verify(transactional_id, producer_id=producer_id, epoch=epoch, partition=partition)

    def end(self, transactional_id: str, *, producer_id: int, epoch: int, commit: bool, moves_epoch: bool) -> Outcome:
        """See `TransactionCoordinator.end`."""
        return self._do(
            lambda now_ms: self._coordinator.end(
                transactional_id,
                producer_id=producer_id,
                epoch=epoch,
                commit=commit,
                moves_epoch=moves_epoch,
                now_ms=now_ms,
            )
        )

    def admit_batch(
        self,
        transactional_id: str | None,
        records: bytes,
        topic: str,
        partition: int,
        log: PartitionLog,
        *,
        api_version: int,
    ) -> bool:
        """See whether a batch of a Produce request may be written; one that no transaction claims always may.

        Returns:
            Whether the batch is part of a transaction.

        Raises:
            BrokerError: it may not.
        """
        if len(records) < HEADER_SIZE or records[_ATTRIBUTES_AT] & (_TRANSACTIONAL | _CONTROL) != _TRANSACTIONAL:
            return False
        if transactional_id is None:
            raise BrokerError(
                "a transactional batch in a request without a transactional id",
                code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )
        producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if log.is_open(producer_id, epoch=epoch):
            return True
        error = self._admit(
            transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partition=(topic, partition),
            is_adding=api_version >= FIRST_ADDING_PRODUCE,
        )
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = STORAGE_FAILED
        elif error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_ABORTABLE_PRODUCE:
            error = ErrorCode.INVALID_TXN_STATE
        elif error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < FIRST_ADDING_PRODUCE:
            error = ErrorCode.NOT_ENOUGH_REPLICAS  # which older clients take for "try again"
        if error:
            raise BrokerError(_reason(error, transactional_id, f"{topic}-{partition}"), code=error)
        return True

    def admit_offsets(self, request: TxnOffsetCommitRequest, *, api_version: int) -> ErrorCode:
        """Whether the transaction may commit offsets of the group."""
        error = self._admit(
            request.transactional_id,
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
            partition=offsets_partition(request.group_id),
            is_adding=api_version >= _FIRST_ADDING_COMMIT,
        )
        if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_ABORTABLE_COMMIT:
            return ErrorCode.INVALID_TXN_STATE
        return error

    # --- what others do and see

    def __iter__(self) -> Iterator[Transaction]:
        """The state of every transactional id, by id."""
        return iter(self._coordinator)

    def get(self, transactional_id: str) -> Transaction | None:
        """The state of one transactional id, or None."""
        return self._coordinator.get(transactional_id)

    def snapshots(self) -> tuple[TransactionSnapshot, ...]:
        """All transactional ids, by id."""
        return tuple(_snapshot_of(transaction) for transaction in self._coordinator)

    def abort(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer.

        Raises:
            IllegalStateError: there is no such open transaction.
            DataDirError: it could not be kept; the transaction is open as before.
        """
        outcome = self._coordinator.abort(transactional_id, now_ms=self._clock.wall_ms())
        if outcome.error:
            known = self._coordinator.get(transactional_id)
            seen = "there is no such transactional id" if known is None else f"its state is {known.state.title}"
            raise IllegalStateError(f"{transactional_id!r} has no open transaction to abort: {seen}")
        self._finish(outcome)

    def add_waiter(
        self, transactional_id: str, state: str, future: concurrent.futures.Future[TransactionSnapshot]
    ) -> None:
        """Resolve *future* when the transactional id is in *state*."""
        self._waiters.append((transactional_id, state, future))
        self._tell_waiters()

    def run_due(self) -> None:
        """Write the ends that are due, and abort what has taken too long."""
        now_ms = self._clock.wall_ms()
        for transactional_id, due_ms in tuple(self._ends.items()):
            if due_ms <= now_ms:
                self._write_end(transactional_id)
        if now_ms >= self._check_from_ms:
            self._check_from_ms = now_ms + self._check_interval_ms
            try:
                while (outcome := self._coordinator.expire(now_ms=now_ms)).transaction is not None:
                    self._finish(outcome)
            except DataDirError:
                self._check_from_ms = now_ms + _RETRY_MS  # the folder has told it; what was due stays due
        self._arm_timer()

    # --- inside

    def _do(self, question: Callable[[int], Outcome]) -> Outcome:
        try:
            outcome = question(self._clock.wall_ms())
            self._finish(outcome)
        except DataDirError:
            # What cures it is the operator's; until then clients shall keep their state and ask again.
            return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return outcome

    def _finish(self, outcome: Outcome) -> None:
        transaction = outcome.transaction
        if transaction is None:
            return
        self._log.append((record_of(transaction),))
        self._coordinator.replay(transaction)
        if transaction.is_ending:
            self._ends[transaction.transactional_id] = transaction.updated_ms + self._marker_delay_ms
            if not self._marker_delay_ms:
                self._write_end(transaction.transactional_id)
        self._arm_timer()
        if self._waiters:
            self._tell_waiters()

    def _admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TopicPartition, is_adding: bool
    ) -> ErrorCode:
        if is_adding:
            outcome = self._do(
                lambda now_ms: self._coordinator.add_partitions(
                    transactional_id,
                    producer_id=producer_id,
                    epoch=epoch,
                    partitions=(partition,),
                    now_ms=now_ms,
                    client_version=_MOVING_CLIENT,
                )
            )
            error = outcome.error
        else:
            error = self.verify(transactional_id, producer_id=producer_id, epoch=epoch, partition=partition)
        return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error

    def _write_end(self, transactional_id: str) -> None:
        """Write the end of a transaction wherever it wrote; what cannot be written is tried again later."""
        transaction = self._coordinator.get(transactional_id)
        if transaction is None or not transaction.is_ending:
            self._ends.pop(transactional_id, None)
            return
        try:
            self._write_markers(transaction)
            self._finish(self._coordinator.completed(transactional_id, now_ms=self._clock.wall_ms()))
        except (DataDirError, BrokerError):  # the folder has told it
            self._ends[transactional_id] = self._clock.wall_ms() + _RETRY_MS
            self._arm_timer()
        else:
            self._ends.pop(transactional_id, None)

    def _write_markers(self, transaction: Transaction) -> None:
        commits_offsets = False
        for topic_name, partition in sorted(transaction.partitions):
            if topic_name == GROUP_OFFSETS_TOPIC:
                commits_offsets = True
                continue
            topic = self._topics.get(topic_name)
            if topic is None or partition >= topic.partition_count:
                continue  # deleted meanwhile
            try:
                self._topics.append_marker(
                    topic,
                    partition,
                    producer_id=transaction.producer_id,
                    epoch=transaction.epoch,
                    commit=transaction.commits,
                    timestamp_ms=self._clock.wall_ms(),
                    moves_epoch=transaction.client_version >= _MOVING_CLIENT,
                )
            except BrokerError as error:
                if error.code == STORAGE_FAILED:
                    raise
                # An end with a later epoch is there already, written by hand (WriteTxnMarkers).
        if commits_offsets:
            self._groups.end_transaction(transaction.producer_id, commit=transaction.commits)

    def _abort_orphans(self) -> None:
        """Abort what no transactional id knows: readers of committed records would wait for its end for ever.

        That happens to a data folder whose transactions.log was lost.
        """
        known = {
            transaction.producer_id
            for transaction in self._coordinator
            if transaction.is_ending or transaction.state is TransactionState.ONGOING
        }
        for topic in self._topics:
            for partition, log in enumerate(topic.partitions):
                for producer_id in [each for each in log.open_transactions if each not in known]:
                    self._topics.append_marker(
                        topic,
                        partition,
                        producer_id=producer_id,
                        epoch=log.epoch_of(producer_id),
                        commit=False,
                        timestamp_ms=self._clock.wall_ms(),
                        moves_epoch=False,
                    )

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if isinstance(self._clock, ManualClock) or self._closed:
            return
        due = list(self._ends.values())
        deadline_ms = self._coordinator.deadline_ms()
        if deadline_ms is not None:
            due.append(max(deadline_ms + 1, self._check_from_ms))
        if due:
            delay_ms = max(min(due) - self._clock.wall_ms(), 1)
            self._timer = self._loop.call_later(delay_ms / 1000, self.run_due)

    def _tell_waiters(self) -> None:
        left = []
        for waiter in self._waiters:
            transactional_id, state, future = waiter
            known = self._coordinator.get(transactional_id)
            if known is None or known.state.title != state:
                left.append(waiter)
            elif future.set_running_or_notify_cancel():
                future.set_result(_snapshot_of(known))
        self._waiters = left


def code_in(error: ErrorCode, api_version: int, *, fenced_from: int) -> ErrorCode:
    """The code as *api_version* writes it: PRODUCER_FENCED is known from version *fenced_from* on."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _reason(error: ErrorCode, transactional_id: str, where: str) -> str:
    match error:
        case ErrorCode.INVALID_TXN_STATE | ErrorCode.TRANSACTION_ABORTABLE:
            return f"{where} was not added to the transaction of {transactional_id!r}"
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"another producer has taken the transactional id {transactional_id!r}, or its transaction timed out"
        case ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return f"the transactional id {transactional_id!r} is not held by this producer id"
        case ErrorCode.CONCURRENT_TRANSACTIONS | ErrorCode.NOT_ENOUGH_REPLICAS:
            return f"the last transaction of {transactional_id!r} is still being ended"
        case _:
            return f"the transaction of {transactional_id!r} cannot write to {where}"


def _snapshot_of(transaction: Transaction) -> TransactionSnapshot:
    return TransactionSnapshot(
        transactional_id=transaction.transactional_id,
        state=transaction.state.title,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        timeout_ms=transaction.timeout_ms,
        partitions=tuple(sorted(transaction.partitions)),
        started_ms=transaction.started_ms,
    )
