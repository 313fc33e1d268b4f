"""A user's listener as the member's callbacks: the consumer goes in first, partitions become confluent_kafka's."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from kip848_client.client.data_plane import PublicTopicPartition, public
from kip848_client.listener import ConsumerRebalanceListener
from kip848_client.model import TopicIdPartition

if TYPE_CHECKING:
    from kip848_client.consumer import Consumer


class PublicCallbacks:
    """Implements `RebalanceCallbacks`.

    Args:
        consumer: handed to the listener; referred to weakly, so that a consumer that nobody uses can go.
        listener: the user's.
    """

    def __init__(self, consumer: Consumer, listener: ConsumerRebalanceListener) -> None:
        self._consumer = weakref.ref(consumer)
        self._listener = listener

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_assigned."""
        self._listener.on_partitions_assigned(self._living(), _named(partitions))

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_revoked."""
        self._listener.on_partitions_revoked(self._living(), _named(partitions))

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_lost."""
        self._listener.on_partitions_lost(self._living(), _named(partitions))

    def _living(self) -> Consumer:
        consumer = self._consumer()
        assert consumer is not None, "listeners run inside a method of the consumer"
        return consumer


def _named(partitions: tuple[TopicIdPartition, ...]) -> list[PublicTopicPartition]:
    return [public(partition.topic_partition) for partition in partitions]
