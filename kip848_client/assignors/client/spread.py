"""Ready-made ways to spread partitions, so that an assignor of one's own is a few lines.

All let members keep their partitions if balance allows it, and depend on the spec alone: the same group gives the same
assignment in every member.

* `keep_held`: a partition moves only if it has to.
* `spread_evenly`: all members have the same number of partitions, give or take one.
* `spread_by_weight`: in proportion to a weight.

Balance is D'Hondt's: no partition could move and leave its new owner with less load for its weight than its old owner
had. That makes the busiest member as little busy as possible. If subscriptions differ, it holds between members that
may take the partition.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, MemberSpec
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.common.model import TopicIdPartition

Weight: TypeAlias = Callable[[MemberSpec], float] | Mapping[str, float]
"""How much a member can carry: a function of the member, or member id -> weight (1 for members that are left out)."""

_HEAVIEST: Final = 1e100
"""So that sums of weights stay finite."""


def spread_evenly(spec: AssignmentSpec) -> GroupAssignment:
    """Give all members the same number of partitions, give or take one, and move as few as that allows."""
    return spread_by_weight(spec, {})


def spread_by_weight(spec: AssignmentSpec, weight: Weight) -> GroupAssignment:
    """Give each member partitions in proportion to its weight, and move as few as that allows.

    Args:
        weight: >= 0. A member of weight 0 gets nothing while another one can take it.

    Raises:
        ValueError: a weight is negative, not finite or above 1e100; the message names the member.
    """
    return plan_by_weight(spec, weight).to_assignment()


def keep_held(spec: AssignmentSpec) -> GroupAssignment:
    """Keep every partition whose owner is still there and subscribes to it; spread the others evenly.

    No partition moves for balance: a member that joins gets only free partitions.
    """
    plan = AssignmentPlan(spec)
    plan.keep_held()
    _deal(plan, dict.fromkeys(spec.members, 1.0))
    return plan.to_assignment()


def plan_by_weight(spec: AssignmentSpec, weight: Weight) -> AssignmentPlan:
    """As `spread_by_weight`, as a plan to go on from.

    Raises:
        ValueError: a weight is negative, not finite or above 1e100; the message names the member.
    """
    plan = AssignmentPlan(spec)
    weights = _weights(spec, weight)
    if len({member.subscribed_topics for member in spec.members.values()}) <= 1:
        quotas = _quotas(spec, weights)
        plan.keep_held(lambda member: quotas[member.member_id])
        _fill(plan, quotas)
    else:
        plan.keep_held()
        _deal(plan, weights)
        _improve(plan, weights)
    return plan


def _weights(spec: AssignmentSpec, weight: Weight) -> dict[str, float]:
    weights = {}
    for member_id, member in spec.members.items():
        found = weight.get(member_id, 1) if isinstance(weight, Mapping) else weight(member)
        try:
            number = float(found)
        except OverflowError:
            number = math.inf
        if not 0 <= number <= _HEAVIEST:
            raise ValueError(f"member {member_id!r} has the weight {number:g}; weights are from 0 to {_HEAVIEST:g}")
        weights[member_id] = number
    return weights if any(weights.values()) else dict.fromkeys(weights, 1.0)


def _quotas(spec: AssignmentSpec, weights: Mapping[str, float]) -> dict[str, int]:
    """How many partitions each member gets if all may take all. Among equals, the one that holds more is first."""
    held = {member_id: len(member.target) for member_id, member in spec.members.items()}
    partitions = len(spec.partitions)
    total = math.fsum(weights.values())
    # Every member gets at least its share, rounded down. One less than that keeps rounding errors out.
    quotas = {member_id: max(0, math.floor(partitions * (weights[member_id] / total)) - 1) for member_id in weights}
    queue = [_turn(member_id, quotas[member_id], held[member_id], weights) for member_id in weights]
    heapq.heapify(queue)
    for _ in range(partitions - sum(quotas.values()) if weights else 0):
        member_id = queue[0][-1]
        quotas[member_id] += 1
        heapq.heapreplace(queue, _turn(member_id, quotas[member_id], held[member_id], weights))
    return quotas


def _turn(member_id: str, count: int, held: int, weights: Mapping[str, float]) -> tuple[float, int, str]:
    """Sorts the member first that should get the next partition."""
    return _load(count + 1, weights[member_id]), min(0, count - held), member_id


def _load(count: int, weight: float) -> float:
    if weight:
        return count / weight
    return math.inf if count else 0.0


def _fill(plan: AssignmentPlan, quotas: Mapping[str, int]) -> None:
    """Give the free partitions to members below their quota, in turns, so that each member gets some of every topic."""
    room = [member_id for member_id in quotas if plan.count(member_id) < quotas[member_id]]
    left = plan.unassigned
    start = 0
    while start < len(left):
        for member_id, partition in zip(room, left[start:], strict=False):
            plan.give(partition, member_id)
        start += len(room)
        room = [member_id for member_id in room if plan.count(member_id) < quotas[member_id]]


def _deal(plan: AssignmentPlan, weights: Mapping[str, float]) -> None:
    """Give the free partitions, topics with few subscribers first, each to the least loaded member that may take it."""
    left: defaultdict[str, list[TopicIdPartition]] = defaultdict(list)
    for partition in plan.unassigned:
        left[partition.topic].append(partition)
    queues: dict[tuple[str, ...], list[tuple[float, int, str]]] = {}
    for topic in sorted(left, key=lambda name: (len(plan.subscribers(name)), name)):
        subscribers = plan.subscribers(topic)
        queue = queues.get(subscribers)
        if queue is None:
            queue = [_next(plan, weights, member_id) for member_id in subscribers]
            heapq.heapify(queue)
            queues[subscribers] = queue
        for partition in left[topic]:
            # An entry is stale if its member was given something through another queue; it can only be too low.
            while (fresh := _next(plan, weights, queue[0][-1])) != queue[0]:
                heapq.heapreplace(queue, fresh)
            member_id = queue[0][-1]
            plan.give(partition, member_id)
            heapq.heapreplace(queue, _next(plan, weights, member_id))


def _next(plan: AssignmentPlan, weights: Mapping[str, float], member_id: str) -> tuple[float, int, str]:
    count = plan.count(member_id)
    return _load(count + 1, weights[member_id]), count, member_id


def _improve(plan: AssignmentPlan, weights: Mapping[str, float]) -> None:
    """Move partitions from the most to the least loaded member until no move helps.

    Topics with equal subscribers count as one: a member that may take a partition of one may take those of the others.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(plan.spec.topics):
        alike.setdefault(plan.subscribers(topic), []).append(topic)
    moved = True
    while moved:
        moved = False
        for subscribers, topics in alike.items():
            if len(subscribers) > 1:
                moved = _improve_topics(plan, weights, topics, subscribers) or moved


def _improve_topics(
    plan: AssignmentPlan, weights: Mapping[str, float], topics: list[str], subscribers: tuple[str, ...]
) -> bool:
    held: defaultdict[str, list[TopicIdPartition]] = defaultdict(list)
    for topic in topics:
        for partition in plan.spec.topics[topic].partitions:
            owner = plan.owner(partition)
            assert owner is not None
            held[owner].append(partition)
    takers = [_next(plan, weights, member_id) for member_id in subscribers]
    heapq.heapify(takers)
    givers = [_reversed_load(plan, weights, member_id) for member_id in held]
    heapq.heapify(givers)
    moved = False
    while givers:
        negative, giver = givers[0]
        if not held[giver]:
            heapq.heappop(givers)
            continue
        load, _, taker = takers[0]
        if (fresh := _next(plan, weights, taker)) != takers[0]:
            heapq.heapreplace(takers, fresh)
            continue
        if (current := _reversed_load(plan, weights, giver)) != givers[0]:
            heapq.heapreplace(givers, current)
            continue
        if load >= -negative:
            break
        plan.give(held[giver].pop(), taker)
        moved = True
        heapq.heapreplace(takers, _next(plan, weights, taker))
        heapq.heapreplace(givers, _reversed_load(plan, weights, giver))
    return moved


def _reversed_load(plan: AssignmentPlan, weights: Mapping[str, float], member_id: str) -> tuple[float, str]:
    return -_load(plan.count(member_id), weights[member_id]), member_id
