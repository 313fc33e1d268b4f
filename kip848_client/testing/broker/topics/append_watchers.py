"""The fetches that wait for records, by partition. A waiting fetch costs nothing until records are appended.

This module knows no requests and no timers: a parked fetch passes its own callbacks (`apis/fetch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kip848_client.testing.partitions.partition_log import PartitionLog


class Watch:
    """One waiter on a set of partitions. `cancel` ends it; nothing is called afterwards."""

    __slots__ = ("_logs", "_watchers", "on_append", "on_gone")

    def __init__(
        self,
        watchers: dict[PartitionLog, dict[Watch, None]],
        logs: Iterable[PartitionLog],
        *,
        on_append: Callable[[int], None],
        on_gone: Callable[[], None],
    ) -> None:
        self.on_append: Final = on_append
        self.on_gone: Final = on_gone
        self._watchers = watchers
        self._logs = tuple(logs)
        for log in self._logs:
            watchers.setdefault(log, {})[self] = None

    def cancel(self) -> None:
        """Stop waiting; does nothing the second time."""
        logs, self._logs = self._logs, ()
        for log in logs:
            waiting = self._watchers.get(log)
            if waiting is not None:
                waiting.pop(self, None)
                if not waiting:
                    del self._watchers[log]


class AppendWatchers:
    """All waiters of one broker."""

    def __init__(self) -> None:
        self._watchers: Final[dict[PartitionLog, dict[Watch, None]]] = {}

    def watch(
        self, logs: Iterable[PartitionLog], *, on_append: Callable[[int], None], on_gone: Callable[[], None]
    ) -> Watch:
        """Call *on_append* with the bytes of each new batch, *on_gone* when a partition is deleted or cut.

        The callbacks run inside the append: they must be short, and may cancel the watch.
        """
        return Watch(self._watchers, logs, on_append=on_append, on_gone=on_gone)

    def appended(self, log: PartitionLog, size_bytes: int) -> None:
        """Tell the waiters of *log* that *size_bytes* were added."""
        for watch in tuple(self._watchers.get(log, ())):
            watch.on_append(size_bytes)

    def gone(self, log: PartitionLog) -> None:
        """Tell the waiters of *log* that its partition was deleted, or that its start moved: they must answer now."""
        for watch in tuple(self._watchers.get(log, ())):
            watch.on_gone()

    def __len__(self) -> int:
        """How many partitions have a waiter."""
        return len(self._watchers)
