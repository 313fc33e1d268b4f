"""The ends of partitions and the lag of a group over time: a lag in seconds, and whether it grows. No clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from kip848_client.common.model import NamedPartition

_SAMPLES_KEPT: Final = 240
"""Of one partition; the older ones are ever farther apart."""
_TREND_MS: Final = 60_000
_TREND_SAMPLES: Final = 18
"""Fewer lags look like a trend by chance."""
_TREND_MIN: Final = 5
"""Records; a smaller change is none."""


class EndHistory:
    """The ends of partitions over time, which turn a lag in records into one in seconds."""

    def __init__(self) -> None:
        self._ends: Final[dict[NamedPartition, list[tuple[int, int]]]] = {}

    def add(
        self, ends: Mapping[NamedPartition, int], *, now_ms: int, unanswered: AbstractSet[NamedPartition] = frozenset()
    ) -> None:
        """Keep the ends that were asked for now.

        Args:
            unanswered: partitions whose last known ends stay; those of others that are not in *ends* are forgotten.
        """
        for partition in self._ends.keys() - ends.keys() - unanswered:
            del self._ends[partition]
        for partition, end in ends.items():
            samples = self._ends.setdefault(partition, [])
            if samples and end < samples[-1][1]:
                samples.clear()  # the topic was created again, or its log was truncated
            samples.append((now_ms, end))
            if len(samples) > _SAMPLES_KEPT:
                del samples[1 : _SAMPLES_KEPT // 2 : 2]  # what is long ago needs no exact time

    def lag(self, partition: NamedPartition, committed: int) -> int | None:
        """Records between *committed* and the last known end; None if no end is known."""
        samples = self._ends.get(partition)
        return None if samples is None else max(0, samples[-1][1] - committed)

    def behind_ms(self, partition: NamedPartition, committed: int, *, now_ms: int) -> float | None:
        """How long ago the end was where *committed* is; at least, if it was beyond that in all that is kept."""
        samples = self._ends.get(partition)
        if samples is None:
            return None
        if samples[-1][1] <= committed:
            return 0.0
        before: tuple[int, int] | None = None
        for at_ms, end in samples:
            if end > committed:
                if before is None:
                    return float(now_ms - at_ms)
                share = (committed - before[1]) / (end - before[1])
                return now_ms - (before[0] + share * (at_ms - before[0]))
            before = at_ms, end
        raise AssertionError("the last end is beyond the committed offset")


class LagTrend:
    """Whether a lag grew in the last minute. Commits make a lag jump up and down all the time; that is no trend."""

    def __init__(self) -> None:
        self._lags: Final[deque[tuple[int, int]]] = deque()
        self._grows: tuple[int | None, int] | None = None
        """Since when the lag grows, if that is known, and what it must come back to until it does not any more."""

    def add(self, lag: int, *, now_ms: int) -> None:
        """Keep the lag as it is now."""
        self._lags.append((now_ms, lag))
        while self._lags[0][0] < now_ms - _TREND_MS:
            self._lags.popleft()
        if self._grows is not None and lag <= self._grows[1]:
            self._grows = None
        if self._grows is None and (self.per_s or 0.0) > 0:
            before = list(self._lags)[: len(self._lags) // 3]
            level = max(lag for _, lag in before)
            since_ms = max(at_ms for at_ms, lag in self._lags if lag <= level)
            self._grows = (None if since_ms <= before[-1][0] else since_ms), level

    @property
    def since_ms(self) -> int | None:
        """Since when it grows, or is higher than it was before it grew; None if it does not, or did from the start."""
        return None if self._grows is None else self._grows[0]

    @property
    def per_s(self) -> float | None:
        """Records by which it grew a second, below 0 if it shrank; None if there was no trend."""
        third = len(self._lags) // 3
        if len(self._lags) < _TREND_SAMPLES:
            return None
        samples = list(self._lags)
        first, last = samples[:third], samples[-third:]
        before, after = [lag for _, lag in first], [lag for _, lag in last]
        if not (max(before) < min(after) or max(after) < min(before)):
            return None
        change = (sum(after) - sum(before)) / third
        seconds = (sum(at_ms for at_ms, _ in last) - sum(at_ms for at_ms, _ in first)) / third / 1000
        return change / seconds if abs(change) >= _TREND_MIN else None
