"""Which commits a log needs that does not keep them all: those next to a change in the group, and a sample of others.

A log with samples says so in each of its commits (`offsets_committed` in `kip848_client.journal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from kip848_client.journal import JournalEvent, JsonValue

_ItemT = TypeVar("_ItemT")
_COMMIT: Final = "offsets_committed"
_CHANGES: Final = frozenset(
    {"member_joined", "member_left", "member_assignment_changed", "classic_generation_began", "group_state_changed"}
)
"""Events around which the commits next to them tell who read until when."""


class SampledCommits(Generic[_ItemT]):
    """The commits of one partition since the last change in its group.

    Of these the 1st, 2nd, 4th, 8th ... are events: how fast the offset moves shows whether records waited.

    Args:
        item: the first one, for the caller.
        offset: what tells commits apart that move the offset.
    """

    __slots__ = ("_before", "_last", "_moved", "_offset", "count", "first_ms", "longest_ms")

    def __init__(self, ts_ms: int, item: _ItemT, offset: object) -> None:
        self.first_ms: int = ts_ms
        self._before = self._moved = self._last = ts_ms, item, True
        """The last one, the last one that moved the offset, and the one before that; whether each is an event."""
        self._offset = offset
        self.longest_ms: int = 0
        self.count: int = 1

    def add(self, ts_ms: int, item: _ItemT, offset: object) -> bool:
        """Take the next one; whether it is to be an event."""
        self.longest_ms = max(self.longest_ms, ts_ms - self._last[0])
        self.count += 1
        is_event = not self.count & (self.count - 1)
        now = ts_ms, item, is_event
        if offset != self._offset:
            self._offset = offset
            self._before, self._moved = self._last, now
        self._last = now
        return is_event

    def untold(self) -> Sequence[tuple[int, _ItemT]]:
        """Those next to the end which are no events yet, and the last one, which says how the others were."""
        told: list[tuple[int, _ItemT, bool]] = []
        for each in (self._before, self._moved, self._last):
            is_new = not any(each is other for other in told)
            if is_new and (each is self._last or not each[2]):
                told.append(each)
        return [(ts_ms, item) for ts_ms, item, _ in told]

    def interval_ms(self) -> float:
        """The usual time between two of them; there are two or more."""
        return (self._last[0] - self.first_ms) / (self.count - 1)


def rhythm_fields(rhythms: Iterable[SampledCommits[Any]]) -> Mapping[str, JsonValue]:
    """Further fields of a commit: how its member committed before, by the partition with the most commits."""
    longest = max(rhythms, key=lambda each: each.count, default=None)
    if longest is None:
        return {}
    return {"commits": longest.count, "interval_ms": longest.interval_ms(), "longest_ms": longest.longest_ms}


class CommitSampler:
    """Turns the events of many groups, in order within each, into a log that keeps few of their commits."""

    def __init__(self) -> None:
        self._rhythms: Final[dict[str, dict[str, SampledCommits[JournalEvent]]]] = {}

    def take(self, event: JournalEvent) -> Iterator[JournalEvent]:
        """Yield what the log gets for the next event: the commits before a change come with the change."""
        group_id = event.group_id
        if group_id is None:
            yield event
        elif event.event == _COMMIT:
            yield from self._commit(group_id, event)
        else:
            if event.event in _CHANGES:
                yield from self.untold(group_id)
                self._rhythms.pop(group_id, None)
            yield event

    def untold(self, group_id: str) -> list[JournalEvent]:
        """The last commits of a group that the log does not have yet, in order of time."""
        rhythms = self._rhythms.get(group_id)
        if not rhythms:
            return []
        told: dict[int, tuple[JournalEvent, dict[str, JsonValue]]] = {}
        for partition, rhythm in rhythms.items():
            for _, event in rhythm.untold():
                offsets = event.fields["offsets"]
                assert isinstance(offsets, dict)
                told.setdefault(id(event), (event, {}))[1][partition] = offsets[partition]
        return [
            replace(
                event,
                fields={
                    "offsets": offsets,
                    "sampled": True,
                    "last": True,
                    **rhythm_fields(rhythms[each] for each in offsets if rhythms[each].count > 1),
                },
            )
            for event, offsets in sorted(told.values(), key=lambda each: each[0].ts_ms)
        ]

    def _commit(self, group_id: str, event: JournalEvent) -> Iterator[JournalEvent]:
        offsets = event.fields.get("offsets")
        if not isinstance(offsets, dict):
            return
        rhythms = self._rhythms.setdefault(group_id, {})
        sampled: dict[str, JsonValue] = {}
        for partition, offset in offsets.items():
            rhythm = rhythms.get(partition)
            if rhythm is None:
                rhythms[partition] = SampledCommits(event.ts_ms, event, offset)
                sampled[partition] = offset
            elif rhythm.add(event.ts_ms, event, offset):
                sampled[partition] = offset
        if sampled:
            yield replace(event, fields={"offsets": sampled, "sampled": True})
