"""Frozen values that every layer shares. No behaviour beyond what the value itself means.

`TopicPartition` and `TopicIdPartition` are named tuples and not dataclasses: they are dictionary keys on every path,
and a tuple hashes and compares in C.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kip848_client.errors import ConfigError
from kip848_client.values import value

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no topic id"."""

NO_EPOCH: Final = -1
"""Epoch of a commit or fetch by somebody who is not a member."""


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of one incarnation of a topic. Sorts by name, then partition.

    Two values are the same partition only if the topic id is equal too: a topic that was deleted and created again
    under its old name is another topic.
    """

    topic: str
    partition: int
    topic_id: UUID

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name alone."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@value
class OffsetAndMetadata:
    """A position, as committed.

    Args:
        offset: the next offset to read; >= 0.
        leader_epoch: leader epoch of the record before it, or -1 if unknown.
        metadata: free text of the application.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@value
class SubscriptionPattern:
    """A subscription by regular expression: RE2 syntax, matched against the whole topic name by the coordinator.

    Raises:
        ConfigError: the pattern is empty.

    Source:
        KIP-848 "SubscribedTopicRegex"; Kafka's ``SubscriptionPattern``.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ConfigError("SubscriptionPattern needs a regular expression, got an empty one; use unsubscribe()")


@value
class Subscription:
    """What a member wants: names, a pattern, or both. Empty means unsubscribed."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None


@value
class BrokerNode:
    """A broker's address as the cluster gives it."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (node {self.node_id})"


def describe_partitions(partitions: Iterable[TopicPartition | TopicIdPartition]) -> str:
    """Write partitions for people and logs: ``orders-0, orders-1``, sorted; ``none`` if there are none."""
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"
