"""The `uniform` assignor for members that subscribe to different topics. No other case."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from uuid import UUID

from kip848_client.assignors.partitions import MutableTopicPartitions, Run, add_partitions, survey
from kip848_client.assignors.spec import GroupAssignment, GroupSpec, members_alike, subscribers_by_topic

_BALANCE_ROUNDS_MAX = 16
"""As Kafka's ``UniformHeterogeneousAssignmentBuilder``: chains of overlapping subscriptions may need many rounds."""


def assign_heterogeneous(spec: GroupSpec) -> GroupAssignment:
    """Balance each topic over its subscribers, keeping what members have where that stays balanced.

    1. Every member keeps the valid partitions of its target.
    2. Topics with free partitions, the hardest first, are dealt out so that the least loaded subscribers are raised
       to one level (water-filling), each receiving one run.
    3. Partitions move from the most to the least loaded subscriber of a topic until they differ by at most one; at
       most 16 rounds over all topics.

    Returns:
        Balanced per topic if the rounds sufficed; perfectly balanced where all subscribers of a topic subscribe alike.

    Source:
        Kafka's ``UniformHeterogeneousAssignmentBuilder``; KAFKA-17710.
    """
    return _Builder(spec).build()


class _Builder:
    def __init__(self, spec: GroupSpec) -> None:
        self._members = sorted(spec.subscriptions)
        alike = members_alike(spec, self._members)
        self._subscribers = subscribers_by_topic(alike)
        self._topics = dict(
            sorted(
                ((topic_id, spec.topics[topic_id]) for topic_id in self._subscribers),
                key=lambda item: (
                    -item[1] / len(self._subscribers[item[0]]),
                    len(self._subscribers[item[0]]),
                    item[0],
                ),
            )
        )
        subscribed: list[frozenset[UUID]] = [frozenset()] * len(self._members)
        for subscription, indexes in alike.items():
            topic_ids = frozenset(subscription)
            for index in indexes:
                subscribed[index] = topic_ids
        targets = (spec.target.get(member_id) for member_id in self._members)
        found = survey(zip(targets, subscribed, strict=True), topics=self._topics)
        self._held, self._sizes, self._free = found.kept, found.sizes, found.free
        self._own: set[int] = set()

    def build(self) -> GroupAssignment:
        for topic_id, free in self._free.items():
            self._deal(topic_id, free)
        self._balance()
        return dict(zip(self._members, self._held, strict=True))

    def _mutable(self, index: int) -> MutableTopicPartitions:
        """The partitions of one member, copied before their first change: the spec's mappings are shared."""
        if index not in self._own:
            self._own.add(index)
            self._held[index] = dict(self._held[index])
        partitions = self._held[index]
        assert isinstance(partitions, dict)
        return partitions

    def _deal(self, topic_id: UUID, free: tuple[int, ...]) -> None:
        sizes = self._sizes
        subscribers = self._subscribers[topic_id]
        subscribers.sort(key=sizes.__getitem__)  # in place: it is almost in order from the last topic of this list
        levels = [sizes[index] for index in subscribers]
        start = 0
        for index, count in zip(subscribers, _water_fill(levels, amount=len(free)), strict=False):
            if count:
                add_partitions(self._mutable(index), Run(topic_id, free[start : start + count]))
                sizes[index] += count
                start += count
        assert start == len(free)

    def _balance(self) -> None:
        if max(self._sizes) - min(self._sizes) <= 1:
            return
        shared = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        for _ in range(_BALANCE_ROUNDS_MAX):
            moved = False
            for topic_id in shared:
                moved |= self._balance_topic(topic_id)
            if not moved:
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        sizes, held = self._sizes, self._held
        subscribers = self._subscribers[topic_id]
        loads = [sizes[index] for index in subscribers]
        if max(loads) - min(loads) <= 1:
            return False
        donors = [(-sizes[index], -index) for index in subscribers if topic_id in held[index]]
        heapq.heapify(donors)
        takers = [(sizes[index], index) for index in subscribers]
        heapq.heapify(takers)
        given: dict[int, list[int]] = {}
        received: dict[int, list[int]] = {}
        while donors:
            load, negative = donors[0]
            donor = -negative
            while takers[0][0] != sizes[takers[0][1]]:  # the entry is older than the member's last change
                heapq.heapreplace(takers, (sizes[takers[0][1]], takers[0][1]))
            least, taker = takers[0]
            if -load - least <= 1:
                break
            gone = given.setdefault(donor, [])
            own = held[donor][topic_id]
            gone.append(own[len(own) - 1 - len(gone)])
            received.setdefault(taker, []).append(gone[-1])
            sizes[donor] -= 1
            sizes[taker] += 1
            if len(gone) == len(own):
                heapq.heappop(donors)
            else:
                heapq.heapreplace(donors, (load + 1, negative))
            heapq.heapreplace(takers, (least + 1, taker))
        for donor, gone in given.items():
            partitions = self._mutable(donor)
            left = partitions[topic_id][: -len(gone)]
            if left:
                partitions[topic_id] = left
            else:
                del partitions[topic_id]
        for taker, gained in received.items():
            add_partitions(self._mutable(taker), Run(topic_id, tuple(sorted(gained))))
        return bool(given)


def _water_fill(levels: Sequence[int], *, amount: int) -> list[int]:
    """Pour *amount* over ascending *levels*: how much each one gets, the lowest first; trailing zeros are left out."""
    width, poured = 1, 0
    while width < len(levels):
        step = (levels[width] - levels[width - 1]) * width
        if poured + step > amount:
            break
        poured += step
        width += 1
    each, larger = divmod(amount - poured, width)
    level = levels[width - 1] + each
    return [level - levels[position] + (position < larger) for position in range(width)]
