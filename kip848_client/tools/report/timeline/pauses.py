"""Times in which a whole group committed nothing, and several groups at once.

A group that pauses keeps its members and partitions, so that nothing changes its owner. If many groups pause at the
same time, what they share is the first question: brokers, network, a machine, a database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

_COMMITS_MIN: Final = 10
"""A group with fewer commits has no usual time between them."""
_UNUSUAL: Final = 2.5
_PAUSE_MS_MIN: Final = 3_000.0
_CATCHING_UP_MS: Final = 5_000.0
_SHARE: Final = 0.25
"""Records waited if what was added after the pause, beside what usually is, is this share of what a pause misses."""
GROUPS_MIN: Final = 3
_GROUPS_SHARE: Final = 2 / 3


class Pauses(msgspec.Struct, frozen=True):
    """Of one group.

    Args:
        first_ms, last_ms: of its commits; both 0 if there were too few.
        spans: begin and end of times without a commit, in which records waited.
    """

    first_ms: float = 0.0
    last_ms: float = 0.0
    spans: Sequence[tuple[float, float]] = ()


def joined(several: Sequence[Pauses]) -> Pauses:
    """What is known of the commits of one group in times one after the other."""
    known = [each for each in several if each.last_ms]
    if not known:
        return Pauses()
    spans = sorted(span for each in known for span in each.spans)
    return Pauses(min(each.first_ms for each in known), max(each.last_ms for each in known), spans)


class PauseTracker:
    """Finds the pauses of one group, from its commits in order of time."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._moved = 0
        """Records that all commits together added."""
        self._count = 0
        self._first_ms = self._last_ms = 0.0
        self._paused_ms = self._longest_ms = 0.0
        self._open: tuple[float, float, int, float] | None = None
        """Begin and end of a pause, what had been added by then, and the usual speed."""
        self._spans: list[tuple[float, float]] = []

    def committed(self, offsets: Mapping[str, object], at_ms: float) -> None:
        """Take the next commit."""
        if not self._count:
            self._first_ms = self._last_ms = at_ms
        elif (gap_ms := at_ms - self._last_ms) > 0:
            busy_ms = self._last_ms - self._first_ms - self._paused_ms
            usual_ms = max(_UNUSUAL * busy_ms / self._count, self._longest_ms, _PAUSE_MS_MIN)
            if self._count >= _COMMITS_MIN and gap_ms > usual_ms and busy_ms > 0:
                self._close(self._last_ms)
                self._open = (self._last_ms, at_ms, self._moved, self._moved / busy_ms)
                self._paused_ms += gap_ms
            else:
                self._longest_ms = max(self._longest_ms, gap_ms)
        self._count += 1
        self._last_ms = max(self._last_ms, at_ms)
        for partition, offset in offsets.items():
            if isinstance(offset, int):
                self._moved += max(0, offset - self._offsets.get(partition, offset))
                self._offsets[partition] = offset
        if self._open is not None and at_ms - self._open[1] >= _CATCHING_UP_MS:
            self._close(at_ms)

    def finish(self) -> Pauses:
        """The log ends; a pause that lasts until then is none, since the log may end first."""
        self._close(self._last_ms)
        if self._count < _COMMITS_MIN:
            return Pauses()
        return Pauses(self._first_ms, self._last_ms, self._spans)

    def so_far(self, *, since_ms: float) -> Pauses:
        """What is known while more commits come; pauses that ended before *since_ms* are forgotten."""
        self._spans = [each for each in self._spans if each[1] >= since_ms]
        return Pauses(self._first_ms, self._last_ms, list(self._spans)) if self._count >= _COMMITS_MIN else Pauses()

    def _close(self, at_ms: float) -> None:
        """Keep the last pause if what was added after it shows that records waited."""
        if self._open is not None:
            start_ms, end_ms, moved, per_ms = self._open
            waited = self._moved - moved - per_ms * (at_ms - end_ms)
            if waited >= _SHARE * per_ms * (end_ms - start_ms) and waited > 0:
                self._spans.append((start_ms, end_ms))
        self._open = None


class Together(NamedTuple):
    """Groups that paused at the same time.

    Attributes:
        start_ms, end_ms: when all of them did.
        group_ids: in the order in which they stopped.
        groups: how many committed before and after.
    """

    start_ms: float
    end_ms: float
    group_ids: Sequence[str]
    groups: int


def pauses_together(pauses: Mapping[str, Pauses]) -> Iterator[Together]:
    """Times in which most of the groups that commit paused, three of them or more."""
    spans = sorted((start, end, group_id) for group_id, each in pauses.items() for start, end in each.spans)
    first = 0
    while first < len(spans):
        start_ms, end_ms, _ = spans[first]
        last = first
        while last < len(spans) and min(end_ms, spans[last][1]) - spans[last][0] >= _PAUSE_MS_MIN:
            start_ms, end_ms = spans[last][0], min(end_ms, spans[last][1])
            last += 1
        group_ids = list(dict.fromkeys(group_id for _, _, group_id in spans[first:last]))
        groups = sum(each.first_ms < start_ms and each.last_ms >= end_ms for each in pauses.values() if each.last_ms)
        if len(group_ids) >= max(GROUPS_MIN, _GROUPS_SHARE * groups):
            yield Together(start_ms, end_ms, group_ids, groups)
        first = max(last, first + 1)
