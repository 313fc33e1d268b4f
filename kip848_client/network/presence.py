"""When the application was last inside poll(): evidence for max.poll.interval.ms, without a clock per record."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager

from kip848_client.common.clock import Clock


class AppPresence:
    """Written by the application's thread on its slow path, read by the background thread.

    When records are prefetched, poll() and consume() have no time to read a clock. poll() shows by the length of the
    prefetched buffer, and consume() adds one to `calls`: if either changed since the last look, the application polled
    in between. The moment is then taken as now, which is late by at most the time between two looks (a heartbeat
    interval).

    Args:
        buffer: the prefetched records.
    """

    def __init__(self, buffer: Sized = ()) -> None:
        self._buffer = buffer
        self.calls = 0
        """Grows with every consume() that found records at hand."""
        self.entered_ms: int | None = None
        """When poll() began to wait or to work the last time."""
        self.waited_ms: int = 0
        """How long poll() has waited and worked so far, without listeners."""
        self.entered_count: int = 0
        self.gap_ms: int = 0
        """How long the application was outside poll() before the last `enter`."""
        self.listener_ms: int = 0
        """The longest listener call since then."""
        self.longest_gap_ms: int = 0
        """The longest time between two starts of poll() since this was set to 0."""
        self._seen = (0, 0)
        self._moved_ms: int | None = None
        """Time at which `last_polled_ms` last saw a change."""
        self._probed = (0, 0)
        self._probed_ms: int | None = None
        self._inside = 0
        self._left_ms: int | None = None

    def enter(self, *, now_ms: int) -> None:
        """poll() began to wait or to work; while it does, it counts as being called."""
        if self.entered_ms is not None and now_ms - self.entered_ms > self.longest_gap_ms:
            self.longest_gap_ms = now_ms - self.entered_ms
        moments = [ms for ms in (self._left_ms, self._moved_ms) if ms is not None]
        self.gap_ms = now_ms - max(moments) if moments and not self._inside else 0
        self.listener_ms = 0
        self.entered_count += 1
        self.entered_ms = now_ms
        self._inside += 1

    def leave(self, *, now_ms: int) -> None:
        """poll() returns to the application, or calls a listener, whose time is the application's."""
        self._left_ms = now_ms
        if self.entered_ms is not None:
            self.waited_ms += now_ms - self.entered_ms
        self._inside -= 1

    @property
    def moves(self) -> tuple[int, int, int]:
        """Differs from an earlier one if the application has polled since."""
        return len(self._buffer), self.calls, self.entered_count

    @property
    def inside(self) -> bool:
        """Whether the application waits inside poll() now."""
        return self._inside > 0

    def waited_ms_until(self, now_ms: int) -> int:
        """`waited_ms`, with the poll() that is going on."""
        entered_ms = self.entered_ms
        return self.waited_ms + (now_ms - entered_ms if self._inside and entered_ms is not None else 0)

    @contextmanager
    def outside(self, clock: Clock) -> Iterator[None]:
        """Cover a listener call: poll() waits for the application now, and not the other way round."""
        inside, self._inside = self._inside, 0
        began_ms = clock.now_ms()
        self._left_ms = began_ms if inside else self._left_ms
        try:
            yield
        finally:
            self._inside = inside
            took_ms = clock.now_ms() - began_ms
            self.listener_ms = max(self.listener_ms, took_ms)
            if inside:
                self.waited_ms -= took_ms

    def silent_ms(self, now_ms: int) -> int | None:
        """How long ago the application left poll(), or None if it never was inside."""
        return None if self._left_ms is None else now_ms - self._left_ms

    def silent_for_ms(self, now_ms: int) -> int | None:
        """How long ago the application was last known to be inside poll(); 0 while it is, None if it never was.

        For any thread. A change since the last look (by the background thread, or by a call of this method) counts
        as one that happened now. Without membership the background thread does not look.
        """
        probed = (len(self._buffer), self.calls)
        if probed not in (self._seen, self._probed):
            self._probed_ms = now_ms
        self._probed = probed
        if self._inside:
            return 0
        moments = [ms for ms in (self._left_ms, self._moved_ms, self._probed_ms) if ms is not None]
        return max(0, now_ms - max(moments)) if moments else None

    def last_polled_ms(self, now_ms: int) -> int | None:
        """The last moment that the application is known to have been inside poll(), or None for never."""
        seen = (len(self._buffer), self.calls)
        moved = seen != self._seen
        if moved:
            self._moved_ms = now_ms
        self._seen = seen
        return now_ms if self._inside or moved else self._left_ms
