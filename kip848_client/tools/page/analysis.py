"""Makes timelines and findings of a group from its history, for any period. No clock, no output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from kip848_client.journal import JournalEvent
from kip848_client.tools.page.history import HistoryReader
from kip848_client.tools.page.situation import Level, Situation
from kip848_client.tools.report.causes import Cause
from kip848_client.tools.report.findings import Finding, findings_of
from kip848_client.tools.report.timeline.lanes import LaneBuilder
from kip848_client.tools.report.timeline.names import MemberNames
from kip848_client.tools.report.timeline.timeline import Span, Timeline
from kip848_client.tools.report.wording import clock, duration

OF_NOW: Final = frozenset({"no reader", "no members", "held back"})
"""Kinds of findings that are about the end of a log: they are over as soon as something happens."""
_GOES_ON: Final = frozenset({"flapping", "many rebalances"})
"""Kinds of findings that may last for longer than a page looks back."""
REST_MS: Final = 3_600_000
"""So long a rest ends them."""
Ended: TypeAlias = tuple[float, Cause]
_BEFORE_MS: Final = 3_600_000
"""What began in a period may have causes before it."""


def timeline_of(
    reader: HistoryReader, group_id: str, latest: Sequence[JournalEvent], *, from_ms: int, to_ms: int, is_now: bool
) -> Timeline | None:
    """What happened to a group until *to_ms*, with what led to the state at *from_ms*; None if nothing is known.

    Args:
        latest: events that are not in the history yet.
        is_now: the period ends now, so nothing happened after its last event.
    """
    log = reader.log(group_id, from_ms=from_ms - _BEFORE_MS, to_ms=to_ms)
    events = sorted([*log.events, *(each for each in latest if each.ts_ms <= to_ms)], key=lambda event: event.ts_ms)
    if not events:
        return None
    builder = LaneBuilder(group_id, MemberNames(events), start_ms=float(log.start_ms))
    for event in events:
        builder.add(event)
    end_ms = max(events[-1].ts_ms, to_ms if is_now else min(to_ms, events[-1].ts_ms))
    return builder.finish(end_ms=max(float(end_ms), float(log.start_ms) + 1))


def what_went_wrong(
    reader: HistoryReader, group_id: str, latest: Sequence[JournalEvent], *, from_ms: int, to_ms: int, is_now: bool
) -> list[Finding]:
    """What went wrong in a group in a period, the worst first; the arguments are those of `timeline_of`."""
    timeline = timeline_of(reader, group_id, latest, from_ms=from_ms, to_ms=to_ms, is_now=is_now)
    return [] if timeline is None else within(findings_of(timeline), from_ms=from_ms, to_ms=to_ms)


def outage_now(row: Situation, ended: Ended | None, *, now_ms: int) -> Finding | None:
    """The outage of a group that has no members and for which records wait: a log alone cannot know of these.

    Args:
        ended: what the log says of its last members.
    """
    if row.members or not row.lag or row.since_ms is None or row.level < Level.ABANDONED:
        return None
    ms = float(max(0, now_ms - row.since_ms))
    text = f"the group has had no member for {duration(ms)}, and is not back: {row.text.removeprefix('no member, ')}"
    cause = Cause("", (), "") if ended is None else ended[1]
    if cause.text:
        text = f"{text.partition('; ')[0]}; before: {cause.text}"
    return Finding(
        *("outage", row.group_id, float(row.since_ms), ms, "at least", row.partitions),
        *(cause.why, cause.who, text),
        records=row.lag,
    )


def with_beginnings(findings: Iterable[Finding], earlier: Sequence[Finding]) -> Iterator[Finding]:
    """Findings with the time when what they tell of began, if an earlier look at a longer log has found that.

    Args:
        earlier: what was found before in the same group.
    """
    for each in findings:
        begun = [
            one
            for one in earlier
            if each.kind in _GOES_ON
            and one.kind == each.kind
            and (each.kind != "flapping" or list(one.who) == list(each.who))
            and one.start_ms < each.start_ms <= one.start_ms + (one.ms or 0.0) + REST_MS
        ]
        if begun:
            start_ms = min(one.start_ms for one in begun)
            ms = each.start_ms + (each.ms or 0.0) - start_ms
            each = replace(each, start_ms=start_ms, ms=ms, text=f"{each.text}; it began at {clock(start_ms)}")
        yield each


def within(findings: Iterable[Finding], *, from_ms: float, to_ms: float) -> list[Finding]:
    """Those that reach into a period."""
    return [each for each in findings if each.start_ms <= to_ms and each.start_ms + (each.ms or 0.0) >= from_ms]


def clipped(timeline: Timeline, *, from_ms: float, to_ms: float) -> Timeline:
    """The part of a timeline that a picture of a period shows."""

    def inside(spans: Iterable[Span]) -> list[Span]:
        return [
            Span(max(span.start_ms, from_ms), min(span.end_ms, to_ms), span.text)
            for span in spans
            if span.end_ms >= from_ms and span.start_ms <= to_ms
        ]

    partitions = [replace(lane, read=inside(lane.read), held=inside(lane.held)) for lane in timeline.partitions]
    members = [
        replace(
            lane,
            states=inside(lane.states),
            calls=inside(lane.calls),
            epochs=[each for each in lane.epochs if from_ms <= each[0] <= to_ms],
        )
        for lane in timeline.members
    ]
    return replace(
        timeline,
        start_ms=from_ms,
        end_ms=to_ms,
        states=inside(timeline.states),
        epochs=[each for each in timeline.epochs if from_ms <= each[0] <= to_ms],
        marks=[each for each in timeline.marks if from_ms <= each.ts_ms <= to_ms],
        members=[lane for lane in members if lane.states],
        partitions=[lane for lane in partitions if lane.read or lane.held],
        changes=[each for each in timeline.changes if each.start_ms >= from_ms],
    )
