"""Builds the events of commits. A record does not say who committed, so an event names the owner of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

import msgspec

from kip848_client.testing.coordinator.core.group_events import GroupEvent


class Owners(Protocol):
    """The part of a group of either protocol that a commit event needs."""

    @property
    def epoch(self) -> int:
        """Group epoch or generation."""
        ...

    def owner_of(self, topic: str, partition: int, name_of: Callable[[UUID], str | None]) -> GroupEvent | None:
        """An event that names the owner of a partition, to be filled in; None if the owner is not known."""
        ...


def commit_events(
    group_id: str,
    offsets: Mapping[tuple[str, int], int],
    group: Owners | None,
    name_of: Callable[[UUID], str | None],
) -> Iterator[GroupEvent]:
    """Yield the events of offsets that were written together: a commit of each owner.

    Partitions without an owner count to the commit of the member that owns most of the others.

    Args:
        offsets: (topic, partition) -> offset; at least one.
        group: None if only offsets of it are known.
    """
    by_owner: dict[str, dict[str, int]] = {}
    events: dict[str, GroupEvent] = {}
    unowned: dict[str, int] = {}
    for (topic, partition), offset in offsets.items():
        event = None if group is None else group.owner_of(topic, partition, name_of)
        if event is None or event.member_id is None:
            unowned[f"{topic}-{partition}"] = offset
        else:
            events.setdefault(event.member_id, event)
            by_owner.setdefault(event.member_id, {})[f"{topic}-{partition}"] = offset
    if not by_owner:
        epoch = 0 if group is None else group.epoch
        yield GroupEvent(event="offsets_committed", group_id=group_id, group_epoch=epoch, fields={"offsets": unowned})
        return
    most = max(by_owner, key=lambda member_id: len(by_owner[member_id]))
    by_owner[most] |= unowned
    for member_id, owned in by_owner.items():
        yield msgspec.structs.replace(events[member_id], fields={"offsets": owned})
