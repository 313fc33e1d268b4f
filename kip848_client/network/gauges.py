"""Values of a running member that can be read at any moment: the functions behind `telemetry.GAUGES`.

Called on the collector's thread. They read single values, which the other threads replace as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

from kip848_client.common.clock import Clock
from kip848_client.member.core.events import MemberView
from kip848_client.member.core.statistics import Statistics
from kip848_client.network.presence import AppPresence

UNKNOWN = -1.0
"""Something has not happened yet."""


def gauges_of(
    *,
    statistics: Statistics,
    view: Callable[[], MemberView],
    presence: AppPresence,
    inbox: Sized,
    app_queue: Sized,
    clock: Clock,
) -> dict[str, Callable[[], float]]:
    """Name of each gauge -> the function that returns its current value."""
    idle = _IdleRatio(presence, clock)

    def ago(moment_ms: int | None) -> float:
        return UNKNOWN if moment_ms is None else max(0, clock.now_ms() - moment_ms) / 1_000

    def last_poll() -> float:
        silent_ms = presence.silent_ms(clock.now_ms())
        if presence.inside:
            return 0.0
        return UNKNOWN if silent_ms is None else silent_ms / 1_000

    def longest_gap() -> float:
        longest_ms, presence.longest_gap_ms = presence.longest_gap_ms, 0
        return longest_ms

    return {
        "kafka.consumer.last.heartbeat.seconds.ago": lambda: ago(statistics.last_heartbeat_ms),
        "kafka.consumer.last.rebalance.seconds.ago": lambda: ago(statistics.last_rebalance_ended_ms),
        "kafka.consumer.last.poll.seconds.ago": last_poll,
        "kafka.consumer.time.between.poll.avg": _AverageGap(presence),
        "kafka.consumer.time.between.poll.max": longest_gap,
        "kafka.consumer.poll.idle.ratio.avg": idle,
        "kafka.consumer.assigned.partitions": lambda: len(view().assigned),
        "kafka.consumer.application.event.queue.size": lambda: len(inbox),
        "kafka.consumer.background.event.queue.size": lambda: len(app_queue),
    }


class _IdleRatio:
    """Between two collections: how much of the time was spent inside poll()."""

    def __init__(self, presence: AppPresence, clock: Clock) -> None:
        self._presence = presence
        self._clock = clock
        self._last = (clock.now_ms(), 0)

    def __call__(self) -> float:
        now_ms, waited_ms = self._clock.now_ms(), self._presence.waited_ms_until(self._clock.now_ms())
        last_ms, last_waited_ms = self._last
        self._last = (now_ms, waited_ms)
        return min(1.0, max(0.0, (waited_ms - last_waited_ms) / (now_ms - last_ms))) if now_ms > last_ms else 0.0


class _AverageGap:
    """Between two collections: the average time from the beginning of one poll() to that of the next."""

    def __init__(self, presence: AppPresence) -> None:
        self._presence = presence
        self._last: tuple[int, int] | None = None

    def __call__(self) -> float:
        count, entered_ms = self._presence.entered_count, self._presence.entered_ms
        if entered_ms is None:
            return 0.0
        last, self._last = self._last, (count, entered_ms)
        if last is None or last[0] == count:
            return 0.0
        return (entered_ms - last[1]) / (count - last[0])
