"""The earliest of several deadlines."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["earliest"]


def earliest(times_ms: Iterable[int | None]) -> int | None:
    """The first of *times_ms*; None, which stands for "never", if there is no other."""
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)
