"""How a report writes times, spreads and names for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

from kip848_client.tools.report.figures import Percentiles

_A_REAL_CLOCK_MS: Final = 100_000_000_000
"""Times beyond this are since 1970; a simulation's begin at 0."""
_YEAR_10_000_MS: Final = 253_402_300_800_000
"""Times from this on have no date."""
NAMED: Final = 3
"""So many names are written out."""


def duration(ms: float) -> str:
    """Write milliseconds for people."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1000:.2f} s"
    if ms < 600_000:
        minutes, seconds = divmod(round(ms / 1000), 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    return f"{ms / 60_000:.1f} min" if ms < 7_200_000 else f"{ms / 3_600_000:,.1f} h"


def duration_or_dash(ms: float | None) -> str:
    """Write milliseconds for people; a dash for None."""
    return "—" if ms is None else duration(ms)


def spread_sentence(times: Percentiles) -> str:
    """Write a spread on one line."""
    if not times.count:
        return "0"
    parts = zip(
        ("median", "90 %", "99 %", "longest"), (times.p50_ms, times.p90_ms, times.p99_ms, times.max_ms), strict=True
    )
    return f"{times.count:,}: " + ", ".join(f"{name} {duration(ms)}" for name, ms in parts if ms is not None)


def bounds_sentence(bounds: Mapping[str, int]) -> str:
    """Say how many times without a reader are bounds; empty if none is."""
    rests = {"at most": "between the commits of both owners", "at least": "no commits around it"}
    parts = [f"{bounds[name]:,} {name}: {rest}" for name, rest in rests.items() if bounds.get(name)]
    return f" ({'; '.join(parts)})" if parts else ""


def clock(ms: float) -> str:
    """A moment as a date, or as time since the beginning of a virtual clock."""
    if not is_date(ms):
        return f"{ms / 1000:.3f} s"
    written = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    return written.removesuffix(":00").removesuffix(" 00:00")


def is_date(ms: float) -> bool:
    """Whether a moment is one of a real clock, and not of a virtual one."""
    return _A_REAL_CLOCK_MS <= ms < _YEAR_10_000_MS


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
