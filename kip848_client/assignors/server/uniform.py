"""The `uniform` assignor: every member owns the same number of partitions, give or take one, and few of them move.

This file holds the case in which all members subscribe to the same topics; `uniform_heterogeneous` holds the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kip848_client.assignors.server.balance_memory import BalanceMemory
from kip848_client.assignors.server.partitions import NOTHING, PartitionRun, deal, fill, split_at, survey
from kip848_client.assignors.server.spec import (
    GroupSpec,
    TargetAssignment,
    TopicPartitions,
    check_topics,
    common_subscription,
)
from kip848_client.assignors.server.uniform_heterogeneous import assign_heterogeneous


class UniformAssignor:
    """Balanced over the whole group and sticky.

    Guarantees, if all members subscribe alike: every partition is assigned, two members differ by at most one
    partition, the number of moved partitions is the least that this balance allows, and a second run changes nothing.

    Source:
        KIP-848 "Assignors"; Kafka's ``UniformAssignor``; KAFKA-18688 for who keeps the one partition more.
    """

    name = "uniform"

    def __init__(self) -> None:
        self._memory: Final = BalanceMemory()

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        """Compute the target of every member; see `ServerAssignor.assign`."""
        known = self._memory.recall(spec)
        if known is not None:
            return known
        check_topics(spec)
        if not spec.subscriptions:
            return {}
        subscription = common_subscription(spec)
        if subscription is None:
            return assign_heterogeneous(spec)
        return assign_homogeneous(spec, subscription, memory=self._memory)


def assign_homogeneous(
    spec: GroupSpec, subscription: tuple[UUID, ...], *, memory: BalanceMemory | None = None
) -> TargetAssignment:
    """Balance *subscription* over all members of *spec*. O(members + topics), and O(partitions) where some are free.

    Args:
        memory: gets the result of the run.
    """
    member_ids = sorted(spec.subscriptions)
    topics = {topic_id: spec.topics[topic_id] for topic_id in sorted(subscription)}
    targets = [NOTHING] * len(member_ids)
    if spec.target:
        targets = [NOTHING if target is None else target for target in map(spec.target.get, member_ids)]
    partition_count = sum(topics.values())
    if any(targets):
        shares, quotas = _rebalance(targets, topics, partition_count=partition_count)
    else:
        small, larger = divmod(partition_count, len(member_ids))
        shares = deal(topics, members=len(member_ids), small=small, larger=larger)
        if not small:
            shares = [share or target for share, target in zip(shares, targets, strict=True)]
        quotas = [small + 1] * larger + [small] * (len(member_ids) - larger)
    target = dict(zip(member_ids, shares, strict=True))
    if memory:
        memory.remember(
            spec,
            subscription=subscription,
            member_ids=member_ids,
            shares=shares,
            quotas=quotas,
            partition_count=partition_count,
            returned=target,
        )
    return target


def _rebalance(
    targets: Sequence[TopicPartitions], topics: Mapping[UUID, int], *, partition_count: int
) -> tuple[list[TopicPartitions], list[int]]:
    """Balance partitions: returns the new partitions of each member, and their number.

    Args:
        targets: the partitions of each member.
        topics: topic id -> partitions, ascending.
    """
    found = survey(((target, None) for target in targets), topics=topics)
    quotas = _quotas(found.sizes, partition_count=partition_count)
    pool = [PartitionRun(topic_id, free) for topic_id, free in found.free.items()]
    kept = found.kept
    missing = []
    if found.sizes != quotas:
        for index, (size, quota) in enumerate(zip(found.sizes, quotas, strict=True)):
            if size > quota:
                kept[index], released = split_at(kept[index], quota)
                pool += released
            elif size < quota:
                missing.append((index, quota - size))
    fill(kept, missing=missing, pool=pool)
    return kept, quotas


def _quotas(sizes: Sequence[int], *, partition_count: int) -> list[int]:
    """How many partitions each member should own; members above the floor keep one more, while there are any."""
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
