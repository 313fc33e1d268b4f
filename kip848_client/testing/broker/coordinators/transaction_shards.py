"""The transactional ids of a broker: one coordinator for each partition of ``__transaction_state``.

When they begin and end: `shards`. A coordinator that has replayed its records writes the ends that were decided and not
written, and carries the next coordinator epoch.

A write inside this process (a Produce request adds its partition) asks the coordinator on any node, as Kafka's nodes
ask each other.

Source:
    apache/kafka ``TransactionStateManager``, ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from kip848_client.common.clock import Clock
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.coordinators.shards import ShardLog, Shards, Waiter
from kip848_client.testing.broker.coordinators.transaction_admission import TransactionAdmission
from kip848_client.testing.broker.coordinators.transaction_host import TransactionHost, TransactionSnapshot
from kip848_client.testing.broker.metadata.placement import TRANSACTION_STATE, coordinator_partition
from kip848_client.testing.broker.storage.group_log import DecisionLog
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.testing.transactions.coordinator import TransactionAnswer
from kip848_client.testing.transactions.transaction import TransactionMetadata, TransactionPartition
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionShards(Shards[TransactionHost, TransactionMetadata], TransactionAdmission):
    """All transaction coordinators of one cluster. To its callers it looks like one."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        log: DecisionLog[TransactionMetadata],
        topics: TopicRegistry,
        groups: GroupShards,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(TRANSACTION_STATE, log=log, placement=topics.placement)
        self._config: Final = config
        self._topics: Final = topics
        self._groups: Final = groups
        self._clock: Final = clock
        self._loop: Final = loop

    # --- requests

    def at(self, node_id: int) -> NodeTransactions:
        """The service for clients of one node."""
        return NodeTransactions(self, node_id)

    def host_at(self, transactional_id: str, node_id: int) -> TransactionHost | ErrorCode:
        """The coordinator of an id if it is on *node_id*, or the error that says why not."""
        partition = coordinator_partition(transactional_id)
        if not transactional_id:
            node_id = self._leader(partition)  # any node refuses the empty one
        return self._host_at(partition, node_id)

    def is_loading(self, node_id: int) -> bool:
        """Whether a node still reads the records of some of its ids."""
        return self._is_loading_at(node_id)

    def on(self, node_id: int) -> Iterator[TransactionMetadata]:
        """The state of every transactional id of a node, by id."""
        return _by_id(self._led_by(node_id))

    def admit(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition, is_adding: bool
    ) -> ErrorCode:
        """See `TransactionAdmission.admit`."""
        number = coordinator_partition(transactional_id)
        if not self._is_served(number) or not self._acts(number):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self._host(number).admit(
            transactional_id, producer_id=producer_id, epoch=epoch, partition=partition, is_adding=is_adding
        )

    # --- for other parts of the broker

    def __iter__(self) -> Iterator[TransactionMetadata]:
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

    # --- internals

    def _id_of(self, record: TransactionMetadata) -> str:
        return record.transactional_id

    def _wait_again(self, waiter: Waiter) -> None:
        self.add_waiter(*waiter)

    def _new_host(self, partition: int, log: ShardLog[TransactionMetadata]) -> TransactionHost:
        return TransactionHost(
            self._config,
            log=log,
            topics=self._topics,
            groups=self._groups,
            clock=self._clock,
            loop=self._loop,
            coordinator_epoch=self._placement.get(TRANSACTION_STATE, partition).epoch,
            others=lambda: (host.coordinator for host in self._hosts.values()),
            acts=lambda: self._acts(partition),
        )


class NodeTransactions:
    """The transaction coordinators of one node, as its clients see them; for the methods see `TransactionHost`."""

    def __init__(self, shards: TransactionShards, node_id: int) -> None:
        self._shards: Final = shards
        self._node_id: Final = node_id

    def init_producer_id(self, request: InitProducerIdRequest) -> TransactionAnswer:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(request.transactional_id or "", self._node_id)
        return TransactionAnswer(host) if isinstance(host, ErrorCode) else host.init_producer_id(request)

    def add_partitions(
        self, transactional_id: str, *, producer_id: int, epoch: int, partitions: frozenset[TransactionPartition]
    ) -> TransactionAnswer:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return TransactionAnswer(host)
        return host.add_partitions(transactional_id, producer_id=producer_id, epoch=epoch, partitions=partitions)

    def verify(
        self, transactional_id: str, *, producer_id: int, epoch: int, partition: TransactionPartition
    ) -> ErrorCode:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return host
        return host.verify(transactional_id, producer_id=producer_id, epoch=epoch, partition=partition)

    def end(
        self, transactional_id: str, *, producer_id: int, epoch: int, commit: bool, moves_epoch: bool
    ) -> TransactionAnswer:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what the coordinator says."""
        host = self._shards.host_at(transactional_id, self._node_id)
        if isinstance(host, ErrorCode):
            return TransactionAnswer(host)
        return host.end(transactional_id, producer_id=producer_id, epoch=epoch, commit=commit, moves_epoch=moves_epoch)

    def get(self, transactional_id: str) -> TransactionMetadata | ErrorCode | None:
        """The state of one id; None if there is none; the error for one that is not coordinated here."""
        host = self._shards.host_at(transactional_id, self._node_id)
        return host if isinstance(host, ErrorCode) else host.get(transactional_id)

    @property
    def is_loading(self) -> bool:
        """Whether records are still read."""
        return self._shards.is_loading(self._node_id)

    def __iter__(self) -> Iterator[TransactionMetadata]:
        """The state of every transactional id of this node, by id."""
        return self._shards.on(self._node_id)


def _by_id(hosts: Iterable[TransactionHost]) -> Iterator[TransactionMetadata]:
    return heapq.merge(*hosts, key=lambda transaction: transaction.transactional_id)
