"""Compares periods of a log, such as what rebalances cost in one week and in the next.

Events that began in a period count for it: a rebalance by its first epoch, a change by its epoch, and a partition that
changed its owner by the moment when the owner before gave it up. `figures` defines each.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.errors import ConfigError
from kip848_client.tools.report.figures import Percentiles, figures_of, handovers_of, percentiles
from kip848_client.tools.report.timeline.timeline import Timeline
from kip848_client.tools.report.wording import clock

WORST: Final = 20
CAUSES: Final = 10
_DAY_MS: Final = 86_400_000


class Period(msgspec.Struct, frozen=True):
    """Part of a log, from `start_ms` up to, and without, `end_ms`."""

    start_ms: float
    end_ms: float

    @property
    def label(self) -> str:
        """The period as a person writes it."""
        return f"{clock(self.start_ms)} to {clock(self.end_ms)}"

    def has(self, at_ms: float) -> bool:
        """Whether the period contains this moment."""
        return self.start_ms <= at_ms < self.end_ms


class PeriodFigures(msgspec.Struct, frozen=True):
    """The figures of one period, of all groups together.

    Args:
        groups: that had a rebalance.
        without_reader_ms: the sum over all partitions.
        causes: of rebalances, the most frequent first; the details that a reason has in brackets are left out.
    """

    start_ms: float
    end_ms: float
    groups: int
    rebalances: int
    rebalance: Percentiles
    change: Percentiles
    without_reader: Percentiles
    without_reader_ms: float
    moves: int
    bounces: int
    causes: Mapping[str, int]

    @property
    def period(self) -> Period:
        """The period."""
        return Period(self.start_ms, self.end_ms)

    @property
    def days(self) -> float:
        """The length of the period."""
        return (self.end_ms - self.start_ms) / _DAY_MS


class GroupPeriods(msgspec.Struct, frozen=True):
    """One group in each of the periods."""

    group_id: str
    rebalances: Sequence[int]
    without_reader_ms: Sequence[float]


class Comparison(msgspec.Struct, frozen=True):
    """Periods of one log.

    Args:
        groups: at most `WORST`, those first whose time without a reader differs most between the first and last period.
    """

    periods: Sequence[PeriodFigures]
    groups: Sequence[GroupPeriods]

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        return plain


def parse_period(text: str) -> Period:
    """Read ``2026-11-09..2026-11-16``: two dates or times of ISO 8601, or two numbers of milliseconds.

    Times are in UTC unless they say otherwise; numbers are of the log's clock, which may be a virtual one.

    Raises:
        ConfigError: it is something else, or ends before it begins.
    """
    start, dots, end = text.partition("..")
    try:
        period = Period(_moment(start), _moment(end))
    except ValueError as error:
        raise ConfigError(
            f"--period {text}: expected FROM..TO such as 2026-11-09..2026-11-16 or 2026-11-09T08:00..2026-11-09T12:00"
        ) from error
    if not dots or period.end_ms <= period.start_ms:
        raise ConfigError(f"--period {text}: it ends before it begins")
    return period


def equal_parts(start_ms: float, end_ms: float, count: int) -> list[Period]:
    """Cut a log into *count* periods of equal length; the last one includes the log's last moment."""
    step_ms = max(1.0, (end_ms - start_ms) / count)
    ends_ms = [start_ms + index * step_ms for index in range(1, count)] + [max(end_ms, start_ms + count * step_ms) + 1]
    starts_ms = [start_ms + index * step_ms for index in range(count)]
    return [Period(start_ms, end_ms) for start_ms, end_ms in zip(starts_ms, ends_ms, strict=True)]


def compare_periods(timelines: Sequence[Timeline], periods: Sequence[Period]) -> Comparison:
    """Count what began in each of *periods*."""
    counted = [(timeline.group_id, figures_of(timeline).rebalances, handovers_of(timeline)) for timeline in timelines]
    figures = []
    groups: dict[str, tuple[list[int], list[float]]] = {timeline.group_id: ([], []) for timeline in timelines}
    for period in periods:
        gaps: list[float] = []
        durations: list[float | None] = []
        causes: Counter[str] = Counter()
        moves = bounces = 0
        for group_id, rebalances, handovers in counted:
            began = [each for each in rebalances if period.has(each.start_ms)]
            left = [each for each in handovers if period.has(each.left_ms)]
            durations += [None if each.end_ms is None else each.end_ms - each.start_ms for each in began]
            causes.update(cause_of(each.reasons) for each in began)
            moves += sum(each.moved for each in left)
            bounces += sum(not each.moved for each in left)
            of_group = [each.gap_ms for each in left if each.gap_ms]
            gaps += of_group
            groups[group_id][0].append(len(began))
            groups[group_id][1].append(sum(of_group))
        changes = [change for timeline in timelines for change in timeline.changes if period.has(change.start_ms)]
        figures.append(
            PeriodFigures(
                start_ms=period.start_ms,
                end_ms=period.end_ms,
                groups=sum(bool(of_group[0][-1]) for of_group in groups.values()),
                rebalances=len(durations),
                rebalance=percentiles(each for each in durations if each is not None),
                change=percentiles(each.end_ms - each.start_ms for each in changes if each.end_ms is not None),
                without_reader=percentiles(gaps),
                without_reader_ms=sum(gaps),
                moves=moves,
                bounces=bounces,
                causes=dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
            )
        )
    told = [GroupPeriods(group_id, *of_group) for group_id, of_group in groups.items() if any(of_group[0])]
    told.sort(key=lambda each: (-abs(each.without_reader_ms[-1] - each.without_reader_ms[0]), each.group_id))
    return Comparison(figures, told[:WORST])


def cause_of(reasons: Sequence[str]) -> str:
    """Why a rebalance began; what stands in brackets differs from case to case."""
    return (reasons[0] if reasons else "").partition(" (")[0].replace("_", " ") or "unknown"


def _moment(text: str) -> float:
    text = text.strip()
    if text.isdecimal():
        return float(text)
    moment = dt.datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000
