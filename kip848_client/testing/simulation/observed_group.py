"""A copy of the coordinator's group, updated member by member and shared by all checkers. Checks nothing.

An update reads only members that changed, which it finds by the identity of their frozen values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.common.model import NamedPartition
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, PartitionEpochs
from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.testing.simulation.virtual.cluster import VirtualCluster
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import TopicPartitions as Listed

IdPartition: TypeAlias = tuple[UUID, int]
Partitions: TypeAlias = frozenset[IdPartition]

_NOTHING: Final[Partitions] = frozenset()


class Seen(NamedTuple):
    """One member at one moment.

    Args:
        assigned: partitions that it may use. pending: partitions that it must give up and has not confirmed. held:
            both. target: partitions that it is to own in the end.
    """

    member: ConsumerMember
    assigned: Partitions
    pending: Partitions
    held: Partitions
    target_source: TopicPartitions
    target: Partitions

    @property
    def epoch(self) -> int:
        """Its member epoch."""
        return self.member.current.member_epoch

    @property
    def previous_epoch(self) -> int:
        """The epoch before."""
        return self.member.current.previous_member_epoch


class MemberChange(NamedTuple):
    """A member before and after a step; None if it was, or is, not in the group."""

    member_id: str
    before: Seen | None
    after: Seen | None


class Conversion(NamedTuple):
    """A group that became one of the other kind.

    Args:
        members: of the consumer group that it was.
        classic: the classic group that it was; None if it is one now.
    """

    members: Mapping[str, Seen]
    classic: ClassicGroup | None

    @property
    def was_empty(self) -> bool:
        """Whether it had no members. The epochs of an empty group may start again."""
        return not (self.members or (self.classic is not None and self.classic.members))


_RECORDED: Final = (ClassicState.STABLE, ClassicState.EMPTY)


class ObservedGroup:
    """A copy of one group of a cluster, made by `look` after each step. Checkers compare it with their own records."""

    def __init__(self, cluster: VirtualCluster, group_id: str) -> None:
        self._cluster = cluster
        self.group_id: Final = group_id
        self.members: dict[str, Seen] = {}
        self.classic: ClassicGroup | None = None
        """The group while it is a classic one, else None. A classic group has no entries in `members`."""
        self.converted: Conversion | None = None
        """The group before the last look, if that look found it converted to the other kind."""
        self.group_epoch: int = 0
        """The group epoch. For a classic group, this and `target_epoch` are the generation in its last record."""
        self.target_epoch: int = 0
        self._is_consumer_group = False
        self.version: int = -1
        """`Cluster.version` at the last look."""
        self.loads: int = 0
        self.is_loaded: bool = False
        """Whether a coordinator was loaded between the last two looks, which undoes changes that were not durable."""
        self.rewound: set[IdPartition] = set()
        """Partitions whose committed offset comes from a late or duplicated commit, which Kafka accepts."""

    @property
    def group(self) -> ConsumerGroup | None:
        """The coordinator's own object, to be read only."""
        return self._cluster.coordinator.group(self.group_id)

    def look(self) -> list[MemberChange]:
        """Copy the group as it is now; return which members changed."""
        self.version = self._cluster.version
        self.is_loaded, self.loads = self.loads != self._cluster.loads, self._cluster.loads
        group, classic = self.group, self._cluster.coordinator.classic_group(self.group_id)
        if group is not None and classic is not None:
            fail("K1", f"{self.group_id} is a classic and a consumer group")
        known, classic_before = self.members, self.classic
        self.classic = classic
        self.converted = None
        if classic is not None and self._is_consumer_group:
            self.converted = Conversion(known, None)
        elif group is not None and classic_before is not None:
            self.converted = Conversion({}, classic_before)
        if self.converted is not None and self.converted.was_empty:
            self.group_epoch = 0
        self._is_consumer_group = group is not None
        if group is None:
            if classic is None:
                self.group_epoch = self.target_epoch = 0
            else:
                if classic.state in _RECORDED:
                    self.group_epoch = classic.generation
                self.target_epoch = self.group_epoch
            self.members = {}
            return [MemberChange(member_id, seen, None) for member_id, seen in known.items()]
        self.group_epoch = group.group_epoch
        self.target_epoch = group.target_epoch
        members, targets = group.members, group.target
        changes: list[MemberChange] = []
        if known.keys() - members.keys():
            gone = [member_id for member_id in known if member_id not in members]
            changes += [MemberChange(member_id, known.pop(member_id), None) for member_id in gone]
        for member_id, member in members.items():
            before = known.get(member_id)
            target = targets.get(member_id, _NO_TARGET)
            if before is None or before.member is not member or before.target_source is not target:
                known[member_id] = after = _see(member, target, before)
                changes.append(MemberChange(member_id, before, after))
        return changes

    def without_what_is_gone(self, seen: Seen) -> Partitions:
        """The target of a member, without topics that do not exist any more or that it does not subscribe to."""
        group = self.group
        assert group is not None
        topic_ids = set(self._cluster.topics.image.ids_of(group.topics_of(seen.member.metadata)))
        return frozenset(partition for partition in seen.target if partition[0] in topic_ids)

    def names(self, partitions: Partitions) -> frozenset[NamedPartition]:
        """The names of *partitions*; partitions of topics that do not exist any more are left out."""
        by_id = self._cluster.topics.image.by_id
        return frozenset(
            NamedPartition(by_id[topic_id].name, index) for topic_id, index in partitions if topic_id in by_id
        )


_NO_TARGET: Final[Mapping[UUID, tuple[int, ...]]] = {}


def _see(member: ConsumerMember, target: TopicPartitions, before: Seen | None) -> Seen:
    if before is not None and before.member.current is member.current:
        assigned, pending, held = before.assigned, before.pending, before.held
    else:
        assigned, pending = id_partitions(member.current.assigned), id_partitions(member.current.pending_revocation)
        held = assigned | pending if pending else assigned
    if before is not None and before.target_source is target:
        flat = before.target
    else:
        flat = frozenset((topic_id, index) for topic_id, partitions in target.items() for index in partitions)
    return Seen(member, assigned, pending, held, target, flat)


def id_partitions(partitions: PartitionEpochs) -> Partitions:
    """*partitions* as a set of (topic id, number)."""
    if not partitions:
        return _NOTHING
    return frozenset((topic_id, index) for topic_id, epochs in partitions.items() for index in epochs)


def accepted(request: Any, response: Any) -> Iterator[tuple[Any, Any]]:
    """The partitions of a commit that the coordinator accepted, each with its topic."""
    for topic, answered in zip(request.topics, response.topics, strict=True):
        for partition, answer in zip(topic.partitions, answered.partitions, strict=True):
            if not answer.error_code:
                yield topic, partition


def fetched(response: Any) -> Iterator[tuple[Any, Any]]:
    """The partitions of which an answer tells the committed offset, each with its topic."""
    for group in response.groups:
        for topic in group.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    yield topic, partition


def partitions_of(image: TopicsImage, topics: Collection[str]) -> Partitions:
    """All partitions of those topics that exist."""
    return frozenset(
        (topic.topic_id, index)
        for topic in image.topics
        if topic.name in topics
        for index in range(topic.partition_count)
    )


def listed(topics: Iterable[Listed]) -> Partitions:
    """The partitions that a message lists, as a set of (topic id, number)."""
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
