"""Outages of a whole group: it had no members while records waited, and came back.

Whether a group was meant to be empty is not in a log. A group in which nothing waited, or which has not come back, was
no outage.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.tools.report.timeline.timeline import Span, Timeline
from kip848_client.tools.report.timeline.unread import Bound

_NO_MEMBERS: Final = frozenset({"Empty", "Dead"})


class Outage(msgspec.Struct, frozen=True):
    """From the end of a group's last member until another one joined.

    Args:
        waited: partition -> how many records waited there, at least; those in which none did are left out.
        read_ms: partition -> when a commit showed that it was read again.
        times: how often the group had no member, if those that joined in between read nothing.
    """

    start_ms: float
    end_ms: float
    waited: Mapping[str, int]
    read_ms: Mapping[str, float]
    times: int = 1

    @property
    def ms(self) -> float:
        """How long it lasted."""
        return self.end_ms - self.start_ms


def empty_spans(timeline: Timeline) -> list[Span]:
    """When the group had no members, as its coordinator says; deleted and made again counts as one time."""
    found: list[Span] = []
    for span in timeline.states:
        if not timeline.coordinated or span.text not in _NO_MEMBERS:
            continue
        if found and found[-1].end_ms >= span.start_ms:
            found[-1] = Span(found[-1].start_ms, max(found[-1].end_ms, span.end_ms), "Empty")
        else:
            found.append(span)
    return found


def outages_of(timeline: Timeline) -> list[Outage]:
    """The outages of one group, in order of time."""
    empty = [span for span in empty_spans(timeline) if span.end_ms < timeline.end_ms]
    if not empty:
        return []
    bounds: defaultdict[str, list[Bound]] = defaultdict(list)
    for bound in timeline.bounds:
        bounds[bound.partition].append(bound)
    found = []
    for span in empty:
        waited = {}
        read_ms = {}
        for lane in timeline.partitions:
            over = _over(bounds[lane.partition], span)
            if over is None or over.moved_ms is None:
                continue
            # Owners before the one that read it had it too shortly.
            reader = bisect.bisect_right(lane.held, over.moved_ms, key=lambda each: each.start_ms) - 1
            got_ms = span.end_ms if reader < 0 else max(span.end_ms, lane.held[reader].start_ms)
            records = over.waited(got_ms, unread_ms=got_ms - span.start_ms)
            if records:
                waited[lane.partition], read_ms[lane.partition] = records, over.moved_ms
        if waited:
            found.append(Outage(span.start_ms, span.end_ms, waited, read_ms))
    return found


def joined(outages: Sequence[Outage]) -> list[Outage]:
    """Outages with those that follow, if members joined in between and read nothing."""
    found: list[Outage] = []
    for each in outages:
        last = found[-1] if found else None
        if last is not None and all(last.read_ms[one] >= each.end_ms for one in last.waited):
            found[-1] = msgspec.structs.replace(
                each, start_ms=last.start_ms, waited={**last.waited, **each.waited}, times=last.times + 1
            )
        else:
            found.append(each)
    return found


def _over(bounds: Sequence[Bound], span: Span) -> Bound | None:
    """The bound that begins before a time and ends after it; of several owners only one may have read."""
    index = bisect.bisect_right(bounds, span.start_ms, key=lambda each: each.left_ms) - 1
    for bound in reversed(bounds[: index + 1]):
        if bound.moved_ms is not None:
            return bound if bound.moved_ms >= span.end_ms else None
    return None
