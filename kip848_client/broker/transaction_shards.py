"""The transactional ids of a cluster of several nodes: one coordinator for each partition of ``__transaction_state``.

As `group_shards` does for groups: a change of the leader ends one coordinator, and the next one replays its records,
writes the ends that were decided and not written, and carries the next coordinator epoch.

What is written inside this process (a Produce request adds its partition) asks the coordinator on whatever node it is,
as Kafka's nodes ask each other.

Source:
    apache/kafka ``TransactionStateManager``, ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from kip848_client.broker.config import BrokerConfig
from kip848_client.broker.group_log import GroupLog
from kip848_client.broker.group_shards import GroupShards, ShardLog
from kip848_client.broker.placement import (
    NO_LEADER,
    TRANSACTION_STATE,
    LeaderChange,
    Placement,
    coordinator_partition,
)
from kip848_client.broker.topics import TopicRegistry
from kip848_client.broker.transaction_admission import TransactionAdmission
from kip848_client.broker.transactions import TransactionHost, TransactionSnapshot, Waiter, refuse_waiters
from kip848_client.clock import Clock
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.transactions.coordinator import Outcome
from kip848_client.transactions.transaction import TopicPartition, Transaction
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.transaction_records import decode_transaction_record

__all__ = ["NodeTransactions", "TransactionShards"]

KeyAndValue = tuple[bytes, bytes | None]


class TransactionShards(TransactionAdmission):
    """All transaction coordinators of one cluster. To its callers it looks like one `TransactionHost`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: GroupLog,
        topics: TopicRegistry,
        groups: GroupShards,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config: Final = config
        self._log: Final = log
        self._topics: Final = topics
        self._placement: Final[Placement] = topics.placement
        self._groups: Final = groups
        self._clock: Final = clock
        self._loop: Final = loop
        self._hosts: Final[dict[int, TransactionHost]] = {}
        self._loading: Final[set[int]] = set()
        self._waiters: list[Waiter] = []

    # --- life

    def load(self, partitions: Collection[int] | None = None) -> None:
        """Let the coordinators of *partitions*, or of all, read their records; after that they serve.

        Raises:
            DataDirError: the log cannot be read; what was not loaded does not serve.
            ProtocolError: a record of the log is not what its version says.
        """
        if partitions is None:
            partitions = range(len(self._placement.of(TRANSACTION_STATE)))
        records: dict[int, list[KeyAndValue]] = {}
        for key, value in self._log.load():
            transactional_id = decode_transaction_record(key, value)[0].transactional_id
            records.setdefault(coordinator_partition(transactional_id), []).append((key, value))
        for partition in partitions:
            if partition in records and partition not in self._hosts and self._leader(partition) != NO_LEADER:
                self._open(partition, records[partition])
            self._loading.discard(partition)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self.add_waiter(*waiter)

    def leaders_changed(self, changes: Iterable[LeaderChange]) -> tuple[int, ...]:
        """End the coordinators of partitions that others lead now; return these partitions, which wait for `load`."""
        moved = tuple(change.partition for change in changes if change.topic == TRANSACTION_STATE)
        for partition in moved:
            self._loading.add(partition)
            host = self._hosts.pop(partition, None)
            if host is not None:
                self._waiters += host.let_go()
        return moved

    def close(self) -> None:
        """Stop timers and let go of everybody who waits."""
        waiters, self._waiters = self._waiters, []
        for host in self._hosts.values():
            waiters += host.let_go()
        refuse_waiters(waiters)

    def run_due(self) -> None:
        """Write the ends that are due, and abort what has taken too long."""
        for host in tuple(self._hosts.values()):
            host.run_due()

    # --- requests

    def at(self, node_id: int) -> NodeTransactions:
        """What clients of one node are served."""
        return NodeTransactions(self, node_id)

    def host_at(self, transactional_id: str, node_id: int) -> TransactionHost | ErrorCode:
        """The coordinator of an id if it is on *node_id*, or the error that says why not."""
        partition = coordinator_partition(transactional_id)
        if transactional_id and self._leader(partition) != node_id:  # any node refuses the empty one
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition in self._loading else self._host(partition)

    def is_loading(self, node_id: int) -> bool:
        """Whether a node still reads the records of some of its ids."""
        return not self._loading.isdisjoint(self._placement.led_by(TRANSACTION_STATE, node_id))

    def on(self, node_id: int) -> Iterator[Transaction]:
        """The state of every transactional id of a node, by id."""
        return _by_id(host for partition, host in self._hosts.items() if self._leader(partition) == node_id)

    def admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TopicPartition, is_adding: bool
    ) -> ErrorCode:
        """See `TransactionAdmission.admit`."""
        number = coordinator_partition(transactional_id)
        if not self._is_served(number):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self._host(number).admit(
            transactional_id, producer_id=producer_id, epoch=epoch, partition=partition, is_adding=is_adding
        )

    # --- what others do and see

    def __iter__(self) -> Iterator[Transaction]:
        """The state of every transactional id, by id."""
        return _by_id(self._hosts.values())

    def snapshots(self) -> tuple[TransactionSnapshot, ...]:
        """All transactional ids, by id."""
        return tuple(
            sorted(
                (each for host in self._hosts.values() for each in host.snapshots()),
                key=lambda each: each.transactional_id,
            )
        )

    def abort(self, transactional_id: str) -> None:
        """See `TransactionHost.abort`.

        Raises:
            BrokerError: no node coordinates that id now.
        """
        partition = coordinator_partition(transactional_id)
        if not self._is_served(partition):
            raise BrokerError(
                f"no node coordinates the transactional id {transactional_id!r} now",
                code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        self._host(partition).abort(transactional_id)

    def add_waiter(
        self, transactional_id: str, state: str, future: concurrent.futures.Future[TransactionSnapshot]
    ) -> None:
        """See `TransactionHost.add_waiter`; without a coordinator now, the next one tells."""
        partition = coordinator_partition(transactional_id)
        if self._is_served(partition):
            self._host(partition).add_waiter(transactional_id, state, future)
        else:
            self._waiters.append((transactional_id, state, future))

    # --- inside

    def _leader(self, partition: int) -> int:
        return self._placement.get(TRANSACTION_STATE, partition).leader

    def _is_served(self, partition: int) -> bool:
        return partition not in self._loading and self._leader(partition) != NO_LEADER

    def _host(self, partition: int) -> TransactionHost:
        return self._hosts.get(partition) or self._open(partition, ())

    def _open(self, partition: int, records: Sequence[KeyAndValue]) -> TransactionHost:
        host = TransactionHost(
            self._config,
            log=ShardLog(self._log, records),
            topics=self._topics,
            groups=self._groups,
            clock=self._clock,
            loop=self._loop,
            coordinator_epoch=self._placement.get(TRANSACTION_STATE, partition).epoch,
        )
        host.load()
        self._hosts[partition] = host
        return host


class NodeTransactions:
    """The transaction coordinators of one node, as its clients see them; for the methods see `TransactionHost`."""

    def __init__(self, shards: TransactionShards, node_id: int) -> None:
        self._shards: Final = shards
        self._node_id: Final = node_id

    def init_producer_id(self, request: InitProducerIdRequest) -> Outcome:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(request.transactional_id or "", self._node_id)
        return Outcome(host) if isinstance(host, ErrorCode) else host.init_producer_id(request)

    def add_partitions(
        self, transactional_id: str, *, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]
    ) -> Outcome:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return Outcome(host)
        return host.add_partitions(transactional_id, producer_id=producer_id, epoch=epoch, partitions=partitions)

    def verify(self, transactional_id: str, *, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return host
        return host.verify(transactional_id, producer_id=producer_id, epoch=epoch, partition=partition)

    def end(self, transactional_id: str, *, producer_id: int, epoch: int, commit: bool, moves_epoch: bool) -> Outcome:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return Outcome(host)
        return host.end(transactional_id, producer_id=producer_id, epoch=epoch, commit=commit, moves_epoch=moves_epoch)

    def get(self, transactional_id: str) -> Transaction | ErrorCode | None:
        """The state of one id; None if there is none; the error for one that is not coordinated here."""
        host = self._shards.host_at(transactional_id, self._node_id)
        return host if isinstance(host, ErrorCode) else host.get(transactional_id)

    @property
    def is_loading(self) -> bool:
        """Whether records are still read."""
        return self._shards.is_loading(self._node_id)

    def __iter__(self) -> Iterator[Transaction]:
        """The state of every transactional id of this node, by id."""
        return self._shards.on(self._node_id)


def _by_id(hosts: Iterable[TransactionHost]) -> Iterator[Transaction]:
    return heapq.merge(*hosts, key=lambda transaction: transaction.transactional_id)
