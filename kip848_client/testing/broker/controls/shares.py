"""``broker.shares``: shows which records members of share groups have, waits for them, and ends their locks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Final

from kip848_client.errors import RequestTimeoutError
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.net.loop_thread import wait_s
from kip848_client.testing.broker.share.share_partition_manager import SharePartitionSnapshot


class BrokerShares:
    """The records in flight of share groups.

    Example::

        broker.shares.wait_for("workers", lambda partitions: sum(each.unfinished for each in partitions) == 0)
        broker.shares.expire_record_locks("workers")
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def partitions(self, group_id: str) -> tuple[SharePartitionSnapshot, ...]:
        """The partitions that a group reads, by topic and number; empty if there is no such share group."""
        return self._live.on_loop(lambda state: state.shares.snapshots(group_id))

    def expire_record_locks(self, group_id: str, topic: str | None = None, partition: int | None = None) -> int:
        """End the locks of a group's acquired records, as after ``share.record.lock.duration.ms``.

        Args:
            topic: only of records of this topic.
            partition: only of this partition.

        Returns:
            How many records are no longer acquired.
        """
        return self._live.on_loop(lambda state: state.shares.expire_locks(group_id, topic, partition))

    def wait_for(
        self,
        group_id: str,
        predicate: Callable[[tuple[SharePartitionSnapshot, ...]], bool],
        *,
        what: str = "the condition",
        timeout_s: float = 30.0,
    ) -> tuple[SharePartitionSnapshot, ...]:
        """Wait until *predicate* holds for the partitions of a group, and return them.

        Args:
            predicate: called on the broker's thread after each change; must be quick and call no broker method.
            what: names the condition in the error.
            timeout_s: seconds to wait.

        Raises:
            RequestTimeoutError: the time is up; the message shows the partitions.
            IllegalStateError: the broker was stopped meanwhile.
        """
        future: concurrent.futures.Future[tuple[SharePartitionSnapshot, ...]] = concurrent.futures.Future()
        self._live.on_loop(lambda state: state.shares.add_waiter(group_id, predicate, future))
        try:
            return future.result(wait_s(timeout_s))
        except concurrent.futures.TimeoutError:
            now = self.partitions(group_id) if self._live.running else ()
            raise RequestTimeoutError(
                f"share group {group_id!r}: {what}: not within {timeout_s} s; "
                f"{'; '.join(map(str, now)) or 'it has no partitions'}"
            ) from None
        finally:
            future.cancel()
