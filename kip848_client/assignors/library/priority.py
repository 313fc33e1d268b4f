"""`Priority`: important topics are balanced first, each class by itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, PartitionAssignor
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.library.even import spread_over
from kip848_client.common.model import TopicIdPartition


class Priority(PartitionAssignor):
    """Topics of one priority are spread evenly by themselves, the highest priority first.

    For groups in which a few topics do most of the work: with an ordinary assignor one member may get three busy
    partitions and another one three idle ones, and both count as balanced.

    Guarantee: where members subscribe alike, any two members' counts of the partitions of one class differ by at most
    one, and so do their counts in all. Partitions stay with their member unless one of these counts requires a move.

    Args:
        priorities: topic -> priority; the greater, the sooner. Topics that are left out have priority 0. All members
            must be configured alike: the one that is asked to assign decides.
    """

    name = "priority"

    def __init__(self, priorities: Mapping[str, int] = MappingProxyType({})) -> None:
        self._priorities = dict(priorities)

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread class by class, each time beginning with the members that have least."""
        plan = AssignmentPlan(spec)
        classes: dict[int, list[str]] = {}
        for topic in spec.topics:
            classes.setdefault(self._priorities.get(topic, 0), []).append(topic)
        for _, topics in sorted(classes.items(), reverse=True):
            _spread_class(plan, topics)
        return plan.to_assignment()


def _spread_class(plan: AssignmentPlan, topics: list[str]) -> None:
    """Spread the partitions of *topics*; subscribers that differ by topic are taken topic by topic, fewest first."""
    by_subscribers: dict[tuple[str, ...], list[TopicIdPartition]] = {}
    for topic in topics:
        by_subscribers.setdefault(plan.subscribers(topic), []).extend(plan.spec.topics[topic].partitions)
    in_class = dict.fromkeys(plan.spec.members, 0)
    for subscribers, partitions in sorted(by_subscribers.items(), key=lambda item: (len(item[0]), item[0])):
        before = {member: plan.count(member) for member in subscribers}
        spread_over(plan, partitions, subscribers, already=in_class, level_totals=True)
        for member in subscribers:
            in_class[member] += plan.count(member) - before[member]
