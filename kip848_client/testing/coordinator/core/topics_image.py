"""The topics of the cluster as the coordinator knows them: a frozen image, replaced as a whole. No subscriptions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr


class TopicInfo(msgspec.Struct, frozen=True):
    """One topic. A topic that was deleted and created again has another id.

    Args:
        racks: for each partition, the racks of its replicas; empty, or shorter than the topic, where nothing is known.
    """

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsImage(msgspec.Struct, frozen=True):
    """Every topic there is, at one moment.

    Args:
        topics: any order; names and ids are unique.
        version: grows with every change of the topics, even over a restart of the broker if its topics survive it.
            It shows when the matches of a pattern are out of date.
    """

    topics: tuple[TopicInfo, ...] = ()
    version: int = 0

    # Worked out of `topics`; never given.
    by_name: Mapping[str, TopicInfo] = msgspec.field(default_factory=dict)
    by_id: Mapping[UUID, TopicInfo] = msgspec.field(default_factory=dict)
    partition_counts: Mapping[UUID, int] = msgspec.field(default_factory=dict)
    partition_racks: Mapping[UUID, tuple[frozenset[str], ...]] = msgspec.field(default_factory=dict)
    """Topic id -> `TopicInfo.racks`, of topics that have them."""

    def __post_init__(self) -> None:
        force_setattr(self, "by_name", {topic.name: topic for topic in self.topics})
        force_setattr(self, "by_id", {topic.topic_id: topic for topic in self.topics})
        counts = {topic.topic_id: topic.partition_count for topic in self.topics}
        force_setattr(self, "partition_counts", counts)
        racks = {topic.topic_id: topic.racks for topic in self.topics if topic.racks}
        force_setattr(self, "partition_racks", racks)
        assert len(self.by_name) == len(self.by_id) == len(self.topics), "topic names and ids must be unique"

    def changed_since(self, before: TopicsImage) -> frozenset[str]:
        """Names of the topics that were created, deleted, created again or changed in partitions or racks."""
        names = self.by_name.keys() | before.by_name.keys()
        return frozenset(name for name in names if self.by_name.get(name) != before.by_name.get(name))

    def ids_of(self, names: Iterable[str]) -> tuple[UUID, ...]:
        """Ids of those of *names* that exist, ascending."""
        by_name = self.by_name
        return tuple(sorted(by_name[name].topic_id for name in names if name in by_name))

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Digest of what a target depends on: name, id, partition count and racks of those of *names* that exist.

        Returns:
            A signed 64-bit integer; 0 if none exists. Equal for equal content in any order. Kafka stores such a
            hash in the same field but computes it differently, which costs one more epoch when a log changes hands.
        """
        by_name = self.by_name
        found = sorted(by_name[name].name for name in names if name in by_name)
        if not found:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for name in found:
            topic = by_name[name]
            encoded = name.encode()
            digest.update(len(encoded).to_bytes(4, "big") + encoded + topic.topic_id.bytes)
            digest.update(topic.partition_count.to_bytes(4, "big"))
            for racks in topic.racks:
                for rack in sorted(racks):
                    digest.update(len(rack.encode()).to_bytes(4, "big") + rack.encode())
                digest.update(b"\xff\xff\xff\xff")
        return int.from_bytes(digest.digest(), "big", signed=True)
