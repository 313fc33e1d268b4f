"""`LagAware`: a member that falls behind sheds partitions; with hysteresis, so that partitions do not oscillate."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.library.metadata_json import Json, decode, encode
from kip848_client.common.model import TopicIdPartition

REASON_BEHIND = 1
"""Reason in the metadata: some partition's lag grew to another level."""
REASON_FORGOTTEN = 2
"""Reason in the metadata: earlier lag no longer counts."""

_BASE = 4
_LEVEL_MAX = 8
_ROUNDS_MAX = 100
Key: TypeAlias = tuple[str, int]
Lags: TypeAlias = Mapping[Any, int]
"""By anything with ``topic`` and ``partition``, or by a pair of them."""


class LagAware(PartitionAssignor):
    """Each member reports the lag of its partitions; a member with a hot partition gives its other ones away.

    For topics whose traffic is uneven, or consumers that are slower on some keys. Call `report` from the poll loop::

        assignor = LagAware(at_least=10_000)
        consumer = Consumer(conf | {"group.local.assignors": assignor})
        ...
        assignor.report(consumer.lag())

    Lag itself would never let the group rest, so it is reported as a level: 0 below *at_least* records, and one
    more each time it has grown fourfold. A partition that lags at level n counts as 1 + 4^n partitions. Levels only
    rise: an assignment that made the lag go away is kept, because going back would bring it again. `forget`, or
    *forget_after*, begins anew. Nothing moves while the busiest and the idlest member differ by no more than
    *tolerance* times the mean, and a second run on its own result moves nothing.

    Guarantee: without lag, counts of members that subscribe alike differ by at most one. With lag, no move of one
    partition would lower the greater load of the two members by more than the tolerance. A member asks for a new
    assignment at most once for each level of each of its partitions, however long the load goes up and down.

    Args:
        at_least: records behind that count as lagging.
        tolerance: as a share of the mean load, 0 or more.
        forget_after: forget when all lags were below half of *at_least* for this many heartbeat intervals in a row, and
            next time for twice as many. None: only when `forget` is called.

    Raises:
        ValueError: a number is out of range.
    """

    name = "lag-aware"

    def __init__(self, *, at_least: int = 1_000, tolerance: float = 0.25, forget_after: int | None = None) -> None:
        if at_least < 1 or not (math.isfinite(tolerance) and tolerance >= 0):
            raise ValueError(f"at_least={at_least}, tolerance={tolerance}: they must be at least 1 and 0")
        if forget_after is not None and forget_after < 1:
            raise ValueError(f"forget_after is {forget_after}; it must be at least 1 heartbeat interval, or None")
        self._at_least = at_least
        self._tolerance = tolerance
        self._lags: dict[Key, int] = {}
        self._told: dict[Key, int] = {}
        self._metadata = encode({"levels": {}})
        self._forget_after = forget_after
        self._calm = 0
        self._forgets = False

    def report(self, lags: Lags) -> None:
        """Say how far behind this member is: records by partition, of all that it reads. Any thread may call.

        Negative lags (nothing known) count as none.
        """
        self._lags = {
            (partition[0], partition[1])
            if isinstance(partition, tuple)
            else (partition.topic, partition.partition): lag
            for partition, lag in lags.items()
        }

    def forget(self) -> None:
        """Reset the levels: report only what lags now. Call it when the pattern of the load has changed."""
        self._forgets = True

    def metadata(self) -> AssignorMetadata:
        """The levels, if they changed; else those reported last."""
        lags = self._lags
        levels = {key: level_of(lag, self._at_least) for key, lag in lags.items()}
        self._calm = self._calm + 1 if all(2 * lag < self._at_least for lag in lags.values()) else 0
        if self._forget_after is not None and self._calm >= self._forget_after and self._told:
            self._forget_after *= 2
            self._forgets = True
        if self._forgets:
            self._forgets = False
            self._told = {}
            self._tell(levels, REASON_FORGOTTEN)
        elif any(level > self._told.get(key, 0) for key, level in levels.items()):
            self._tell(levels, REASON_BEHIND)
        return self._metadata

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Let members keep their partitions, except that a busy member gives some to idle ones."""
        plan = AssignmentPlan(spec)
        weights = _weights(spec)
        plan.keep_held()
        load = {m: math.fsum(weights.get(_key(p), 1.0) for p in plan.given(m)) for m in spec.members}
        by_subscribers: dict[tuple[str, ...], set[str]] = {}
        for topic in spec.topics:
            by_subscribers.setdefault(plan.subscribers(topic), set()).add(topic)
        groups = sorted(by_subscribers.items(), key=lambda item: (len(item[0]), item[0]))
        for subscribers, topics in groups:
            _deal(plan, [p for p in plan.unassigned if p.topic in topics], subscribers, weights, load)
        for _ in range(_ROUNDS_MAX if len(groups) > 1 else 1):
            moves = [self._level_out(plan, topics, members, weights, load) for members, topics in groups]
            if not any(moves):
                break
        return plan.to_assignment()

    def _tell(self, levels: Mapping[Key, int], reason: int) -> None:
        """Report *levels*, and for partitions that this member still reads the highest level reported before."""
        self._told = {key: top for key, level in levels.items() if (top := max(level, self._told.get(key, 0)))}
        by_topic: dict[str, Json] = {}
        for (topic, index), level in sorted(self._told.items()):
            told = by_topic.setdefault(topic, {})
            assert isinstance(told, dict)
            told[str(index)] = level
        self._metadata = encode({"levels": by_topic}, reason=reason)

    def _level_out(
        self,
        plan: AssignmentPlan,
        topics: set[str],
        members: tuple[str, ...],
        weights: Mapping[Key, float],
        load: dict[str, float],
    ) -> bool:
        """Move partitions of *topics* from the busiest to the idlest of *members* until that gains too little."""
        if len(members) < 2:
            return False
        slack = self._tolerance * math.fsum(load[m] for m in members) / len(members) if weights else 0.0
        owned = {m: sorted((weights.get(_key(p), 1.0), p) for p in plan.given(m) if p.topic in topics) for m in members}
        busy = [(-load[m], m) for m in members if owned[m]]
        idle = [(load[m], m) for m in members]
        heapq.heapify(busy)
        heapq.heapify(idle)
        moved = False
        while busy:
            giver, taker = busy[0][1], idle[0][1]
            if -busy[0][0] != load[giver] or not owned[giver]:
                heapq.heappop(busy)  # its load has changed since; a newer entry is in the heap
                continue
            if idle[0][0] != load[taker]:
                heapq.heappop(idle)
                continue
            difference = load[giver] - load[taker]
            if difference <= slack:
                break
            at = _best(owned[giver], difference)
            if at is None:
                heapq.heappop(busy)  # all of its partitions are too large to move
                continue
            weight, partition = owned[giver].pop(at)
            bisect.insort(owned[taker], (weight, partition))
            plan.give(partition, taker)
            load[giver] -= weight
            load[taker] += weight
            for member in (giver, taker):
                heapq.heappush(busy, (-load[member], member))
                heapq.heappush(idle, (load[member], member))
            moved = True
        return moved


def level_of(lag: int, at_least: int) -> int:
    """0 below *at_least*; then one more for each fourfold."""
    level, limit = 0, at_least
    while lag >= limit and level < _LEVEL_MAX:
        level += 1
        limit *= _BASE
    return level


def _best(owned: list[tuple[float, TopicIdPartition]], difference: float) -> int | None:
    """Which partition to move: the heaviest of at most half the difference, else the lightest that still helps."""
    at = bisect.bisect_right(owned, difference / 2, key=lambda entry: entry[0])
    if at:
        return at - 1
    return 0 if owned and owned[0][0] < difference else None


def _weights(spec: AssignmentSpec) -> dict[Key, float]:
    """Lagging partition -> its load: the highest level that any member reports, be it the owner or a former one."""
    found: dict[Key, float] = {}
    for member in spec.members.values():
        for key, level in _levels(member.member_id, decode(member).get("levels", {})):
            found[key] = max(1.0 + _BASE**level, found.get(key, 1.0))
    return found


def _levels(member_id: str, told: Json) -> Iterable[tuple[Key, int]]:
    wrong = ValueError(f"member {member_id!r} tells levels={told!r}; {{topic: {{partition: level}}}} is expected")
    if not isinstance(told, dict):
        raise wrong
    for topic, by_index in told.items():
        if not isinstance(by_index, dict):
            raise wrong
        for index, level in by_index.items():
            if not (index.isdecimal() and isinstance(level, int) and 0 <= level <= _LEVEL_MAX):
                raise wrong
            if level:
                yield (topic, int(index)), level


def _key(partition: TopicIdPartition) -> Key:
    return partition.topic, partition.partition


def _deal(
    plan: AssignmentPlan,
    partitions: list[TopicIdPartition],
    members: tuple[str, ...],
    weights: Mapping[Key, float],
    load: dict[str, float],
) -> None:
    """Assign free partitions, the heaviest first, each to the member with the least load."""
    if not members:
        return
    heap = [(load[m], m) for m in members]
    heapq.heapify(heap)
    for partition in sorted(partitions, key=lambda p: (-weights.get(_key(p), 1.0), p)):
        _, member = heap[0]
        plan.give(partition, member)
        load[member] += weights.get(_key(partition), 1.0)
        heapq.heapreplace(heap, (load[member], member))
