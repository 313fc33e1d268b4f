"""The `uniform` assignor: every member owns the same number of partitions, give or take one, and few of them move.

This file holds the case in which all members subscribe to the same topics; `uniform_heterogeneous` holds the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from kip848_client.assignors.partitions import (
    MutableTopicPartitions,
    Run,
    add_partitions,
    split_at,
    survey,
)
from kip848_client.assignors.spec import (
    GroupAssignment,
    GroupSpec,
    TopicPartitions,
    check_topics,
    common_subscription,
)
from kip848_client.assignors.survey_memory import SurveyMemory
from kip848_client.assignors.uniform_heterogeneous import assign_heterogeneous

_NOTHING: Final[TopicPartitions] = {}


class UniformAssignor:
    """Balanced over the whole group and sticky.

    Guarantees, if all members subscribe alike: every partition is assigned, two members differ by at most one
    partition, the number of moved partitions is the least that this balance allows, and a second run changes nothing.

    Source:
        KIP-848 "Assignors"; Kafka's ``UniformAssignor``; KAFKA-18688 for who keeps the one partition more.
    """

    name = "uniform"

    def __init__(self) -> None:
        self._memory: Final = SurveyMemory()

    def assign(self, spec: GroupSpec) -> GroupAssignment:
        """Compute the target of every member; see `ServerAssignor.assign`."""
        check_topics(spec)
        if not spec.subscriptions:
            return {}
        subscription = common_subscription(spec)
        if subscription is None:
            return assign_heterogeneous(spec)
        return assign_homogeneous(spec, subscription, memory=self._memory)


def assign_homogeneous(
    spec: GroupSpec, subscription: tuple[UUID, ...], *, memory: SurveyMemory | None = None
) -> GroupAssignment:
    """Balance *subscription* over all members of *spec*. O(members + topics), and O(partitions) where some are free.

    Args:
        memory: of the runs before, for groups that change little between two of them.
    """
    member_ids = sorted(spec.subscriptions)
    targets = [_NOTHING if target is None else target for target in map(spec.target.get, member_ids)]
    found = memory and memory.recall(targets, topics=spec.topics, subscription=subscription)
    if not found:
        topics = {topic_id: spec.topics[topic_id] for topic_id in sorted(subscription)}
        found = survey(((target, None) for target in targets), topics=topics)
    partition_count = sum(found.sizes) + sum(map(len, found.free.values()))
    quotas = _quotas(found.sizes, partition_count=partition_count)
    pool = [Run(topic_id, free) for topic_id, free in found.free.items()]
    kept = found.kept
    missing = []
    if found.sizes != quotas:
        for index, (size, quota) in enumerate(zip(found.sizes, quotas, strict=True)):
            if size > quota:
                kept[index], released = split_at(kept[index], quota)
                pool += released
            elif size < quota:
                missing.append((index, quota - size))
    _fill(kept, missing=missing, pool=pool)
    if memory:
        memory.remember(
            kept, quotas, spec_topics=spec.topics, subscription=subscription, partition_count=partition_count
        )
    return dict(zip(member_ids, kept, strict=True))


def _quotas(sizes: Sequence[int], *, partition_count: int) -> list[int]:
    """How many partitions each member shall own; who is above the floor now keeps one more, as long as they last."""
    floor, larger = divmod(partition_count, len(sizes))
    quotas = [floor] * len(sizes)
    if not larger:
        return quotas
    above = [index for index, size in enumerate(sizes) if size > floor][:larger]
    for index in above:
        quotas[index] += 1
    larger -= len(above)
    for index in range(len(quotas) if larger else 0):
        if quotas[index] == floor:
            quotas[index] += 1
            larger -= 1
            if not larger:
                break
    return quotas


def _fill(kept: list[TopicPartitions], *, missing: Iterable[tuple[int, int]], pool: Iterable[Run]) -> None:
    """Give the pool, in order, to those who miss some, in order.

    Args:
        kept: per member; replaced where something is added.
        missing: (position, how many partitions).
    """
    runs = iter(pool)
    topic_id = UUID(int=0)
    run: tuple[int, ...] = ()
    start = 0
    for index, count in missing:
        grown: MutableTopicPartitions = dict(kept[index])
        while count:
            taken = run[start : start + count]
            if not taken:
                topic_id, run = next(runs)
                start = 0
                continue
            start += len(taken)
            count -= len(taken)
            if grown:
                add_partitions(grown, Run(topic_id, taken))
            else:
                grown[topic_id] = taken
        kept[index] = grown
