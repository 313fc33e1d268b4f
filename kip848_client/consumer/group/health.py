"""The health of a consumer, as one frozen value that a liveness probe can ask for on any thread, without waiting.

The lag is measured on the thread that polls, inside the poll() after a probe: librdkafka makes a second thread wait for
the polling one. So a probe gets the lag as of the probe before it, with its age.

Does not own: metrics (`network.gauges`, `librdkafka_stats`), measuring (`network`, the member).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.consumer.records.checks.stalls import Stall, StallWatch
from kip848_client.member.core.states import MemberState
from kip848_client.member.processing.work import ProcessingStatus


class PartitionHealth(msgspec.Struct, frozen=True):
    """One assigned partition.

    Attributes:
        lag: records between the position and the end of the partition as of its last fetch; None if not known yet.
        stalled_s: seconds since the position was first seen not to move although records wait; None if it moves.
        reason: why it does not move; None if it does.
    """

    topic: str
    partition: int
    lag: int | None
    stalled_s: float | None = None
    reason: str | None = None


class ConsumerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a consumer at one moment. ``msgspec.json.encode(health)`` makes JSON of it.

    Attributes:
        live: whether the process should be left running. False once the consumer is closed or FATAL, its heartbeat
            thread has ended, or the application was outside poll() for longer than max.poll.interval.ms. A cluster
            that is away leaves it True, and so does a partition that is stalled.
        ready: live, and a member of its group, standing by for a slot, or assigned by hand.
        heartbeat_answered_s: seconds since the coordinator accepted a heartbeat, or a join on the classic protocol;
            None if it never did.
        polled_s: seconds since the application was last known to be inside poll(); 0 while it is, None if it never was.
        assignment: what the consumer owns, sorted by topic and partition.
        lag_s: seconds since the lags of *assignment* were measured; None if they never were.
        last_error: the last error of any kind, which need not matter any more; None if there was none.
        last_error_s: seconds since then.
        standing_by_s: seconds since the consumer stands by for a slot (``group.instance.id.takeover=wait``); None if it
            does not. A standby is ready: else a deploy that waits for it would never end its predecessor.
        processing: what ``process()`` has in hand; None while it does not run. A handler that hangs makes its
            ``oldest_s`` grow, and leaves *live* True.
    """

    state: MemberState
    live: bool
    ready: bool
    member_id: str
    member_epoch: int
    heartbeat_answered_s: float | None
    polled_s: float | None
    assignment: tuple[PartitionHealth, ...]
    lag_s: float | None
    last_error: str | None
    last_error_s: float | None
    standing_by_s: float | None = None
    processing: ProcessingStatus | None = None

    @property
    def standing_by(self) -> bool:
        """Whether the consumer stands by for a slot."""
        return self.standing_by_s is not None


_LAGS_EVERY_MS: Final = 1_000


class HealthProbe:
    """Looks at one consumer.

    Args:
        group: its membership.
        max_poll_interval_ms: when an application that does not poll counts as stuck.
    """

    def __init__(self, group: GroupMember, *, max_poll_interval_ms: int) -> None:
        self._group: Final = group
        self._max_poll_interval_ms: Final = max_poll_interval_ms
        self._lags: tuple[Mapping[NamedPartition, int], int] | None = None
        """The lags, and when they were measured; replaced whole."""
        self.lags_wanted: bool = False
        """A probe came since the lags were measured."""
        self.stalls: StallWatch | None = None

    def look(self) -> ConsumerHealth:
        """The health of the consumer now (any thread)."""
        group, manager = self._group, self._group.manager
        view, observer, fatal = group.view, group.listeners.observer, group.thread.fatal
        now_ms = group.clock.now_ms()
        polled_ms = group.thread.presence.silent_for_ms(now_ms)
        stuck = group.wants_records and polled_ms is not None and polled_ms > self._max_poll_interval_ms
        live = fatal is None and not group.closed and manager.alive and not stuck
        lags, measured_ms = self._lags if self._lags is not None else ({}, None)
        stalled = self.stalls.stalled if self.stalls is not None else {}
        last_error = observer.last_error
        self.lags_wanted = True
        manager.look_up()
        return ConsumerHealth(
            state=view.state if fatal is None else MemberState.FATAL,
            live=live,
            ready=live and (view.member_epoch > 0 or view.standing_by or bool(group.manual)),
            member_id=view.member_id,
            member_epoch=view.member_epoch,
            heartbeat_answered_s=_ago_s(observer.heartbeat_accepted_ms, now_ms),
            polled_s=None if polled_ms is None else polled_ms / 1_000,
            assignment=tuple(
                _partition_health(tip.topic_partition, lags, stalled, now_ms) for tip in sorted(view.assigned)
            ),
            lag_s=_ago_s(measured_ms, now_ms),
            standing_by_s=_ago_s(observer.standing_by_since_ms, now_ms) if view.standing_by else None,
            last_error=None if last_error is None else last_error[0],
            last_error_s=None if last_error is None else _ago_s(last_error[1], now_ms),
        )

    def lags(self) -> Mapping[NamedPartition, int]:
        """The lags of owned partitions when they were last measured (any thread)."""
        self.want_lags()
        lags = self._lags[0] if self._lags is not None else {}
        owned = self._group.assigned
        return {partition: lag for partition, lag in lags.items() if partition in owned}

    def want_lags(self) -> None:
        """Have them measured in the next poll(), if they are older than some seconds."""
        measured_ms = self._lags[1] if self._lags is not None else None
        if measured_ms is None or self._group.clock.now_ms() - measured_ms >= _LAGS_EVERY_MS:
            self.lags_wanted = True
            self._group.manager.look_up()

    def measure(self, lags: Callable[[], Mapping[NamedPartition, int]]) -> None:
        """Measure the lags, on the thread that polls.

        Args:
            lags: partition -> how far its position is behind its end; must not wait.
        """
        self.lags_wanted = False
        self._lags = (lags(), self._group.clock.now_ms())


def _partition_health(
    partition: NamedPartition, lags: Mapping[NamedPartition, int], stalled: Mapping[NamedPartition, Stall], now_ms: int
) -> PartitionHealth:
    stall = stalled.get(partition)
    return PartitionHealth(
        partition.topic,
        partition.partition,
        lags.get(partition),
        None if stall is None else _ago_s(stall.since_ms, now_ms),
        None if stall is None else stall.reason,
    )


def _ago_s(moment_ms: int | None, now_ms: int) -> float | None:
    return None if moment_ms is None else max(0, now_ms - moment_ms) / 1_000
