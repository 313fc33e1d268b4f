"""The assignors that every client of the classic protocol knows: ``range``, ``roundrobin``, ``cooperative-sticky``.

In a classic group any member may be chosen to assign. So these give what those of the Java client and of librdkafka
give, as far as they do not depend on the order of a hash table there; racks are ignored. They run as any other
`PartitionAssignor`: `MemberSpec.target` is what a member says it owns.

Source: kafka-clients 4.3.1 ``RangeAssignor``, ``RoundRobinAssignor``, ``AbstractStickyAssignor``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from kip848_client.assignors.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    MemberSpec,
    PartitionAssignor,
)
from kip848_client.model import TopicIdPartition

__all__ = ["BUILT_IN", "EAGER", "ClassicRange", "CooperativeSticky", "RoundRobin"]


class _BuiltIn(PartitionAssignor):
    """Reads no metadata, so that members of any client may be in the group."""

    minimum_version = -1

    def metadata(self) -> AssignorMetadata:
        """Nothing."""
        return AssignorMetadata()


class ClassicRange(_BuiltIn):
    """Of each topic a run of neighbouring partitions for each subscriber; the first ones get one more."""

    name = "range"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Compute the target of every member."""
        given: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in spec.members}
        order = _in_order(spec)
        for topic in spec.topics.values():
            subscribers = [member_id for member_id in order if topic.name in spec.members[member_id].subscribed_topics]
            if not subscribers:
                continue
            each, extra = divmod(topic.partition_count, len(subscribers))
            partitions = topic.partitions
            start = 0
            for number, member_id in enumerate(subscribers):
                end = start + each + (1 if number < extra else 0)
                given[member_id].extend(partitions[start:end])
                start = end
        return GroupAssignment.of(given)


class RoundRobin(_BuiltIn):
    """All partitions in order, one to each member in turn that subscribes to the topic."""

    name = "roundrobin"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Compute the target of every member."""
        given: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in spec.members}
        ring = deque(_in_order(spec))
        for partition in spec.partitions:
            while partition.topic not in spec.members[ring[0]].subscribed_topics:
                ring.rotate(-1)
            given[ring[0]].append(partition)
            ring.rotate(-1)
        return GroupAssignment.of(given)


class CooperativeSticky(_BuiltIn):
    """All members have the same number of partitions, give or take one, and as few as possible move."""

    name = "cooperative-sticky"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Compute the target of every member, as if nothing were in transit; who assigns takes that out."""
        if len({member.subscribed_topics for member in spec.members.values()}) <= 1:
            return GroupAssignment.of(_equal(spec))
        return GroupAssignment.of(_unequal(spec))


BUILT_IN: Final[Mapping[str, type[PartitionAssignor]]] = {
    assignor.name: assignor for assignor in (ClassicRange, RoundRobin, CooperativeSticky)
}
"""By the names that Kafka's clients give them."""

EAGER: Final = frozenset({ClassicRange.name, RoundRobin.name})
"""Those whose members own nothing while they join, so that each round gives everything away."""


def _in_order(spec: AssignmentSpec) -> list[str]:
    """Static members by instance id, then dynamic ones by member id, in the order of UTF-16 as Java compares."""

    def key(member: MemberSpec) -> tuple[bool, bytes]:
        static = member.instance_id is not None
        return not static, (member.instance_id or member.member_id).encode("utf-16-be", "surrogatepass")

    return [member.member_id for member in sorted(spec.members.values(), key=key)]


def _still_there(spec: AssignmentSpec, member: MemberSpec) -> list[TopicIdPartition]:
    """What a member owns of topics that it subscribes to, as far as it exists."""
    return [
        partition
        for partition in member.target
        if partition.topic in member.subscribed_topics
        and (topic := spec.topics.get(partition.topic)) is not None
        and topic.topic_id == partition.topic_id
        and partition.partition < topic.partition_count
    ]


def _equal(spec: AssignmentSpec) -> dict[str, list[TopicIdPartition]]:
    """All members subscribe to the same topics (``ConstrainedAssignmentBuilder``)."""
    least, more = divmod(len(spec.partitions), len(spec.members) or 1)
    most = least + 1 if more else least
    given: dict[str, list[TopicIdPartition]] = {}
    below: list[str] = []
    """Members with fewer than `least`."""
    at_least: list[str] = []
    """Members with exactly `least`, some of which get one more."""
    with_most = 0
    for member_id, member in sorted(spec.members.items()):
        owned = sorted(_still_there(spec, member), key=lambda each: (each.partition, each.topic))
        if len(owned) < least:
            given[member_id] = owned
            below.append(member_id)
        elif len(owned) >= most and with_most < more:
            given[member_id] = owned[:most]
            with_most += 1
        else:
            given[member_id] = owned[:least]
            at_least.append(member_id)
    taken = {partition for owned in given.values() for partition in owned}
    free = [partition for partition in spec.partitions if partition not in taken]
    turn = 0
    waiting = deque(sorted(at_least))
    for partition in free:
        if below:
            turn %= len(below)
            member_id = below[turn]
            given[member_id].append(partition)
            if len(given[member_id]) == least:
                del below[turn]
                waiting.append(member_id)
            else:
                turn += 1
        else:
            given[waiting.popleft()].append(partition)
    return given


def _unequal(spec: AssignmentSpec) -> dict[str, list[TopicIdPartition]]:
    """Members subscribe to different topics: no member could take a partition from one that has two more."""
    subscribers = {topic: spec.subscribers(topic) for topic in spec.topics}
    owner = {
        partition: member_id for member_id, member in spec.members.items() for partition in _still_there(spec, member)
    }
    load = dict.fromkeys(spec.members, 0)
    for member_id in owner.values():
        load[member_id] += 1
    # Those that few members can take come first, or there may be no room where they can go.
    order = sorted(spec.partitions, key=lambda each: (len(subscribers[each.topic]), each.topic, each.partition))
    for partition in order:
        if partition not in owner and subscribers[partition.topic]:
            member_id = min(subscribers[partition.topic], key=lambda each: (load[each], each))
            owner[partition] = member_id
            load[member_id] += 1
    moved = True
    while moved:
        moved = False
        for partition in order:
            now = owner.get(partition)
            if now is None:
                continue
            lightest = min(subscribers[partition.topic], key=lambda each: (load[each], each))
            if load[now] > load[lightest] + 1:
                owner[partition] = lightest
                load[now] -= 1
                load[lightest] += 1
                moved = True
    given: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in spec.members}
    for partition, member_id in owner.items():
        given[member_id].append(partition)
    return given
