"""`FastForward`: a clock that tests move ahead of the machine's."""

from __future__ import annotations

from kip848_client.common.clock import SystemClock


class FastForward(SystemClock):
    """The machine's clock, and what a test adds to it."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms
