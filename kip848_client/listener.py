"""What an application is told about a rebalance: `ConsumerRebalanceListener`, and plain callables turned into one.

Owns the interface only. `client/listener_invoker.py` decides when and on which thread it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kip848_client.client.data_plane import PublicTopicPartition as TopicPartition
    from kip848_client.consumer import Consumer

__all__ = ["CallableListener", "ConsumerRebalanceListener", "RebalanceCallback"]


RebalanceCallback: TypeAlias = "Callable[[Consumer, list[TopicPartition]], object]"
"""``callback(consumer, partitions)``, as in confluent-kafka."""


class ConsumerRebalanceListener:
    """Told when partitions come and go. Override what you need; every method does nothing by itself.

    Methods run on the thread that calls ``poll()``, ``consume()``, ``unsubscribe()`` or ``close()``, one at a time,
    while heartbeats go on in the background. All calls of the consumer but close(), poll() and consume() may be made
    from inside. What a method raises comes out of that call as `ListenerError`; a later ``poll()`` repeats the step.

    Source:
        Kafka's ``ConsumerRebalanceListener``.
    """

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called after a rebalance with what is new, also if that is nothing. Fetching starts when it returned.

        ``consumer.seek(partition)``, or ``consumer.assign(partitions)`` with offsets, decides where to start;
        otherwise the committed offset does, and without one ``auto.offset.reset``.
        """

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called before partitions are handed over; they are paused already. The last chance to commit."""

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called when partitions may belong to somebody else already; a commit fails. Calls revoked by default."""
        self.on_partitions_revoked(consumer, partitions)


class CallableListener(ConsumerRebalanceListener):
    """A listener made of the callables that ``subscribe()`` accepts.

    Args:
        on_assign, on_revoke, on_lost: ``callback(consumer, partitions)``; without *on_lost*, *on_revoke* is called.
    """

    def __init__(
        self,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost if on_lost is not None else on_revoke

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Call *on_assign*."""
        if self._on_assign is not None:
            self._on_assign(consumer, partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Call *on_revoke*."""
        if self._on_revoke is not None:
            self._on_revoke(consumer, partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Call *on_lost*, or *on_revoke* without one."""
        if self._on_lost is not None:
            self._on_lost(consumer, partitions)
