"""State and counters of all groups of a cluster, for a scrape: from the events of a recorder. No output, no clock.

A group is the `GroupView` that ``groups watch`` shows, and counters beside it. Counters and durations begin when the
history of the groups has been read.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from kip848_client.admin import Progress
from kip848_client.common.model import NamedPartition
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.lag_history import EndHistory
from kip848_client.tools.groups.watch_view import STUCK_MS, GroupView

BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
REASONS: Final = frozenset(
    {
        *("group created", "member joined", "member left", "subscription changed", "topics changed", "regex resolved"),
        *("client assignors changed", "assignor changed", "classic rebalance", "unknown"),
    }
)
"""Reasons of rebalances, as label values; any other one is ``other``."""
_AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})


class Histogram:
    """Durations in the buckets of `BUCKETS_S`, which are cumulative when they are shown."""

    def __init__(self) -> None:
        self._counts: Final = [0] * (len(BUCKETS_S) + 1)
        self.sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper edge and the number of durations up to it."""
        total = 0
        shown: list[tuple[str, float]] = []
        for edge, count in zip([*map(str, BUCKETS_S), "+Inf"], self._counts, strict=True):
            total += count
            shown.append((edge, total))
        return shown


class Committed(NamedTuple):
    """Where a group is in one partition, and since when: commits of the same offset do not move it."""

    offset: int
    at_ms: int


class GroupTrack(msgspec.Struct, eq=False):
    """One group.

    Attributes:
        kind: its type, as `Admin.list_groups` spells it.
        rebalancing_since_ms: None while it is at rest.
        committed: the last committed offset of each partition, and when that was.
        held: partitions in which an open transaction holds it back.
        unread_ms: sum over its partitions of the time that they had no counted owner, up to `counted_ms`; an outage of
            the whole group is added when it is over.
        empty_since_ms: since when it has had no members; None if it has some, or never had any.
        waiting: partitions in which records wait for it while it has no members.
    """

    view: GroupView
    kind: str
    rebalancing_since_ms: int | None = None
    reason: str = ""
    rebalances: int = 0
    joins: int = 0
    departures: int = 0
    commits: int = 0
    last_commit_ms: int = 0
    committed: dict[NamedPartition, Committed] = msgspec.field(default_factory=dict)
    unread: int = 0
    unread_ms: float = 0.0
    counted_ms: int = 0
    empty_since_ms: int | None = None
    waiting: int = 0
    held: frozenset[NamedPartition] = frozenset()

    def silent_ms(self, ends: EndHistory) -> list[float]:
        """How long each of its silent members has been silent, see `GroupView.silence`."""

        def has_records(partition: NamedPartition) -> bool:
            committed = self.committed.get(partition)
            return committed is not None and bool(ends.lag(partition, committed.offset))

        found = (self.view.silence(member, has_records) for member in self.view.members.values())
        return [each for each in found if each is not None]

    def stuck(self, ends: EndHistory, *, now_ms: int) -> list[Progress]:
        """Partitions of its members in which records wait, and that no commit has moved for a time."""
        owned = {partition for member in self.view.members.values() for partition in member.owned}
        return [
            Progress(partition, offset, offset + lag, None)
            for partition in owned
            if (found := self.committed.get(partition)) is not None and now_ms - found.at_ms >= STUCK_MS
            if (lag := ends.lag(partition, offset := found.offset))
        ]

    def note_waiting(self, ends: EndHistory) -> None:
        """Count the partitions in which records wait, if it has no members: an empty group that is done was not out."""
        if self.empty_since_ms is not None:
            self.waiting = sum(bool(ends.lag(one, found.offset)) for one, found in self.committed.items())

    def back(self, at_ms: int, *, counted_from_ms: int) -> None:
        """It has members again: add the outage."""
        if self.empty_since_ms is not None:
            self.unread_ms += self.waiting * max(0, at_ms - max(self.empty_since_ms, counted_from_ms))
        self.empty_since_ms, self.waiting = None, 0

    def forget(self, partitions: AbstractSet[NamedPartition]) -> None:
        """Partitions were deleted; nothing is left to read in them."""
        for partition in partitions & self.committed.keys():
            del self.committed[partition]

    def count_unread(self, now_ms: int) -> None:
        """Add the time since the last call."""
        self.unread_ms += self.unread * max(0, now_ms - self.counted_ms)
        self.counted_ms = max(self.counted_ms, now_ms)


class GroupMetrics:
    """All groups.

    Args:
        groups_max: how many groups are kept one by one; more of them are only counted.
    """

    def __init__(self, *, groups_max: int) -> None:
        self._groups_max = groups_max
        self.groups: Final[dict[str, GroupTrack]] = {}
        self.left_out: Final[set[str]] = set()
        self.durations: Final[dict[str, Histogram]] = {}
        self.is_live: bool = False
        self._begun_ms = 0

    def take(self, event: JournalEvent, kind: str) -> None:
        """Add the next event of a group.

        Args:
            kind: the type of its group, now.
        """
        group_id = event.group_id
        track = None if group_id is None else self._track(group_id, kind)
        if track is None:
            return
        match event.event:
            case "offsets_committed":
                self._committed(track, event)
                return
            case "group_epoch_bumped" | "classic_generation_began":
                if track.rebalancing_since_ms is None:
                    track.rebalancing_since_ms = event.ts_ms
                    track.reason = _reason(event)
            case "group_state_changed":
                self._state_changed(track, str(event.fields.get("new")), event.ts_ms)
            case "member_joined":
                track.joins += self.is_live
            case "member_left":
                track.departures += self.is_live
        track.view.take(event)
        if self.is_live:
            track.count_unread(event.ts_ms)
            track.unread = len(track.view.free)

    def begin(self, *, now_ms: int) -> None:
        """The groups' history has been read: count from here on.

        Args:
            now_ms: when the history ended, which is before it had been read.
        """
        self.is_live, self._begun_ms = True, now_ms
        for track in self.groups.values():
            track.counted_ms, track.unread = now_ms, len(track.view.free)

    def _track(self, group_id: str, kind: str) -> GroupTrack | None:
        track = self.groups.get(group_id)
        if track is None:
            if len(self.groups) >= self._groups_max:
                self.left_out.add(group_id)
                return None
            track = self.groups[group_id] = GroupTrack(GroupView(group_id), kind)
            track.view.state = "Empty"  # a group that only commits never says so
        track.kind = kind
        return track

    def _committed(self, track: GroupTrack, event: JournalEvent) -> None:
        offsets = event.fields.get("offsets")
        track.commits += self.is_live
        track.last_commit_ms = max(track.last_commit_ms, event.ts_ms)
        track.view.committed(event)
        for name, offset in offsets.items() if isinstance(offsets, dict) else ():
            topic, _, number = name.rpartition("-")
            partition = NamedPartition(topic, int(number))
            known = track.committed.get(partition)
            if isinstance(offset, int) and (known is None or known.offset != offset):
                track.committed[partition] = Committed(offset, event.ts_ms)

    def _state_changed(self, track: GroupTrack, state: str, at_ms: int) -> None:
        if state == "PreparingRebalance" and track.rebalancing_since_ms is None:
            track.rebalancing_since_ms, track.reason = at_ms, "classic rebalance"
        if state in _AT_REST and track.rebalancing_since_ms is not None:
            if self.is_live:
                track.rebalances += 1
                self.durations.setdefault(track.reason, Histogram()).add((at_ms - track.rebalancing_since_ms) / 1000)
            track.rebalancing_since_ms = None
        if state == "Empty":
            if track.view.state not in {"Empty", ""}:
                track.empty_since_ms = at_ms
        else:
            track.back(at_ms, counted_from_ms=self._begun_ms if self.is_live else at_ms)
        if state == "Dead":
            del self.groups[track.view.group_id]


class TopicLag(msgspec.Struct):
    """What one group has left to read of a topic.

    Attributes:
        records: behind the ends; of partitions whose end is known.
        seconds: the age of the oldest record that is not committed, over the same partitions.
        unknown: partitions without a known end.
        commit_age_s: the longest time that records wait in a partition, and no commit has moved it; None if none wait.
    """

    records: int = 0
    seconds: float = 0.0
    unknown: int = 0
    commit_age_s: float | None = None


def by_topic(track: GroupTrack, ends: EndHistory, *, now_ms: int) -> Mapping[str, TopicLag]:
    """The lag of a group by topic."""
    found: defaultdict[str, TopicLag] = defaultdict(TopicLag)
    for partition, (committed, at_ms) in track.committed.items():
        topic = found[partition.topic]
        lag, behind_ms = ends.lag(partition, committed), ends.behind_ms(partition, committed, now_ms=now_ms)
        if lag is None or behind_ms is None:
            topic.unknown += 1
            continue
        topic.records += lag
        topic.seconds = max(topic.seconds, behind_ms / 1000)
        if lag:
            topic.commit_age_s = max(topic.commit_age_s or 0.0, min(behind_ms, now_ms - at_ms) / 1000)
    return found


def _reason(event: JournalEvent) -> str:
    if event.event == "classic_generation_began":
        return "classic rebalance"
    reason = str(event.fields.get("reason") or "unknown").partition(" (")[0].replace("_", " ")
    return reason if reason in REASONS else "other"
