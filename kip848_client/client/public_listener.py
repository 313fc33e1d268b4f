"""What subscribe() is given: topics as a subscription, and a listener as the member's callbacks.

A listener is called with the consumer first, and with confluent_kafka's partitions.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kip848_client.client.data_plane import PublicTopicPartition, public
from kip848_client.errors import ConfigError
from kip848_client.listener import ConsumerRebalanceListener, RebalanceCallback
from kip848_client.model import Subscription, SubscriptionPattern, TopicIdPartition

if TYPE_CHECKING:
    from kip848_client.consumer import Consumer


def read_subscription(
    topics: object,
    *,
    listener: ConsumerRebalanceListener | None,
    callbacks: Iterable[RebalanceCallback | None],
) -> Subscription:
    """What subscribe() was asked for; empty if nothing.

    Several patterns become one, which matches what any of them matches.

    Raises:
        ConfigError: not a list of names, a blank name, a listener that is none, or both kinds of listener.
    """
    given = [callback for callback in callbacks if callback is not None]
    if listener is not None and given:
        raise ConfigError("give subscribe() a listener or on_assign/on_revoke/on_lost, not both")
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise ConfigError(
            f"listener must be a ConsumerRebalanceListener, got {type(listener).__name__}; a function is given as "
            "on_assign=..., on_revoke=... or on_lost=..."
        )
    if not all(callable(callback) for callback in given):
        raise ConfigError("on_assign, on_revoke and on_lost must be callables (consumer, partitions)")
    if isinstance(topics, SubscriptionPattern):
        return Subscription(pattern=topics.pattern)
    if isinstance(topics, str):
        raise ConfigError(f"subscribe() takes a list of topics, got {topics!r}; write [{topics!r}]")
    if not isinstance(topics, Iterable):
        raise ConfigError(f'subscribe() takes a list of topics such as ["orders"], got {topics!r}')
    names, patterns = set(), []
    for topic in topics:
        if isinstance(topic, SubscriptionPattern):
            patterns.append(topic.pattern)
        elif not isinstance(topic, str) or not topic.strip():
            raise ConfigError(f"subscribe() takes names of topics, got {topic!r}")
        elif topic.startswith("^"):
            patterns.append(topic)
        else:
            names.add(topic)
    pattern = "|".join(f"(?:{one})" for one in patterns) if len(patterns) > 1 else "".join(patterns) or None
    return Subscription(topics=frozenset(names), pattern=pattern)


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
