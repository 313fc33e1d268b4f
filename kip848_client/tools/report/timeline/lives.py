"""The lives of a group's members: joins, departures and the commits before them, and changes of assignor or protocol.

A record of a departure does not say why the member went. Its commits may: a member that leaves commits up to its end,
and one that died was silent until its session was over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

KEPT_MS: Final = 1_000.0
_COMMITS_MIN: Final = 3
"""A member with fewer commits has no interval."""
_UNUSUAL: Final = 2.5
"""So many of the usual intervals without a commit are unusual."""
UNUSUAL_MS_MIN: Final = 1_000.0
"""Shorter times without a commit are never unusual."""
SESSION_MS_MAX: Final = 120_000.0
"""Few sessions are longer: a member that was silent for longer had nothing to commit before."""


class Arrival(msgspec.Struct, frozen=True):
    """A member joined.

    Args:
        client: its client id and host, which a process that is started again has, too.
        client_id: without the host; empty if the log does not say.
        poll_ms: its max.poll.interval.ms; None if the log does not say.
        session_ms: its session timeout; None if the log does not say.
    """

    at_ms: float
    who: str
    member_id: str
    client: str
    instance_id: str | None
    poll_ms: float | None = None
    session_ms: float | None = None
    client_id: str = ""


class Departure(msgspec.Struct, frozen=True):
    """A member left or was removed.

    Args:
        reason: of the event; ``removed`` in a recorded log.
        partitions: that it was counted as the owner of.
        silent_ms: since its last commit; None if the log has none.
        others_silent_ms: since the last commit of any other member that was there; None if the log has none.
        interval_ms: the usual time between its commits; None if there were too few.
        unusual_ms: a longer time without a commit was unusual for it; None if there were too few.
        poll_ms, session_ms, client_id: as in `Arrival`.
        live: how many members the group had.
    """

    at_ms: float
    who: str
    member_id: str
    client: str
    instance_id: str | None
    reason: str
    partitions: int
    silent_ms: float | None
    others_silent_ms: float | None
    interval_ms: float | None
    unusual_ms: float | None
    poll_ms: float | None
    session_ms: float | None
    live: int
    client_id: str = ""


class Revocation(msgspec.Struct, frozen=True):
    """A member was told to give partitions up; shorter ones than `KEPT_MS` are left out.

    Args:
        end: ``done``, ``gone`` (the member went), or ``open`` at the end of the log.
    """

    start_ms: float
    ms: float
    who: str
    client: str
    end: Literal["done", "gone", "open"]


class Switch(msgspec.Struct, frozen=True):
    """The group changed its assignor or its protocol."""

    at_ms: float
    text: str


class Lives(msgspec.Struct, frozen=True):
    """All of one group, in order of time.

    Args:
        moves_ms: when the coordinator moved, or began again.
        target: the partitions that members get; None if the log does not say.
    """

    arrivals: list[Arrival] = msgspec.field(default_factory=list)
    departures: list[Departure] = msgspec.field(default_factory=list)
    switches: list[Switch] = msgspec.field(default_factory=list)
    revocations: list[Revocation] = msgspec.field(default_factory=list)
    moves_ms: list[float] = msgspec.field(default_factory=list)
    target: frozenset[str] | None = None


class Rhythm(NamedTuple):
    """How many commits there were before one that a log has alone, and the usual and longest time between them."""

    commits: int
    interval_ms: float
    longest_ms: float

    @property
    def unusual_ms(self) -> float | None:
        """A longer time without a commit is unusual for this member; None if it committed too seldom to say so."""
        if self.commits < _COMMITS_MIN:
            return None
        return max(_UNUSUAL * self.interval_ms, self.longest_ms, UNUSUAL_MS_MIN)

    def with_earlier(self, earlier: Rhythm | None) -> Rhythm:
        """That of the longer time: a log says after each change in the group how commits were since the one before."""
        if earlier is None:
            return self
        interval_ms = self.interval_ms if self.commits >= earlier.commits else earlier.interval_ms
        return Rhythm(max(self.commits, earlier.commits), interval_ms, max(self.longest_ms, earlier.longest_ms))


class CommitTimes:
    """The times of one member's commits, the first of which was at *at_ms*."""

    __slots__ = ("count", "first_ms", "last_ms", "longest_ms", "rhythm")

    def __init__(self, at_ms: float) -> None:
        self.first_ms: float = at_ms
        self.last_ms: float = at_ms
        self.longest_ms: float = 0.0
        self.count: int = 0
        self.rhythm: Rhythm | None = None

    def add(self, at_ms: float) -> None:
        """Count a commit."""
        self.longest_ms = max(self.longest_ms, at_ms - self.last_ms)
        self.last_ms = max(self.last_ms, at_ms)
        self.count += 1

    def summary(self) -> Rhythm:
        """The rhythm of those that are in the log, or what it says of the others."""
        if self.rhythm is not None:
            return self.rhythm
        return Rhythm(self.count, (self.last_ms - self.first_ms) / max(1, self.count - 1), self.longest_ms)


class LifeTracker:
    """Collects the lives of one group. Its methods are called in order of time."""

    def __init__(self) -> None:
        self._lives = Lives()
        self._members: dict[str, Arrival] = {}
        self._live: set[str] = set()
        self._commits: dict[str, CommitTimes] = {}
        self._assignor: str | None = None
        self._target: frozenset[str] | None = None

    def joined(self, arrival: Arrival) -> None:
        """A member joined."""
        self._members[arrival.who] = arrival
        self._live.add(arrival.who)
        self._lives.arrivals.append(arrival)

    def committed(self, who: str, at_ms: float, *, rhythm: Rhythm | None) -> None:
        """A member's commit was accepted.

        Args:
            rhythm: if others beside it are not in the log, what is known of them.
        """
        commits = self._commits.get(who)
        if commits is None:
            commits = self._commits[who] = CommitTimes(at_ms)
        commits.add(at_ms)
        if rhythm is not None:
            commits.rhythm = rhythm.with_earlier(commits.rhythm)

    def left(self, who: str, member_id: str, at_ms: float, *, reason: str, partitions: int) -> None:
        """A member left or was removed."""
        arrival = self._members.get(who) or Arrival(at_ms, who, member_id, who, None)
        live = len(self._live | {who})
        self._live.discard(who)
        commits = self._commits.pop(who, None)
        rhythm = Rhythm(0, 0.0, 0.0) if commits is None else commits.summary()
        others_ms = max((self._commits[one].last_ms for one in self._live if one in self._commits), default=None)
        self._lives.departures.append(
            Departure(
                at_ms=at_ms,
                who=who,
                member_id=member_id,
                client=arrival.client,
                instance_id=arrival.instance_id,
                reason=reason,
                partitions=partitions,
                silent_ms=None if commits is None else at_ms - commits.last_ms,
                others_silent_ms=None if others_ms is None else at_ms - others_ms,
                interval_ms=rhythm.interval_ms if rhythm.commits >= _COMMITS_MIN else None,
                unusual_ms=rhythm.unusual_ms,
                poll_ms=arrival.poll_ms,
                session_ms=arrival.session_ms,
                live=live,
                client_id=arrival.client_id,
            )
        )

    def revoked(self, who: str, start_ms: float, at_ms: float, *, end: Literal["done", "gone", "open"]) -> None:
        """A member gave up what it was told to, or did not."""
        if at_ms - start_ms >= KEPT_MS:
            arrival = self._members.get(who)
            client = who if arrival is None else arrival.client
            self._lives.revocations.append(Revocation(start_ms, at_ms - start_ms, who, client, end))

    def moved(self, at_ms: float) -> None:
        """The group has another coordinator, or the same one began again."""
        self._lives.moves_ms.append(at_ms)

    def assigned_by(self, assignor: str | None, at_ms: float) -> None:
        """A target was computed, by this assignor."""
        if assignor and assignor != self._assignor:
            if self._assignor is not None:
                self.switched(f"assignor {self._assignor} became {assignor}", at_ms)
            self._assignor = assignor

    def targets(self, partitions: Iterable[str]) -> None:
        """The partitions that members get from now on."""
        self._target = frozenset(partitions)

    def switched(self, text: str, at_ms: float) -> None:
        """The group changed."""
        self._lives.switches.append(Switch(at_ms, text))

    def finish(self) -> Lives:
        """The log ends."""
        return msgspec.structs.replace(self._lives, target=self._target)
