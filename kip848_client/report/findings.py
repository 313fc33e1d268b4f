"""What went wrong in a group, worst first: stand-stills with cause and culprit, flapping, members that do not let go.

Each finding is a sentence about a moment, which pictures can be opened at. It says what the log shows, and whether that
is a bound. A cause that the log does not show is not guessed: the sentence ends without it.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from kip848_client.plain_text import counted
from kip848_client.report.figures import Figures, Handover, Rebalance, Rests, figures_of, handovers_of, owners_of
from kip848_client.report.lives import UNUSUAL_MS_MIN, Arrival, Departure
from kip848_client.report.summary import duration
from kip848_client.report.timeline import Timeline

Kind: TypeAlias = Literal[
    "no reader", "stand-still", "died", "never acknowledged", "flapping", "many rebalances", "slow revocation",
    "static expired", "switch",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = Kind.__args__  # type: ignore[attr-defined]
"""From the worst to the least."""

STILL_MS: Final = 1_000.0
"""Shorter times without a reader are no stand-still."""
SLOW_MS: Final = 5_000.0
"""A member that needs longer to give partitions up is slow."""
FLAPS: Final = 3
MANY_AN_HOUR: Final = 10
_AGAIN_MS: Final = 600_000.0
"""A client that joins within this time after its departure is back."""
_MOVE_MS: Final = 10_000.0
"""How long before a stand-still a coordinator that moved may have caused it."""
_SESSION_MS: Final = 120_000.0
"""A member that was silent for longer had nothing to commit before; few sessions are longer."""
_HOUR_MS: Final = 3_600_000
_NAMED: Final = 3
_OneT = TypeVar("_OneT")


class Finding(msgspec.Struct, frozen=True):
    """One thing that went wrong.

    Args:
        ms: how long; None if it has no length.
        rests: whether `ms` is exact or a bound.
        partitions: how many it concerned; 0 where that says nothing.
        why: cause, if the log shows one: ``died``, ``left``, ``late poll``, ``restart``, ``deploy``,
            ``coordinator moved``, ``slow revocation`` or the reason of the epoch; otherwise empty.
        who: client ids with their hosts.
        text: all of it, as a sentence.
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

    @property
    def badness(self) -> tuple[int, float]:
        """Sort key: the worst comes first."""
        return KINDS.index(self.kind), -(self.ms or 0.0) * max(1, self.partitions)


def findings_of(
    timeline: Timeline, figures: Figures | None = None, handovers: Sequence[Handover] | None = None
) -> list[Finding]:
    """Everything that went wrong in one group, worst first.

    Args:
        figures, handovers: what `figures_of` and `handovers_of` made of it, if they were called already.
    """
    rebalances = (figures or figures_of(timeline)).rebalances
    still = [*_stand_stills(timeline, rebalances, handovers_of(timeline) if handovers is None else handovers)]
    return worst_first(
        [
            *_without_owner(timeline),
            *still,
            *_deaths(timeline, still),
            *_revocations(timeline),
            *_flapping(timeline),
            *_many(timeline, rebalances),
            *_expired(timeline),
            *(
                Finding("switch", timeline.group_id, each.at_ms, None, "exact", 0, "", (), each.text)
                for each in timeline.lives.switches
            ),
        ]
    )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings of several groups."""
    return sorted(findings, key=lambda each: (each.badness, each.start_ms, each.group_id))


# --- stand-stills


class _Cause(NamedTuple):
    why: str
    who: Sequence[str]
    text: str


def _stand_stills(
    timeline: Timeline, rebalances: Sequence[Rebalance], handovers: Sequence[Handover]
) -> Iterator[Finding]:
    story = _Story(timeline)
    long = [each for each in handovers if each.gap_ms is not None and each.gap_ms >= STILL_MS]
    for together in _overlapping(long):
        longest = max(together, key=lambda each: each.gap_ms or 0.0)
        partitions = len({each.partition for each in together})
        cause = _cause(story, together, rebalances)
        rests = "" if longest.rests == "exact" else f"{longest.rests} "
        yield Finding(
            kind="stand-still",
            group_id=timeline.group_id,
            start_ms=longest.since_ms,
            ms=longest.gap_ms,
            rests=longest.rests,
            partitions=partitions,
            why=cause.why,
            who=cause.who,
            text=f"{partitions} of {counted(len(timeline.partitions), 'partition')} had no reader for "
            f"{rests}{duration(longest.gap_ms or 0.0)}" + (f": {cause.text}" if cause.text else ""),
        )


def _deaths(timeline: Timeline, still: Sequence[Finding]) -> Iterator[Finding]:
    """Members whose session ended, and whose partitions stood still for a time that the log does not show."""
    for gone in timeline.lives.departures:
        if gone.reason != "session_timeout" or not gone.partitions:
            continue
        if any(gone.client in each.who and each.start_ms <= gone.at_ms + _MOVE_MS for each in still):
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
        if together and each.since_ms > until_ms:
            yield together
            together = []
        until_ms = max(until_ms, each.since_ms + (each.gap_ms or 0.0))
        together.append(each)
    if together:
        yield together


def _cause(story: _Story, together: Sequence[Handover], rebalances: Sequence[Rebalance]) -> _Cause:
    before = {each.before for each in together}
    left_ms = {each.left_ms for each in together}
    start_ms, end_ms = min(each.since_ms for each in together), max(left_ms)
    gone = [
        each
        for each in _between(story.departures, min(left_ms), end_ms, key=_at_ms)
        if each.who in before and each.reason != "static_leave"
    ]
    until_ms = max(each.since_ms + (each.gap_ms or 0.0) for each in together)
    moved = bool(_between(story.moves_ms, start_ms - _MOVE_MS, until_ms, key=float))
    if gone:
        cause = story.cause_of(gone)
        return cause._replace(text=f"{cause.text}; the coordinator moved at that time") if moved else cause
    if moved:
        return _Cause("coordinator moved", (), "the coordinator moved, or began again")
    slow = [
        each
        for each in _between(
            story.revocations, start_ms - story.longest_revocation_ms, end_ms, key=lambda each: each.start_ms
        )
        if each.start_ms + each.ms >= start_ms
    ]
    if slow:
        slowest = max(slow, key=lambda each: each.ms)
        text = f"{slowest.client} took {duration(slowest.ms)} to give partitions up"
        return _Cause("slow revocation", (slowest.client,), text)
    index = bisect.bisect_right(rebalances, end_ms, key=lambda each: each.start_ms) - 1
    if index < 0:
        return _Cause("", (), "")
    last = rebalances[index]
    reasons = [why for why in last.reasons if not why.startswith("classic_rebalance")]
    if not reasons or (last.end_ms is not None and last.end_ms < start_ms):
        return _Cause("", (), "")
    why = reasons[0].partition(" (")[0].replace("_", " ")
    joined = [each.client for each in _between(story.arrivals, last.start_ms, end_ms, key=_at_ms)]
    return _Cause(why, joined, why + (f" ({_names(joined)})" if joined and why == "member joined" else ""))


def _between(
    ordered: Sequence[_OneT], start_ms: float, end_ms: float, *, key: Callable[[_OneT], float]
) -> Sequence[_OneT]:
    """The part of a sequence in order of time that is in a period."""
    return ordered[bisect.bisect_left(ordered, start_ms, key=key) : bisect.bisect_right(ordered, end_ms, key=key)]


class _Story:
    """The departures of one group, and what followed each; built once, since a restless group has thousands."""

    def __init__(self, timeline: Timeline) -> None:
        self.departures: Final = sorted(timeline.lives.departures, key=lambda each: each.at_ms)
        self.arrivals: Final = sorted(timeline.lives.arrivals, key=lambda each: each.at_ms)
        self.revocations: Final = sorted(timeline.lives.revocations, key=lambda each: each.start_ms)
        self.moves_ms: Final = timeline.lives.moves_ms
        self.longest_revocation_ms: Final = max((each.ms for each in self.revocations), default=0.0)
        self._by_client: defaultdict[str, list[Arrival]] = defaultdict(list)
        self._by_instance: defaultdict[str, list[Arrival]] = defaultdict(list)
        for each in self.arrivals:
            self._by_client[each.client].append(each)
            if each.instance_id is not None:
                self._by_instance[each.instance_id].append(each)
        self._deployed: Final = self._deploys()

    def cause_of(self, gone: Sequence[Departure]) -> _Cause:
        """Why these members went."""
        who = sorted({each.client for each in gone})
        if (gone[0].at_ms, gone[0].who) in self._deployed:
            return _Cause("deploy", who, f"a deploy: {_names(who)} was started again, like the others")
        causes = [self._why(each) for each in gone]
        worst = min(causes, key=lambda each: ("died", "late poll", "restart", "left", "").index(each.why))
        if len(gone) > 1:
            counts = Counter(each.why or "unknown" for each in causes)
            told = ", ".join(f"{count} {why}" for why, count in counts.items())
            return _Cause(worst.why, who, f"{counted(len(gone), 'member')} went ({told}): {_names(who)}")
        return worst

    def _why(self, gone: Departure) -> _Cause:
        """Why a member went, as far as the log shows it."""
        name = gone.client
        back = self._return_of(gone)
        known = {"leave": "left", "session_timeout": "died", "rebalance_timeout": "died"}.get(gone.reason, "")
        silent = "" if gone.silent_ms is None else f"silent for {duration(gone.silent_ms)} before"
        if gone.reason == "rebalance_timeout":
            return _Cause("died", (name,), f"{name} was removed, since it did not give its partitions up in time")
        if not known and gone.silent_ms is not None and gone.interval_ms is not None and gone.unusual_ms is not None:
            if gone.silent_ms < UNUSUAL_MS_MIN:
                known = "left"
            elif gone.unusual_ms < gone.silent_ms <= _SESSION_MS + gone.interval_ms:
                known = "died"
        if known == "died":
            after = f"; {back.client} joined {duration(back.at_ms - gone.at_ms)} later" if back else ""
            return _Cause(
                "died", (name,), f"{name} died or lost its connection ({silent or 'its session ended'}){after}"
            )
        if back is not None and back.member_id == gone.member_id and back.member_id:
            again = duration(back.at_ms - gone.at_ms)
            return _Cause("late poll", (name,), f"{name} was too slow between two polls, and came back after {again}")
        if back is not None:
            return _Cause("restart", (name,), f"{name} was started again, after {duration(back.at_ms - gone.at_ms)}")
        if known == "left":
            return _Cause("left", (name,), f"{name} left")
        return _Cause("", (name,), f"{name} left or died" + (f" ({silent})" if silent else ""))

    def _return_of(self, gone: Departure) -> Arrival | None:
        """The first join of the same client after a departure."""
        known = [self._by_client[gone.client]]
        if gone.instance_id is not None:
            known.append(self._by_instance[gone.instance_id])
        found = [
            several[index]
            for several in known
            if (index := bisect.bisect_left(several, gone.at_ms, key=_at_ms)) < len(several)
            and several[index].at_ms <= gone.at_ms + _AGAIN_MS
        ]
        return min(found, key=_at_ms, default=None)

    def _deploys(self) -> frozenset[tuple[float, str]]:
        """Departures around which most of the clients were started again, each under another member id."""
        again = [
            each
            for each in self.departures
            if (back := self._return_of(each)) is not None and back.member_id != each.member_id
        ]
        enough = max(2, len(self._by_client) // 2 + 1)
        clients: Counter[str] = Counter()
        first = 0
        found: set[tuple[float, str]] = set()
        for index, each in enumerate(again):
            clients[each.client] += 1
            while again[first].at_ms < each.at_ms - _AGAIN_MS:
                clients[again[first].client] -= 1
                clients += Counter()  # forget those that are 0
                first += 1
            if len(clients) >= enough:
                found.update((one.at_ms, one.who) for one in again[first : index + 1])
        return frozenset(found)


def _at_ms(each: Arrival | Departure) -> float:
    return each.at_ms


# --- members


def _without_owner(timeline: Timeline) -> Iterator[Finding]:
    """Partitions that no member has at the end of the log."""
    last = timeline.states[-1].text if timeline.states else ""
    if not timeline.coordinated or last in {"Empty", "Dead", ""}:
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
            f"{duration(timeline.end_ms - begin_ms)}: {_names(sorted(since))}",
        )


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


def _flapping(timeline: Timeline) -> Iterator[Finding]:
    """Clients that join again and again."""
    steps: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for arrival in timeline.lives.arrivals:
        steps[arrival.client].append((arrival.at_ms, 1))
    for departure in timeline.lives.departures:
        steps[departure.client].append((departure.at_ms, -1))
    for client, moves in steps.items():
        moves.sort()
        at_once = max(1, *itertools.accumulate(step for _, step in moves))  # several members may share a client id
        times = [at_ms for at_ms, step in moves if step > 0]
        went = len(moves) - len(times)
        if went >= FLAPS * at_once and len(times) > at_once:
            ms = times[-1] - times[0]
            text = f"{client} joined {len(times):,} times in {duration(ms)}, and went {went:,} times"
            yield _of_member("flapping", timeline, times[0], ms, client, text)


def _many(timeline: Timeline, rebalances: Sequence[Rebalance]) -> Iterator[Finding]:
    """The hour in which a group rebalanced most."""
    most: Sequence[Rebalance] = ()
    first = 0
    for index, each in enumerate(rebalances):
        while rebalances[first].start_ms < each.start_ms - _HOUR_MS:
            first += 1
        if index + 1 - first > len(most):
            most = rebalances[first : index + 1]
    if len(most) >= MANY_AN_HOUR:
        causes = ", ".join(f"{count:,} {why}" for why, count in _causes(most).items())
        ms = most[-1].start_ms - most[0].start_ms
        text = f"{len(most):,} rebalances within {duration(ms)}: {causes}"
        yield Finding("many rebalances", timeline.group_id, most[0].start_ms, ms, "exact", 0, "", (), text)


def _causes(rebalances: Iterable[Rebalance]) -> Mapping[str, int]:
    counts = Counter(
        (each.reasons[0] if each.reasons else "unknown").partition(" (")[0].replace("_", " ") for each in rebalances
    )
    return dict(counts.most_common(_NAMED))


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
            text + (f" after {duration(ms)}" if ms else ""),
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
