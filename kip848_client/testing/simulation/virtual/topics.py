"""The topics of a simulated cluster, and the number of records in them. Records have no content.

Records are counted per incarnation of a topic: one that was deleted and created again begins at 0, under another id.
Does not own: the coordinator's reaction to a change (`cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from kip848_client.common.model import NamedPartition
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.simulation.virtual.scheduler import Scheduler


class Topics:
    """Every topic, and the end of every partition."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._rng = scheduler.random("topics")
        self.image: TopicsImage = TopicsImage()
        self.end_offsets: dict[NamedPartition, int] = {}
        """Records in each partition that exists: offsets 0 to this, exclusive."""
        self.names: Final[dict[UUID, str]] = {}
        """Topic id -> name, of all topics, also deleted ones."""
        self._created_ms: Final[dict[UUID, int]] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.on_records: Callable[[NamedPartition], None] = lambda _partition: None
        """Called with a partition that got records."""

    def create(self, name: str, *, partitions: int) -> None:
        """Create a topic; one that was deleted before gets another id."""
        topic_id = UUID(int=self._rng.getrandbits(128))
        self.names[topic_id] = name
        self._created_ms[topic_id] = self._scheduler.now_ms
        for index in range(partitions):
            self.end_offsets[NamedPartition(name, index)] = 0
        self._replace((*self.image.topics, TopicInfo(name, topic_id, partitions)), "topic_created", name)

    def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        for index in range(self.image.by_name[name].partition_count):
            del self.end_offsets[NamedPartition(name, index)]
        self._replace(tuple(topic for topic in self.image.topics if topic.name != name), "topic_deleted", name)

    def grow(self, name: str, *, count: int) -> None:
        """Let a topic grow by *count* partitions."""
        topic = self.image.by_name[name]
        grown = TopicInfo(name, topic.topic_id, topic.partition_count + count)
        for index in range(topic.partition_count, grown.partition_count):
            self.end_offsets[NamedPartition(name, index)] = 0
        self._replace(tuple(grown if one is topic else one for one in self.image.topics), "partitions_added", name)

    def _replace(self, topics: tuple[TopicInfo, ...], what: str, name: str) -> None:
        self.image = TopicsImage(topics, version=self.image.version + 1)
        self._scheduler.note("administrator", what, topic=name)
        self.on_change()

    def produce(self) -> None:
        """Append some records to one partition."""
        if self.end_offsets:
            partition = sorted(self.end_offsets)[int(self._rng.random() * len(self.end_offsets))]
            self.end_offsets[partition] += 1 + int(self._rng.random() * 20)
            self.on_records(partition)

    def id_of(self, name: str) -> UUID | None:
        """The id of a topic that exists."""
        topic = self.image.by_name.get(name)
        return None if topic is None else topic.topic_id

    def resolved(self, topic_id: UUID, name: str) -> UUID | None:
        """The id of a topic that a message gives by its id or by its name; None if there is no such topic."""
        return topic_id if topic_id.int else self.id_of(name)

    def described(self, topic_ids: frozenset[UUID], *, lag_ms: int) -> Mapping[UUID, str]:
        """The metadata for *topic_ids* from a broker that lags *lag_ms* behind."""
        known_ms = self._scheduler.now_ms - lag_ms
        by_id = self.image.by_id
        return {
            topic_id: by_id[topic_id].name
            for topic_id in sorted(topic_ids)
            if topic_id in by_id and self._created_ms[topic_id] <= known_ms
        }
