"""How fast something happens, measured as Kafka does: `Rate` over windows, and `TokenBucket` for bursts. Pure.

Source:
    apache/kafka ``SampledStat``, ``Rate``, ``TokenBucket``, ``QuotaUtils``.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

_MS_PER_S: Final = 1000


class _Sample(msgspec.Struct):
    start_ms: int
    last_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """The sum of what was recorded in the last windows, per second.

    Args:
        window_ms: length of a window.
        windows: how many are kept, the present one included; at least 1.
    """

    __slots__ = ("_current", "_samples", "_window_ms", "_windows")

    def __init__(self, *, window_ms: int, windows: int, now_ms: int) -> None:
        self._window_ms: Final = window_ms
        self._windows: Final = windows
        self._samples: Final = [_Sample(now_ms, now_ms)]
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count *value*; a negative one takes back what was counted."""
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """The rate of now."""
        self._forget_old(now_ms)
        return sum(sample.value for sample in self._samples) / (self.elapsed_ms(now_ms) / _MS_PER_S)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is computed over: since the oldest sample, and at least all windows but one."""
        self._forget_old(now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def delay_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be recorded for the rate to be at most *limit*; 0 if it is that already."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return math.floor((rate - limit) / limit * self.elapsed_ms(now_ms) + 0.5)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is left of what was recorded."""
        return now_ms - self._samples[self._current].last_ms >= self._windows * self._window_ms

    def _advance(self, now_ms: int) -> _Sample:
        # One more than the windows: a sample that began before them and ended in them is kept.
        self._current = (self._current + 1) % (self._windows + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _forget_old(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._windows * self._window_ms:
                sample.reset(now_ms)


class TokenBucket:
    """Tokens that come at the rate of the limit, up to what comes in all windows. It is full at first.

    Args:
        window_ms: length of a window.
        windows: how many.
    """

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, *, window_ms: int, windows: int) -> None:
        self._burst_s: Final = window_ms / _MS_PER_S * windows
        self._tokens = math.inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """The tokens of now; below 0 after too much was taken."""
        came = limit * (now_ms - self._updated_ms) / _MS_PER_S
        self._tokens = min(self._burst_s * limit, self._tokens + came)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take *count* tokens, whether there are so many or not."""
        self._tokens = self.tokens(limit, now_ms) - count

    def delay_ms(self, limit: float, now_ms: int) -> int:
        """The time until there are no fewer than 0 tokens."""
        return max(math.floor(-self.tokens(limit, now_ms) / limit * _MS_PER_S + 0.5), 0)
