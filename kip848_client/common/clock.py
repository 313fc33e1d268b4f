"""The clocks of the shells. Cores never read one: they are given ``now_ms``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for deadlines, wall-clock time for records and logs."""

    def now_ms(self) -> int:
        """Milliseconds on a clock that never goes back; its zero means nothing."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Milliseconds of ``time.monotonic``."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds of ``time.time``."""
        return time.time_ns() // 1_000_000


lease_ns: Callable[[], int]
"""Nanoseconds of `LeaseClock`, for those who ask for each record or heartbeat."""
if sys.platform == "win32":
    lease_ns = time.monotonic_ns

    def _lease_ns() -> int:
        return time.monotonic_ns()

else:
    _COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    """Linux's clock that goes on while the machine is suspended; macOS's CLOCK_MONOTONIC does."""
    lease_ns = partial(time.clock_gettime_ns, _COUNTS_SLEEP)

    def _lease_ns() -> int:
        return time.clock_gettime_ns(_COUNTS_SLEEP)  # by its name: a test lets the machine sleep


class LeaseClock(SystemClock):
    """As `SystemClock`, but `now_ms` also counts the time for which the machine was suspended: leases end meanwhile."""

    def now_ms(self) -> int:
        """Milliseconds since the machine was started."""
        return _lease_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to, for tests and simulation."""

    def __init__(self, *, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_offset_ms = wall_ms - now_ms

    def now_ms(self) -> int:
        """Milliseconds as set by `advance`."""
        return self._now_ms

    def wall_ms(self) -> int:
        """Wall-clock milliseconds; moves together with `now_ms`."""
        return self._now_ms + self._wall_offset_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward by *ms* milliseconds; *ms* >= 0."""
        if ms < 0:
            raise ValueError(f"time does not go back: advance({ms})")
        self._now_ms += ms


class TimerHandle(Protocol):
    """A pending call that can be taken back."""

    def cancel(self) -> None:
        """Take the call back; does nothing if it ran already."""
        ...
