"""The `uniform` assignor: every member owns the same number of partitions, give or take one, and few of them move.

This file holds the case in which all members subscribe to the same topics; `uniform_heterogeneous` holds the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from kip848_client.assignors.partitions import MutableTopicPartitions, Run, add_partitions, split_at, survey
from kip848_client.assignors.spec import (
    GroupAssignment,
    GroupSpec,
    TopicPartitions,
    check_topics,
    common_subscription,
)
from kip848_client.assignors.uniform_heterogeneous import assign_heterogeneous


class UniformAssignor:
    """Balanced over the whole group and sticky.

    Guarantees, if all members subscribe alike: every partition is assigned, two members differ by at most one
    partition, the number of moved partitions is the least that this balance allows, and a second run changes nothing.

    Source:
        KIP-848 "Assignors"; Kafka's ``UniformAssignor``; KAFKA-18688 for who keeps the one partition more.
    """

    name = "uniform"

    def assign(self, spec: GroupSpec) -> GroupAssignment:
        """Compute the target of every member; see `ServerAssignor.assign`."""
        check_topics(spec)
        if not spec.subscriptions:
            return {}
        subscription = common_subscription(spec)
        if subscription is None:
            return assign_heterogeneous(spec)
        return assign_homogeneous(spec, subscription)


def assign_homogeneous(spec: GroupSpec, subscription: tuple[UUID, ...]) -> GroupAssignment:
    """Balance *subscription* over all members of *spec*. O(members + topics), and O(partitions) where some are free."""
    topics = {topic_id: spec.topics[topic_id] for topic_id in sorted(subscription)}
    member_ids = sorted(spec.subscriptions)
    target = spec.target
    found = survey(((target.get(member_id), None) for member_id in member_ids), topics=topics)
    quotas = _quotas(found.sizes, partition_count=sum(topics.values()))
    pool = [Run(topic_id, free) for topic_id, free in found.free.items()]
    kept = found.kept
    for index, (size, quota) in enumerate(zip(found.sizes, quotas, strict=True)):
        if size > quota:
            kept[index], released = split_at(kept[index], quota)
            pool += released
    return _fill(member_ids, kept=kept, sizes=found.sizes, quotas=quotas, pool=pool)


def _quotas(sizes: Sequence[int], *, partition_count: int) -> list[int]:
    """How many partitions each member shall own; who is above the floor now keeps one more, as long as they last."""
    floor, larger = divmod(partition_count, len(sizes))
    quotas = [floor] * len(sizes)
    if not larger:
        return quotas
    for index, size in enumerate(sizes):
        if size > floor:
            quotas[index] += 1
            larger -= 1
            if not larger:
                return quotas
    for index, quota in enumerate(quotas):
        if quota == floor:
            quotas[index] += 1
            larger -= 1
            if not larger:
                break
    return quotas


def _fill(
    member_ids: Sequence[str],
    *,
    kept: Sequence[TopicPartitions],
    sizes: Sequence[int],
    quotas: Sequence[int],
    pool: Iterable[Run],
) -> GroupAssignment:
    """Give the pool, in order, to the members below their quota, in order."""
    assignment: dict[str, TopicPartitions] = {}
    runs = iter(pool)
    topic_id = UUID(int=0)
    run: tuple[int, ...] = ()
    start = 0
    for member_id, partitions, size, quota in zip(member_ids, kept, sizes, quotas, strict=True):
        missing = quota - size
        if missing <= 0:
            assignment[member_id] = partitions
            continue
        grown: MutableTopicPartitions = dict(partitions)
        while missing:
            taken = run[start : start + missing]
            if not taken:
                topic_id, run = next(runs)
                start = 0
                continue
            start += len(taken)
            missing -= len(taken)
            if grown:
                add_partitions(grown, Run(topic_id, taken))
            else:
                grown[topic_id] = taken
        assignment[member_id] = grown
    return assignment
