"""What the last survey of a large group found, so that the next one need not look at every member again.

A group's next target differs from its last one in a few members, whose mappings are new objects; all others are the
same objects, and are as valid as they were while topics and subscription are the same objects, too. This is only a
shortcut: when anything else changed, everything is surveyed (`partitions.survey`), with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kip848_client.assignors.partitions import Survey
from kip848_client.assignors.spec import TopicPartitions

_NEW_MAX: Final = 64
"""New mappings that one recall looks at; with more, a whole survey costs little more."""


class SurveyMemory:
    """Of one assignor, for whichever group was large and last. Threads may share it: it is replaced as a whole.

    Args:
        members_min: smaller groups are not remembered, and nothing of theirs is kept alive.
    """

    def __init__(self, *, members_min: int = 500) -> None:
        self._members_min: Final = members_min
        self._known: _Known | None = None

    def recall(
        self, targets: Sequence[TopicPartitions], *, topics: Mapping[UUID, int], subscription: tuple[UUID, ...]
    ) -> Survey | None:
        """The survey of these targets, if nearly all of them are known and hold every partition together; else None.

        Args:
            targets: per member; empty: nothing.
            topics: as the group's spec describes them.
            subscription: of every member.
        """
        known = self._known
        if known is None or known.topics is not topics or known.subscription is not subscription:
            return None
        found = list(map(known.sizes.get, map(id, targets)))
        new = [index for index, size in enumerate(found) if size is None] if None in found else []
        if len(new) > _NEW_MAX:
            return None
        for index in new:
            target = targets[index]
            if any(not numbers or numbers[-1] >= topics.get(topic_id, 0) for topic_id, numbers in target.items()):
                return None
            if not target.keys() <= known.topic_ids:
                return None
            found[index] = sum(map(len, target.values()))
        sizes = [size for size in found if size is not None]
        return Survey(list(targets), sizes, {}) if sum(sizes) == known.partition_count else None

    def remember(
        self,
        kept: Sequence[TopicPartitions],
        sizes: Sequence[int],
        *,
        spec_topics: Mapping[UUID, int],
        subscription: tuple[UUID, ...],
        partition_count: int,
    ) -> None:
        """Keep what a run ended with: the valid *kept* of every member, all partitions together."""
        if len(kept) >= self._members_min:
            self._known = _Known(
                topics=spec_topics,
                subscription=subscription,
                topic_ids=frozenset(subscription),
                partition_count=partition_count,
                sizes=dict(zip(map(id, kept), sizes, strict=True)),
                alive=kept,
            )


@dataclass(frozen=True, slots=True)
class _Known:
    topics: Mapping[UUID, int]
    subscription: tuple[UUID, ...]
    topic_ids: frozenset[UUID]
    partition_count: int
    sizes: dict[int, int]
    """By identity of the mapping."""
    alive: Sequence[TopicPartitions]
    """Keeps the mappings, so that no other object gets the identity of one of them."""
