"""`CoPartitioned`: partition i of joined topics goes to one member, and stays there."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.common.model import TopicIdPartition


class CoPartitioned(PartitionAssignor):
    """Topics that are joined by key are assigned together: who reads ``orders-3`` reads ``payments-3``.

    `Range` does this as well, while all members subscribe alike, but moves nearly everything when a member comes or
    goes. This one lets members keep their partitions.

    Guarantee: partition i of all topics of a set has one owner; members that may take the same sets have the same
    number of units of each set, give or take one; a member that leaves moves only what it had, and one that joins only
    what it gets.

    Args:
        together: sets of topics that are joined. Left out: all topics with the same number of partitions and the same
            subscribers are one set. Topics in no set are spread by themselves.

    Raises:
        ValueError: a topic is in two sets.
    """

    name = "co-partitioned"

    def __init__(self, together: Iterable[Collection[str]] | None = None) -> None:
        self._together = None if together is None else [tuple(sorted(set(topics))) for topics in together]
        seen: set[str] = set()
        for topics in self._together or ():
            if twice := seen & {*topics}:
                raise ValueError(f"topic {min(twice)!r} is in two sets; join them into one")
            seen |= {*topics}

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread units, one a partition number of a set.

        Raises:
            ValueError: topics of one set differ in their number of partitions, or no member subscribes to all of them.
        """
        plan = AssignmentPlan(spec)
        load = dict.fromkeys(spec.members, 0)
        for topics in self._sets(spec, plan):
            _spread(plan, topics, load)
        return plan.to_assignment()

    def _sets(self, spec: AssignmentSpec, plan: AssignmentPlan) -> list[tuple[str, ...]]:
        if self._together is None:
            alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
            for topic in spec.topics.values():
                alike.setdefault((topic.partition_count, plan.subscribers(topic.name)), []).append(topic.name)
            return [tuple(topics) for _, topics in sorted(alike.items())]
        sets = []
        for topics in self._together:
            known = tuple(topic for topic in topics if topic in spec.topics)
            counts = {topic: spec.topics[topic].partition_count for topic in known}
            if len({*counts.values()}) > 1:
                raise ValueError(
                    "topics that are read together must have the same number of partitions: "
                    + ", ".join(f"{topic} has {count}" for topic, count in counts.items())
                )
            sets += [known] if known else []
        joined = {topic for topics in sets for topic in topics}
        return sets + [(topic,) for topic in spec.topics if topic not in joined]


def _spread(plan: AssignmentPlan, topics: tuple[str, ...], load: dict[str, int]) -> None:
    spec = plan.spec
    members = [m for m, member in spec.members.items() if {*topics} <= {*member.subscribed_topics}]
    if not members:
        raise ValueError(f"no member subscribes to all of {', '.join(topics)}, which are to be read together")
    units = [
        tuple(TopicIdPartition(topic, index, spec.topics[topic].topic_id) for topic in topics)
        for index in range(spec.topics[topics[0]].partition_count)
    ]
    holder = _holders(plan, units, members)
    held = {m: [index for index, who in holder.items() if who == m] for m in members}
    floor, larger = divmod(len(units), len(members))
    order = sorted(members, key=lambda m: (-len(held[m]), load[m], m))
    room = {m: floor + (1 if rank < larger else 0) for rank, m in enumerate(order)}
    owners: dict[int, str] = {}
    for member in members:
        for index in held[member][: room[member]]:
            owners[index] = member
            room[member] -= 1
    left = iter([index for index in range(len(units)) if index not in owners])
    for member in order:
        for _ in range(room[member]):
            owners[next(left)] = member
    for index, member in owners.items():
        plan.give_all(units[index], member)
        load[member] += len(topics)


def _holders(plan: AssignmentPlan, units: list[tuple[TopicIdPartition, ...]], members: list[str]) -> dict[int, str]:
    """Unit -> the member that holds most of it now; units without a holder are left out."""
    of_partition = {partition: m for m in members for partition in plan.spec.members[m].target}
    found: dict[int, str] = {}
    for index, unit in enumerate(units):
        holders = [of_partition[partition] for partition in unit if partition in of_partition]
        if holders:
            found[index] = max(sorted(set(holders)), key=holders.count)
    return found
