"""The host of the transaction coordinator: keeps its records, writes the ends of transactions, runs its timers.

No protocol rule but one: what each API answers in which version for an error of the coordinator. An outcome goes into
the log, then through `TransactionCoordinator.replay`; only then is it answered. The end of a transaction is written
into its partitions and groups in the same turn of the loop, or ``kip848.transaction.marker.delay.ms`` later.

Lives on the broker's loop. Timers run on the loop's time, or by `run_due` on a `ManualClock`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.errors import BrokerError, DataDirError, ErrorCode, IllegalStateError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.coordinators.transaction_admission import TransactionAdmission
from kip848_client.testing.broker.storage.group_log import DecisionLog
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED, TopicRegistry
from kip848_client.testing.transactions.coordinator import TransactionAnswer, TransactionCoordinator
from kip848_client.testing.transactions.transaction import (
    GROUP_OFFSETS_TOPIC,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest

_MOVING_CLIENT: Final = 2

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
    partitions: tuple[TransactionPartition, ...]
    started_ms: int


class _End(msgspec.Struct, eq=False):
    """The end of a transaction that is decided: when it is to be written, and where it is not written yet."""

    due_ms: int
    left: set[TransactionPartition]


class TransactionHost(TransactionAdmission):
    """Runs the coordinator of one partition of ``__transaction_state``; which node has which is `transaction_shards`.

    Args:
        log: where its records are kept.
        topics: where transactions write.
        groups: whose offsets they commit.
        coordinator_epoch: grows with each node that coordinates these ids after another one.
        others: the coordinators of all partitions, which share the limit of ids.
        acts: whether its node does anything now; one that hangs aborts nothing.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: DecisionLog[TransactionMetadata],
        topics: TopicRegistry,
        groups: GroupShards,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        coordinator_epoch: int,
        others: Callable[[], Iterable[TransactionCoordinator]],
        acts: Callable[[], bool],
    ) -> None:
        self._acts: Final = acts
        self._others: Final = others
        self.coordinator: Final = TransactionCoordinator(
            timeout_ms_max=config.transaction_timeout_ms_max,
            expiration_ms=config.transactional_id_expiration_ms,
            ids_max=config.transactional_ids_max,
            new_producer_id=topics.new_producer_id,
            others=others,
        )
        self._log: Final = log
        self._topics: Final = topics
        self._groups: Final = groups
        self._coordinator_epoch: Final = coordinator_epoch
        self._clock: Final = clock
        self._loop: Final = loop
        self._marker_delay_ms: Final = config.transaction_marker_delay_ms
        self._check_interval_ms: Final = config.transaction_check_interval_ms
        self._check_from_ms = 0
        self._forget_interval_ms: Final = config.transactional_id_check_interval_ms
        self._forget_from_ms = 0
        self._ends: Final[dict[str, _End]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._waiters: list[Waiter] = []
        self._closed = False

    # --- life

    def load(self) -> None:
        """Replay every record of the log, and write the ends that were decided and not written.

        Raises:
            DataDirError: the log cannot be read.
            ProtocolError: a record of the log is not what its version says.
        """
        for transaction in self._log.load():
            self.coordinator.replay(transaction)
        for transaction in self.coordinator:
            if transaction.is_ending:
                self._ends[transaction.transactional_id] = _End(0, set(transaction.partitions))
        self.run_due()

    def take_waiters(self) -> list[Waiter]:
        """Stop: cancel timers. Returns the calls that wait for a transaction, for its next coordinator."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiters, self._waiters = self._waiters, []
        return waiters

    # --- requests

    def init_producer_id(self, request: InitProducerIdRequest) -> TransactionAnswer:
        """See `TransactionCoordinator.init_producer_id`."""
        return self._do(
            lambda now_ms: self.coordinator.init_producer_id(
                request.transactional_id or "",
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                now_ms=now_ms,
            )
        )

    def add_partitions(
        self, transactional_id: str, *, producer_id: int, epoch: int, partitions: frozenset[TransactionPartition]
    ) -> TransactionAnswer:
        """See `TransactionCoordinator.add_partitions`."""
        return self._do(
            lambda now_ms: self.coordinator.add_partitions(
                transactional_id, producer_id=producer_id, epoch=epoch, partitions=partitions, now_ms=now_ms
            )
        )

    def verify(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition
    ) -> ErrorCode:
        """See `TransactionCoordinator.verify`."""
        return self.coordinator.verify(transactional_id, producer_id=producer_id, epoch=epoch, partition=partition)

    def end(
        self, transactional_id: str, *, producer_id: int, epoch: int, commit: bool, moves_epoch: bool
    ) -> TransactionAnswer:
        """See `TransactionCoordinator.end`."""
        return self._do(
            lambda now_ms: self.coordinator.end(
                transactional_id,
                producer_id=producer_id,
                epoch=epoch,
                commit=commit,
                moves_epoch=moves_epoch,
                now_ms=now_ms,
            )
        )

    # --- for other parts of the broker

    def __iter__(self) -> Iterator[TransactionMetadata]:
        """The state of every transactional id, by id."""
        return iter(self.coordinator)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of one transactional id, or None."""
        return self.coordinator.get(transactional_id)

    def snapshots(self) -> tuple[TransactionSnapshot, ...]:
        """All transactional ids, by id."""
        return tuple(_snapshot_of(transaction) for transaction in self.coordinator)

    def abort(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer.

        Raises:
            IllegalStateError: there is no such open transaction.
            DataDirError: it could not be kept; the transaction is open as before.
        """
        outcome = self.coordinator.abort(transactional_id, now_ms=self._clock.wall_ms())
        if outcome.error:
            known = self.coordinator.get(transactional_id)
            seen = "there is no such transactional id" if known is None else f"its state is {known.state.title}"
            raise IllegalStateError(f"{transactional_id!r} has no open transaction to abort: {seen}")
        self._finish(outcome)

    def add_waiter(
        self, transactional_id: str, state: str, future: concurrent.futures.Future[TransactionSnapshot]
    ) -> None:
        """Resolve *future* when the transactional id is in *state*."""
        self._waiters.append((transactional_id, state, future))
        self._tell_waiters()

    def go_on(self) -> None:
        """Its node does not hang any more: do the work that became due meanwhile."""
        self.run_due()

    def run_due(self) -> None:
        """Write the ends that are due, abort what has taken too long, and forget ids that were not used for long.

        Unless the node hangs.
        """
        if not self._acts():
            return
        now_ms = self._clock.wall_ms()
        for transactional_id, end in tuple(self._ends.items()):
            if end.due_ms <= now_ms:
                self._write_end(transactional_id)
        try:
            if now_ms >= self._check_from_ms:
                self._check_from_ms = now_ms + self._check_interval_ms
                while (outcome := self.coordinator.expire(now_ms=now_ms)).transaction is not None:
                    self._finish(outcome)
            if now_ms >= self._forget_from_ms:
                self._forget_from_ms = now_ms + self._forget_interval_ms
                while (outcome := self.coordinator.forget(now_ms=now_ms)).transaction is not None:
                    self._finish(outcome)
        except DataDirError:  # the data folder has reported it; the work stays due
            self._check_from_ms = self._forget_from_ms = now_ms + _RETRY_MS
        self._run_next()

    # --- internals

    def _do(self, question: Callable[[int], TransactionAnswer]) -> TransactionAnswer:
        try:
            outcome = question(self._clock.wall_ms())
            self._finish(outcome)
        except DataDirError:
            # An operator has to cure it; until then clients should keep their state and ask again.
            return TransactionAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return outcome

    def _finish(self, outcome: TransactionAnswer) -> None:
        transaction = outcome.transaction
        if transaction is None:
            return
        self._log.append(outcome.changes)
        if outcome.forgotten is not None:
            self._coordinator_of(outcome.forgotten).replay(outcome.forgotten)
        self.coordinator.replay(transaction)
        if transaction.is_ending:
            due_ms = transaction.updated_ms + self._marker_delay_ms
            self._ends[transaction.transactional_id] = _End(due_ms, set(transaction.partitions))
            if not self._marker_delay_ms:
                self._write_end(transaction.transactional_id)
            else:
                self._run_at(due_ms)
        elif transaction.deadline_ms is not None:
            self._run_at(max(transaction.deadline_ms + 1, self._check_from_ms))
        elif self._timer is None:
            self._run_next()
        if self._waiters:
            self._tell_waiters()

    def _coordinator_of(self, transaction: TransactionMetadata) -> TransactionCoordinator:
        has_it = (each for each in self._others() if each.get(transaction.transactional_id) is not None)
        return next(has_it, self.coordinator)

    def admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition, is_adding: bool
    ) -> ErrorCode:
        """See `TransactionAdmission.admit`."""
        if is_adding:
            outcome = self._do(
                lambda now_ms: self.coordinator.add_partitions(
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
        """Write the end of a transaction to all its partitions; one that cannot be written now is tried again later."""
        transaction, end = self.coordinator.get(transactional_id), self._ends[transactional_id]
        if transaction is None or not transaction.is_ending:
            del self._ends[transactional_id]
            return
        for place in sorted(end.left):
            if self._write_marker(transaction, *place):
                end.left.discard(place)
        try:
            if not end.left:
                self._finish(self.coordinator.completed(transactional_id, now_ms=self._clock.wall_ms()))
                del self._ends[transactional_id]
                return
        except DataDirError:  # the data folder has reported it
            pass
        end.due_ms = self._clock.wall_ms() + _RETRY_MS
        self._run_at(end.due_ms)

    def _write_marker(self, transaction: TransactionMetadata, name: str, partition: int) -> bool:
        """Write the end of a transaction into one of its partitions; False if that is not possible now."""
        try:
            if name == GROUP_OFFSETS_TOPIC:
                self._groups.end_transaction(transaction.producer_id, (partition,), commit=transaction.commits)
                return True
            topic = self._topics.get(name)
            if topic is None or partition >= topic.partition_count:
                return True  # it was deleted meanwhile
            if not self._topics.has_leader(topic, partition):
                return False
            self._topics.append_marker(
                topic,
                partition,
                producer_id=transaction.producer_id,
                epoch=transaction.epoch,
                commit=transaction.commits,
                timestamp_ms=self._clock.wall_ms(),
                coordinator_epoch=self._coordinator_epoch,
                moves_epoch=transaction.client_version >= _MOVING_CLIENT,
            )
        except DataDirError:  # the data folder has reported it
            return False
        except BrokerError as error:
            # Any other error: an end with a later epoch is there already, written by hand (WriteTxnMarkers).
            return error.code not in (STORAGE_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return True

    def _run_next(self) -> None:
        """Run again when anything is due."""
        due = [end.due_ms for end in self._ends.values()]
        if (deadline_ms := self.coordinator.deadline_ms()) is not None:
            due.append(max(deadline_ms + 1, self._check_from_ms))
        if (expiration_ms := self.coordinator.expiration_ms()) is not None:
            due.append(max(expiration_ms, self._forget_from_ms))
        if due:
            self._run_at(min(due))

    def _run_at(self, due_ms: int) -> None:
        """Run not later than *due_ms*. An earlier timer stays: it finds nothing to do, and sets the next one."""
        if self._closed or isinstance(self._clock, ManualClock) or not self._acts():
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._clock.wall_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.run_due()

    def _tell_waiters(self) -> None:
        left = []
        for waiter in self._waiters:
            transactional_id, state, future = waiter
            known = self.coordinator.get(transactional_id)
            if known is None or known.state.title != state:
                left.append(waiter)
            elif future.set_running_or_notify_cancel():
                future.set_result(_snapshot_of(known))
        self._waiters = left


def abort_orphans(topics: TopicRegistry, transactions: Iterable[TransactionMetadata], *, now_ms: int) -> None:
    """Abort what no transactional id knows: readers of committed records would wait for its end for ever.

    That happens to a data folder whose transactions.log was lost.
    """
    known = {
        transaction.producer_id
        for transaction in transactions
        if transaction.is_ending or transaction.state is TransactionState.ONGOING
    }
    for topic in topics:
        for partition, log in enumerate(topic.partitions):
            for producer_id in [each for each in log.open_transactions if each not in known]:
                topics.append_marker(
                    topic,
                    partition,
                    producer_id=producer_id,
                    epoch=log.epoch_of(producer_id),
                    commit=False,
                    timestamp_ms=now_ms,
                    moves_epoch=False,
                )


def _snapshot_of(transaction: TransactionMetadata) -> TransactionSnapshot:
    return TransactionSnapshot(
        transactional_id=transaction.transactional_id,
        state=transaction.state.title,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        timeout_ms=transaction.timeout_ms,
        partitions=tuple(sorted(transaction.partitions)),
        started_ms=transaction.started_ms,
    )
