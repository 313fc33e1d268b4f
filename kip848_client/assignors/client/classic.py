"""The assignors that every client of the classic protocol knows: ``range``, ``roundrobin``, ``cooperative-sticky``.

In a classic group any member may be chosen to assign. So these give the same assignments as the Java client and
librdkafka, unless a hash table decides there. They run as any other `PartitionAssignor`: `MemberSpec.target` is what a
member says it owns.

``range`` and ``cooperative-sticky`` prefer members in a rack with a replica of the partition, as long as the numbers of
partitions stay what they would be without racks. Racks count only where they make a difference: some member has one in
which there are replicas, and not every partition has replicas in all of these racks.

Source: kafka-clients 4.3.1 ``RangeAssignor``, ``RoundRobinAssignor``, ``AbstractStickyAssignor``; KIP-881.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    MemberSpec,
    PartitionAssignor,
    TopicSpec,
)
from kip848_client.common.model import TopicIdPartition


class _BuiltIn(PartitionAssignor):
    """Reads no metadata, so that members of any client may be in the group."""

    minimum_version = -1

    def metadata(self) -> AssignorMetadata:
        """Nothing."""
        return AssignorMetadata()


class ClassicRange(_BuiltIn):
    """Of each topic a run of neighbouring partitions for each subscriber; the first ones get one more.

    Racks may break a run. Topics of equal size and equal subscribers are then taken together: partition i of all of
    them goes to one member, if some member is in a rack with replicas of all of these.
    """

    name = "range"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Compute the target of every member."""
        order = _in_order(spec)
        ranges = [
            _Range(topic, [spec.members[each] for each in order if topic.name in spec.members[each].subscribed_topics])
            for topic in spec.topics.values()
        ]
        alike: dict[tuple[tuple[str, ...], int], list[_Range]] = {}
        for each in ranges:
            alike.setdefault((tuple(each.count), each.topic.partition_count), []).append(each)
        if any(each.racks.matter for each in ranges):
            for together in alike.values():
                if len(together) > 1:
                    _give_together(together)
                elif together[0].racks.matter:
                    together[0].give_near()
        given: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in spec.members}
        for each in ranges:
            each.give_rest()
            for partition, member_id in each.owner.items():
                given[member_id].append(partition)
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
"""The built-in assignors, by the names that Kafka's clients give them."""

EAGER: Final = frozenset({ClassicRange.name, RoundRobin.name})
"""Assignors of the eager protocol: members give everything up before they join, so each round assigns everything."""


def _in_order(spec: AssignmentSpec) -> list[str]:
    """Static members by instance id, then dynamic ones by member id, in the order of UTF-16 as Java compares."""

    def key(member: MemberSpec) -> tuple[bool, bytes]:
        static = member.instance_id is not None
        return not static, (member.instance_id or member.member_id).encode("utf-16-be", "surrogatepass")

    return [member.member_id for member in sorted(spec.members.values(), key=key)]


def _still_there(spec: AssignmentSpec, member: MemberSpec) -> list[TopicIdPartition]:
    """The partitions that a member owns, still exist, and are of topics that it subscribes to."""
    return [
        partition
        for partition in member.target
        if partition.topic in member.subscribed_topics
        and (topic := spec.topics.get(partition.topic)) is not None
        and topic.topic_id == partition.topic_id
        and partition.partition < topic.partition_count
    ]


class _Racks:
    """Which members are in a rack with a replica; see the text at the top of this file for when that counts."""

    def __init__(self, topics: Iterable[TopicSpec], members: Iterable[MemberSpec]) -> None:
        self._of_member: Final = {member.member_id: member.rack_id for member in members if member.rack_id}
        self._of_topic: Final = {topic.name: topic.racks for topic in topics}
        each = [self.of(partition) for topic in topics for partition in topic.partitions] if self._of_member else []
        of_replicas = frozenset[str]().union(*each)
        self.matter: Final = not of_replicas.isdisjoint(self._of_member.values()) and any(
            racks != of_replicas for racks in each
        )

    def of(self, partition: TopicIdPartition) -> frozenset[str]:
        """The racks of a partition's replicas."""
        racks = self._of_topic[partition.topic]
        return racks[partition.partition] if partition.partition < len(racks) else frozenset()

    def match(self, member_id: str, partition: TopicIdPartition) -> bool:
        """Whether the member has no rack, or one with a replica."""
        rack = self._of_member.get(member_id)
        return rack is None or rack in self.of(partition)

    def may_keep(self, member_id: str, partition: TopicIdPartition) -> bool:
        """Whether no rack speaks against it that the member keeps the partition."""
        return not self.matter or self.match(member_id, partition)

    def readers(self, partition: TopicIdPartition) -> int:
        """How many members are in a rack with a replica."""
        racks = self.of(partition)
        return sum(rack in racks for rack in self._of_member.values())

    def next_reader(self, partition: TopicIdPartition, members: Sequence[str], start: int) -> int | None:
        """Index of the first of *members*, round from *start*, in a rack with a replica."""
        racks = self.of(partition)
        for step in range(len(members)):
            index = (start + step) % len(members)
            if self._of_member.get(members[index]) in racks:
                return index
        return None


class _Range:
    """One topic: how many of its partitions each member has, and which members may get more.

    Args:
        subscribers: in the order in which they are given partitions.
    """

    def __init__(self, topic: TopicSpec, subscribers: Sequence[MemberSpec]) -> None:
        self.topic: Final = topic
        self.racks: Final = _Racks([topic], subscribers)
        self.count: Final = {member.member_id: 0 for member in subscribers}
        self.owner: Final[dict[TopicIdPartition, str]] = {}
        self._each, self._more = divmod(topic.partition_count, len(subscribers) or 1)

    def room(self, member_id: str) -> int:
        """How many partitions more the member may get."""
        return max(0, self._each + (self._more > 0) - self.count[member_id])

    def take(self, member_id: str, partitions: Sequence[TopicIdPartition]) -> None:
        """Give *partitions* to a member."""
        had = self.count[member_id]
        self.owner.update(dict.fromkeys(partitions, member_id))
        self.count[member_id] = had + len(partitions)
        if had <= self._each < self.count[member_id]:
            self._more -= 1

    def give_near(self) -> None:
        """Give each subscriber as many of the first free partitions as match its rack, and as it has room for."""
        free = dict.fromkeys(self.topic.partitions)
        for member_id in self.count:
            near = (partition for partition in free if self.racks.match(member_id, partition))
            taken = list(itertools.islice(near, self.room(member_id)))
            self.take(member_id, taken)
            for partition in taken:
                del free[partition]

    def give_rest(self) -> None:
        """Give each subscriber as many of the first free partitions as it has room for."""
        free = [partition for partition in self.topic.partitions if partition not in self.owner]
        start = 0
        for member_id in self.count:
            end = start + self.room(member_id)
            self.take(member_id, free[start:end])
            start = end


def _give_together(ranges: Sequence[_Range]) -> None:
    """Give partition i of all topics to the first member that may read all of these from its rack, and has room."""
    members = list(ranges[0].count)
    for row in zip(*(each.topic.partitions for each in ranges), strict=True):
        pairs = list(zip(ranges, row, strict=True))
        for member_id in members:
            if all(each.racks.match(member_id, one) and each.room(member_id) for each, one in pairs):
                for each, one in pairs:
                    each.take(member_id, [one])
                if not any(each.room(member_id) for each in ranges):
                    members.remove(member_id)
                break


def _equal(spec: AssignmentSpec) -> dict[str, list[TopicIdPartition]]:
    """All members subscribe to the same topics (``ConstrainedAssignmentBuilder``)."""
    racks = _Racks(spec.topics.values(), spec.members.values())
    least, more = divmod(len(spec.partitions), len(spec.members) or 1)
    most = least + 1 if more else least
    given: dict[str, list[TopicIdPartition]] = {}
    below: list[str] = []
    """Members with fewer than `least`."""
    at_least: list[str] = []
    """Members with exactly `least`, some of which get one more."""
    for member_id, member in sorted(spec.members.items()):
        owned = [partition for partition in _still_there(spec, member) if racks.may_keep(member_id, partition)]
        owned.sort(key=lambda each: (each.partition, each.topic))
        if len(owned) < least:
            given[member_id] = owned
            below.append(member_id)
        elif len(owned) >= most and more:
            given[member_id] = owned[:most]
            more -= 1
        else:
            given[member_id] = owned[:least]
            at_least.append(member_id)
    taken = {partition for owned in given.values() for partition in owned}
    free = [partition for partition in spec.partitions if partition not in taken]
    if racks.matter:
        free.sort(key=racks.readers)
        more = _give_to_readers(free, racks, given, below, at_least, least=least, most=most, more=more)
        taken = {partition for owned in given.values() for partition in owned}
        free = [partition for partition in free if partition not in taken]
    turn = 0
    waiting = deque(at_least)
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


def _give_to_readers(
    free: Iterable[TopicIdPartition],
    racks: _Racks,
    given: dict[str, list[TopicIdPartition]],
    below: list[str],
    at_least: list[str],
    *,
    least: int,
    most: int,
    more: int,
) -> int:
    """Give each of *free* to a member in a rack with a replica that has room; changes *given*, *below*, *at_least*.

    Args:
        more: how many members may still get more than *least*.

    Returns:
        How many of them are left.
    """
    turn = 0
    if not more:
        at_least.clear()
    for partition in free:
        index = racks.next_reader(partition, below, turn)
        if index is not None:
            member_id = below[index]
            if len(given[member_id]) + 1 >= least:
                del below[index]
                if least < most and more:
                    at_least.append(member_id)
            else:
                index += 1
            turn = index % len(below) if below else 0
        elif (index := racks.next_reader(partition, at_least, 0)) is not None:
            member_id = at_least.pop(index)
            more -= 1
            if not more:
                at_least.clear()
        else:
            continue
        given[member_id].append(partition)
    return more


def _unequal(spec: AssignmentSpec) -> dict[str, list[TopicIdPartition]]:
    """Members subscribe to different topics: no member could take a partition from one that has two more."""
    racks = _Racks(spec.topics.values(), spec.members.values())
    subscribers = {topic: spec.subscribers(topic) for topic in spec.topics}
    owner = {
        partition: member_id
        for member_id, member in spec.members.items()
        for partition in _still_there(spec, member)
        if racks.may_keep(member_id, partition)
    }
    load = dict.fromkeys(spec.members, 0)
    for member_id in owner.values():
        load[member_id] += 1
    # Partitions that few members can take come first: later those members might have no room.
    order = sorted(spec.partitions, key=lambda each: (len(subscribers[each.topic]), each.topic, each.partition))
    for may_have in (racks.may_keep, lambda member_id, partition: True):
        for partition in order:
            if partition in owner:
                continue
            candidates = [each for each in subscribers[partition.topic] if may_have(each, partition)]
            if candidates:
                member_id = min(candidates, key=lambda each: (load[each], each))
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
