"""The topics as group coordinators see them: one image for all coordinators of a cluster, made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kip848_client.common.clock import Clock
from kip848_client.testing.broker.metadata.topic_configs import partition_racks
from kip848_client.testing.broker.topics.registry import Topic, TopicChange, TopicRegistry
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage


class TopicImages:
    """Follows the topics of one cluster.

    Args:
        node_racks: node id -> its rack. A topic whose own configuration names no racks has those of its replicas.
    """

    def __init__(
        self, topics: TopicRegistry, *, clock: Clock, node_racks: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self._topics: Final = topics
        self._clock: Final = clock
        self._node_racks: Final = node_racks
        self._version = 0
        self._image: TopicsImage | None = None
        self._listeners: Final[list[Callable[[], None]]] = []
        self.visible_to: Callable[[str], Callable[[str], bool]] = lambda _group_id: lambda _topic: True
        """Which topics the patterns of a group may match: group id -> topic -> whether its members may know of it."""
        self.close: Final[Callable[[], None]] = topics.subscribe(self._changed)
        """Follow the topics no longer."""

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call *listener* after each change; the returned function ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def current(self) -> TopicsImage:
        """The topics as they are now; a changed image has a greater version."""
        if self._image is None:
            # Wall-clock time makes the version grow over a restart, too: topics may have changed between.
            self._version = max(self._version + 1, self._clock.wall_ms())
            self._image = TopicsImage(
                tuple(
                    TopicInfo(topic.name, topic.topic_id, topic.partition_count, racks=self._racks(topic))
                    for topic in self._topics
                ),
                version=self._version,
            )
        return self._image

    def _racks(self, topic: Topic) -> tuple[frozenset[str], ...]:
        racks = partition_racks(topic.configs, topic.partition_count)
        if racks or not self._node_racks:
            return racks
        placed = self._topics.placement.of(topic.topic_id)
        return tuple(frozenset(self._node_racks[node] for node in each.replicas) for each in placed)

    def _changed(self, _change: TopicChange) -> None:
        self._image = None
        for listener in tuple(self._listeners):
            listener()
