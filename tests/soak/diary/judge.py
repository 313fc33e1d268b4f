"""Compares findings with the diary and with what the members wrote down themselves.

The truth about a partition is when records of it were read: there is traffic all the time, so that two reads are some
ten milliseconds apart, and a second between them is a stand-still. Every allowance below has its reason beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.interop.real.ledger import Entry
from tests.soak.diary.groups import PARTITIONS, SESSION_S, Act, DiaryEntry

STILL_MS: Final = 1_000.0
_PAUSE_MS: Final = 100.0
"""Shorter times between two reads are not kept; nothing depends on them."""
_CLOCKS_MS: Final = 25.0
"""Records have the wall clock of the broker in whole ms, members a monotonic one that is converted once."""
_MARGIN_MS: Final = 500.0
"""The shortest stand-stills may be shorter than one by the coordinator's records, which do not bound every gap."""
_LOOSE_MS: Final = 1_500.0
"""How much longer than the truth "at most" may be: one time between two commits, and the next owner's first commit."""
_BEFORE_MS: Final = 1_500.0
"""How long before an act its finding may begin: "at most" begins with the commit before the last one."""
_AFTER_MS: Final = 3_000.0
"""How long after an act its finding may begin: members hear of it with their next heartbeat, or two."""
WHY: Final[Mapping[Act, tuple[frozenset[str], frozenset[str]]]] = {
    "kill": (frozenset({"died"}), frozenset()),
    # A classic member comes back under another id, like another process, so that the one before died.
    "stop": (frozenset({"hung", "hung or late", "died"}), frozenset({"member joined"})),
    "leave": (frozenset({"left"}), frozenset()),
    "add": (frozenset({"member joined"}), frozenset()),
    "roll": (frozenset({"deploy"}), frozenset()),
    "grow": (frozenset({"topics changed"}), frozenset()),
    "late": (frozenset({"late poll", "hung or late"}), frozenset({"member joined"})),
    # In a classic group all wait for the member that joined, and its revocation is not in the records.
    "hold": (frozenset({"slow revocation", "member joined"}), frozenset()),
    "flap": (frozenset({"left", "restart", "member joined"}), frozenset({"left", "restart", "member joined"})),
    # Members leave one after the other, and come back so.
    "out": (frozenset({"left", "restart", "deploy"}), frozenset({"left", "restart", "deploy", "member joined"})),
    # On a busy machine the session of a member ends that was stopped for half of it only.
    "pause": (frozenset({"hung", "hung or late", "died"}), frozenset({"member joined"})),
}
"""Act -> the causes of what began with it, and further ones of what began when its member was back."""
_KINDS: Final[Mapping[str, frozenset[Act]]] = {
    "died": frozenset({"kill", "stop", "pause"}),
    "slow revocation": frozenset({"hold"}),
    "never acknowledged": frozenset({"kill", "stop", "pause", "late", "hold"}),
    "deploy": frozenset({"roll", "out"}),
    "outage": frozenset({"out"}),
}
"""Kinds of findings -> the acts that they may tell of. Those that are not here would be invented."""
_BUSY: Final = frozenset({"slow revocation"})
"""Also right wherever a member joined: on a busy machine any other one may take a second to give partitions up."""
_FLAPS: Final = 3
_MANY: Final = 10


class Gap(msgspec.Struct, frozen=True):
    """A time in which a partition was not read, though members were there and records waited."""

    partition: str
    start_ms: float
    end_ms: float
    before: str
    after: str

    @property
    def ms(self) -> float:
        """How long."""
        return self.end_ms - self.start_ms


class Verdict(msgspec.Struct):
    """What agreed, and what did not.

    Attributes:
        wrong: disagreements.
        unseen: stand-stills that a report cannot see, by what was done: the same member went on.
        unknown: findings that say that their cause is not known.
        off_ms: what each "at most" is longer than the truth.
    """

    gaps: int = 0
    found: int = 0
    unseen: Counter[str] = msgspec.field(default_factory=Counter)
    findings: int = 0
    agreed: int = 0
    unknown: int = 0
    by_cause: Counter[str] = msgspec.field(default_factory=Counter)
    silences: Counter[str] = msgspec.field(default_factory=Counter)
    off_ms: list[float] = msgspec.field(default_factory=list)
    wrong: list[str] = msgspec.field(default_factory=list)


def gaps_of(ledger: Iterable[Entry], *, wall_ms: float, since_ms: float, until_ms: float) -> list[Gap]:
    """The times between two reads of a partition.

    Args:
        wall_ms: what the wall clock is ahead of the monotonic one.
    """
    last: dict[int, Entry] = {}
    found = []
    for each in ledger:
        if each.kind != "read":
            continue
        before = last.get(each.partition)
        last[each.partition] = each
        if before is not None and each.at_ns - before.at_ns >= _PAUSE_MS * 1e6:
            start_ms, end_ms = (one.at_ns / 1e6 + wall_ms for one in (before, each))
            name = f"{each.topic}-{each.partition}"
            found.append(Gap(name, start_ms, end_ms, before.member, each.member))
    seen = (each for each in found if since_ms <= each.start_ms and each.end_ms <= until_ms)
    return sorted(seen, key=lambda each: each.start_ms)


def judge_group(
    verdict: Verdict, diary: Sequence[DiaryEntry], gaps: Sequence[Gap], findings: Sequence[Mapping[str, Any]]
) -> None:
    """Compare one group's findings with its diary."""
    still = [each for each in findings if each["kind"] in {"stand-still", "outage"}]
    for gap in gaps:
        if gap.ms < STILL_MS:
            continue
        verdict.gaps += 1
        if any(_tells(each, gap) for each in still):
            verdict.found += 1
        elif gap.before == gap.after and not _was_removed(gap, entry := _act_at(diary, gap.start_ms)):
            verdict.unseen[entry.act if entry else "nothing was done"] += 1
        elif _paused_for_longer_before(gap, gaps):
            verdict.unseen["it had paused for longer before"] += 1
        elif int(gap.partition.rpartition("-")[2]) >= PARTITIONS:
            verdict.unseen["it was added, and had no records at first, which is a pause"] += 1
        elif gap.ms >= STILL_MS + _MARGIN_MS:
            verdict.wrong.append(f"not found: {gap.ms:.0f} ms, {gap} ({_act_at(diary, gap.start_ms)})")
    for each in findings:
        verdict.findings += 1
        verdict.unknown += each["kind"] == "stand-still" and not each["why"]
        verdict.by_cause[f"{each['kind']}: {each['why']}"] += 1
        if each["rests"] == "at most":
            verdict.off_ms.append(round(each["ms"] - _truth_ms(each, gaps)))
        problems = list(_problems(each, diary, gaps))
        verdict.agreed += not problems
        verdict.wrong += [
            f"{problem}: {each['start_ms']:.0f} {each['group_id']}: {each['text']}" for problem in problems
        ]


def _problems(finding: Mapping[str, Any], diary: Sequence[DiaryEntry], gaps: Sequence[Gap]) -> Iterator[str]:
    kind, ms, start_ms = finding["kind"], finding["ms"], finding["start_ms"]
    if kind == "many rebalances":
        if sum(each.joins + each.departures for each in diary) < _MANY:
            yield "invented, so much was not done"
        return
    if kind == "flapping":
        if sum(_departures(each, finding["who"][0]) for each in diary) < _FLAPS:
            yield "invented, it did not go so often"
        return
    entry = _act_at(diary, start_ms)
    if entry is None:
        yield "invented, nothing was done then"
    elif kind == "deploy" and any(
        start_ms <= each.start_ms <= start_ms + ms for each in diary if each.act in _KINDS[kind]
    ):
        return  # a log from now may begin in the middle of a flapping
    elif kind != "stand-still":
        if entry.act not in _KINDS.get(kind, ()):
            yield f"invented, it was {entry.act} of {', '.join(entry.who)}"
    elif finding["why"]:  # no cause is no wrong one; how many there are is told
        began, back = WHY[entry.act]
        if start_ms > entry.start_ms + STILL_MS:
            began |= back
        busy = _BUSY if "member joined" in began else frozenset()
        if finding["why"] not in began | busy:
            yield f"the cause was {entry.act} of {', '.join(entry.who)}"
        elif (
            finding["why"] not in busy
            and entry.who
            and finding["who"]
            and not {name.partition(" ")[0] for name in finding["who"]} & {*entry.who}
        ):
            yield f"it was {', '.join(entry.who)}"
    if kind == "outage" and ms > _truth_ms(finding, gaps) + _CLOCKS_MS:
        yield f"too long, the truth is {_truth_ms(finding, gaps):.0f} ms"
    if kind != "stand-still":
        return
    truth_ms = _truth_ms(finding, gaps)
    if finding["rests"] != "at most":
        if ms > truth_ms + _CLOCKS_MS:
            yield f"too long, the truth is {truth_ms:.0f} ms"
    elif not truth_ms - _CLOCKS_MS <= ms <= truth_ms + _LOOSE_MS:
        yield f"not within the bound, the truth is {truth_ms:.0f} ms"


def _departures(entry: DiaryEntry, who: str) -> int:
    if who.partition(" ")[0] not in entry.who:
        return 0
    return entry.departures if entry.act == "flap" else 1


def _act_at(diary: Sequence[DiaryEntry], at_ms: float) -> DiaryEntry | None:
    """The last act that began before a moment, and was not over long ago."""
    began = [each for each in diary if each.start_ms - _BEFORE_MS <= at_ms]
    if not began or (began[-1].end_ms and began[-1].end_ms + _AFTER_MS < at_ms):
        return None
    return began[-1]


def _truth_ms(finding: Mapping[str, Any], gaps: Sequence[Gap]) -> float:
    """The longest time that one of its partitions was not read."""
    return max((each.ms for each in gaps if _tells(finding, each)), default=0.0)


def _tells(finding: Mapping[str, Any], gap: Gap) -> bool:
    start_ms, ms = float(finding["start_ms"]), float(finding["ms"] or 0.0)
    # Just before its end the next owner has begun to read, and may pause.
    return gap.partition in finding["which"] and start_ms < gap.end_ms and gap.start_ms < start_ms + ms - _PAUSE_MS


def _was_removed(gap: Gap, entry: DiaryEntry | None) -> bool:
    """Whether the member had gone in between, and came back."""
    return entry is not None and bool(entry.departures) and gap.before in entry.who and gap.ms > SESSION_S * 1_000


def _paused_for_longer_before(gap: Gap, gaps: Sequence[Gap]) -> bool:
    """Then it is not unusual, by the rule in docs/report.md."""
    return any(
        (each.partition, each.before, each.after) == (gap.partition, gap.before, gap.before)
        and each.end_ms <= gap.start_ms
        and each.ms >= gap.ms - _MARGIN_MS
        for each in gaps
    )
