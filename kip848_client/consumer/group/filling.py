"""`Filling`: how long one call of consume() or batches() waits for its records. Reads none itself."""

from __future__ import annotations

import time
from collections.abc import Sized
from typing import TYPE_CHECKING, Final

from kip848_client.consumer.group.translation import limit_s

if TYPE_CHECKING:
    from kip848_client.common.model import TopicIdPartition
    from kip848_client.consumer.group.group_member import GroupMember

BUFFER_BYTES: Final = 64 * 1024 * 1024
"""A call that waits for more records returns what it has once their values have so many bytes."""


class Filling:
    """One call that reads. `over` says when it returns what has come.

    Args:
        count: how many records it waits for.
        timeout: seconds; negative or None: for ever.
        linger_s: how long it waits for more once it has the first record; None: until *timeout*, counted from the
            beginning. 0 returns what is at hand.

    Raises:
        ArgumentTypeError, ConfigError: *timeout* or *linger_s* is no number.
    """

    __slots__ = ("_assigned", "_bytes", "_linger_s", "count", "deadline_s")

    def __init__(self, count: int, timeout: object, linger_s: float | None = 0.0) -> None:
        self.count: Final = count
        self.deadline_s: float = time.monotonic() + limit_s(timeout)
        self._linger_s = None if linger_s is None else limit_s(linger_s)
        self._bytes = 0
        self._assigned: frozenset[TopicIdPartition] | None = None
        """The partitions of the member when the first record came."""

    @property
    def waits(self) -> bool:
        """Whether it waits for more once it has a record."""
        return self._linger_s != 0

    def took(self, batch: list[Sized]) -> None:
        """Count records that have come, and are kept until `over`."""
        self._bytes += sum(map(len, batch))

    def over(self, ready: Sized, group: GroupMember) -> bool:
        """Whether to return what is *ready*, which is not empty.

        A rebalance ends the wait, since what has come is then handled and committed before the next one, and so does
        handing over.
        """
        if len(ready) >= self.count or not self.waits or self._bytes >= BUFFER_BYTES or group.hand_over_wanted:
            return True
        now_s = time.monotonic()
        if self._assigned is None:
            self._assigned = group.view.assigned
            if self._linger_s is not None:
                self.deadline_s = now_s + self._linger_s
        return now_s >= self.deadline_s or group.view.assigned is not self._assigned
