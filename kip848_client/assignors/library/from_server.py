"""`Range`, `Uniform` and `RackAware`: the algorithms of the coordinator's assignors, run in a member.

For groups that want one of them together with client-side assignors (as the second choice in
``group.local.assignors``), and for `RackAware` with racks that the cluster does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    TopicSpec,
)
from kip848_client.assignors.server.range import RangeAssignor
from kip848_client.assignors.server.spec import GroupSpec, ServerAssignor
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.assignors.server.uniform_rack_aware import RackAwareUniformAssignor
from kip848_client.common.model import TopicIdPartition

PartitionRacks: TypeAlias = Callable[[str, int], Collection[str]] | Mapping[str, Sequence[Collection[str]]]
"""The racks of a partition's replicas: a function of topic and partition, or topic -> one collection a partition."""


class Range(PartitionAssignor):
    """Runs of neighbouring partitions, topic by topic: partition i of topics of equal size goes to one member.

    For joins by key that need no state kept in place. Guarantee: of each topic two subscribers differ by at most one
    partition. It keeps nothing in place when members come and go, except through ``group.instance.id``; see
    `CoPartitioned`.
    """

    name = "range"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Assigns as Kafka's range assignor."""
        return _run(RangeAssignor(), spec)


class Uniform(PartitionAssignor):
    """The same number of partitions for all members, and few moves: the default of KIP-848.

    Guarantee: two members that subscribe alike differ by at most one partition, and partitions move only for balance.
    """

    name = "uniform"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Assigns as Kafka's uniform assignor."""
        return _run(UniformAssignor(), spec)


class RackAware(PartitionAssignor):
    """Balanced as `Uniform`; among such assignments one with most partitions read in a rack that has a replica.

    For clusters over several zones, where traffic between zones is paid for. Members tell their rack with
    ``client.rack``; librdkafka then reads from the replica of that rack (broker: ``replica.selector.class``).

    Guarantee: loads as `Uniform`, then the greatest number of local partitions, then few moves.

    Args:
        partition_racks: where replicas are. On the classic protocol the leader sees it itself, so leave this out. Under
            KIP-848 an assignor is told no racks of partitions; partitions that are not in here count as having no rack.
    """

    name = "rack-aware"

    def __init__(self, partition_racks: PartitionRacks = MappingProxyType({})) -> None:
        self._partition_racks = partition_racks

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Balance first, then racks."""
        return _run(
            RackAwareUniformAssignor(),
            spec,
            partition_racks={
                topic.topic_id: [self._racks(topic, index) for index in range(topic.partition_count)]
                for topic in spec.topics.values()
            },
        )

    def _racks(self, topic: TopicSpec, partition: int) -> frozenset[str]:
        if callable(self._partition_racks):
            return frozenset(self._partition_racks(topic.name, partition))
        racks = self._partition_racks.get(topic.name, topic.racks)
        return frozenset(racks[partition]) if partition < len(racks) else frozenset()


def _run(
    assignor: ServerAssignor,
    spec: AssignmentSpec,
    *,
    partition_racks: Mapping[UUID, Sequence[frozenset[str]]] = MappingProxyType({}),
) -> GroupAssignment:
    ids = {name: topic.topic_id for name, topic in spec.topics.items()}
    names = {topic_id: name for name, topic_id in ids.items()}
    shared: dict[tuple[str, ...], tuple[UUID, ...]] = {}
    subscriptions = {}
    for member_id, member in spec.members.items():
        topics = member.subscribed_topics
        if topics not in shared:
            shared[topics] = tuple(sorted(ids[topic] for topic in topics))
        subscriptions[member_id] = shared[topics]
    result = assignor.assign(
        GroupSpec(
            subscriptions=subscriptions,
            topics={topic.topic_id: topic.partition_count for topic in spec.topics.values()},
            target={member_id: _by_topic(member.target, spec) for member_id, member in spec.members.items()},
            instance_ids={m: member.instance_id for m, member in spec.members.items() if member.instance_id},
            rack_ids={m: member.rack_id for m, member in spec.members.items() if member.rack_id},
            partition_racks=partition_racks,
        )
    )
    return GroupAssignment(
        {
            member_id: MemberAssignment(
                tuple(
                    sorted(
                        TopicIdPartition(names[topic_id], index, topic_id)
                        for topic_id, indexes in given.items()
                        for index in indexes
                    )
                )
            )
            for member_id, given in result.items()
        }
    )


def _by_topic(target: Sequence[TopicIdPartition], spec: AssignmentSpec) -> Mapping[UUID, tuple[int, ...]]:
    """The held partitions that still exist, by topic id."""
    found: dict[UUID, list[int]] = {}
    for partition in target:
        topic = spec.topics.get(partition.topic)
        if topic is not None and topic.topic_id == partition.topic_id and partition.partition < topic.partition_count:
            found.setdefault(partition.topic_id, []).append(partition.partition)
    return {topic_id: tuple(sorted(indexes)) for topic_id, indexes in found.items()}
