"""Builds the event of a commit. A record does not say who committed, so the event names the owner of the partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

import msgspec

from kip848_client.coordinator.events import GroupEvent


class Owners(Protocol):
    """What a commit event needs of a group of either protocol."""

    @property
    def epoch(self) -> int:
        """Group epoch or generation."""
        ...

    def owner_of(self, topic: str, partition: int, name_of: Callable[[UUID], str | None]) -> GroupEvent | None:
        """Who owns a partition, as the beginning of an event; None if it is not known."""
        ...


def commit_event(
    group_id: str,
    offsets: Mapping[tuple[str, int], int],
    group: Owners | None,
    name_of: Callable[[UUID], str | None],
) -> GroupEvent:
    """The event of one commit; its member owns most of the partitions, or is None.

    Args:
        offsets: (topic, partition) -> offset; at least one.
        group: None if only offsets of it are known.
    """
    owners = [None if group is None else group.owner_of(topic, partition, name_of) for topic, partition in offsets]
    counted = Counter(owner.member_id for owner in owners if owner is not None)
    event = GroupEvent(event="offsets_committed", group_id=group_id, group_epoch=group.epoch if group else 0)
    if counted:
        ((most, _),) = counted.most_common(1)
        event = next(owner for owner in owners if owner is not None and owner.member_id == most)
    told = {f"{topic}-{partition}": offset for (topic, partition), offset in offsets.items()}
    return msgspec.structs.replace(event, fields={"offsets": told})
