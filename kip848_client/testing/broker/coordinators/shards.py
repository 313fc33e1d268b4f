"""The coordinators of one internal topic: one for each partition of it, as in Kafka. A single node has them all.

An id (of a group, or a transactional id) says its partition, and the node that leads the partition coordinates it. When
the leader changes, the coordinator of that partition ends with all it had in memory, and the next one replays the
partition's records: what a crash and a restart are to the whole broker. A partition that was never used has no
coordinator and costs nothing.

Does not own: what a coordinator does (`group_shards`, `transaction_shards`).

Source:
    apache/kafka ``CoordinatorRuntime``, ``TransactionStateManager``.
"""

from __future__ import annotations

import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.testing.broker.metadata.placement import (
    NO_LEADER,
    CoordinatorTopic,
    LeaderChange,
    Placement,
    coordinator_partition,
)
from kip848_client.testing.broker.storage.group_log import DecisionLog

RecordT = TypeVar("RecordT")
Waiter: TypeAlias = tuple[str, Any, "concurrent.futures.Future[Any]"]
"""A call that waits: the id, the condition, and the future of its result."""


class ShardLog(Generic[RecordT]):
    """One partition of a log that all partitions share.

    Args:
        log: the whole.
        records: of the partition, until now.
    """

    def __init__(self, log: DecisionLog[RecordT], records: Sequence[RecordT]) -> None:
        self._log: Final = log
        self._records: Sequence[RecordT] = records

    def load(self) -> Iterator[RecordT]:
        """Yield every record of the partition, once."""
        records, self._records = self._records, ()
        return iter(records)

    def append(self, records: Iterable[RecordT]) -> None:
        """Keep the records of one decision; see `DecisionLog.append`."""
        self._log.append(records)


class _Host(Protocol):
    """The coordinator of one partition."""

    def load(self) -> None:
        """Read its records; after that it serves."""

    def take_waiters(self) -> list[Waiter]:
        """Stop, and return the calls that wait."""

    def run_due(self) -> None:
        """Do the work that is due, unless its node hangs."""

    def go_on(self) -> None:
        """Its node does not hang any more: do the work that became due meanwhile."""


HostT = TypeVar("HostT", bound=_Host)


class Shards(ABC, Generic[HostT, RecordT]):
    """All coordinators of one internal topic. A subclass looks like one host to its callers.

    Args:
        topic: the internal topic whose leaders coordinate.
        log: where the records of all partitions are kept.
        placement: which node leads which partition.
    """

    def __init__(self, topic: CoordinatorTopic, *, log: DecisionLog[RecordT], placement: Placement) -> None:
        self._topic: Final[CoordinatorTopic] = topic
        self._log: Final = log
        self._placement: Final = placement
        self._placed: Final = placement.of(topic)
        self._hosts: Final[dict[int, HostT]] = {}
        self._loading: Final[set[int]] = set()
        self._waiters: list[Waiter] = []

    # --- what a kind of coordinator decides

    @abstractmethod
    def _id_of(self, record: RecordT) -> str | None:
        """The id that a record of the log is about; None if the record is of an unknown type."""

    @abstractmethod
    def _new_host(self, partition: int, log: ShardLog[RecordT]) -> HostT:
        """Make the coordinator of a partition; it has read nothing yet."""

    @abstractmethod
    def _wait_again(self, waiter: Waiter) -> None:
        """Give a call that waits to the coordinator that there is now."""

    # --- life

    def load(self, partitions: Collection[int] | None = None) -> None:
        """Let the coordinators of *partitions*, or of all, read their records; after that they serve.

        Raises:
            DataDirError: the log cannot be read; parts that were not loaded do not serve.
            ProtocolError: a record of the log is not what its type says.
        """
        if partitions is None:
            partitions = range(len(self._placed))
        records: dict[int, list[RecordT]] = {}
        for record in self._log.load():
            its_id = self._id_of(record)
            if its_id is not None:
                records.setdefault(coordinator_partition(its_id), []).append(record)
        for partition in partitions:
            if partition in records and partition not in self._hosts and self._leader(partition) != NO_LEADER:
                self._open(partition, records[partition])
            self._loading.discard(partition)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._wait_again(waiter)

    def leaders_changed(self, changes: Iterable[LeaderChange]) -> tuple[int, ...]:
        """End the coordinators of partitions that others lead now; return these partitions, which wait for `load`."""
        moved = tuple(change.partition for change in changes if change.topic == self._topic)
        for partition in moved:
            self._loading.add(partition)
            host = self._hosts.pop(partition, None)
            if host is not None:
                self._waiters += host.take_waiters()
        return moved

    def close(self) -> None:
        """Stop timers and refuse the calls that wait."""
        waiters, self._waiters = self._waiters, []
        for host in self._hosts.values():
            waiters += host.take_waiters()
        refuse_waiters(waiters)

    def run_due(self) -> None:
        """Do the work that is due."""
        for host in tuple(self._hosts.values()):
            host.run_due()

    def go_on(self, node_id: int) -> None:
        """A node does not hang any more: do the work that became due for its coordinators meanwhile."""
        for host in self._led_by(node_id):
            host.go_on()

    # --- partitions

    def _leader(self, partition: int) -> int:
        return self._placed[partition].leader

    def _led_by(self, node_id: int) -> list[HostT]:
        """The coordinators of a node, by partition."""
        return [host for partition, host in sorted(self._hosts.items()) if self._leader(partition) == node_id]

    def _is_served(self, partition: int) -> bool:
        return partition not in self._loading and self._leader(partition) != NO_LEADER

    def _acts(self, partition: int) -> bool:
        """Whether the coordinator of a partition does anything now: its node does not hang."""
        return self._placement.acts(self._topic, partition)

    def _host_at(self, partition: int, node_id: int) -> HostT | ErrorCode:
        """The coordinator of a partition, or the error for a request about it that came to *node_id*."""
        if self._placed[partition].leader != node_id:
            return ErrorCode.NOT_COORDINATOR
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self._hosts.get(partition) or self._open(partition, ())

    def _is_loading_at(self, node_id: int) -> bool:
        """Whether a node still reads records of some of its partitions."""
        return not self._loading.isdisjoint(self._placement.led_by(self._topic, node_id))

    def _host(self, partition: int) -> HostT:
        return self._hosts.get(partition) or self._open(partition, ())

    def _open(self, partition: int, records: Sequence[RecordT]) -> HostT:
        host = self._new_host(partition, ShardLog(self._log, records))
        host.load()
        self._hosts[partition] = host
        return host


def refuse_waiters(waiters: Iterable[Waiter]) -> None:
    """Raise in the calls that wait: the broker was stopped."""
    for _, _, future in waiters:
        if future.set_running_or_notify_cancel():
            future.set_exception(IllegalStateError("the broker was stopped"))
