"""Compares a report, the exporter and a watch with the diary and with what the members wrote down themselves.

The truth about a partition is when it was read: there is traffic all the time, so that two reads are some ten
milliseconds apart, and a second between them is a stand-still.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.interop.real.ledger import Entry
from tests.soak.diary.groups import Act, DiaryEntry

STILL_MS: Final = 1_000.0
_MARGIN_MS: Final = 500.0
"""A gap that is so little longer than a stand-still may be none by the commits."""
_LOOSE_MS: Final = 1_200.0
"""How much longer than the truth an upper bound may be: two commits, and what a busy machine needs for them."""
_TIGHT_MS: Final = 500.0
"""How much shorter it may seem: members commit all their partitions, also after they have read the last of one."""
_AROUND_MS: Final = 1_500.0
WHY: Final[Mapping[Act, frozenset[str]]] = {
    "kill": frozenset({"died"}),
    "stop": frozenset({"hung", "died", "member joined"}),  # a classic member comes back under another id
    "leave": frozenset({"left"}),
    "add": frozenset({"member joined"}),
    "roll": frozenset({"deploy"}),
    "grow": frozenset({"topics changed"}),
    "late": frozenset({"late poll", "member joined"}),
    "hold": frozenset({"slow revocation", "member joined"}),
    "flap": frozenset({"left", "restart", "member joined"}),
    "pause": frozenset({"hung", "died"}),  # on a busy machine its session ends
}
"""Act -> the causes that a report may name."""


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
        unseen: stand-stills that a report cannot see: the same member went on.
    """

    gaps: int = 0
    found: int = 0
    unseen: int = 0
    unseen_acts: Counter[str] = msgspec.field(default_factory=Counter)
    findings: int = 0
    agreed: int = 0
    by_cause: Counter[str] = msgspec.field(default_factory=Counter)
    silences: Counter[str] = msgspec.field(default_factory=Counter)
    bounds_off_ms: list[float] = msgspec.field(default_factory=list)
    wrong: list[str] = msgspec.field(default_factory=list)


def gaps_of(ledger: Iterable[Entry], *, wall_ms: float, since_ms: float, until_ms: float) -> list[Gap]:
    """The stand-stills in what was read: from the last commit, or read, of one member to the next read.

    Args:
        wall_ms: what the wall clock is ahead of the monotonic one.
    """
    by_partition: dict[int, list[Entry]] = {}
    for each in ledger:
        entries = by_partition.setdefault(each.partition, [])
        if each.kind == "read" or (entries and entries[-1].member == each.member):
            entries.append(each)
    found = []
    for entries in by_partition.values():
        last = entries[-1]
        end = msgspec.structs.replace(last, at_ns=max(last.at_ns, int((until_ms - wall_ms) * 1e6)), member="")
        for before, after in itertools.pairwise([*entries, end]):
            start_ms, end_ms = (each.at_ns / 1e6 + wall_ms for each in (before, after))
            if end_ms - start_ms >= STILL_MS and start_ms >= since_ms and after.kind == "read":
                name = f"{before.topic}-{before.partition}"
                found.append(Gap(name, start_ms, end_ms, before.member, after.member))
    return sorted(found, key=lambda each: each.start_ms)


def judge_group(
    verdict: Verdict, diary: Sequence[DiaryEntry], gaps: Sequence[Gap], findings: Sequence[Mapping[str, Any]]
) -> None:
    """Compare one group's findings with its diary."""
    still = [each for each in findings if each["kind"] == "stand-still"]
    for gap in gaps:
        verdict.gaps += 1
        if any(_overlaps(each, gap) for each in still):
            verdict.found += 1
        elif gap.before == gap.after:
            verdict.unseen += 1
            entry = _act_at(diary, gap.start_ms)
            verdict.unseen_acts[entry.act if entry else "nothing was done"] += 1
        elif any(
            each.partition == gap.partition
            and each.before == each.after
            and each.end_ms <= gap.start_ms
            and each.ms >= gap.ms
            for each in gaps
        ):
            verdict.unseen_acts["it had paused for longer before"] += 1  # which is the rule: docs/report.md
        elif gap.ms >= STILL_MS + _MARGIN_MS and not any(_is_near(each, gap) for each in findings):
            verdict.wrong.append(
                f"not found: {gap.ms:.0f} ms at {gap.start_ms:.0f}, {gap} ({_act_at(diary, gap.start_ms)})"
            )
    for each in findings:
        verdict.findings += 1
        truth_ms = max((gap.ms for gap in gaps if _overlaps(each, gap)), default=0.0)
        if truth_ms and each["rests"] == "at most":
            verdict.bounds_off_ms.append(round(each["ms"] - truth_ms))
        verdict.by_cause[f"{each['kind']}: {each['why']}"] += 1
        problems = list(_problems(each, diary, gaps))
        verdict.agreed += not problems
        verdict.wrong += [
            f"{problem}: {each['start_ms']:.0f} {each['group_id']}: {each['text']}" for problem in problems
        ]


def _problems(finding: Mapping[str, Any], diary: Sequence[DiaryEntry], gaps: Sequence[Gap]) -> Iterator[str]:
    kind, ms, start_ms = finding["kind"], finding["ms"], finding["start_ms"]
    entry = _act_at(diary, start_ms)
    if kind == "many rebalances":
        return
    if kind == "flapping":
        if not any(each.act == "flap" and finding["who"][0].startswith(f"{each.who[0]} ") for each in diary):
            yield "invented"
        return
    if entry is None:
        yield "invented, nothing was done then"
        return
    if kind in {"stand-still", "died", "hung"}:
        if finding["why"] not in WHY[entry.act]:
            yield f"the cause was {entry.act} of {', '.join(entry.who)}"
        elif finding["why"] in {"died", "hung", "left", "late poll"} and entry.who:
            named = {name.partition(" ")[0] for name in finding["who"]}
            if not named & set(entry.who):
                yield f"it was {', '.join(entry.who)}"
    if kind != "stand-still":
        return
    truth_ms = max((gap.ms for gap in gaps if _overlaps(finding, gap)), default=0.0)
    if not truth_ms and ms > STILL_MS + _LOOSE_MS:
        yield "invented, all was read then"
    elif truth_ms and finding["rests"] == "at most" and not truth_ms - _TIGHT_MS <= ms <= truth_ms + _LOOSE_MS:
        yield f"not within the bound, the truth is {truth_ms:.0f} ms"
    elif truth_ms and finding["rests"] != "at most" and ms > truth_ms + 50:
        yield f"too long, the truth is {truth_ms:.0f} ms"


def _act_at(diary: Sequence[DiaryEntry], at_ms: float) -> DiaryEntry | None:
    """The last act that began before a moment, and was not over long ago."""
    began = [each for each in diary if each.start_ms - _AROUND_MS <= at_ms]
    if not began or (began[-1].end_ms and began[-1].end_ms + 2 * _AROUND_MS < at_ms):
        return None
    return began[-1]


def _overlaps(finding: Mapping[str, Any], gap: Gap) -> bool:
    start_ms, ms = float(finding["start_ms"]), float(finding["ms"] or 0.0)
    return start_ms < gap.end_ms and gap.start_ms < start_ms + ms


def _is_near(finding: Mapping[str, Any], gap: Gap) -> bool:
    return gap.start_ms - _AROUND_MS <= float(finding["start_ms"]) <= gap.end_ms + _AROUND_MS
