"""`AssignmentPlan`: an assignment in the making, for assignors that decide partition by partition.

Does not own: an algorithm; those are in `spread`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, MemberAssignment, MemberSpec
from kip848_client.common.model import TopicIdPartition


class AssignmentPlan:
    """An assignment in the making. Every partition of the group is either given to one member or in `unassigned`.

    Args:
        spec: the group.

    Example::

        plan = AssignmentPlan(spec)
        plan.keep_held(lambda member: 10)
        for partition in plan.unassigned:
            plan.give(partition, min(plan.may_take(partition), key=plan.count))
        return plan.to_assignment()
    """

    def __init__(self, spec: AssignmentSpec) -> None:
        self.spec = spec
        self._owners: dict[str, list[str | None]] = {
            name: [None] * topic.partition_count for name, topic in spec.topics.items()
        }
        """By topic and number: half a million partitions are too many to be hashed again and again."""
        self._given: dict[str, dict[TopicIdPartition, None]] = {member_id: {} for member_id in spec.members}
        self._subscribers: dict[str, tuple[str, ...]] = {}
        by_topics: dict[tuple[str, ...], list[str]] = {}
        for member_id, member in spec.members.items():
            by_topics.setdefault(member.subscribed_topics, []).append(member_id)
        members_of: dict[str, list[str]] = {topic: [] for topic in spec.topics}
        for topics, member_ids in by_topics.items():
            for topic in topics:
                members_of[topic].extend(member_ids)
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        for topic, member_ids in members_of.items():
            key = tuple(member_ids if len(by_topics) == 1 else sorted(member_ids))
            self._subscribers[topic] = shared.setdefault(key, key)

    def may_take(self, partition: TopicIdPartition) -> tuple[str, ...]:
        """Ids of the members that subscribe to the topic of *partition*, sorted."""
        return self._subscribers[partition.topic]

    def subscribers(self, topic: str) -> tuple[str, ...]:
        """Ids of the members that subscribe to *topic*, sorted; topics with equal subscribers share one tuple."""
        return self._subscribers[topic]

    @property
    def unassigned(self) -> tuple[TopicIdPartition, ...]:
        """Partitions without an owner, sorted; computed at each call."""
        return tuple(
            TopicIdPartition(name, index, self.spec.topics[name].topic_id)
            for name, owners in self._owners.items()
            if None in owners
            for index, owner in enumerate(owners)
            if owner is None
        )

    def owner(self, partition: TopicIdPartition) -> str | None:
        """The member that *partition* was given to, or None."""
        return self._owners[partition.topic][partition.partition]

    def given(self, member_id: str) -> tuple[TopicIdPartition, ...]:
        """The partitions of a member so far, in the order of giving."""
        return tuple(self._given[member_id])

    def count(self, member_id: str) -> int:
        """How many partitions a member has so far."""
        return len(self._given[member_id])

    def give(self, partition: TopicIdPartition, member_id: str) -> None:
        """Give *partition* to a member; its previous owner loses it.

        Raises:
            KeyError: no such member, or topic.
            IndexError: no such partition.
        """
        given = self._given[member_id]
        owners = self._owners[partition.topic]
        before = owners[partition.partition]
        if before is not None:
            del self._given[before][partition]
        given[partition] = None
        owners[partition.partition] = member_id

    def keep_held(
        self,
        at_most: Callable[[MemberSpec], int] | None = None,
        *,
        only: Callable[[MemberSpec, TopicIdPartition], bool] | None = None,
    ) -> None:
        """Give each member the free partitions of its present target that it still subscribes to.

        Args:
            at_most: how many partitions a member may have in all; no limit if left out.
            only: keep just those for which this is true.
        """
        for member_id, member in self.spec.members.items():
            subscribed = frozenset(member.subscribed_topics)
            room = len(member.target) if at_most is None else at_most(member) - len(self._given[member_id])
            for partition in member.target:
                if room <= 0:
                    break
                known = self.spec.topics.get(partition.topic)
                if partition.topic not in subscribed or known is None or partition.topic_id != known.topic_id:
                    continue
                if partition.partition >= known.partition_count or self.owner(partition) is not None:
                    continue
                if only is None or only(member, partition):
                    self.give(partition, member_id)
                    room -= 1

    def give_all(self, partitions: Iterable[TopicIdPartition], member_id: str) -> None:
        """Give several partitions to one member."""
        for partition in partitions:
            self.give(partition, member_id)

    def to_assignment(self, metadata: Mapping[str, bytes] | None = None, *, version: int = 0) -> GroupAssignment:
        """Turn the plan into the result of `PartitionAssignor.assign`.

        Args:
            metadata: member id -> metadata for the assignor of that member; empty for members that are left out.
            version: of the format of *metadata*.
        """
        told = metadata or {}
        return GroupAssignment(
            {
                member_id: MemberAssignment(tuple(sorted(given)), told.get(member_id, b""), version)
                for member_id, given in self._given.items()
            }
        )
