"""The `uniform` assignor for members that subscribe to different topics. No other case."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from kip848_client.assignors.server.partitions import MutableTopicPartitions, add_partitions, survey
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment, members_alike, subscribers_by_topic

_BALANCE_ROUNDS_MAX = 16
"""As Kafka's ``UniformHeterogeneousAssignmentBuilder``: chains of overlapping subscriptions may need many rounds."""


def assign_heterogeneous(spec: GroupSpec) -> TargetAssignment:
    """Balance each topic over its subscribers, keeping what members have where that stays balanced.

    1. Every member keeps the valid partitions of its target.
    2. Topics with free partitions, the hardest first, are dealt out: each partition to the subscriber that has least.
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
        self._ranks = [size * len(self._sizes) + index for index, size in enumerate(self._sizes)]
        """Ranks of members: by size, then by id."""
        self._own: set[int] = set()

    def build(self) -> TargetAssignment:
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
        sizes, ranks = self._sizes, self._ranks
        subscribers = self._subscribers[topic_id]
        subscribers.sort(key=ranks.__getitem__)  # in place: it is almost in order from the last topic of this list
        rounds = _rounds([sizes[index] for index in subscribers], amount=len(free))
        reached = max(min(width, stop - start) for start, stop, width in rounds)
        for place, index in enumerate(subscribers[:reached]):
            gained: tuple[int, ...] = ()
            for start, stop, width in rounds:
                if place < width:
                    gained += free[start + place : stop : width]
            if gained:
                add_partitions(self._mutable(index), topic_id, gained)
                sizes[index] += len(gained)
                ranks[index] += len(gained) * len(ranks)

    def _balance(self) -> None:
        if max(self._sizes) - min(self._sizes) <= 1:
            return
        shared = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        even: set[int] = set()  # lists of subscribers, by identity, whose loads differ by at most one
        for _ in range(_BALANCE_ROUNDS_MAX):
            moved = False
            for topic_id in shared:
                subscribers = self._subscribers[topic_id]
                if id(subscribers) in even:
                    continue
                loads = [self._sizes[index] for index in subscribers]
                if max(loads) - min(loads) <= 1:
                    even.add(id(subscribers))
                elif self._balance_topic(topic_id):
                    moved = True
                    even.clear()
            if not moved:
                return

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Whether any partition moved."""
        sizes, held = self._sizes, self._held
        # Ties are decided by the order in which subscribers stood before anything moved.
        order = sorted(self._subscribers[topic_id], key=lambda index: (sizes[index], index))
        donors = [(-sizes[index], -place) for place, index in enumerate(order) if topic_id in held[index]]
        heapq.heapify(donors)
        takers = [(sizes[index], place) for place, index in enumerate(order)]
        heapq.heapify(takers)
        given: dict[int, list[int]] = {}
        received: dict[int, list[int]] = {}
        while donors:
            load, negative = donors[0]
            donor = order[-negative]
            while takers[0][0] != sizes[order[takers[0][1]]]:  # the entry is older than the member's last change
                heapq.heapreplace(takers, (sizes[order[takers[0][1]]], takers[0][1]))
            least, place = takers[0]
            taker = order[place]
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
            heapq.heapreplace(takers, (least + 1, place))
        for donor, gone in given.items():
            partitions = self._mutable(donor)
            left = partitions[topic_id][: -len(gone)]
            if left:
                partitions[topic_id] = left
            else:
                del partitions[topic_id]
        for taker, gained in received.items():
            add_partitions(self._mutable(taker), topic_id, tuple(sorted(gained)))
        return bool(given)


class _Round(NamedTuple):
    """The partitions from *start* to *stop* go in turn to the first *width* subscribers."""

    start: int
    stop: int
    width: int


def _rounds(levels: Sequence[int], *, amount: int) -> list[_Round]:
    """How *amount* partitions, one after the other, go to the member with the fewest, the first of equals.

    Args:
        levels: what each subscriber has, ascending.
    """
    rounds: list[_Round] = []
    start, width, level = 0, 0, levels[0]
    while start < amount:
        while width < len(levels) and levels[width] <= level:
            width += 1
        stop = amount
        if width < len(levels):
            stop = min(stop, start + (levels[width] - level) * width)
            level = levels[width]
        rounds.append(_Round(start, stop, width))
        start = stop
    return rounds
