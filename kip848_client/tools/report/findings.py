"""What went wrong in a group, worst first: stand-stills with cause and culprit, flapping, members that do not let go.

Each finding is a sentence about a moment, which pictures can be opened at. It says what the log shows, and whether that
is a bound. A cause that the log does not show is not guessed: the sentence ends without it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from kip848_client.common.plain_text import counted
from kip848_client.tools.report.causes import MOVE_MS, STOPPED_MS, WENT, Cause, DepartureStory, between, cause_of
from kip848_client.tools.report.figures import (
    OUT_MS_MIN,
    Figures,
    Handover,
    Rebalance,
    Rests,
    figures_of,
    handovers_of,
    owners_of,
)
from kip848_client.tools.report.timeline.lanes import natural
from kip848_client.tools.report.timeline.lives import Departure
from kip848_client.tools.report.timeline.outages import joined, outages_of
from kip848_client.tools.report.timeline.pauses import Pauses, pauses_together
from kip848_client.tools.report.timeline.timeline import Timeline
from kip848_client.tools.report.wording import NAMED, clock, duration, named

Kind: TypeAlias = Literal[
    "all groups", "outage", "held back", "no reader", "stand-still", "died", "no members", "never acknowledged",
    "flapping", "many rebalances", "slow revocation", "static expired", "switch", "deploy",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]
"""From the worst to the least."""

STILL_MS: Final = 1_000.0
"""Shorter times without a reader are no stand-still."""
_RANGE_MS: Final = 100.0
"""Ends of a range that are nearer to each other, or to 0, are not told."""
SLOW_MS: Final = 5_000.0
"""A member that needs longer to give partitions up is slow."""
FLAPS: Final = 3
"""A client that went so often within an hour, for each of its members, is flapping."""
FLAPS_A_DAY: Final = 6
MANY_AN_HOUR: Final = 10
WHICH_MAX: Final = 100
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_AGAIN_MS: Final = 600_000.0
_OneT = TypeVar("_OneT")


class Finding(msgspec.Struct, frozen=True):
    """One thing that went wrong.

    Args:
        ms: how long; None if it has no length.
        rests: whether `ms` is exact or a bound.
        least_ms, most_ms: what it was between; None if the log does not say.
        records: how many waited, at least; 0 if commits do not say so.
        partitions: how many it concerned; 0 where that says nothing.
        why: cause, if the log shows one: ``died``, ``hung``, ``left``, ``late poll``, ``restart``, ``deploy``,
            ``coordinator moved``, ``slow revocation`` or the reason of the epoch; otherwise empty.
        who: client ids with their hosts.
        text: all of it, as a sentence.
        which: the names of these partitions, at most `WHICH_MAX` of them.
    """

    kind: Kind
    group_id: str
    start_ms: float
    ms: float | None
    rests: Rests
    partitions: int
    why: str
    who: Sequence[str]
    text: str
    which: Sequence[str] = ()
    least_ms: float | None = None
    most_ms: float | None = None
    records: int = 0

    @property
    def badness(self) -> tuple[int, float]:
        """Sort key: the worst comes first."""
        kind: Kind = self.kind
        if kind == "outage" and (self.ms or 0.0) < STOPPED_MS:
            kind = "stand-still"  # members that were started again, all of them at once
        return KINDS.index(kind), -(self.ms or 0.0) * max(1, self.partitions)


def findings_of(
    timeline: Timeline, figures: Figures | None = None, handovers: Sequence[Handover] | None = None
) -> list[Finding]:
    """Everything that went wrong in one group, worst first.

    Args:
        figures, handovers: what `figures_of` and `handovers_of` made of it, if they were called already.
    """
    rebalances = (figures or figures_of(timeline)).rebalances
    story = DepartureStory(timeline)
    handovers = handovers_of(timeline) if handovers is None else handovers
    still = [*_outages(timeline, story, handovers), *_stand_stills(timeline, story, rebalances, handovers)]
    return worst_first(
        [
            *_held_back(timeline),
            *_without_owner(timeline),
            *still,
            *_deaths(timeline, still),
            *_without_members(timeline, story),
            *_revocations(timeline),
            *_flapping(timeline, story),
            *_many(timeline, story, rebalances),
            *_expired(timeline),
            *_moves(timeline, still),
            *_deploys(timeline, story, still),
            *(
                Finding("switch", timeline.group_id, each.at_ms, None, "exact", 0, "", (), each.text)
                for each in timeline.lives.switches
            ),
        ]
    )


def findings_of_all(timelines: Sequence[Timeline]) -> list[Finding]:
    """Everything that went wrong in these groups, and in many of them at once, worst first."""
    found = [each for timeline in timelines for each in findings_of(timeline)]
    return worst_first([*all_at_once({each.group_id: each.pauses for each in timelines}), *found])


def all_at_once(pauses: Mapping[str, Pauses]) -> Iterator[Finding]:
    """Times in which most groups committed nothing: what they share is the first question."""
    for together in pauses_together(pauses):
        ms = together.end_ms - together.start_ms
        if ms < STILL_MS:
            continue
        yield Finding(
            kind="all groups",
            group_id=together.group_ids[0],
            start_ms=together.start_ms,
            ms=ms,
            rests="at least",
            partitions=0,
            why="",
            who=(),
            text=f"{len(together.group_ids):,} of {counted(together.groups, 'group')} that commit stopped at once, and "
            f"none committed for at least {duration(ms)} while records waited ({named(together.group_ids)}): look "
            "first at what they share, such as brokers, network, machines or a database",
        )


def at_rest(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> list[str]:
    """Say what is not wrong, in sentences: groups without findings, and partitions at the end of the log."""
    bad = {each.group_id for each in findings}
    good = [timeline.group_id for timeline in timelines if timeline.group_id not in bad]
    told = (
        [f"nothing went wrong in {len(good):,} of {counted(len(timelines), 'group')}: {named(good)}"]
        if good and bad
        else []
    )
    coordinated = [each for each in timelines if each.coordinated]
    if coordinated and all(each.kind != "no reader" for each in findings):
        told.append("at the end of the log every partition of a group with members had a counted owner")
    empty = [each.group_id for each in coordinated if _last_state(each) == "Empty"]
    if empty:
        told.append(f"{counted(len(empty), 'group')} had no members then: {named(empty)}")
    return told


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings of several groups."""
    return sorted(findings, key=lambda each: (each.badness, each.start_ms, each.group_id))


# --- stand-stills


def _outages(timeline: Timeline, story: DepartureStory, handovers: Sequence[Handover]) -> Iterator[Finding]:
    """The whole group had no members while records waited for them."""
    for out in joined(outages_of(timeline)):
        over = [
            each
            for each in handovers
            if each.is_outage and each.left_ms <= out.start_ms and each.since_ms + (each.gap_ms or 0.0) >= out.end_ms
        ]
        if out.ms < OUT_MS_MIN or not over:
            continue  # most of it was before: a member died, and the group had no other one for a moment
        which = sorted(out.waited, key=natural)
        cause = _how_they_went(story, out.start_ms)
        if cause.why == "deploy":
            cause = cause._replace(text=f"all were stopped, and started again: {named(cause.who)}")
        elif cause.why == "restart" and len(cause.who) == 1:
            cause = cause._replace(text=f"its last member was stopped, and started again: {cause.who[0]}")
        unread_ms = max(each.gap_ms or 0.0 for each in over)
        longer = unread_ms - out.ms >= STILL_MS
        shortly = f" (but for {counted(out.times - 1, 'short time')}, in which members read nothing)"
        yield Finding(
            kind="outage",
            group_id=timeline.group_id,
            start_ms=out.start_ms,
            ms=out.ms,
            rests="exact",
            partitions=len(which),
            why=cause.why,
            who=cause.who,
            text=f"the group had no member for {duration(out.ms)}{shortly if out.times > 1 else ''}, and at least "
            f"{counted(sum(out.waited.values()), 'record')} waited in {len(which):,} of "
            f"{counted(len(timeline.partitions), 'partition')}; back at {clock(out.end_ms)}"
            + (f", and a partition was unread for {duration(unread_ms)}" if longer else "")
            + (f"; before: {cause.text}" if cause.text else ""),
            which=which[:WHICH_MAX],
            least_ms=out.ms,
            most_ms=max(out.ms, unread_ms),
            records=sum(out.waited.values()),
        )


def _stand_stills(
    timeline: Timeline, story: DepartureStory, rebalances: Sequence[Rebalance], handovers: Sequence[Handover]
) -> Iterator[Finding]:
    long = [each for each in handovers if each.gap_ms is not None and each.gap_ms >= STILL_MS and not each.is_outage]
    for together in _overlapping(long):
        longest = max(together, key=lambda each: each.gap_ms or 0.0)
        which = sorted({each.partition for each in together}, key=natural)
        partitions, all_of_them = len(which), len(timeline.partitions)
        names = "" if partitions == all_of_them else f" ({named(which)})"
        cause = cause_of(story, together, rebalances)
        records = sum(each.waited for each in together)
        first_ms, until_ms = together[0].since_ms, max(each.since_ms + (each.gap_ms or 0.0) for each in together)
        is_row = until_ms - first_ms >= 2 * (longest.gap_ms or 0.0)
        yield Finding(
            kind="stand-still",
            group_id=timeline.group_id,
            start_ms=longest.since_ms,
            ms=longest.gap_ms,
            rests=longest.rests,
            partitions=partitions,
            why=cause.why,
            who=cause.who,
            text=f"{partitions} of {counted(all_of_them, 'partition')}{names} had no reader for "
            f"{_how_long(longest)}"
            + (f" each, in turn from {clock(first_ms)} to {clock(until_ms)}" if is_row else "")
            + (f", while at least {counted(records, 'record')} waited" if records else "")
            + (f": {cause.text}" if cause.text else "")
            + ("" if story.was_dead(longest.after, longest.got_ms) else _late_start(longest)),
            which=which[:WHICH_MAX],
            least_ms=longest.least_ms,
            most_ms=longest.most_ms,
            records=records,
        )


def _how_long(each: Handover) -> str:
    """A range where both ends are known."""
    least_ms, most_ms = each.least_ms or 0.0, each.most_ms or 0.0
    if least_ms >= _RANGE_MS and most_ms - least_ms >= _RANGE_MS:
        return f"between {duration(least_ms)} and {duration(most_ms)}"
    return f"{'' if each.rests == 'exact' else f'{each.rests} '}{duration(each.gap_ms or 0.0)}"


def _late_start(each: Handover) -> str:
    """What the next owner needed until it read; in a log of the coordinator, until it committed."""
    if each.got_ms is None or each.gap_ms is None:
        return ""
    waited_ms = each.since_ms + each.gap_ms - each.got_ms
    if waited_ms < STILL_MS or waited_ms < each.gap_ms / 2:
        return ""
    return f"; {each.after} had them for {duration(waited_ms)} before it committed anything new"


def _deaths(timeline: Timeline, still: Sequence[Finding]) -> Iterator[Finding]:
    """Members whose session ended, and whose partitions stood still for a time that the log does not show."""
    for gone in timeline.lives.departures:
        if gone.reason != "session_timeout" or not gone.partitions:
            continue
        if any(gone.client in each.who and each.start_ms <= gone.at_ms + MOVE_MS for each in still):
            continue
        partitions = counted(gone.partitions, "partition")
        yield Finding(
            kind="died",
            group_id=timeline.group_id,
            start_ms=gone.at_ms,
            ms=None,
            rests="exact",
            partitions=gone.partitions,
            why="died",
            who=(gone.client,),
            text=f"{gone.client} died or lost its connection: its session ended, and until then {partitions} had no "
            "reader, for up to the length of the session",
        )


def _overlapping(handovers: Iterable[Handover]) -> Iterator[list[Handover]]:
    """Handovers that were under way at the same time."""
    together: list[Handover] = []
    until_ms = 0.0
    for each in sorted(handovers, key=lambda each: each.since_ms):
        if together and each.since_ms >= until_ms:
            yield together
            together = []
        until_ms = max(until_ms, each.since_ms + (each.gap_ms or 0.0))
        together.append(each)
    if together:
        yield together


# --- members


def _held_back(timeline: Timeline) -> Iterator[Finding]:
    """Partitions in which an open transaction holds readers of committed records back now."""
    if timeline.held:
        begin_ms = min(timeline.held.values())
        which = sorted(timeline.held, key=natural)
        ms = max(0.0, timeline.end_ms - begin_ms)
        yield Finding(
            kind="held back",
            group_id=timeline.group_id,
            start_ms=begin_ms,
            ms=ms,
            rests="at least",
            partitions=len(which),
            why="open transaction",
            who=(),
            text=f"an open transaction holds readers of committed records back in {counted(len(which), 'partition')} "
            f"({named(which)}), for at least {duration(ms)}: kip848 transactions list shows whose it is",
            which=which[:WHICH_MAX],
        )


def _without_owner(timeline: Timeline) -> Iterator[Finding]:
    """Partitions that no member has at the end of the log."""
    if not timeline.coordinated or _last_state(timeline) in {"Empty", "Dead", ""}:
        return
    since: dict[str, float] = {}
    owned = owners_of(timeline)
    for partition in timeline.lives.target or ():
        spans = owned.get(partition, ())
        end_ms = max((span.end_ms for span in spans), default=timeline.start_ms)
        if timeline.end_ms - end_ms >= STILL_MS:
            since[partition] = end_ms
    if since:
        begin_ms = min(since.values())
        yield Finding(
            kind="no reader",
            group_id=timeline.group_id,
            start_ms=begin_ms,
            ms=timeline.end_ms - begin_ms,
            rests="at least",
            partitions=len(since),
            why="",
            who=(),
            text=f"{counted(len(since), 'partition')} had no owner at the end of the log, for at least "
            f"{duration(timeline.end_ms - begin_ms)}: {named(sorted(since, key=natural))}",
            which=sorted(since, key=natural)[:WHICH_MAX],
        )


def _without_members(timeline: Timeline, story: DepartureStory) -> Iterator[Finding]:
    """A group that all members have left, by the end of the log: it was stopped, or something stopped it."""
    if not timeline.coordinated or _last_state(timeline) != "Empty" or not story.departures:
        return
    last = story.departures[-1]
    ms = timeline.end_ms - last.at_ms
    if ms >= STOPPED_MS:
        cause = _how_they_went(story, last.at_ms)
        text = f"the group had no members at the end of the log, for {duration(ms)}; before: {cause.text}"
        yield Finding("no members", timeline.group_id, last.at_ms, ms, "at least", 0, cause.why, cause.who, text)


def how_it_ended(timeline: Timeline) -> tuple[float, Cause] | None:
    """When and why the last members of a group went; None if it has some, or had none."""
    if not timeline.coordinated or _last_state(timeline) != "Empty" or not timeline.lives.departures:
        return None
    story = DepartureStory(timeline)
    at_ms = story.departures[-1].at_ms
    return at_ms, _how_they_went(story, at_ms)


def _how_they_went(story: DepartureStory, until_ms: float) -> Cause:
    """Why the last members of a group went, which it had until then."""
    stop = story.stop_before(until_ms)
    return story.cause_of(stop) if stop else Cause("", (), "")


def _last_state(timeline: Timeline) -> str:
    return timeline.states[-1].text if timeline.states else ""


def _revocations(timeline: Timeline) -> Iterator[Finding]:
    """Members that were told to give partitions up, and did not, or took long."""
    for each in timeline.lives.revocations:
        if each.end == "done" and each.ms >= SLOW_MS:
            text = f"{each.client} took {duration(each.ms)} to give partitions up"
            yield _of_member("slow revocation", timeline, each.start_ms, each.ms, each.client, text)
        elif each.ms >= SLOW_MS:
            when = "at the end of the log" if each.end == "open" else "when it went"
            text = f"{each.client} had not given up partitions {when}, {duration(each.ms)} after it was told to"
            yield _of_member("never acknowledged", timeline, each.start_ms, each.ms, each.client, text)


def _of_member(kind: Kind, timeline: Timeline, start_ms: float, ms: float | None, name: str, text: str) -> Finding:
    return Finding(kind, timeline.group_id, start_ms, ms, "exact", 0, kind, (name,), text)


def _flapping(timeline: Timeline, story: DepartureStory) -> Iterator[Finding]:
    """Clients that go and join again and again: within an hour, or less often within a day. Deploys do not count."""
    joined: defaultdict[str, list[float]] = defaultdict(list)
    ends: defaultdict[str, list[float]] = defaultdict(list)
    left: defaultdict[str, list[Departure]] = defaultdict(list)
    for arrival in story.arrivals:
        joined[arrival.client].append(arrival.at_ms)
    for departure in story.departures:
        ends[departure.client].append(story.died_ms(departure))
        if not story.is_deploy(departure):
            left[departure.client].append(departure)
    for client, departures in left.items():
        times = joined[client]
        at_once = _at_once(times, ends[client])
        if len(times) <= at_once:
            continue
        for went, stayed in _restless(story, client, departures, at_once):
            causes = Counter(why for each in went if (why := story.why(each).why))
            told = ", ".join(f"{count:,} {WENT.get(why, why)}" for why, count in causes.most_common())
            start_ms, ms = went[0].at_ms, went[-1].at_ms - went[0].at_ms
            again = len(between(times, start_ms, went[-1].at_ms + _AGAIN_MS, key=float))
            text = f"{client} went {len(went):,} times in {duration(ms)}, and joined again {again:,} times"
            if stayed:
                text += f" (beside {counted(stayed, 'member')} with the same client id and host, which stayed)"
            finding = _of_member("flapping", timeline, start_ms, ms, client, text + (f": {told}" if told else ""))
            yield msgspec.structs.replace(finding, why=causes.most_common(1)[0][0] if causes else "")


def _restless(
    story: DepartureStory, client: str, departures: Sequence[Departure], at_once: int
) -> Iterator[tuple[Sequence[Departure], int]]:
    """The times in which a client went too often, an hour apart, and how many of its members stayed meanwhile.

    Args:
        at_once: how many members of it there were.
    """

    def stayed_beside(went: Sequence[Departure]) -> int:
        return _stayed(story, client, went[0].at_ms, went[-1].at_ms)

    def is_restless(went: Sequence[Departure], least: int) -> bool:
        return len(went) >= least * max(1, at_once - stayed_beside(went))

    pauses = enumerate(itertools.pairwise(departures), start=1)
    ends = [index for index, (one, following) in pauses if following.at_ms - one.at_ms > _HOUR_MS]
    apart = [departures[start:end] for start, end in itertools.pairwise([0, *ends, len(departures)])]
    of_hours = [several for several in apart if is_restless(_densest(several, _HOUR_MS, key=_at_ms), FLAPS)]
    of_a_day = _densest(departures, _DAY_MS, key=_at_ms)
    for went in of_hours or [each for each in [of_a_day] if is_restless(each, FLAPS_A_DAY)]:
        yield went, stayed_beside(went)


def _at_ms(each: Departure) -> float:
    return each.at_ms


def _stayed(story: DepartureStory, client: str, start_ms: float, end_ms: float) -> int:
    """How many members of one client id were there all the time."""
    stayed = {each.who for each in story.arrivals if each.client == client and each.at_ms <= start_ms}
    return len(stayed - {each.who for each in story.departures if each.at_ms <= end_ms})


def _at_once(joined: Sequence[float], left: Sequence[float]) -> int:
    """How many members of one client id there were at the same time."""
    steps = sorted([*((at_ms, 1) for at_ms in joined), *((at_ms, -1) for at_ms in left)])
    return max(1, *itertools.accumulate(step for _, step in steps))


def _densest(ordered: Sequence[_OneT], within_ms: float, *, key: Callable[[_OneT], float]) -> Sequence[_OneT]:
    """The most of them that are within a period of this length; the first such period."""
    most: Sequence[_OneT] = ()
    first = 0
    for index, each in enumerate(ordered):
        while key(ordered[first]) < key(each) - within_ms:
            first += 1
        if index + 1 - first > len(most):
            most = ordered[first : index + 1]
    return most


def _many(timeline: Timeline, story: DepartureStory, rebalances: Sequence[Rebalance]) -> Iterator[Finding]:
    """When a group rebalanced too often, why, and who came and went most often then."""
    for many in _too_often(rebalances):
        causes = ", ".join(f"{why} {counted(count, 'time')}" for why, count in _causes(many).items())
        start_ms, end_ms = many[0].start_ms, many[-1].start_ms
        text = f"{len(many):,} rebalances within {duration(end_ms - start_ms)}: {causes}"
        came = [each.client for each in between(story.arrivals, start_ms, end_ms, key=lambda each: each.at_ms)]
        gone = between(story.departures, start_ms, end_ms, key=lambda each: each.at_ms)
        why = ""
        who: Sequence[str] = ()
        if gone and 2 * sum(map(story.is_deploy, gone)) > len(gone):
            why, text = "deploy", f"{text}; most members that went were started again"
        elif times := Counter([*came, *(each.client for each in gone)]):
            (client, count) = times.most_common(1)[0]
            if 2 * count >= times.total():
                who, text = (client,), f"{text}; {client} came or went {count:,} of {times.total():,} times"
        yield Finding("many rebalances", timeline.group_id, start_ms, end_ms - start_ms, "exact", 0, why, who, text)


def _too_often(rebalances: Sequence[Rebalance]) -> Iterator[Sequence[Rebalance]]:
    """The longest times in which there were always `MANY_AN_HOUR` within an hour."""
    first, until = 0, 0
    for end in range(MANY_AN_HOUR, len(rebalances) + 1):
        start = end - MANY_AN_HOUR
        if rebalances[end - 1].start_ms - rebalances[start].start_ms > _HOUR_MS:
            continue
        if start >= until:
            if until:
                yield rebalances[first:until]
            first = start
        until = end
    if until:
        yield rebalances[first:until]


def _moves(timeline: Timeline, still: Sequence[Finding]) -> Iterator[Finding]:
    """The coordinator moved, and no partition stood still because of it."""
    for at_ms in timeline.lives.moves_ms:
        if not any(each.start_ms - MOVE_MS <= at_ms <= each.start_ms + (each.ms or 0.0) + MOVE_MS for each in still):
            text = "the group's coordinator moved, or was started again; nothing stood still"
            yield Finding("switch", timeline.group_id, at_ms, None, "exact", 0, "coordinator moved", (), text)


def _deploys(timeline: Timeline, story: DepartureStory, still: Sequence[Finding]) -> Iterator[Finding]:
    """When members were started again one after the other, and what that cost."""
    for restarts in story.deploys:
        times_ms = [one.at_ms for each in restarts for one in (each.gone, each.back)]
        start_ms, end_ms = min(times_ms), max(times_ms)
        first = restarts[0].gone
        outages = [each for each in still if each.kind == "outage" and each.start_ms + (each.ms or 0.0) >= start_ms]
        if any(each.start_ms <= start_ms or first in story.stop_before(each.start_ms) for each in outages):
            continue  # all were stopped at once, which the outage tells
        who = sorted({each.gone.client for each in restarts})
        cost = [
            each.ms or 0.0 for each in still if each.why == "deploy" and start_ms - MOVE_MS <= each.start_ms <= end_ms
        ]
        stood = (
            f"partitions stood still {counted(len(cost), 'time')}, for up to {duration(max(cost))}"
            if cost
            else ("nothing stood still for a second")
        )
        again = "replaced" if story.moved([each.gone for each in restarts]) else "started again"
        text = (
            f"a deploy: {counted(len(restarts), 'member')} were {again} within {duration(end_ms - start_ms)}; {stood}"
        )
        yield Finding("deploy", timeline.group_id, start_ms, end_ms - start_ms, "exact", 0, "deploy", who, text)


def _causes(rebalances: Iterable[Rebalance]) -> Mapping[str, int]:
    counts = Counter(
        (each.reasons[0] if each.reasons else "unknown").partition(" (")[0].replace("_", " ") for each in rebalances
    )
    return dict(counts.most_common(NAMED))


def _expired(timeline: Timeline) -> Iterator[Finding]:
    """Static members that stayed away for longer than their session."""
    away: dict[str, float] = {}
    for each in timeline.lives.departures:
        if each.reason == "static_leave":
            away[each.who] = each.at_ms
        if each.instance_id is None or each.reason not in {"removed", "session_timeout"}:
            continue
        since_ms = away.pop(each.who, each.at_ms - (each.silent_ms or 0.0))
        ms = each.at_ms - since_ms
        text = f"static member {each.instance_id} of {each.client} was removed"
        yield _of_member(
            "static expired",
            timeline,
            since_ms,
            ms or None,
            each.client,
            text + (f" after {duration(ms)} without it" if ms else ""),
        )
