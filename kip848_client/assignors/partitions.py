"""Runs of partitions as slices of shared tuples. Arithmetic only; who gets what is the assignors' business.

Making the integers of 500,000 partitions costs more than deciding who gets them, so integers are made once per run of
an assignor and handed out by slicing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kip848_client.assignors.spec import TopicPartitions

MutableTopicPartitions: TypeAlias = dict[UUID, tuple[int, ...]]


class Run(NamedTuple):
    """Partitions of one topic that wait for a member, ascending."""

    topic_id: UUID
    partitions: tuple[int, ...]


def add_partitions(partitions: MutableTopicPartitions, run: Run) -> None:
    """Add *run* to *partitions*, keeping each topic ascending. The run must not overlap what is there."""
    topic_id, added = run
    held = partitions.get(topic_id)
    if held is None:
        partitions[topic_id] = added
    elif held[-1] < added[0]:
        partitions[topic_id] = held + added
    else:
        partitions[topic_id] = tuple(sorted(held + added))


def keep_valid(
    partitions: TopicPartitions, *, topics: dict[UUID, int], subscribed: frozenset[UUID] | None = None
) -> TopicPartitions:
    """Drop topics that are gone or no longer subscribed, and partitions past a topic's end.

    Args:
        partitions: what a member has now.
        topics: topic id -> number of partitions.
        subscribed: the member's topics; None means all of *topics*.

    Returns:
        *partitions* itself if all of it is valid.
    """
    for topic_id, held in partitions.items():
        count = topics.get(topic_id, 0)
        if not held or held[-1] >= count or (subscribed is not None and topic_id not in subscribed):
            break
    else:
        return partitions
    kept: MutableTopicPartitions = {}
    for topic_id, held in partitions.items():
        if subscribed is not None and topic_id not in subscribed:
            continue
        count = topics.get(topic_id, 0)
        if held and held[-1] < count:
            kept[topic_id] = held
        elif inside := tuple(partition for partition in held if partition < count):
            kept[topic_id] = inside
    return kept


def count_partitions(partitions: TopicPartitions) -> int:
    """How many partitions there are, over all topics."""
    if len(partitions) == 1:
        for held in partitions.values():
            return len(held)
    return sum(map(len, partitions.values()))


def split_at(partitions: TopicPartitions, size: int) -> tuple[MutableTopicPartitions, list[Run]]:
    """Split into the first *size* partitions, in (topic id, partition) order, and the rest."""
    first: MutableTopicPartitions = {}
    rest: list[Run] = []
    left = size
    for topic_id in sorted(partitions):
        held = partitions[topic_id]
        if left >= len(held):
            first[topic_id] = held
            left -= len(held)
            continue
        if left:
            first[topic_id] = held[:left]
        rest.append(Run(topic_id, held[left:]))
        left = 0
    return first, rest


def unowned(owners: Iterable[TopicPartitions], *, topics: dict[UUID, int]) -> dict[UUID, tuple[int, ...]]:
    """Find the partitions that nobody owns, per topic, ascending; a topic without any is left out.

    Args:
        owners: valid and pairwise disjoint.
        topics: topic id -> number of partitions; its order is the order of the result.
    """
    held: dict[UUID, list[tuple[int, ...]]] = {topic_id: [] for topic_id in topics}
    for partitions in owners:
        for topic_id, owned in partitions.items():
            held[topic_id].append(owned)
    every = tuple(range(max(topics.values(), default=0)))
    free: dict[UUID, tuple[int, ...]] = {}
    for topic_id, count in topics.items():
        owned_count = sum(map(len, held[topic_id]))
        if owned_count == count:
            continue
        if owned_count == 0:
            free[topic_id] = every[:count]
            continue
        is_free = bytearray(b"\x01") * count
        for owned in held[topic_id]:
            first, last = owned[0], owned[-1]
            if last - first + 1 == len(owned):
                is_free[first : last + 1] = bytes(len(owned))
            else:
                for partition in owned:
                    is_free[partition] = 0
        free[topic_id] = tuple(_positions(is_free))
    return free


def _positions(flags: bytearray) -> Iterator[int]:
    position = flags.find(1)
    while position >= 0:
        yield position
        position = flags.find(1, position + 1)
