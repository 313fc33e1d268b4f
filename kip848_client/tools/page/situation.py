"""Says in a sentence what is wrong with a group now, and how bad it is. No clock, no output.

Sentences hold no durations: a page shows since when something is so, and counts up by itself.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from kip848_client.cli.shared.tables import name_partitions
from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import counted, printable
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.lag_history import EndHistory, LagTrend
from kip848_client.tools.groups.metrics import GroupTrack
from kip848_client.tools.groups.watch_view import STUCK_MS
from kip848_client.tools.shared.held_back import held_back_sentence

_AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})
_LONG_MS: Final = 10_000
"""A rebalance that lasts longer is long."""
_UNREAD_MS: Final = 2_000
"""Partitions are without an owner for a moment in every rebalance."""
_ABANDONED_MS: Final = 24 * 3_600_000
"""A group without members for longer than this was stopped, even if records wait for it."""
_BEHIND_MS: Final = 5_000
_HOUR_MS: Final = 3_600_000
_REBALANCES_KEPT: Final = 500
_RATE_S: Final = 10
_STATE: Final = "the group is "
"""So begins a line that only repeats the state."""
_NAMED: Final = 4


class Level(enum.IntEnum):
    """How bad it is. The worst has the highest number."""

    QUIET = 0
    """Nothing is wrong."""
    ABANDONED = 1
    """Records wait, and it has had no members for a day or more."""
    CHANGING = 2
    """It rebalances."""
    SILENT = 3
    """A member stopped committing while records wait for it."""
    GROWING = 4
    """Its lag grows."""
    REBALANCING = 5
    """It has been rebalancing for long."""
    HELD = 6
    """A transaction holds it back."""
    STANDING = 7
    """Records wait and are not read."""


class PartitionOwner(NamedTuple):
    """The owner of a partition."""

    member_id: str
    since_ms: int


class SeenRebalance(msgspec.Struct):
    """One rebalance; `end_ms` None while it lasts."""

    start_ms: int
    end_ms: int | None
    reason: str


class Situation(msgspec.Struct, frozen=True):
    """One group now, as a row of the page.

    Args:
        name: its id, with what cannot be seen as escapes.
        since_ms: since when it is as `text` says; None if that is not known.
        text: a sentence without a subject; empty if nothing is wrong.
        lag, lag_ms: None if they are not known.
        per_s: records by which the lag grows a second; None if it has no trend.
        rebalances: in the last hour.
        last_ms, last: what happened last.
    """

    group_id: str
    name: str
    type: str
    state: str
    level: int
    since_ms: int | None
    text: str
    members: int
    partitions: int
    lag: int | None
    lag_ms: int | None
    per_s: float | None
    rebalances: int
    last_ms: int
    last: str


class GroupStory:
    """What a page knows of one group beside its `GroupTrack`: owners since when, rebalances, departures, its trend.

    Attributes:
        changed_ms: the time of the last event that was no commit.
        unread_since_ms: since when partitions have had no owner; None if all have one.
        lag: when the ends of topics were asked for last.
        gone: what the group's view said of the last member that left, and when that was.
        ended: when and why the last members went, as far as the log shows it, once it has been looked at.
    """

    def __init__(self) -> None:
        self.rebalances: Final[deque[SeenRebalance]] = deque(maxlen=_REBALANCES_KEPT)
        self.owners: Final[dict[NamedPartition, PartitionOwner]] = {}
        self.trend: Final = LagTrend()
        self.changed_ms: int = 0
        self.unread_since_ms: int | None = None
        self.lag = 0
        self.gone: tuple[int, str] | None = None
        self.ended: tuple[float, str] | None = None
        self._commits: Final[dict[int, int]] = {}
        """By second."""

    def committed(self, ts_ms: int) -> None:
        """Count a commit."""
        second = ts_ms // 1000
        self._commits[second] = self._commits.get(second, 0) + 1
        if len(self._commits) > 2 * _RATE_S:
            for old in [each for each in self._commits if each < second - _RATE_S]:
                del self._commits[old]

    def commits_per_s(self, *, now_ms: int) -> float:
        """Commits in the last ten seconds, by the second."""
        second = now_ms // 1000
        return sum(count for at, count in self._commits.items() if at > second - _RATE_S) / _RATE_S

    def take(self, event: JournalEvent, track: GroupTrack) -> None:
        """Add an event that is no commit; *track* knows it already."""
        self.changed_ms = max(self.changed_ms, event.ts_ms)
        last = self.rebalances[-1] if self.rebalances else None
        if track.rebalancing_since_ms is not None and (last is None or last.end_ms is not None):
            self.rebalances.append(SeenRebalance(track.rebalancing_since_ms, None, track.reason))
        elif track.rebalancing_since_ms is None and last is not None and last.end_ms is None:
            last.end_ms = event.ts_ms
        if event.event == "member_left" and track.view.lines:
            self.gone = event.ts_ms, track.view.lines[-1].text
        if event.event in {"member_assignment_changed", "member_left"} and event.member_id is not None:
            member = track.view.members.get(event.member_id)
            owned = frozenset() if member is None else member.owned
            for partition in [one for one, place in self.owners.items() if place.member_id == event.member_id]:
                if partition not in owned:
                    del self.owners[partition]
            for partition in owned:
                place = self.owners.get(partition)
                if place is None or place.member_id != event.member_id:
                    self.owners[partition] = PartitionOwner(event.member_id, event.ts_ms)
        if not track.unread:
            self.unread_since_ms = None
        elif self.unread_since_ms is None:
            self.unread_since_ms = event.ts_ms

    def in_the_last_hour(self, now_ms: int) -> int:
        """How many rebalances began then."""
        return sum(each.start_ms >= now_ms - _HOUR_MS for each in self.rebalances)


class PlaceLag(msgspec.Struct, frozen=True):
    """How far a group is in one partition; `lag` and `behind_ms` None if they are not known."""

    partition: NamedPartition
    committed: int
    moved_ms: int
    lag: int | None
    behind_ms: float | None


def lags(track: GroupTrack, ends: EndHistory, *, now_ms: int) -> list[PlaceLag]:
    """Every partition in which the group has committed."""
    return [
        PlaceLag(
            partition, offset, at_ms, ends.lag(partition, offset), ends.behind_ms(partition, offset, now_ms=now_ms)
        )
        for partition, (offset, at_ms) in sorted(track.committed.items())
    ]


def situation_of(track: GroupTrack, story: GroupStory, ends: EndHistory, *, now_ms: int) -> Situation:
    """The group now."""
    places = lags(track, ends, now_ms=now_ms)
    known = [each for each in places if each.lag is not None]
    lag = sum(each.lag or 0 for each in known) if known or not places else None
    behind_ms = max((each.behind_ms or 0.0 for each in known), default=0.0)
    level, since_ms, text = _judge(track, story, places, behind_ms, now_ms=now_ms)
    view = track.view
    last = next((line for line in reversed(view.lines) if not line.text.startswith(_STATE)), None)
    return Situation(
        group_id=view.group_id,
        name=printable(view.group_id),
        type=track.kind,
        state=view.state,
        level=level,
        since_ms=since_ms,
        text=printable(text),
        members=len(view.members),
        partitions=len({*track.committed, *story.owners}),
        lag=lag,
        lag_ms=None if lag is None else round(behind_ms),
        per_s=story.trend.per_s,
        rebalances=story.in_the_last_hour(now_ms),
        last_ms=0 if last is None else last.ts_ms,
        last="" if last is None else last.text,
    )


def _judge(
    track: GroupTrack, story: GroupStory, places: list[PlaceLag], behind_ms: float, *, now_ms: int
) -> tuple[Level, int | None, str]:
    view = track.view
    waiting = {each.partition: each for each in places if each.lag}
    if not view.members:
        return _without_members(track, story, waiting, now_ms=now_ms)
    if story.unread_since_ms is not None and now_ms - story.unread_since_ms >= _UNREAD_MS:
        free = view.free
        waits = _records(waiting[one] for one in free if one in waiting)
        text = f"{counted(len(free), 'partition')} without an owner ({_named(free)}){waits}"
        return Level.STANDING, story.unread_since_ms, text
    if track.held:
        since_ms = min((track.committed[one].at_ms for one in track.held if one in track.committed), default=None)
        held = {one: track.committed[one].offset for one in track.held if one in track.committed}
        return Level.HELD, since_ms, held_back_sentence(held)
    stuck = _stuck(track, waiting, now_ms=now_ms)
    if stuck and len(stuck) == len(waiting):
        who = sorted({_owner(track, story, each.partition) for each in stuck})
        text = (
            f"members commit nothing new: {_named([each.partition for each in stuck])}{_records(stuck)} "
            f"({', '.join(who[:_NAMED])}{', ...' if len(who) > _NAMED else ''})"
        )
        return Level.STANDING, min(each.moved_ms for each in stuck), text
    rebalancing_ms = track.rebalancing_since_ms
    if rebalancing_ms is not None and now_ms - rebalancing_ms >= _LONG_MS:
        return Level.REBALANCING, rebalancing_ms, f"rebalancing: {track.reason}{_waits(track)}"
    per_s = story.trend.per_s or 0.0
    if per_s > 0 and behind_ms >= _BEHIND_MS:
        return Level.GROWING, story.trend.since_ms, f"lag grows by {per_s:,.1f} records a second"
    silent = _silent(track, waiting)
    if silent:
        since_ms = min(ms for _, ms in silent)
        names = ", ".join(name for name, _ in silent[:_NAMED])
        return Level.SILENT, since_ms, f"silent while others commit: {names}"
    if stuck:
        text = f"no new commit in {_named([each.partition for each in stuck])}{_records(stuck)}"
        return Level.SILENT, min(each.moved_ms for each in stuck), text
    if view.state not in _AT_REST:
        return Level.CHANGING, rebalancing_ms, f"rebalancing: {track.reason or view.state}{_waits(track)}"
    return Level.QUIET, view.state_since_ms or None, ""


def _without_members(
    track: GroupTrack, story: GroupStory, waiting: dict[NamedPartition, PlaceLag], *, now_ms: int
) -> tuple[Level, int | None, str]:
    """A group that only commits, as tools do, has never had a member: it is not out."""
    since_ms = track.view.state_since_ms or (story.gone[0] if story.gone else None)
    if story.gone is None or not waiting:
        return Level.QUIET, since_ms, "" if track.kind == "classic" and story.gone is None else "no members"
    why = f"the last one: {story.gone[1]}"
    if story.ended is not None and story.ended[1] and story.ended[0] == story.gone[0]:
        why = f"before: {story.ended[1]}"
    text = f"no member{_records(waiting.values())}; {why}"
    if since_ms is None or now_ms - since_ms >= _ABANDONED_MS:
        return Level.ABANDONED, since_ms, text
    return Level.STANDING, since_ms, text


def _stuck(track: GroupTrack, waiting: dict[NamedPartition, PlaceLag], *, now_ms: int) -> list[PlaceLag]:
    """Partitions in which records wait, and that their owners have not moved for an unusual time."""
    found = []
    for member in track.view.members.values():
        rhythm = None if member.commits is None else member.commits.summary().unusual_ms
        patience_ms = max(STUCK_MS, 6 * STUCK_MS if rhythm is None else rhythm)
        for partition in member.owned:
            place = waiting.get(partition)
            if place is None:
                continue
            waited_ms = min(now_ms - max(place.moved_ms, member.since_ms), place.behind_ms or 0.0)
            if waited_ms >= patience_ms:
                found.append(place)
    return sorted(found, key=lambda each: each.partition)


def _silent(track: GroupTrack, waiting: dict[NamedPartition, PlaceLag]) -> list[tuple[str, int]]:
    """Names of silent members, and when each committed last."""
    return [
        (member.name, int(member.commits.last_ms))
        for member in track.view.members.values()
        if member.commits is not None and track.view.silence(member, waiting.__contains__) is not None
    ]


def _waits(track: GroupTrack) -> str:
    """Whom members wait for."""
    owners = {
        wait.owner for member in track.view.members.values() for wait in track.view.waits(member) if wait.partitions
    } - {"nobody yet"}
    return f"; others wait for {', '.join(sorted(owners)[:_NAMED])}" if owners else ""


def _owner(track: GroupTrack, story: GroupStory, partition: NamedPartition) -> str:
    place = story.owners.get(partition)
    member = None if place is None else track.view.members.get(place.member_id)
    return "nobody" if member is None else member.name


def _records(places: Iterable[PlaceLag]) -> str:
    several = list(places)
    records = sum(each.lag or 0 for each in several)
    if not records:
        return ""
    waits = "waits" if records == 1 else "wait"
    return f", {counted(records, 'record')} {waits} in {counted(len(several), 'partition')}"


def _named(partitions: Iterable[NamedPartition]) -> str:
    several = list(partitions)
    if len(several) > _NAMED:
        return f"{printable(name_partitions(several[:_NAMED]))}, ..."
    return printable(name_partitions(several))
