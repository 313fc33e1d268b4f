"""Finds the topics of a subscription without a group's coordinator."""

from __future__ import annotations

from kip848_client.common.model import INTERNAL_TOPICS, Subscription
from kip848_client.common.patterns import compiled
from kip848_client.errors import ConfigError
from kip848_client.spark.group.log_offsets import LogOffsets


def matching_topics(subscription: Subscription, log: LogOffsets) -> dict[str, int]:
    """How many partitions each topic has that *subscription* means; topics that do not exist are absent.

    Raises:
        ConfigError: the pattern is not RE2.
        Kip848Error: no answer.
    """
    pattern = subscription.pattern
    if pattern is None:
        return log.partition_counts(subscription.topics)
    try:
        matches = compiled(pattern).fullmatch
    except ValueError as error:
        raise ConfigError(f"subscribePattern: {pattern!r} is not a regular expression of RE2: {error}") from error
    counts = log.partition_counts(None)
    return {topic: count for topic, count in counts.items() if matches(topic) and topic not in INTERNAL_TOPICS}
