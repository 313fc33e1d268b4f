"""What members of a group hold, surveyed, and runs of partitions, cut and joined. Arithmetic only.

Making the integers of 500,000 partitions costs more than deciding who gets them, so integers are made once per run of
an assignor and handed out by slicing. Topic ids are looked up by identity where they can be: hashing a `uuid.UUID` runs
Python code, and most ids of one run are the same few objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.assignors.server.spec import TopicPartitions

MutableTopicPartitions: TypeAlias = dict[UUID, tuple[int, ...]]

NOTHING: Final[TopicPartitions] = {}
"""The share of a member that owns nothing."""


class PartitionRun(NamedTuple):
    """Partitions of one topic that wait for a member, ascending."""

    topic_id: UUID
    partitions: tuple[int, ...]


class Survey(msgspec.Struct, frozen=True):
    """The partitions that members may keep.

    Args:
        kept: per member, the valid part of its target; the target itself if all of it is valid.
        sizes: per member, the number of partitions in `kept`.
        free: topic id -> partitions that no member keeps, ascending; in the order of the topics, without empty ones.
    """

    kept: list[TopicPartitions]
    sizes: list[int]
    free: MutableTopicPartitions


def survey(
    targets: Iterable[tuple[TopicPartitions | None, frozenset[UUID] | None]], *, topics: Mapping[UUID, int]
) -> Survey:
    """Divide the partitions into those that members may keep and those that are free.

    Args:
        targets: per member, what it has now (None: nothing) and its topics (None: all of *topics*). No two
            members have the same partition.
        topics: topic id -> number of partitions.
    """
    # By identity, of each set of subscribed topics; the ids and sets live as long as this runs. 0: not subscribed.
    counts_of: defaultdict[int, dict[int, int]] = defaultdict(dict)
    kept: list[TopicPartitions] = []
    sizes: list[int] = []
    for target, subscribed in targets:
        if not target:
            kept.append(NOTHING if target is None else target)
            sizes.append(0)
            continue
        size = 0
        counts = counts_of[id(subscribed)]
        for topic_id, numbers in target.items():
            try:
                count = counts[id(topic_id)]
            except KeyError:
                count = topics.get(topic_id, 0) if subscribed is None or topic_id in subscribed else 0
                counts[id(topic_id)] = count
            if not numbers or numbers[-1] >= count:
                target = _valid_part(target, topics=topics, subscribed=subscribed)
                size = sum(map(len, target.values()))
                break
            size += len(numbers)
        kept.append(target)
        sizes.append(size)
    return Survey(kept, sizes, _free(kept, topics) if sum(sizes) < sum(topics.values()) else {})


def add_partitions(partitions: MutableTopicPartitions, topic_id: UUID, added: tuple[int, ...]) -> None:
    """Add some of one topic to *partitions*, keeping each topic ascending. *partitions* must not have any of them."""
    held = partitions.get(topic_id) if partitions else None
    if held is None:
        partitions[topic_id] = added
    elif held[-1] < added[0]:
        partitions[topic_id] = held + added
    else:
        partitions[topic_id] = tuple(sorted(held + added))


def split_at(partitions: TopicPartitions, size: int) -> tuple[MutableTopicPartitions, list[PartitionRun]]:
    """Split into the first *size* partitions, in (topic id, partition) order, and the rest."""
    first: MutableTopicPartitions = {}
    rest: list[PartitionRun] = []
    left = size
    for topic_id in sorted(partitions) if len(partitions) > 1 else partitions:
        held = partitions[topic_id]
        if left >= len(held):
            first[topic_id] = held
            left -= len(held)
            continue
        if left:
            first[topic_id] = held[:left]
        rest.append(PartitionRun(topic_id, held[left:]))
        left = 0
    return first, rest


def fill(kept: list[TopicPartitions], *, missing: Iterable[tuple[int, int]], pool: Iterable[PartitionRun]) -> None:
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
            add_partitions(grown, topic_id, taken)
        kept[index] = grown


def deal(topics: Mapping[UUID, int], *, members: int, small: int, larger: int) -> list[TopicPartitions]:
    """Give all partitions of *topics*, in order, to members that have none.

    Args:
        members: how many.
        small: how many partitions a member gets.
        larger: how many members, the first ones, get one more.
    """
    every = tuple(range(max(topics.values(), default=0)))
    shares: list[TopicPartitions] = []
    left = 0  # what the last member still lacks
    for topic_id, count in topics.items():
        start = min(left, count)
        if start:
            shares[-1] = {**shares[-1], topic_id: every[:start]}
            left -= start
        while start < count:
            # Members with the same quota that find all of it in this topic are served together.
            done = len(shares)
            quota, alike = (small + 1, larger - done) if done < larger else (small, members - done)
            whole = min(alike, (count - start) // quota)
            end = start + whole * quota
            shares += [{topic_id: every[first : first + quota]} for first in range(start, end, quota)]
            start = end
            if whole < alike and start < count:
                shares.append({topic_id: every[start:count]})
                left = quota - (count - start)
                start = count
    return shares + [NOTHING] * (members - len(shares))


def _valid_part(
    target: TopicPartitions, *, topics: Mapping[UUID, int], subscribed: frozenset[UUID] | None
) -> TopicPartitions:
    """Without topics that are gone or not subscribed, and partitions past a topic's end."""
    kept: MutableTopicPartitions = {}
    for topic_id, numbers in target.items():
        if subscribed is not None and topic_id not in subscribed:
            continue
        count = topics.get(topic_id, 0)
        if inside := tuple(number for number in numbers if number < count):
            kept[topic_id] = inside
    return kept


def _free(kept: Sequence[TopicPartitions], topics: Mapping[UUID, int]) -> MutableTopicPartitions:
    """The partitions of *topics* that no member keeps; topics without any are left out."""
    held: dict[UUID, list[tuple[int, ...]]] = {topic_id: [] for topic_id in topics}
    lists: dict[int, list[tuple[int, ...]]] = {}  # the same, by identity of the topic id
    for partitions in kept:
        for topic_id, numbers in partitions.items():
            runs = lists.get(id(topic_id))
            if runs is None:
                runs = lists[id(topic_id)] = held[topic_id]
            runs.append(numbers)
    every = tuple(range(max(topics.values(), default=0)))
    free: MutableTopicPartitions = {}
    for topic_id, count in topics.items():
        runs = held[topic_id]
        if sum(map(len, runs)) == count:
            continue
        if not runs:
            free[topic_id] = every[:count]
            continue
        is_free = bytearray(b"\x01") * count
        for numbers in runs:
            first, last = numbers[0], numbers[-1]
            if last - first + 1 == len(numbers):
                is_free[first : last + 1] = bytes(len(numbers))
            else:
                for number in numbers:
                    is_free[number] = 0
        free[topic_id] = tuple(number for number in every[:count] if is_free[number])
    return free
