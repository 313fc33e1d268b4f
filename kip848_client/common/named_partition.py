"""A partition by name: alone here, because errors have partitions, and all other values of `model` raise errors."""

from __future__ import annotations

from typing import NamedTuple


class NamedPartition(NamedTuple):
    """A partition by the name of its topic, equal to the tuple ``(topic, partition)``.

    Only the calls of a consumer use ``TopicPartition`` of confluent-kafka, which has an offset too.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
