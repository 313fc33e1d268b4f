"""The state of a group for a person who watches it: owners, waiting members, and since when. No output.

It is built from the events of a recorder or, where ``__consumer_offsets`` may not be read, from a description every
second; then "since" counts from the first description that shows it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kip848_client.admin import GroupDescription, Progress
from kip848_client.cli.shared.tables import name_partitions
from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import printable
from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.groups.lag_history import EndHistory, LagTrend
from kip848_client.tools.report.timeline.lives import UNUSUAL_MS_MIN, CommitTimes
from kip848_client.tools.report.timeline.names import member_name
from kip848_client.tools.shared.held_back import held_back_sentence

LINES_KEPT: Final = 12
_COMMIT_WINDOW_MS: Final = 10_000
STUCK_MS: Final = 10_000
"""Transactions are shorter, as a rule."""


class Wait(msgspec.Struct, frozen=True):
    """A member waits for partitions that other members still own."""

    partitions: tuple[NamedPartition, ...]
    owner: str


class MemberRow(msgspec.Struct):
    """One member.

    Attributes:
        name: client id, printable, with the beginning of the member id if other members have the same client id.
        host: the address of its client as the coordinator sees it.
        joined_ms: when it was first seen.
        since_ms: when `owned` last changed.
        pending: partitions that it must give up and still has.
        commits: of its partitions, since it joined; None before the first one.
        is_silent: whether `GroupView.silence` was told.
    """

    member_id: str
    client_id: str
    host: str = ""
    joined_ms: int = 0
    epoch: int | None = None
    state: str = ""
    since_ms: int = 0
    owned: frozenset[NamedPartition] = frozenset()
    pending: frozenset[NamedPartition] = frozenset()
    target: frozenset[NamedPartition] = frozenset()
    name: str = ""
    commits: CommitTimes | None = None
    is_silent: bool = False


class WatchLine(msgspec.Struct, frozen=True):
    """One line about an event."""

    ts_ms: int
    text: str


class GroupView:
    """One group as it is now.

    Attributes:
        state_since_ms: when the group came into its state.
        held: where an open transaction holds the group back.
        changes: how often something changed; screens draw again when it grows.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.state: str = "Unknown"
        self.state_since_ms: int = 0
        self.epoch: int | None = None
        self.members: Final[dict[str, MemberRow]] = {}
        self.lines: Final[deque[WatchLine]] = deque(maxlen=LINES_KEPT)
        self.lines_said: int = 0
        self.progress: Mapping[NamedPartition, Progress] = {}
        self.held: Mapping[NamedPartition, int] = {}
        self.changes: int = 0
        self._ends: Final = EndHistory()
        self._trend: Final = LagTrend()
        self._grows = False
        self._places: dict[NamedPartition, tuple[int | None, int]] = {}
        self._is_classic = False
        self._commits: Final[deque[int]] = deque()
        self._last_commit_ms = 0

    # --- events

    def take(self, event: JournalEvent) -> None:
        """Add the next event of the group."""
        if event.group_id != self.group_id:
            return
        if event.event == "offsets_committed":
            self._commits.append(event.ts_ms)
            self._forget_commits(event.ts_ms)
            self.committed(event)
            return
        self.changes += 1
        if event.group_epoch is not None:
            self.epoch = event.group_epoch
        for text in self._texts(event):
            self._say(event.ts_ms, text)

    def describe(self, group: GroupDescription, *, now_ms: int) -> None:
        """Update the view from a description of the group instead of events."""
        before = {member_id: member.owned for member_id, member in self.members.items()}
        known = set(self.members)
        if group.state != self.state:
            self.state, self.state_since_ms = group.state, now_ms
            self._say(now_ms, f"the group is {group.state}")
        self.epoch = group.group_epoch
        for described in group.members:
            member = self._member(described.member_id, described.client_id, now_ms)
            member.host = described.client_host.removeprefix("/")
            member.epoch = described.member_epoch
            member.owned, member.target = frozenset(described.assigned), frozenset(described.target)
            if before.get(member.member_id) != member.owned:
                member.since_ms = now_ms
                self._say(now_ms, f"{member.name} has {name_partitions(member.owned)}")
        for gone in known - {described.member_id for described in group.members}:
            self._say(now_ms, f"{self.members.pop(gone).name} is gone")

    def committed(self, event: JournalEvent) -> None:
        """Note when a member committed."""
        self._last_commit_ms = max(self._last_commit_ms, event.ts_ms)
        member = self.members.get(event.member_id or "")
        if member is not None:
            if member.commits is None:
                member.commits = CommitTimes(float(event.ts_ms))
            member.commits.add(float(event.ts_ms))

    def note_silence(self, *, now_ms: int) -> None:
        """Say which members stopped committing, and which of these have gone on."""
        for member in self.members.values():
            silent_ms = self.silence(member, self._waits_for_reader)
            if silent_ms is not None and not member.is_silent:
                self._say(now_ms, f"{member.name} has committed nothing for {silent_ms / 1000:.1f} s; others commit")
            elif silent_ms is None and member.is_silent:
                self._say(now_ms, f"{member.name} is no longer silent")
            member.is_silent = silent_ms is not None

    def measured(self, progress: Iterable[Progress], *, now_ms: int) -> None:
        """The lag was asked for: note it, and say when it begins to grow."""
        self.progress = {item.partition: item for item in progress}
        self._ends.add({tp: item.end for tp, item in self.progress.items() if item.end is not None}, now_ms=now_ms)
        before, self._places = self._places, {}
        for partition, item in self.progress.items():
            known = before.get(partition)
            moved = known is None or known[0] != item.committed
            self._places[partition] = (item.committed, now_ms) if moved or known is None else known
        lag = self.lag(self.progress)
        if lag is not None:
            self._trend.add(lag, now_ms=now_ms)
        per_s = self.lag_per_s or 0.0
        if per_s > 0 and not self._grows:
            self._say(now_ms, f"lag grows by {per_s:,.1f}/s; it is {lag or 0:,}")
        self._grows = per_s > 0

    def stuck(self, *, now_ms: int) -> list[Progress]:
        """Partitions of the members in which records wait, and that have not moved for a time."""
        owned = {partition for member in self.members.values() for partition in member.owned}
        return [
            item
            for partition, item in self.progress.items()
            if partition in owned and item.lag and now_ms - self._places[partition][1] >= STUCK_MS
        ]

    def note_held(self, held: Mapping[NamedPartition, int], *, now_ms: int) -> None:
        """Say where an open transaction holds the group back, and when that is over."""
        if held and held != self.held:
            self._say(now_ms, held_back_sentence(held))
        elif self.held and not held:
            self._say(now_ms, "no longer held back by a transaction")
        self.held = held

    # --- lookups

    @property
    def lag_per_s(self) -> float | None:
        """Records by which the lag grew a second in the last minute; None if it shows no trend."""
        return self._trend.per_s

    def behind_ms(self, *, now_ms: int) -> float | None:
        """How long ago the end of the slowest partition was where the group is; None if that is not known.

        At the beginning it is at least that: earlier ends are not known.
        """
        found = [
            None if item.committed is None else self._ends.behind_ms(partition, item.committed, now_ms=now_ms)
            for partition, item in self.progress.items()
            if item.lag != 0
        ]
        return None if None in found else max((each for each in found if each is not None), default=0.0)

    def silence(self, member: MemberRow, has_records: Callable[[NamedPartition], bool]) -> float | None:
        """How long a member has committed nothing, if that is unusual for it; None if it is not, or cannot be known.

        It has partitions with waiting records, and other members have committed meanwhile. Both times are the brokers',
        so a wrong clock here says nothing wrong. A member that hangs or died looks like this until its session ends.
        """
        unusual_ms = None if member.commits is None else member.commits.summary().unusual_ms
        if member.commits is None or unusual_ms is None or not any(map(has_records, member.owned)):
            return None
        silent_ms = self._last_commit_ms - member.commits.last_ms
        return silent_ms if silent_ms > unusual_ms else None

    def waits(self, member: MemberRow) -> list[Wait]:
        """The partitions that *member* waits for, by owner; ``nobody yet`` for free ones."""
        missing = member.target - member.owned
        owners = {tp: other for other in self.members.values() if other is not member for tp in other.owned}
        by_owner: dict[str, list[NamedPartition]] = {}
        for partition in sorted(missing):
            owner = owners.get(partition)
            by_owner.setdefault("nobody yet" if owner is None else owner.name, []).append(partition)
        return [Wait(tuple(partitions), owner) for owner, partitions in by_owner.items()]

    def lag(self, partitions: Iterable[NamedPartition]) -> int | None:
        """Records behind in *partitions*; None if the lag of any is unknown."""
        lags = [item.lag if (item := self.progress.get(partition)) else None for partition in partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    def commits_per_s(self, *, now_ms: int) -> float:
        """Commits in the last ten seconds, by the second."""
        self._forget_commits(now_ms)
        return len(self._commits) / (_COMMIT_WINDOW_MS / 1000)

    @property
    def free(self) -> list[NamedPartition]:
        """Partitions of the target that no member owns."""
        owned = {partition for member in self.members.values() for partition in member.owned}
        return sorted({partition for member in self.members.values() for partition in member.target} - owned)

    def to_plain(self, *, now_ms: int) -> dict[str, object]:
        """As JSON values; docs/watching.md describes them."""
        return {
            "v": 1,
            "ts_ms": now_ms,
            "group_id": self.group_id,
            "state": self.state,
            "state_since_ms": self.state_since_ms,
            "epoch": self.epoch,
            "unread": _names(self.free),
            "commits_per_s": self.commits_per_s(now_ms=now_ms),
            "lag": self.lag(self.progress),
            "lag_ms": self.behind_ms(now_ms=now_ms) if self.progress else None,
            "lag_per_s": self.lag_per_s,
            "held_back": {str(partition): offset for partition, offset in sorted(self.held.items())},
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "joined_ms": member.joined_ms,
                    "epoch": member.epoch,
                    "state": member.state,
                    "since_ms": member.since_ms,
                    "owned": _names(member.owned),
                    "gives_up": _names(member.pending),
                    "waits_for": {wait.owner: _names(wait.partitions) for wait in self.waits(member)},
                    "lag": self.lag(member.owned),
                    "committed_ms": None if member.commits is None else int(member.commits.last_ms),
                    "silent": member.is_silent,
                }
                for member in self.sorted_members()
            ],
        }

    def sorted_members(self) -> list[MemberRow]:
        """By the time of joining, and those of one time by name."""
        return sorted(self.members.values(), key=lambda member: (member.joined_ms, member.name, member.member_id))

    # --- internals

    def _texts(self, event: JournalEvent) -> Iterator[str]:
        fields = event.fields
        match event.event:
            case "group_state_changed":
                self.state, self.state_since_ms = str(fields["new"]), event.ts_ms
                yield f"the group is {self.state}"
            case "group_epoch_bumped":
                yield f"epoch {event.group_epoch}: {str(fields.get('reason')).replace('_', ' ')}"
            case "classic_generation_began":
                self._is_classic = True
                yield f"generation {event.group_epoch} begins"
            case "group_converted":
                self._is_classic = fields.get("type") == "classic"
                yield f"the group is a {fields.get('type')} group now"
            case "target_assignment_computed":
                for member_id, target in _items(fields.get("members")):
                    if member_id in self.members:
                        self.members[member_id].target = _partitions(target)
                    else:
                        self._member(member_id, None, event.ts_ms).target = _partitions(target)
            case "member_joined":
                member = self._member(event.member_id or "", event.client_id, event.ts_ms)
                member.since_ms = event.ts_ms
                member.host = str(fields.get("client_host") or "").removeprefix("/")
                topics = fields.get("topics")
                shown = ", ".join(map(str, topics)) if isinstance(topics, list) else ""
                yield f"{member.name} joins, wants {shown or 'a pattern'}"
            case "subscription_changed":
                yield f"{self._member(event.member_id or '', event.client_id, event.ts_ms).name} wants other topics"
            case "member_left":
                yield from self._left(event)
            case "member_assignment_changed":
                yield from self._assigned(event)

    def _left(self, event: JournalEvent) -> Iterator[str]:
        member = self._member(event.member_id or "", event.client_id, event.ts_ms)
        reason = str(event.fields.get("reason"))
        if reason == "static_leave":
            yield f"{member.name} is away; its place is kept"
            return
        del self.members[member.member_id]
        self._rename()
        last_ms = None if member.commits is None else int(member.commits.last_ms)
        match reason:
            case "replaced":
                yield f"{member.name} is replaced"
            case "leave":
                yield f"{member.name} left"
            case _ if last_ms is not None and event.ts_ms - last_ms >= UNUSUAL_MS_MIN:
                yield f"{member.name} is gone; its last commit was {(event.ts_ms - last_ms) / 1000:.1f} s before"
            case _:  # a record does not say whether a member left or died
                yield f"{member.name} is gone"

    def _assigned(self, event: JournalEvent) -> Iterator[str]:
        member = self._member(event.member_id or "", event.client_id, event.ts_ms)
        pending = _partitions(event.fields.get("pending_revocation"))
        owned = _partitions(event.fields.get("assigned")) | pending
        member.epoch, member.state = event.member_epoch, str(event.fields.get("state"))
        if self._is_classic or not (member.target or member.owned):  # a classic member has no other target
            member.target = owned - pending
        if owned == member.owned and pending == member.pending:
            return
        gained, lost = owned - member.owned, member.owned - owned
        if owned != member.owned or not member.since_ms:
            member.since_ms = event.ts_ms
        member.owned, member.pending = owned, pending
        parts = [f"gets {name_partitions(gained)}"] if gained else []
        parts += [f"gave up {name_partitions(lost)}"] if lost else []
        parts += [f"must give up {name_partitions(pending)}"] if pending else []
        yield f"{member.name} {', '.join(parts)}"

    def _waits_for_reader(self, partition: NamedPartition) -> bool:
        progress = self.progress.get(partition)
        return progress is not None and bool(progress.lag)

    def _member(self, member_id: str, client_id: str | None, now_ms: int) -> MemberRow:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = MemberRow(member_id, client_id or member_id, joined_ms=now_ms)
        elif client_id:
            member.client_id = client_id
        self._rename()
        return member

    def _forget_commits(self, now_ms: int) -> None:
        while self._commits and self._commits[0] < now_ms - _COMMIT_WINDOW_MS:
            self._commits.popleft()

    def _rename(self) -> None:
        names = Counter(member.client_id for member in self.members.values())
        for member in self.members.values():
            shared = names[member.client_id] > 1
            member.name = printable(member_name(member.client_id, member.member_id, shared=shared))

    def _say(self, ts_ms: int, text: str) -> None:
        self.changes += 1
        self.lines_said += 1
        self.lines.append(WatchLine(ts_ms, printable(text)))


def _items(value: JsonValue) -> Iterable[tuple[str, JsonValue]]:
    return value.items() if isinstance(value, dict) else ()


def _partitions(value: JsonValue) -> frozenset[NamedPartition]:
    return frozenset(
        NamedPartition(topic, int(number))
        for topic, numbers in _items(value)
        if isinstance(numbers, list)
        for number in numbers
        if isinstance(number, int)
    )


def _names(partitions: Iterable[NamedPartition]) -> list[str]:
    return [str(partition) for partition in sorted(partitions)]
