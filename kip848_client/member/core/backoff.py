"""How long to wait after a failure. One formula for every retry of the member.

Source: KIP-580; Kafka's ``ExponentialBackoff``.
Rules: R33 in docs/protocol.md.
"""

from __future__ import annotations

import random
from typing import Final

_JITTER: Final = 0.2
_MOST_DOUBLINGS: Final = 30


class Backoff:
    """Counts failures in a row, and says when the next attempt is allowed.

    Args:
        initial_ms: wait after the first failure.
        max_ms: no wait is longer, jitter included.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_random", "failures", "ready_ms")

    def __init__(self, *, initial_ms: int, max_ms: int, rng: random.Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._random = rng
        self.failures: int = 0
        self.ready_ms: int = 0
        """Absolute time before which no attempt is made."""

    def wait_ms(self, failures: int) -> int:
        """How long to wait when *failures* attempts in a row failed before the one that just did; at least 1."""
        if self._max_ms <= self._initial_ms:
            return max(1, self._max_ms)
        base_ms = self._initial_ms * 2 ** min(failures, _MOST_DOUBLINGS)
        jittered_ms = min(base_ms, self._max_ms) * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        return max(1, min(self._max_ms, int(jittered_ms)))

    def failed(self, now_ms: int) -> None:
        """An attempt failed: wait longer than last time."""
        self.ready_ms = now_ms + self.wait_ms(self.failures)
        self.failures += 1

    def follow(self, other: Backoff) -> None:
        """Fail and wait as *other* does."""
        self.failures, self.ready_ms = other.failures, other.ready_ms

    def pace(self, now_ms: int) -> None:
        """An attempt succeeded; the next one waits too."""
        self.ready_ms = now_ms + self.wait_ms(0)

    def reset(self) -> None:
        """Forget the failures; the next attempt may be made at once."""
        self.failures = 0
        self.ready_ms = 0
