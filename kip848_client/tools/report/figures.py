"""Numbers of one group and its members: how long rebalances took, how long partitions had no reader, moved partitions,
late heartbeats, refusals.

Definitions:

* A **rebalance** begins when the group epoch is bumped and ends when the group is Stable or Empty again; bumps in
  between belong to it. One that the log does not see the end of is counted as open and has no duration.
* A **change** begins with its group epoch and ends when every member that was in the group then has its part of it, or
  of a later epoch, or has left. In a group that never rests a rebalance has many.
* A partition is **without a reader** from the end of one owner's span to the beginning of the next one's. Before its
  first owner, after its last one, and while the group was Empty and none of its records waited (`outages`) it is not
  counted. Owning means reading, of members
  that wrote logs; of others, being counted as the owner by the coordinator. Where that is only a lower bound, because
  the owner was removed or the group is a classic one, the commits of both owners give an upper bound
  (`unread`). If only members wrote logs, and all of them were stable while none had the partition,
  a member without a log had it: that time is not counted.
* A **move** is a partition whose next owner is another member. A partition that comes back to the member it left is a
  **bounce**: it was moved for nothing.
* What **stayed**: of the ownerships that there were when rebalances began, the share that outlasted them. Rebalances
  that the log does not see the end of are left out.
* A heartbeat is **late** by the time from when the coordinator expected it, an interval after the one before, until it
  was sent; one that was sent early is late by 0. Joins and leaves have no expected time. Clients' logs only.
* A **commit** is *done* or *failed* as its client heard, and *accepted* or *refused* as the coordinator decided; a
  client's failure is often the coordinator's refusal, seen from the other side.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from kip848_client.common.plain_text import counted
from kip848_client.tools.report.timeline.lanes import AT_REST, JOINS_NOT_SEEN
from kip848_client.tools.report.timeline.outages import Outage, empty_spans, outages_of
from kip848_client.tools.report.timeline.timeline import CommitKey, PartitionLane, Span, Timeline
from kip848_client.tools.report.timeline.unread import Bound

Rests: TypeAlias = Literal["exact", "at most", "at least"]
"""What a duration says: at most and at least are bounds."""

OUT_MS_MIN: Final = 1_000.0
"""Shorter times without any member are no outage."""


class Percentiles(msgspec.Struct, frozen=True):
    """Nearest-rank percentiles of durations in milliseconds; all None if there were none."""

    count: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Rebalance(msgspec.Struct, frozen=True):
    """One rebalance. `end_ms` is None if the log ends first.

    Args:
        moved: partitions that left for another member while it lasted.
        without_reader_ms: of partitions that left their owner while it lasted.
    """

    start_ms: float
    end_ms: float | None
    first_epoch: int
    last_epoch: int
    reasons: Sequence[str]
    moved: int = 0
    without_reader_ms: float = 0.0

    @property
    def ms(self) -> float | None:
        """How long it lasted; at least, if `at_least`."""
        return None if self.end_ms is None else self.end_ms - self.start_ms

    @property
    def at_least(self) -> bool:
        """Whether it began earlier than the log says: that of a classic group has no record of its join phase."""
        return self.reasons[:1] == [JOINS_NOT_SEEN]


class Handover(msgspec.Struct, frozen=True):
    """A partition that left its owner for the next one, which may be the same member again.

    Args:
        gap_ms: how long it was without a reader; None if a member without a log had it meanwhile.
        rests: whether `gap_ms` is exact, or a bound: "at most" rests on the commits of both owners.
        since_ms: when that time begins.
        got_ms: when the next owner is counted from; None if it wrote a log itself.
        waited: how many records waited meanwhile, at least; 0 if commits do not say so.
        is_outage: the whole group had no members for most of that time.
        least_ms: how long nobody was counted as the owner; None if `gap_ms` is None.
        most_ms: until the commit of the next owner that shows that it reads; None if no commit says so.
        idle_ms: how long no commit had moved it before its owner gave it up, if that is unusual and records waited.
    """

    partition: str
    left_ms: float
    before: str
    after: str
    gap_ms: float | None
    rests: Rests = "exact"
    since_ms: float = 0.0
    got_ms: float | None = None
    waited: int = 0
    is_outage: bool = False
    idle_ms: float | None = None
    least_ms: float | None = None
    most_ms: float | None = None

    @property
    def moved(self) -> bool:
        """Whether the next owner is another member."""
        return self.before != self.after


class CommitFigures(msgspec.Struct, frozen=True):
    """How many commits ended how, and how often for which reason."""

    done: int
    failed: int
    accepted: int
    refused: int
    errors: Mapping[str, int]


class MemberFigures(msgspec.Struct, frozen=True):
    """The figures of one member.

    Args:
        heartbeats: sent, joins and leaves included.
        revoked: how long it took to give partitions up when the coordinator told it to, or until it left.
        gained: partitions that came from another member.
        given: partitions that went to another member.
        returned: partitions that came back to it without another owner in between.
        owned_ms: sum over its partitions.
        host: the address of its client.
        since_ms: when the log first has it.
    """

    member: str
    heartbeats: int
    late: Percentiles
    revoked: Percentiles
    commits: CommitFigures
    gained: int
    given: int
    returned: int
    owned_ms: float
    host: str = ""
    since_ms: float = 0.0


class Figures(msgspec.Struct, frozen=True):
    """All figures of one group.

    Args:
        bounds: how many of the times without a reader are bounds: "at most", "at least".
        empty_ms: how long the group had no members and nothing is known to have waited; partitions are not counted as
            without a reader then.
        notes: sentences about what the log does not show.
    """

    group_id: str
    log_ms: float
    members: int
    partitions: int
    rebalances: Sequence[Rebalance]
    rebalance: Percentiles
    change: Percentiles
    without_reader: Percentiles
    without_reader_by_partition_ms: Mapping[str, float]
    moves: int
    bounces: int
    stayed: float | None
    two_readers: Sequence[str]
    listener_calls: Mapping[str, Percentiles]
    heartbeats: int
    late: Percentiles
    commits: CommitFigures
    marks: Mapping[str, int]
    by_member: Sequence[MemberFigures]
    bounds: Mapping[str, int] = {}
    empty_ms: float = 0.0
    notes: Sequence[str] = ()

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        return plain


def figures_of(timeline: Timeline) -> Figures:
    """Compute the figures of a timeline."""
    owned = owners_of(timeline)
    handovers = _handovers(timeline, owned)
    rebalances = _with_costs(_rebalances(timeline), handovers)
    moves = sum(each.moved for each in handovers)
    gaps: dict[str, list[float]] = {lane.partition: [] for lane in timeline.partitions}
    for handover in handovers:
        if handover.gap_ms is not None:
            gaps[handover.partition].append(handover.gap_ms)
    counts = timeline.counts
    return Figures(
        group_id=timeline.group_id,
        log_ms=timeline.end_ms - timeline.start_ms,
        members=len(timeline.members),
        partitions=len(timeline.partitions),
        rebalances=rebalances,
        rebalance=percentiles(each.ms for each in rebalances if each.ms is not None),
        change=percentiles(c.end_ms - c.start_ms for c in timeline.changes if c.end_ms is not None),
        without_reader=percentiles(gap for times in gaps.values() for gap in times if gap > 0),
        without_reader_by_partition_ms={partition: sum(times) for partition, times in gaps.items()},
        moves=moves,
        bounces=len(handovers) - moves,
        stayed=_stayed(rebalances, owned.values()),
        two_readers=[lane.partition for lane in timeline.partitions if _overlap(lane.read)],
        listener_calls={name: percentiles(times) for name, times in sorted(counts.called_ms.items())},
        heartbeats=counts.heartbeats.total(),
        late=percentiles(itertools.chain.from_iterable(counts.late_ms.values())),
        commits=_commits(counts.commits),
        marks=dict(sorted(counts.marks.items())),
        by_member=_by_member(timeline, owned.values(), handovers),
        bounds=Counter(each.rests for each in handovers if each.gap_ms and each.rests != "exact"),
        empty_ms=_quiet_ms(timeline),
        notes=_notes(timeline, handovers),
    )


def owners_of(timeline: Timeline) -> dict[str, Sequence[Span]]:
    """The periods in which each partition had an owner.

    If an owner kept a partition and stopped reading it for a while, its period is cut in two there.
    """
    cuts: defaultdict[str, list[float]] = defaultdict(list)
    for bound in timeline.bounds:
        if bound.kept:
            cuts[bound.partition].append(bound.left_ms)
    return {
        lane.partition: _cut(_owners(lane, timeline.writers), cuts.get(lane.partition, ()), timeline.writers)
        for lane in timeline.partitions
    }


def _cut(spans: Sequence[Span], cuts: Sequence[float], writers: Collection[str]) -> Sequence[Span]:
    if not cuts:
        return spans
    parts = []
    for span in spans:
        begin_ms = span.start_ms
        for cut_ms in cuts:
            if begin_ms < cut_ms < span.end_ms and span.text not in writers:
                parts.append(Span(begin_ms, cut_ms, span.text))
                begin_ms = cut_ms
        parts.append(Span(begin_ms, span.end_ms, span.text))
    return parts


def handovers_of(timeline: Timeline) -> list[Handover]:
    """Every change of owner, by partition and in order of time."""
    return _handovers(timeline, owners_of(timeline))


def _handovers(timeline: Timeline, owned: Mapping[str, Sequence[Span]]) -> list[Handover]:
    elsewhere = _with_others(timeline, owned)
    bounds = {(each.partition, each.left_ms): each for each in timeline.bounds}
    empty, outages = empty_spans(timeline), outages_of(timeline)
    found = []
    for partition, owners in owned.items():
        for before, after in itertools.pairwise(owners):
            place = partition, before.end_ms
            got_ms = None if after.text in timeline.writers else after.start_ms
            each = Handover(
                partition, before.end_ms, before.text, after.text, None, since_ms=before.end_ms, got_ms=got_ms
            )
            if place not in elsewhere:
                bound = None if before.text in timeline.writers else bounds.get(place)
                each = _measured(each, after.start_ms, bound, empty, outages)
            found.append(each)
    return found


def _measured(
    each: Handover, got_ms: float, bound: Bound | None, empty: Sequence[Span], outages: Sequence[Outage]
) -> Handover:
    """A handover with its times.

    Args:
        got_ms: when the next owner is counted from.
        bound: what commits say; None if there are none, or if the owner before wrote a log itself.
    """
    start_ms, end_ms = each.left_ms, got_ms
    rests: Rests = "exact"
    if bound is not None and (bound.shows_a_gap or not bound.seen):
        rests = "at least"
        if bound.since_ms is not None and bound.until_ms is not None:
            start_ms, end_ms, rests = bound.since_ms, bound.until_ms, "at most"
    first = bisect.bisect_right(outages, start_ms, key=lambda out: out.end_ms)
    last = bisect.bisect_left(outages, end_ms, key=lambda out: out.start_ms)
    outages = [out for out in outages[first:last] if each.partition in out.waited]

    def unread(since_ms: float, until_ms: float) -> float:
        """Time in which there was a member, or records waited for one."""
        out = sum(max(0.0, min(one.end_ms, until_ms) - max(one.start_ms, since_ms)) for one in outages)
        return _with_members(empty, since_ms, until_ms) + out

    gap_ms = unread(start_ms, end_ms)
    out_ms = sum(one.ms for one in outages)
    most_ms = None
    if rests == "at most":
        most_ms = gap_ms
    elif rests == "exact" and bound is not None and bound.had_records and (bound.until_ms or 0.0) >= end_ms:
        most_ms = unread(start_ms, bound.until_ms or 0.0)  # it is counted, and does not read yet
    return replace(
        each,
        gap_ms=gap_ms,
        rests=rests,
        since_ms=start_ms,
        least_ms=unread(each.left_ms, got_ms),
        most_ms=most_ms,
        waited=0 if bound is None else bound.waited(got_ms, unread_ms=got_ms - each.left_ms),
        is_outage=out_ms >= max(OUT_MS_MIN, gap_ms / 2),
        idle_ms=None if bound is None else bound.idle_ms,
    )


def _quiet_ms(timeline: Timeline) -> float:
    """How long the group had no members, and nothing is known to have waited."""
    empty = sum(span.end_ms - span.start_ms for span in empty_spans(timeline))
    return empty - sum(each.ms for each in outages_of(timeline))


def _with_members(empty: Sequence[Span], start_ms: float, end_ms: float) -> float:
    """How much of a period the group had members."""
    without = 0.0
    index = bisect.bisect_right(empty, start_ms, key=lambda each: each.end_ms)
    while index < len(empty) and empty[index].start_ms < end_ms:
        without += min(empty[index].end_ms, end_ms) - max(empty[index].start_ms, start_ms)
        index += 1
    return max(0.0, end_ms - start_ms - without)


def _with_others(timeline: Timeline, owned: Mapping[str, Sequence[Span]]) -> set[tuple[str, float]]:
    """False gaps, as (partition, begin): all members with logs were stable, so a member without a log owned it."""
    if timeline.coordinated:
        return set()
    rests = [span for span in timeline.states if span.text == "Stable"]
    return {
        (partition, before.end_ms)
        for partition, owners in owned.items()
        for before, after in itertools.pairwise(owners)
        if any(before.end_ms < rest.end_ms and rest.start_ms < after.start_ms for rest in rests)
    }


def _notes(timeline: Timeline, handovers: Iterable[Handover]) -> list[str]:
    notes = []
    if timeline.backwards_ms:
        notes.append(
            f"the log's times run backwards, by up to {timeline.backwards_ms / 1000:,.1f} s: who owned what then, "
            "and for how long, is not certain. A log of an older groups record --from now does that: record it again"
        )
    if timeline.coordinated:
        return notes
    notes += [
        "there is no coordinator's log (kip848 groups record writes one): epochs and rebalances are those that members "
        "saw, with the delay of their heartbeats"
    ]
    count = len({each.partition for each in handovers if each.gap_ms is None})
    if count:
        notes.append(f"for some time owned by members without logs, or free: {counted(count, 'partition')}")
    return notes


def _by_member(
    timeline: Timeline, owned: Iterable[Sequence[Span]], handovers: Iterable[Handover]
) -> list[MemberFigures]:
    gained: Counter[str] = Counter()
    given: Counter[str] = Counter()
    returned: Counter[str] = Counter()
    for handover in handovers:
        if handover.moved:
            gained[handover.after] += 1
            given[handover.before] += 1
        else:
            returned[handover.after] += 1
    owned_ms: defaultdict[str, float] = defaultdict(float)
    for span in itertools.chain.from_iterable(owned):
        owned_ms[span.text] += span.end_ms - span.start_ms
    commits: dict[str, dict[CommitKey, int]] = {}
    for key, count in timeline.counts.commits.items():
        commits.setdefault(key.who, {})[key] = count
    return [
        MemberFigures(
            member=lane.member,
            heartbeats=timeline.counts.heartbeats[lane.member],
            late=percentiles(timeline.counts.late_ms.get(lane.member, ())),
            revoked=percentiles(timeline.counts.revoked_ms.get(lane.member, ())),
            commits=_commits(commits.get(lane.member, {})),
            gained=gained[lane.member],
            given=given[lane.member],
            returned=returned[lane.member],
            owned_ms=owned_ms[lane.member],
            host=lane.host,
            since_ms=lane.since_ms,
        )
        for lane in timeline.members
    ]


def _commits(counted: Mapping[CommitKey, int]) -> CommitFigures:
    ends: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for key, count in counted.items():
        ends[key.end] += count
        if key.error:
            errors[key.error] += count
    return CommitFigures(
        done=ends["done"],
        failed=ends["failed"],
        accepted=ends["accepted"],
        refused=ends["refused"],
        errors=dict(sorted(errors.items())),
    )


def _stayed(rebalances: Iterable[Rebalance], owned: Iterable[Sequence[Span]]) -> float | None:
    periods = [(r.start_ms, r.end_ms) for r in rebalances if r.end_ms is not None]
    begins = [start_ms for start_ms, _ in periods]
    chances = ended = 0
    for span in itertools.chain.from_iterable(owned):
        # What starts or ends in the millisecond in which a rebalance begins does so in its first decision.
        chances += max(0, bisect.bisect_left(begins, span.end_ms) - bisect.bisect_right(begins, span.start_ms))
        last = bisect.bisect_left(begins, span.end_ms) - 1
        ended += last >= 0 and span.start_ms < periods[last][0] and span.end_ms <= periods[last][1]
    return 1 - ended / chances if chances else None


def percentiles(durations_ms: Iterable[float]) -> Percentiles:
    """Nearest rank, so that each figure is one that was seen."""
    ordered = sorted(durations_ms)
    if not ordered:
        return Percentiles(0, None, None, None, None)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(len(ordered), rank(0.5), rank(0.9), rank(0.99), ordered[-1])


def _rebalances(timeline: Timeline) -> list[Rebalance]:
    rests = [span.start_ms for span in timeline.states if span.text in AT_REST]
    found: list[Rebalance] = []
    open_: list[tuple[float, int, str]] = []
    bumps = deque(timeline.epochs)
    for rest in [*rests, None]:
        # Of bumps in the very millisecond of the rest the first one led to it; the others begin the next rebalance.
        while bumps and (rest is None or bumps[0][0] < rest or (bumps[0][0] == rest and not open_)):
            open_.append(bumps.popleft())
        if open_:
            found.append(
                Rebalance(
                    start_ms=open_[0][0],
                    end_ms=rest,
                    first_epoch=open_[0][1],
                    last_epoch=open_[-1][1],
                    reasons=[reason for _, _, reason in open_],
                )
            )
            open_ = []
    return found


def _with_costs(rebalances: Iterable[Rebalance], handovers: Iterable[Handover]) -> list[Rebalance]:
    ordered = sorted(handovers, key=lambda each: each.left_ms)
    found = []
    for each in rebalances:
        first = bisect.bisect_left(ordered, each.start_ms, key=lambda handover: handover.left_ms)
        last = len(ordered)
        if each.end_ms is not None:
            last = bisect.bisect_right(ordered, each.end_ms, key=lambda handover: handover.left_ms)
        left = ordered[first:last]
        found.append(
            msgspec.structs.replace(
                each,
                moved=sum(handover.moved for handover in left),
                without_reader_ms=sum(handover.gap_ms or 0.0 for handover in left),
            )
        )
    return found


def _owners(lane: PartitionLane, writers: Collection[str]) -> Sequence[Span]:
    """Spans of reading for members that wrote logs, and of owning for the others."""
    if not lane.read:
        return lane.held
    held = [span for span in lane.held if span.text not in writers]
    return sorted([*lane.read, *held], key=lambda span: (span.start_ms, span.end_ms, span.text)) if held else lane.read


def _overlap(spans: Sequence[Span]) -> bool:
    """Whether spans of different owners overlap."""
    last: Span | None = None
    for span in spans:
        if last is not None and span.start_ms < last.end_ms and span.text != last.text:
            return True
        if last is None or span.end_ms > last.end_ms:
            last = span
    return False
