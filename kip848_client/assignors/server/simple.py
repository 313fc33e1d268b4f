"""The assignor ``simple`` of share groups: a partition has one member, or several if there are more members.

Members get equal numbers of partitions, and keep what they have as far as that allows. Members with the same
subscription share all their topics in one go; otherwise each topic is shared among its subscribers.

Source: apache/kafka ``SimpleAssignor`` (KIP-932). Which of equal members gets a partition differs: Kafka's depends on
the order of Java's hash maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kip848_client.assignors.server.spec import TargetAssignment

SIMPLE: Final = "simple"


def assign_shared(
    subscriptions: Mapping[str, Sequence[UUID]],
    partitions: Mapping[UUID, Sequence[int]],
    target: TargetAssignment,
    *,
    is_alike: bool,
) -> TargetAssignment:
    """Compute the target of every member.

    Args:
        subscriptions: member id -> topic ids.
        partitions: topic id -> partitions that may be assigned; a topic may be missing.
        target: the target now in force; a member may be missing.
        is_alike: all members subscribe to the same topics, whether these exist or not.
    """
    members = sorted(subscriptions)
    topics = {member: frozenset(subscriptions[member]) for member in members}
    if is_alike:
        parts = [(members, sorted(frozenset().union(*topics.values())))]
    else:
        parts = [
            ([member for member in members if topic in topics[member]], [topic])
            for topic in sorted(frozenset().union(*topics.values()))
        ]
    shared: dict[str, list[tuple[UUID, int]]] = {member: [] for member in members}
    for sharers, shared_topics in parts:
        wanted = [(topic, number) for topic in shared_topics for number in sorted(partitions.get(topic, ()))]
        before = {
            member: [
                (topic, number)
                for topic, numbers in target.get(member, {}).items()
                if topic in shared_topics
                for number in numbers
            ]
            for member in sharers
        }
        for member, owned in _share(sharers, wanted, before).items():
            shared[member] += owned
    return {member: _by_topic(owned) for member, owned in shared.items()}


def _share(
    members: Sequence[str],
    partitions: Sequence[tuple[UUID, int]],
    before: Mapping[str, Sequence[tuple[UUID, int]]],
) -> dict[str, list[tuple[UUID, int]]]:
    """Give each partition to the same number of *members*."""
    if not partitions:
        return {member: [] for member in members}
    sharers_per_partition = -(-len(members) // len(partitions))
    total = sharers_per_partition * len(partitions)
    # Whole numbers that differ by at most one, the larger ones spread evenly.
    quota = [_ceil(total, i + 1, len(members)) - _ceil(total, i, len(members)) for i in range(len(members))]
    owned: dict[str, set[tuple[UUID, int]]] = {}
    sharers: dict[tuple[UUID, int], set[str]] = {partition: set() for partition in partitions}
    for member, limit in zip(members, quota, strict=True):
        kept = [
            partition
            for partition in sorted(before[member])
            if partition in sharers and len(sharers[partition]) < sharers_per_partition
        ]
        kept = kept[max(0, len(kept) - limit) :]
        owned[member] = set(kept)
        for partition in kept:
            sharers[partition].add(member)
    waiting = [index for index, member in enumerate(members) if len(owned[member]) < quota[index]]
    for partition in partitions:
        while waiting and len(sharers[partition]) < sharers_per_partition:
            index = next((each for each in waiting if members[each] not in sharers[partition]), None)
            if index is None:
                # All that may get more have it already: one takes over what another has, and that one gets it.
                index = waiting[0]
                swap = _swap(partition, members[index], owned, sharers)
                if swap is None:
                    break
                other, given = swap
                owned[other].remove(given)
                sharers[given].remove(other)
                owned[other].add(partition)
                sharers[partition].add(other)
                waiting.remove(index)
                owned[members[index]].add(given)
                sharers[given].add(members[index])
                if len(owned[members[index]]) < quota[index]:
                    waiting.append(index)
                continue
            member = members[index]
            waiting.remove(index)
            owned[member].add(partition)
            sharers[partition].add(member)
            if len(owned[member]) < quota[index]:
                waiting.append(index)
    return {member: sorted(own) for member, own in owned.items()}


def _swap(
    partition: tuple[UUID, int],
    member: str,
    owned: Mapping[str, set[tuple[UUID, int]]],
    sharers: Mapping[tuple[UUID, int], set[str]],
) -> tuple[str, tuple[UUID, int]] | None:
    """Another member that does not have *partition*, and what it can give to *member* for it."""
    for other, own in owned.items():
        if other not in sharers[partition]:
            for given in sorted(own):
                if member not in sharers[given]:
                    return other, given
    return None


def _ceil(total: int, part: int, parts: int) -> int:
    return -(-total * part // parts)


def _by_topic(owned: Sequence[tuple[UUID, int]]) -> dict[UUID, tuple[int, ...]]:
    numbers: dict[UUID, list[int]] = {}
    for topic, number in sorted(owned):
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(found) for topic, found in numbers.items()}
