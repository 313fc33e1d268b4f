"""Why partitions had no reader: from the departures and arrivals around that time, and the reasons of epochs.

A cause that the log does not show is not guessed.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from kip848_client.common.plain_text import counted
from kip848_client.tools.report.figures import Handover, Rebalance
from kip848_client.tools.report.timeline.deploys import Restart, deploys_of
from kip848_client.tools.report.timeline.lives import SESSION_MS_MAX, UNUSUAL_MS_MIN, Arrival, Departure
from kip848_client.tools.report.timeline.outages import empty_spans
from kip848_client.tools.report.timeline.timeline import Timeline
from kip848_client.tools.report.wording import duration, named

_AGAIN_MS: Final = 600_000.0
"""A client that joins within this time after its departure is back."""
_SURGE_MS: Final = 120_000.0
"""A member that takes the place of another one may join so long before that one goes."""
MOVE_MS: Final = 10_000.0
"""How long before a stand-still a coordinator that moved may have caused it."""
_WORST: Final = ("died", "hung", "hung or late", "late poll", "stuck", "restart", "deploy", "left", "")
WENT: Final[Mapping[str, str]] = {
    "hung or late": "hung or too slow between two polls",
    "late poll": "too slow between two polls",
    "restart": "started again",
    "": "left or died",
}
"""Causes as parts of a sentence, where they differ from their names."""
_BY_THEMSELVES: Final = frozenset({"restart", "deploy", "left", ""})
"""Causes that do not explain why a member had been silent before."""
_POLL_SHARE: Final = 0.9
"""A member whose last commit was so much of max.poll.interval.ms before it went had not polled since."""
_SESSION_SHARE: Final = 0.5
"""A session begins with a heartbeat. The last commit may be later, by less than this share of the session."""
_SILENT_MS_MIN: Final = 3_000.0
"""Of KIP-848 groups records have no session. On a busy machine a member that leaves may need two seconds for it."""
STOPPED_MS: Final = 10_000.0
"""A group that had no members for less than this may be in a restart. Members that are stopped together go so soon."""
_BESIDE_MS_MIN: Final = 1_000.0
"""A second cause that took less is not told."""
_IDLE_MS_MIN: Final = 3_000.0
"""On a busy machine any member commits nothing for a second."""
_CLASSIC: Final = "classic_rebalance"
_OneT = TypeVar("_OneT")


class Cause(NamedTuple):
    """`Finding` describes the fields."""

    why: str
    who: Sequence[str]
    text: str


def cause_of(story: DepartureStory, together: Sequence[Handover], rebalances: Sequence[Rebalance]) -> Cause:
    """Why the partitions of these handovers had no reader, which were under way at the same time."""
    left_ms = {each.left_ms for each in together}
    start_ms, end_ms = min(each.since_ms for each in together), max(left_ms)
    gone = _gone(story, together)
    until_ms = max(each.since_ms + (each.gap_ms or 0.0) for each in together)
    moved = bool(between(story.moves_ms, start_ms - MOVE_MS, until_ms, key=float))
    if gone:
        names = {each.who for each in gone}
        of_gone = [each for each in together if each.before in names]
        stayed = [each for each in together if each.before not in names]
        cause = _with_move(_with_idleness(story.cause_of(gone), of_gone), moved=moved)
        return _with_those_that_stayed(cause, story, stayed)
    if moved:
        return Cause("coordinator moved", (), "the group's coordinator moved, or was started again")
    slow = [
        each
        for each in between(
            story.revocations, start_ms - story.longest_revocation_ms, end_ms, key=lambda each: each.start_ms
        )
        if each.start_ms + each.ms >= start_ms
    ]
    slowest = max(slow, key=lambda each: each.ms, default=None)
    if slowest is not None and slowest.ms >= (until_ms - start_ms) / 2:
        text = f"{slowest.client} took {duration(slowest.ms)} to give partitions up"
        return Cause("slow revocation", (slowest.client,), text)
    index = bisect.bisect_right(rebalances, end_ms, key=lambda each: each.start_ms) - 1
    if index < 0:
        return Cause("", (), "")
    last = rebalances[index]
    if last.end_ms is not None and last.end_ms < start_ms:
        return Cause("", (), "")
    reasons = [why for why in last.reasons if not why.startswith(_CLASSIC)]
    if not reasons:
        return _of_generation(story, start_ms, until_ms)
    why = reasons[0].partition(" (")[0].replace("_", " ")
    joined = between(story.arrivals, last.start_ms, end_ms, key=_at_ms)
    return story.joined(joined) if joined and why == "member joined" else Cause(why, (), why)


def _gone(story: DepartureStory, together: Sequence[Handover]) -> Sequence[Departure]:
    """The departures of owners at that time, also of those that had died by then and were removed later."""
    left_ms = {each.before: each.left_ms for each in together}  # the last one of each owner
    first_ms, last_ms = min(each.left_ms for each in together), max(left_ms.values())
    return [
        each
        for each in between(story.departures, first_ms, last_ms + SESSION_MS_MAX, key=_at_ms)
        if each.who in left_ms
        and each.reason != "static_leave"
        and (each.at_ms <= last_ms or story.died_ms(each) <= left_ms[each.who])
    ]


def _with_those_that_stayed(cause: Cause, story: DepartureStory, stayed: Sequence[Handover]) -> Cause:
    """Beside members that went, another one may have kept its partitions unread, or not have given them up."""
    for who, several in itertools.groupby(sorted(stayed, key=lambda each: each.before), key=lambda each: each.before):
        of_one = list(several)
        least_ms = max(_BESIDE_MS_MIN, max(each.gap_ms or 0.0 for each in of_one) / 2)
        idle_ms = max(each.idle_ms or 0.0 for each in of_one)
        slow_ms = max(
            (
                each.ms
                for each in story.revocations
                if each.who == who and any(each.start_ms <= one.left_ms <= each.start_ms + each.ms for one in of_one)
            ),
            default=0.0,
        )
        if slow_ms >= least_ms:
            text = f"{cause.text}; {who} took {duration(slow_ms)} to give partitions up"
        elif idle_ms >= max(_IDLE_MS_MIN, least_ms):
            which = counted(len({each.partition for each in of_one}), "partition")
            text = f"{cause.text}; {who} had {which} for {duration(idle_ms)} without committing anything new"
        else:
            continue
        cause = cause._replace(text=text)
    return cause


def _with_idleness(cause: Cause, together: Sequence[Handover]) -> Cause:
    """A member that had stopped reading long before it went: that it was started again is not why."""
    longest = max(together, key=lambda each: each.idle_ms or 0.0)
    idle_ms = longest.idle_ms or 0.0
    if cause.why not in _BY_THEMSELVES or idle_ms < max(_IDLE_MS_MIN, (longest.gap_ms or 0.0) / 2):
        return cause
    text = f"their owner had them for {duration(idle_ms)} without committing anything new; then {cause.text}"
    return Cause("stuck", cause.who, text)


def _with_move(cause: Cause, *, moved: bool) -> Cause:
    return cause._replace(text=f"{cause.text}; the coordinator moved at that time") if moved else cause


def _of_generation(story: DepartureStory, start_ms: float, end_ms: float) -> Cause:
    """Why a classic group rebalanced: of its reasons, the records show who came and who went."""
    gone = between(story.departures, start_ms, end_ms, key=_at_ms)
    if gone:
        return story.cause_of(gone)
    joined = between(story.arrivals, start_ms, end_ms, key=_at_ms)
    return story.joined(joined) if joined else Cause("", (), "")


def between(
    ordered: Sequence[_OneT], start_ms: float, end_ms: float, *, key: Callable[[_OneT], float]
) -> Sequence[_OneT]:
    """The part of a sequence in order of time that is in a period."""
    return ordered[bisect.bisect_left(ordered, start_ms, key=key) : bisect.bisect_right(ordered, end_ms, key=key)]


class DepartureStory:
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
        stops = [self.stop_before(span.start_ms) for span in empty_spans(timeline)]
        self._stopped: Final = frozenset((each.at_ms, each.who) for stop in stops for each in stop)
        """Departures after which the group had no members."""
        self.deploys: Final = deploys_of(self._restarts(), stops)
        self._moved: Final = {
            (one.gone.at_ms, one.gone.who) for several in self.deploys for one in several if one.moved
        }
        self._deployed: Final = frozenset(
            (one.at_ms, one.who) for several in self.deploys for each in several for one in (each.gone, each.back)
        )
        """Departures and joins of deploys."""

    def joined(self, arrivals: Sequence[Arrival]) -> Cause:
        """That these members joined is the cause."""
        who = sorted({each.client for each in arrivals})
        if all((each.at_ms, each.who) in self._deployed for each in arrivals):
            return Cause("deploy", who, f"a deploy: {named(who)} joined")
        return Cause("member joined", who, f"member joined ({named(who)})")

    def is_deploy(self, gone: Departure) -> bool:
        """Whether a departure belongs to a deploy."""
        return (gone.at_ms, gone.who) in self._deployed

    def moved(self, gone: Sequence[Departure]) -> bool:
        """Whether all of these were started again on other hosts by a deploy."""
        return all((each.at_ms, each.who) in self._moved for each in gone)

    def cause_of(self, gone: Sequence[Departure]) -> Cause:
        """Why these members went."""
        others = [each for each in gone if not self.is_deploy(each)]
        of_deploy = [each for each in gone if self.is_deploy(each)]
        deployed = sorted({each.client for each in of_deploy})
        causes = [self._of_others(others)] if others else []
        if deployed:
            verb = "was" if len(deployed) == 1 else "were"
            again = "replaced" if self.moved(of_deploy) else "started again"
            text = f"a deploy: {named(deployed)} {verb} {again}, like the others"
            if all((each.at_ms, each.who) in self._stopped for each in of_deploy):
                text = f"{named(deployed)} {verb} stopped, and started again"
            causes.append(Cause("deploy", deployed, text))
        causes.sort(key=lambda each: _WORST.index(each.why))
        who = list(dict.fromkeys(name for each in causes for name in each.who))
        return Cause(causes[0].why, who, "; at the same time ".join(each.text for each in causes))

    def _of_others(self, gone: Sequence[Departure]) -> Cause:
        """Why these members went, each by itself."""
        causes = sorted(
            ((self.why(each), each.client) for each in gone), key=lambda each: (_WORST.index(each[0].why), each[1])
        )
        worst = causes[0][0]
        if len(gone) == 1:
            return worst
        by_why: defaultdict[str, list[str]] = defaultdict(list)
        for cause, client in causes:
            by_why[WENT.get(cause.why, cause.why)].append(client)
        told = "; ".join(f"{len(by)} {why}: {named(list(dict.fromkeys(by)))}" for why, by in by_why.items())
        who = list(dict.fromkeys(client for _, client in causes))
        return Cause(worst.why, who, f"{counted(len(gone), 'member')} went ({told})")

    def stop_before(self, at_ms: float) -> list[Departure]:
        """The last members of a group that had none from then on: those that went together."""
        joined = bisect.bisect_left(self.arrivals, at_ms, key=_at_ms)
        joined_ms = self.arrivals[joined - 1].at_ms if joined else 0.0
        stop: list[Departure] = []
        since_ms = at_ms
        for index in range(bisect.bisect_right(self.departures, at_ms, key=_at_ms) - 1, -1, -1):
            each = self.departures[index]
            if each.at_ms < max(joined_ms, since_ms - STOPPED_MS):
                break
            stop.append(each)
            since_ms = min(since_ms, self.died_ms(each))
        return stop[::-1]

    def was_dead(self, who: str, at_ms: float | None) -> bool:
        """Whether a member was counted as an owner from then on, and had died before."""
        return at_ms is not None and any(
            each.who == who and self.died_ms(each) <= at_ms
            for each in between(self.departures, at_ms, at_ms + SESSION_MS_MAX, key=_at_ms)
        )

    def why(self, gone: Departure) -> Cause:
        """Why a member went, as far as the log shows it."""
        name = gone.client
        back = self._return_of(gone)
        known = self._known(gone)
        silent = "" if gone.silent_ms is None else f"no commit for {duration(gone.silent_ms)} before"
        if gone.reason == "rebalance_timeout":
            return Cause("died", (name,), f"{name} was removed, since it did not give its partitions up in time")
        is_same = back is not None and back.member_id == gone.member_id and bool(back.member_id)
        if known == "died" and self._polled_late(gone, is_same=is_same):
            known = ""
            after = "" if back is None else f", and came back after {duration(back.at_ms - gone.at_ms)}"
            return Cause("late poll", (name,), f"{name} was too slow between two polls ({silent}){after}")
        if known == "died" and back is not None and is_same:
            why = silent or "its session ended"
            again = duration(back.at_ms - gone.at_ms)
            return Cause("hung", (name,), f"{name} hung or lost its connection ({why}), and came back after {again}")
        if known == "died":
            after = f", and joined again {duration(back.at_ms - gone.at_ms)} after it was removed" if back else ""
            return Cause(
                "died", (name,), f"{name} died or lost its connection ({silent or 'its session ended'}){after}"
            )
        if back is not None and is_same:
            again = duration(back.at_ms - gone.at_ms)
            if known == "left":
                text = f"{name} was too slow between two polls, and came back after {again}"
                return Cause("late poll", (name,), text)
            # Its commits are too far apart to tell a session that ended from a poll that was late.
            text = f"{name} hung, lost its connection or was too slow between two polls"
            return Cause("hung or late", (name,), f"{text}{silent and f' ({silent})'}, and came back after {again}")
        if back is not None:
            return Cause("restart", (name,), f"{name} was started again, after {duration(back.at_ms - gone.at_ms)}")
        if known == "left":
            return Cause("left", (name,), f"{name} left")
        return Cause("", (name,), f"{name} left or died" + (f" ({silent})" if silent else ""))

    def died_ms(self, gone: Departure) -> float:
        """When a member went, which for one that died was long before it was removed."""
        return gone.at_ms - (gone.silent_ms or 0.0) if self._known(gone) == "died" else gone.at_ms

    def _known(self, gone: Departure) -> Literal["left", "died", ""]:
        """What its departure and the commits before it say."""
        if gone.reason == "leave":
            return "left"
        if gone.reason in {"session_timeout", "rebalance_timeout"}:
            return "died"
        if gone.silent_ms is None or gone.interval_ms is None or gone.unusual_ms is None:
            return ""
        session_ms = _SESSION_SHARE * (gone.session_ms or 0.0)
        if gone.silent_ms < max(UNUSUAL_MS_MIN, min(session_ms, gone.poll_ms or SESSION_MS_MAX)):
            return "left"
        if gone.session_ms is None and gone.silent_ms < _SILENT_MS_MIN:
            return ""
        if not gone.unusual_ms < gone.silent_ms <= SESSION_MS_MAX + gone.interval_ms:
            return ""
        return "" if self._was_silent_like_others(gone) else "died"

    def _was_silent_like_others(self, gone: Departure) -> bool:
        """Whether the others stopped committing at the same time and lived on: then its silence says nothing of it."""
        if gone.silent_ms is None or gone.others_silent_ms is None:
            return False
        after_ms = gone.silent_ms - gone.others_silent_ms
        if not -(gone.unusual_ms or 0.0) <= after_ms <= (gone.interval_ms or 0.0):
            return False
        until_ms = gone.at_ms + SESSION_MS_MAX
        followed = between(self.departures, gone.at_ms, until_ms, key=_at_ms)
        return gone.live - 1 > sum(each.reason != "static_leave" for each in followed if each is not gone)

    @staticmethod
    def _polled_late(gone: Departure, *, is_same: bool) -> bool:
        """Whether the member left by itself since it had not polled, so far as times tell.

        One that hung for longer looks the same if its session is as long as max.poll.interval.ms.
        """
        if gone.silent_ms is None or gone.poll_ms is None or gone.silent_ms < _POLL_SHARE * gone.poll_ms:
            return False
        return is_same or gone.silent_ms - gone.poll_ms <= max(UNUSUAL_MS_MIN, (1 - _POLL_SHARE) * gone.poll_ms)

    def _return_of(self, gone: Departure) -> Arrival | None:
        """The first join of the same client after a departure."""
        known = [self._by_client.get(gone.client, [])]
        if gone.instance_id is not None:
            known.append(self._by_instance.get(gone.instance_id, []))
        found = [
            several[index]
            for several in known
            if (index := bisect.bisect_left(several, gone.at_ms, key=_at_ms)) < len(several)
            and several[index].at_ms <= gone.at_ms + _AGAIN_MS
        ]
        return min(found, key=_at_ms, default=None)

    def _restarts(self) -> list[Restart]:
        """Departures of members that did not die, and the joins of those that took their place."""
        found, others = [], []
        joined_ms = {each.who: each.at_ms for each in self.arrivals}
        for each in self.departures:
            back = self._return_of(each)
            if self._known(each) == "died":
                continue
            if back is None:
                others.append(each)
            elif back.member_id != each.member_id:
                found.append(Restart(each, back, joined_ms.get(each.who, 0.0)))
        return sorted([*found, *self._replaced(others, found)], key=lambda each: each.gone.at_ms)

    def _replaced(self, gone: Sequence[Departure], restarts: Sequence[Restart]) -> Iterator[Restart]:
        """Members that went for good, and one of the same client id that came from a new host in place of each."""
        taken = {each.back.who for each in restarts}
        joined_ms = {each.who: each.at_ms for each in self.arrivals}
        until_ms = {each.who: each.at_ms for each in self.departures}
        new: defaultdict[str, deque[Arrival]] = defaultdict(deque)
        for first in sorted((several[0] for several in self._by_client.values()), key=_at_ms):
            if first.client_id and first.instance_id is None and first.who not in taken:
                new[first.client_id].append(first)
        for each in gone:
            arrivals = new.get(each.client_id, deque())
            while arrivals and (
                arrivals[0].at_ms < each.at_ms - _SURGE_MS
                or until_ms.get(arrivals[0].who, each.at_ms + _SURGE_MS) < each.at_ms + _SURGE_MS
            ):
                arrivals.popleft()  # it went with it, and took nobody's place
            if arrivals and arrivals[0].at_ms <= each.at_ms + _AGAIN_MS:
                yield Restart(each, arrivals.popleft(), joined_ms.get(each.who, 0.0))


def _at_ms(each: Arrival | Departure) -> float:
    return each.at_ms
