"""The rebalance callbacks of a consumer whose ``process()`` runs: its own around the application's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kip848_client.common.model import NamedPartition, TopicIdPartition
from kip848_client.consumer.group.listener_invoker import RebalanceCallbacks

OnPartitions = Callable[[Sequence[NamedPartition]], object]


class ProcessingCallbacks:
    """Drains before the application is told of a revocation; begins after it was told of an assignment.

    Args:
        inner: the application's.
    """

    def __init__(
        self, inner: RebalanceCallbacks, *, on_assigned: OnPartitions, on_revoked: OnPartitions, on_lost: OnPartitions
    ) -> None:
        self.inner: Final = inner
        self._on_assigned: Final = on_assigned
        self._on_revoked: Final = on_revoked
        self._on_lost: Final = on_lost

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions were added."""
        self.inner.assigned(partitions)
        self._on_assigned(_names(partitions))

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions are about to be given away."""
        self._on_revoked(_names(partitions))
        self.inner.revoked(partitions)

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Partitions may belong to others already."""
        self._on_lost(_names(partitions))
        self.inner.lost(partitions)


def _names(partitions: tuple[TopicIdPartition, ...]) -> list[NamedPartition]:
    return [partition.topic_partition for partition in partitions]
