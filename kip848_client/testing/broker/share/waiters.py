"""Calls of tests that wait until the partitions of a share group look as they want."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.testing.broker.coordinators.shards import refuse_waiters
from kip848_client.testing.broker.topics.append_watchers import Watch
from kip848_client.testing.broker.topics.registry import TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog

Snapshots: TypeAlias = tuple[Any, ...]


class _Waiter(msgspec.Struct, eq=False):
    group_id: str
    predicate: Callable[[Snapshots], bool]
    future: concurrent.futures.Future[Snapshots]
    watch: Watch | None = None


class ShareWaiters:
    """The waiting calls of a broker. A condition is looked at after each change of the group, and after each append.

    Args:
        snapshots: the partitions of a group as they are now.
        logs: of these partitions.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        loop: asyncio.AbstractEventLoop,
        *,
        snapshots: Callable[[str], Snapshots],
        logs: Callable[[str], Iterable[PartitionLog]],
    ) -> None:
        self._topics: Final = topics
        self._loop: Final = loop
        self._snapshots: Final = snapshots
        self._logs: Final = logs
        self._waiters: list[_Waiter] = []

    def add(
        self, group_id: str, predicate: Callable[[Snapshots], bool], future: concurrent.futures.Future[Snapshots]
    ) -> None:
        """Resolve *future* with the first snapshots for which *predicate* holds."""
        self._waiters.append(_Waiter(group_id, predicate, future))
        self.tell(group_id)

    def refuse(self) -> None:
        """The broker stops: raise in all calls."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.watch is not None:
                waiter.watch.cancel()
        refuse_waiters([(each.group_id, each.predicate, each.future) for each in waiters])

    def tell(self, group_id: str) -> None:
        """Something of a group has changed."""
        for waiter in [each for each in self._waiters if each.group_id == group_id]:
            if waiter.watch is not None:
                waiter.watch.cancel()
            if waiter.future.cancelled() or self._has_ended(waiter):
                self._waiters.remove(waiter)
                continue
            waiter.watch = self._topics.watch(
                self._logs(group_id),
                on_append=lambda _: self._tell_soon(group_id),
                on_gone=lambda: self._tell_soon(group_id),
            )

    def _tell_soon(self, group_id: str) -> None:
        """In the next turn: an append has not ended while its watchers are called."""
        self._loop.call_soon(self.tell, group_id)

    def _has_ended(self, waiter: _Waiter) -> bool:
        snapshots = self._snapshots(waiter.group_id)
        try:
            fulfilled = waiter.predicate(snapshots)
        except Exception as error:  # noqa: BLE001 - the predicate is a test's; it fails there and not here
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(error)
            return True
        if fulfilled and waiter.future.set_running_or_notify_cancel():
            waiter.future.set_result(snapshots)
        return fulfilled
