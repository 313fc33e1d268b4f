"""Names of topics by id, also of deleted ones, so that logged requests stay readable."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from kip848_client.testing.broker.topics.registry import TopicChange, TopicCreated, TopicRegistry


class KnownTopics:
    """Every topic that a broker ever had while this object followed it."""

    def __init__(self) -> None:
        self._names: Final[dict[uuid.UUID, str]] = {}

    def __call__(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic; None if there never was one of that id."""
        return self._names.get(topic_id)

    def follow(self, topics: TopicRegistry) -> Callable[[], None]:
        """Learn the topics of a broker that starts, and later ones; returns a function to call when it stops."""
        for topic in topics:
            self._names[topic.topic_id] = topic.name
        return topics.subscribe(self._changed)

    def learn(self, topic_id: uuid.UUID, name: str) -> None:
        """Remember one topic."""
        self._names[topic_id] = name

    def _changed(self, change: TopicChange) -> None:
        if isinstance(change, TopicCreated):
            self._names[change.topic.topic_id] = change.topic.name
