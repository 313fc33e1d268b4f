"""The history of one group: owner and reader of each partition, states of each member, and failures, with their times.

Values only; `lanes` makes them from events.

Two views of one partition are kept apart, because their difference is what a rebalance protocol is about:

* **held**: what the coordinator counts as a member's own, pending revocations included;
* **read**: what a client lets its application read, from the return of ``on_partitions_assigned`` to the beginning of
  ``on_partitions_revoked`` or ``on_partitions_lost``.

A log may have one of them only: a broker writes the first, a consumer the second, a simulation both.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from kip848_client.tools.report.timeline.lives import Lives
from kip848_client.tools.report.timeline.pauses import Pauses
from kip848_client.tools.report.timeline.unread import Bound

MarkKind: TypeAlias = Literal["fault", "refusal", "failure", "life"]
CommitEnd: TypeAlias = Literal["done", "failed", "accepted", "refused"]
"""Outcomes of commits: by the client, and by the coordinator."""


class Span(msgspec.Struct, frozen=True):
    """A time span in milliseconds of the log's clock; `text` is an owner, a state or a call."""

    start_ms: float
    end_ms: float
    text: str


class PartitionLane(msgspec.Struct, frozen=True):
    """One partition, ``topic-index``. Spans of one view are in order of their start; several at once are a finding."""

    partition: str
    held: Sequence[Span]
    read: Sequence[Span]


class MemberLane(msgspec.Struct, frozen=True):
    """One member: its public states (its states at the coordinator, if it wrote no log of its own), its epochs as
    (time, epoch), and its listener calls.

    Args:
        host: the address of its client as the coordinator saw it; empty if the log does not say.
        since_ms: when the log first has it.
    """

    member: str
    states: Sequence[Span]
    epochs: Sequence[tuple[float, int]]
    calls: Sequence[Span]
    host: str = ""
    since_ms: float = 0.0


class CommitKey(NamedTuple):
    """Commits that are counted together. `error` is empty for accepted ones."""

    who: str
    end: CommitEnd
    error: str


class Mark(msgspec.Struct, frozen=True):
    """An event at one moment, and the member (or ``coordinator``, ...) that it concerns."""

    ts_ms: float
    who: str
    kind: MarkKind
    text: str


class Counts(msgspec.Struct, frozen=True):
    """Counts of events of which a log may have millions; they are not kept one by one. Durations are in milliseconds.

    Args:
        heartbeats: by member.
        late_ms: how late each of a member's heartbeats was, joins and leaves left out; 0 for one that was early.
        revoked_ms: how long a member took each time it was told to give partitions up.
        called_ms: how long each call took, by callback.
        marks: by kind.
    """

    heartbeats: Counter[str] = msgspec.field(default_factory=Counter)
    late_ms: defaultdict[str, array[float]] = msgspec.field(default_factory=lambda: defaultdict(_durations))
    revoked_ms: defaultdict[str, array[float]] = msgspec.field(default_factory=lambda: defaultdict(_durations))
    called_ms: defaultdict[str, array[float]] = msgspec.field(default_factory=lambda: defaultdict(_durations))
    commits: Counter[CommitKey] = msgspec.field(default_factory=Counter)
    marks: Counter[MarkKind] = msgspec.field(default_factory=Counter)


def _durations() -> array[float]:
    return array("d")


class EpochChange(msgspec.Struct, frozen=True):
    """A group epoch, from its beginning until every member had its part of it; `end_ms` None if the log ends first."""

    start_ms: float
    end_ms: float | None
    epoch: int
    reason: str


class Timeline(msgspec.Struct, frozen=True):
    """All that is known of one group.

    Args:
        members: in the order in which they joined.
        changes: in the order in which they ended.
        bounds: changes of owner of which the coordinator does not know when the owner before stopped reading.
        writers: members that wrote logs themselves.
        coordinated: the log has the coordinator's side; without it epochs and states are inferred from clients.
        backwards_ms: by how much the times of one file run backwards, at most; changes are in doubt then.
        pauses: when none of its members committed; of a log that has all commits.
        held: partitions in which an open transaction holds it back now -> since when nothing moved there. Not in a log.
    """

    group_id: str
    start_ms: float
    end_ms: float
    members: Sequence[MemberLane]
    partitions: Sequence[PartitionLane]
    epochs: Sequence[tuple[float, int, str]]
    states: Sequence[Span]
    marks: Sequence[Mark]
    counts: Counts
    changes: Sequence[EpochChange] = ()
    bounds: Sequence[Bound] = ()
    lives: Lives = Lives()
    writers: frozenset[str] = frozenset()
    coordinated: bool = True
    backwards_ms: float = 0.0
    pauses: Pauses = Pauses()
    held: Mapping[str, float] = {}
