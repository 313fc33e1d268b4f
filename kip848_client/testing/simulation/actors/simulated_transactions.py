"""Transactional producers and their coordinator, in one run of a simulation: the production classes, with faults.

Producers die at any step, freeze and go on as zombies, lose requests and answers and ask again. The coordinator dies
before and after any append, and moves; the old one may go on for a while, and its markers arrive late. Logs of
partitions and offsets of groups are the production classes, too.

Does not own: what must hold (`checkers.transactions`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import ApiRequest, GroupRequest, TopicsChanged, TransactionEnded
from kip848_client.testing.coordinator.core.result import CoordinatorRecord
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.simulation.checkers.transactions import TransactionLedger
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.testing.transactions.coordinator import TransactionAnswer, TransactionCoordinator
from kip848_client.testing.transactions.records import record_of, transaction_of
from kip848_client.testing.transactions.transaction import (
    GROUP_OFFSETS_TOPIC,
    TransactionMetadata,
    TransactionPartition,
    offsets_partition,
)
from kip848_client.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kip848_client.wire.record_batch import Record, build_batch

PARTITIONS: Final[tuple[TransactionPartition, ...]] = (("results", 0), ("results", 1), ("results", 2))
INPUT: Final = "orders"
_TOPICS: Final = TopicsImage((TopicInfo(INPUT, UUID(int=1), 1),))
_TRANSACTIONAL: Final = 0x10
_TIMEOUT_MS: Final = 4_000
_CHECK_MS: Final = 500
_EXPIRATION_MS: Final = 1_500
"""After which an id without a transaction is forgotten, while a process may be frozen that has it."""
_IDS_MAX: Final = 1_000
_ANSWER_MS: Final = 700
"""After which a producer asks again."""
_ENDS_OPEN: Final = 0.3
_DIES, _FREEZES = 0.01, 0.02
"""Parts of the steps of a producer at which that happens."""
_LATER: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

Answer = Callable[[TransactionAnswer], None]
Ask = Callable[[Answer], None]
"""Handles a request at the broker; answers at most once."""
Question = Callable[[TransactionCoordinator, int], TransactionAnswer]
"""A request to the coordinator, at a time in ms."""


class TransactionService:
    """The brokers: coordinators, logs and groups.

    Attributes:
        records: the log of the transaction coordinators; durable as soon as it is written.
        logs: of the partitions that producers write to.
        host: the present coordinator.
    """

    def __init__(self, scheduler: Scheduler, scenario: Scenario) -> None:
        self.scheduler: Final = scheduler
        self.scenario: Final = scenario
        self.rng: Final = scheduler.random("transactions")
        self.faulty = True
        self.records: Final[list[tuple[bytes, bytes | None]]] = []
        self.logs: Final = {partition: PartitionLog() for partition in PARTITIONS}
        self.ledger: Final = TransactionLedger(self.logs, committed=self._committed)
        self.group_log: Final[list[CoordinatorRecord]] = []
        self.producer_ids: Final = itertools.count(1)
        self._moves = 0
        self._asked: Final = itertools.count(1)
        self.groups: GroupCoordinator = self._load_groups()
        self.host: SimulatedTransactionHost = SimulatedTransactionHost(self, epoch=0)

    def dies(self, probability: float) -> bool:
        """Draw whether a process ends now."""
        return self.faulty and self.rng.random() < probability

    def delay_ms(self) -> int:
        """The delay of one message."""
        return self.rng.randint(*self.scenario.faults.delay_ms) if self.faulty else 1

    def move(self) -> None:
        """Another node becomes the coordinator; the old one may not know for a while."""
        old = self.host
        self._moves += 1
        self.scheduler.note("transactions", "transaction_coordinator_moved")
        if old.alive and self.rng.random() < self.scenario.deposed:
            self.scheduler.call_in(self.rng.randint(1, 2_000), old.die)
        else:
            old.die()
        self.host = SimulatedTransactionHost(self, epoch=self._moves)
        self.ledger.loaded(old.coordinator, self.host.coordinator)

    def restart(self) -> None:
        """A coordinator that has died comes back with the state in its log."""
        if not self.host.alive:
            self.move()

    # --- groups

    def decide(self, event: GroupRequest) -> int:
        """Let the group coordinator decide, and append its records; returns the error code of the answer."""
        result = self.groups.handle(event, now_ms=self.scheduler.now_ms)
        self.group_log.extend(result.records)
        for record in result.records:
            self.groups.replay(record)
        self.groups.apply(result)
        if self.dies(self.scenario.coordinator_crashes_after_append):
            self.groups = self._load_groups()
        for reply in result.replies:
            return int(reply.response.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]  # TxnOffsetCommit
        return 0

    def commit_offset(self, group: str, life: Life, offset: int) -> int:
        """Handle a TxnOffsetCommit that was admitted; returns its error code."""
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=life.name,
            group_id=group,
            producer_id=life.producer_id,
            producer_epoch=life.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=INPUT, partitions=(partition,)),),
        )
        return self.decide(ApiRequest(next(self._asked), 5, request, self.scheduler.wall_ms))

    def _committed(self, group: str) -> int:
        found = self.groups.committed(group).get(INPUT, {}).get(0)
        return -1 if found is None else found.offset

    def _load_groups(self) -> GroupCoordinator:
        groups = GroupCoordinator(CoordinatorConfig(), rng=self.rng)
        for record in self.group_log:
            groups.replay(record)
        groups.apply(groups.handle(TopicsChanged(_TOPICS), now_ms=self.scheduler.now_ms))
        return groups


class SimulatedTransactionHost:
    """One coordinator in one process, driven as the embedded broker drives it."""

    def __init__(self, service: TransactionService, *, epoch: int) -> None:
        self._service: Final = service
        self._scheduler: Final = service.scheduler
        self._epoch: Final = epoch
        self.alive: bool = True
        self.coordinator: Final = TransactionCoordinator(
            timeout_ms_max=2 * _TIMEOUT_MS,
            expiration_ms=_EXPIRATION_MS,
            ids_max=_IDS_MAX,
            new_producer_id=service.producer_ids.__next__,
        )
        for key, value in service.records:
            self.coordinator.replay(transaction_of(key, value))
        for transaction in self.coordinator:
            if transaction.is_ending:
                self._write_end(transaction)
        self._scheduler.call_in(_CHECK_MS, self._expire)

    def die(self) -> None:
        """End the process."""
        self.alive = False

    def ask(self, question: Question, answer: Answer) -> None:
        """Decide, keep, replay, answer; write an end afterwards, as Kafka does."""
        if not self.alive:
            answer(TransactionAnswer(ErrorCode.NOT_COORDINATOR))
            return
        outcome = question(self.coordinator, self._scheduler.wall_ms)
        if all(self._keep(change) for change in outcome.changes):
            answer(outcome)
        elif self is not self._service.host:
            answer(TransactionAnswer(ErrorCode.NOT_COORDINATOR))

    def admit(self, life: Life, partition: TransactionPartition) -> ErrorCode:
        """Whether a producer may write to a partition, or offsets: a call inside the process, as in the broker."""
        found: list[TransactionAnswer] = []
        if life.moves_epoch:
            self.ask(
                lambda coordinator, now_ms: coordinator.add_partitions(
                    life.name,
                    producer_id=life.producer_id,
                    epoch=life.epoch,
                    partitions=(partition,),
                    now_ms=now_ms,
                    client_version=2,
                ),
                found.append,
            )
            return found[0].error if found else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.alive:
            return ErrorCode.NOT_COORDINATOR
        return self.coordinator.verify(life.name, producer_id=life.producer_id, epoch=life.epoch, partition=partition)

    def _keep(self, transaction: TransactionMetadata) -> bool:
        """Append a new state and replay it; returns False if this coordinator died, or is no longer the present one."""
        service, scenario = self._service, self._service.scenario
        if service.host is not self:  # another node leads the log
            self.die()
            return False
        if service.dies(scenario.coordinator_crashes_before_append):
            self._crash()
            return False
        service.records.append(record_of(transaction))
        self.coordinator.replay(transaction)
        service.ledger.decided(transaction)
        if service.dies(scenario.coordinator_crashes_after_append):
            self._crash()
            return False
        if transaction.is_ending:
            self._write_end(transaction)
        return True

    def _crash(self) -> None:
        self._scheduler.note("transactions", "transaction_coordinator_crashed")
        self.die()
        self._scheduler.call_in(self._service.rng.randint(50, 1_500), self._service.restart)

    def _write_end(self, transaction: TransactionMetadata) -> None:
        """Write a marker to each partition, each after a delay; then record that the transaction is complete."""
        left = set(transaction.partitions)

        def write(place: TransactionPartition) -> None:
            if self._service.dies(self._service.scenario.faults.loss):
                self._scheduler.call_in(_ANSWER_MS, lambda: write(place) if self.alive else None)
                return
            self._write_marker(transaction, place)  # a marker that was sent arrives, even if this coordinator has died
            left.discard(place)
            if not left and self.alive:
                self._complete(transaction)

        for place in sorted(left):
            self._scheduler.call_in(self._service.delay_ms(), lambda place=place: write(place))  # type: ignore[misc]
        if not left:
            self._complete(transaction)

    def _complete(self, transaction: TransactionMetadata) -> None:
        completed = self.coordinator.completed(transaction.transactional_id, now_ms=self._scheduler.wall_ms)
        for change in completed.changes:
            self._keep(change)

    def _write_marker(self, transaction: TransactionMetadata, place: TransactionPartition) -> None:
        service = self._service
        if place[0] == GROUP_OFFSETS_TOPIC:
            service.decide(TransactionEnded(transaction.producer_id, transaction.commits))
            service.ledger.offsets_ended(transaction)
            return
        log = service.logs[place]
        try:
            marker = log.prepare_marker(
                transaction.producer_id,
                epoch=transaction.epoch,
                commit=transaction.commits,
                timestamp_ms=self._scheduler.wall_ms,
                coordinator_epoch=self._epoch,
                moves_epoch=transaction.client_version >= 2,
            )
        except BrokerError as error:
            service.scheduler.history.count(f"marker_refused_{ErrorCode(error.code).name.lower()}")
            if error.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                self.die()
            return
        log.commit(marker)
        service.ledger.marked(transaction, place)

    def _expire(self) -> None:
        if self.alive:
            for overdue in (self.coordinator.expire, self.coordinator.forget):
                while (late := overdue(now_ms=self._scheduler.wall_ms).transaction) is not None:
                    if not self._keep(late):
                        return
            self._scheduler.call_in(_CHECK_MS, self._expire)


class Life:
    """One process with a transactional id, from its start to its death."""

    def __init__(self, producers: Producers, name: str, *, moves_epoch: bool) -> None:
        self.name = name
        self.moves_epoch: Final = moves_epoch
        """It speaks KIP-890: each transaction has an epoch of its own."""
        self.producer_id: int = -1
        self.epoch: int = -1
        self.alive: bool = True
        self.acknowledged: list[bytes] = []
        """Records of the present transaction whose write was confirmed."""
        self._producers: Final = producers
        self._service: Final = producers.service
        self._scheduler: Final = producers.service.scheduler
        self._rng: Final = producers.service.rng
        self._sequences: dict[TransactionPartition, int] = {}
        self._arrives_ms = 0
        self._added: set[TransactionPartition] = set()

    def start(self) -> None:
        """Fence the life before, then write."""
        self._ask_coordinator(
            lambda coordinator, now_ms: coordinator.init_producer_id(self.name, timeout_ms=_TIMEOUT_MS, now_ms=now_ms),
            self._initialised,
        )

    def _initialised(self, outcome: TransactionAnswer) -> None:
        self.producer_id, self.epoch = outcome.producer_id, outcome.epoch
        self._service.ledger.initialised(self)
        self._begin()

    def _begin(self) -> None:
        self.acknowledged, self._added = [], set()
        if self._producers.stopping:
            self.die("stopped")
            return
        steps = [*self._rng.choices(PARTITIONS, k=self._rng.randint(1, 4))]
        self._later(lambda: self._next(steps, with_offset=self._rng.random() < 0.5))

    def _next(self, steps: list[TransactionPartition], *, with_offset: bool) -> None:
        """Write the rest of the transaction, one batch after the other; then commit or abort."""
        if steps:
            self._add(steps[0], lambda: self._produce(steps[0], lambda: self._next(steps[1:], with_offset=with_offset)))
        elif with_offset:
            partition = offsets_partition(self.name)
            self._add(partition, lambda: self._commit_offset(lambda: self._next([], with_offset=False)))
        else:
            self._end(commit=self._rng.random() < 0.7)

    def _add(self, partition: TransactionPartition, then: Callable[[], None]) -> None:
        """AddPartitionsToTxn, which newer clients do not send."""
        if self.moves_epoch or partition in self._added:
            then()
            return

        def added(_: TransactionAnswer) -> None:
            self._added.add(partition)
            then()

        self._ask_coordinator(
            lambda coordinator, now_ms: coordinator.add_partitions(
                self.name, producer_id=self.producer_id, epoch=self.epoch, partitions=(partition,), now_ms=now_ms
            ),
            added,
        )

    def _produce(self, partition: TransactionPartition, then: Callable[[], None]) -> None:
        sequence = self._sequences.get(partition, 0)
        value = self._service.ledger.new_value()
        batch = build_batch(
            [Record(value, timestamp=self._scheduler.wall_ms)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=_TRANSACTIONAL,
        )

        def write(answer: Answer) -> None:
            service = self._service
            log = service.logs[partition]
            error = ErrorCode.NONE
            try:
                if not log.is_open(self.producer_id, epoch=self.epoch):
                    log.expect_transaction(
                        self.producer_id, epoch=self.epoch, sequence=sequence, adds_partition=self.moves_epoch
                    )
                    error = service.host.admit(self, partition)
                if not error:
                    prepared = log.prepare(batch)
                    log.commit(prepared)
                    if not prepared.duplicate:
                        service.ledger.written(self, partition, value, offset=prepared.base_offset)
            except BrokerError as refused:
                error = ErrorCode(refused.code)
            answer(TransactionAnswer(error))

        def written(_: TransactionAnswer) -> None:
            self._sequences[partition] = sequence + 1
            self.acknowledged.append(value)
            then()

        self._ask(write, written)

    def _commit_offset(self, then: Callable[[], None]) -> None:
        offset = self._service.ledger.new_offset()

        def commit(answer: Answer) -> None:
            error = self._service.host.admit(self, offsets_partition(self.name))
            if not error:
                error = ErrorCode(self._service.commit_offset(self.name, self, offset))
                if not error:
                    self._service.ledger.offset_written(self, offset)
            answer(TransactionAnswer(error))

        self._ask(commit, lambda _: then())

    def _end(self, *, commit: bool) -> None:
        """Commit or abort. A commit is refused if the coordinator aborted before; then the producer aborts, too."""

        def ended(outcome: TransactionAnswer) -> None:
            if commit:
                self._service.ledger.told_committed(self)
            if self.moves_epoch:
                self.producer_id, self.epoch, self._sequences = outcome.producer_id, outcome.epoch, {}
            self._begin()

        producer_id, epoch = self.producer_id, self.epoch
        self._ask_coordinator(
            lambda coordinator, now_ms: coordinator.end(
                self.name,
                producer_id=producer_id,
                epoch=epoch,
                commit=commit,
                moves_epoch=self.moves_epoch,
                now_ms=now_ms,
            ),
            ended,
            on_refused=(lambda: self._end(commit=False)) if commit and self.moves_epoch else None,
        )

    # --- internals

    def die(self, why: str) -> None:
        """End the process; its requests on the way still arrive."""
        if self.alive:
            self.alive = False
            self._scheduler.note(f"producer {self.name}", f"producer_{why}")
            self._producers.ended(self)

    def _later(self, action: Callable[[], None]) -> None:
        """Go on after a while, unless the process has died; or freeze, and go on as a zombie."""
        service = self._service
        if service.dies(_DIES):
            self.die("crashed")
            return
        wait_ms = service.delay_ms()
        if service.dies(_FREEZES):
            wait_ms += self._rng.randint(100, 3 * _TIMEOUT_MS)
            self._scheduler.note(f"producer {self.name}", "producer_froze")
            self._producers.start(self.name, after_ms=self._rng.randint(1, wait_ms))
        self._scheduler.call_in(wait_ms, lambda: action() if self.alive else None)

    def _ask_coordinator(
        self, question: Question, then: Answer, *, on_refused: Callable[[], None] | None = None
    ) -> None:
        self._ask(lambda answer: self._service.host.ask(question, answer), then, on_refused=on_refused)

    def _ask(self, ask: Ask, then: Answer, *, on_refused: Callable[[], None] | None = None) -> None:
        """Send a request until it is answered; they arrive in the order in which they are sent.

        Args:
            on_refused: what to do if the transaction is not open any more.
        """
        service, scheduler = self._service, self._scheduler
        done = False

        def answered(outcome: TransactionAnswer) -> None:
            nonlocal done
            if done or not self.alive or outcome.error in _LATER:
                return  # the request is sent again when its time-out has passed
            done = True
            if outcome.error in _FENCED:
                self.die("fenced")
            elif outcome.error is ErrorCode.INVALID_TXN_STATE and on_refused is not None:
                self._later(on_refused)
            elif outcome.error:
                fail("X7", f"{self.name} at epoch {self.epoch} is told {outcome.error.name}")
            else:
                self._later(lambda: then(outcome))

        def answer(outcome: TransactionAnswer) -> None:
            if not service.dies(service.scenario.faults.loss):
                scheduler.call_in(service.delay_ms(), lambda: answered(outcome))

        def send() -> None:
            if done or not self.alive:
                return
            scheduler.events += 1
            if not service.dies(service.scenario.faults.loss):
                self._arrives_ms = max(self._arrives_ms, scheduler.now_ms + service.delay_ms())
                scheduler.call_in(self._arrives_ms - scheduler.now_ms, lambda: ask(answer))
            scheduler.call_in(_ANSWER_MS, send)

        send()


class Producers:
    """All producers; starts another process for one that has ended."""

    def __init__(self, scheduler: Scheduler, scenario: Scenario) -> None:
        self.service: Final = TransactionService(scheduler, scenario)
        self.stopping: bool = False
        self._rng: Final[random.Random] = self.service.rng
        self._lives: Final[list[Life]] = []
        for number in range(scenario.producers):
            self.start(f"tx-{number}", after_ms=self._rng.randint(0, 200))
        if scenario.failovers:
            self._plan_move()

    def start(self, name: str, *, after_ms: int) -> None:
        """Start one more process with that transactional id."""

        def begin() -> None:
            if self.stopping:
                return  # a transaction that the last process left open ends by its time-out
            life = Life(self, name, moves_epoch=self._rng.random() < 0.6)
            self._lives[:] = [*(one for one in self._lives if one.alive), life]
            life.start()

        self.service.scheduler.call_in(after_ms, begin)

    def ended(self, life: Life) -> None:
        """A process has ended: it is started again, unless it was told to stop, or another one is there."""
        if not self.stopping and not any(one.alive and one.name == life.name for one in self._lives):
            self.start(life.name, after_ms=self._rng.randint(1, 1_000))

    def heal(self) -> None:
        """End the faults: each process ends its transaction and stops, or leaves it to its time-out."""
        self.service.faulty = False
        self.service.restart()
        self.stopping = True
        for life in self._lives:
            if self._rng.random() < _ENDS_OPEN:
                life.die("crashed")

    def rest(self) -> bool:
        """Whether no process is left, and no transaction is open."""
        self._lives[:] = [one for one in self._lives if one.alive]
        return not self._lives and not self.service.ledger.open()

    def picture(self) -> str:
        """The processes and transactions that are left, in one line."""
        lives = [f"{life.name}@{life.epoch}" for life in self._lives if life.alive]
        states = {each.transactional_id: each.state.title for each in self.service.host.coordinator}
        return f"producers {lives}, transactions {states}"

    def _plan_move(self) -> None:
        def move() -> None:
            if self.service.faulty:
                self.service.move()
                self._plan_move()

        self.service.scheduler.call_in(int(self._rng.expovariate(self.service.scenario.failovers) * 1_000), move)
