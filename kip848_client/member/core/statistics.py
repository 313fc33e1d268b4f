"""Counts and times of one member, for metrics. The names of the metrics are in `kip848_client.common.telemetry`.

A rebalance is open from entering RECONCILING until its acknowledgement is due, or the member is STABLE again.

Source: Kafka's ``RebalanceMetricsManager`` and ``HeartbeatMetricsManager``.
Rules: R150 to R152 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from kip848_client.member.core.states import IN_GROUP, Phase

_OPEN = IN_GROUP - {Phase.IN_SYNC, Phase.ACK_DUE}
_ENDED_WELL = frozenset({Phase.IN_SYNC, Phase.ACK_DUE})


RebalanceCause: TypeAlias = Literal["join", "rejoin_removed", "rejoin_poll_missed", "assignment"]

_JOINED_AFTER: Final[Mapping[Phase, RebalanceCause]] = {
    Phase.FENCED_RELEASE: "rejoin_removed",
    Phase.AWAITING_POLL: "rejoin_poll_missed",
}


class Statistics(msgspec.Struct):
    """Mutable inside the member; `copy` what leaves it."""

    heartbeats: int = 0
    """Heartbeats sent, joins and leaves included."""
    last_heartbeat_ms: int | None = None
    last_heartbeat_due_ms: int | None = None
    """When the last heartbeat was due: one interval after the one before it. None for a join or a leave."""
    rebalances: int = 0
    """Rebalances that ended with an acknowledgement."""
    failed_rebalances: int = 0
    """Rebalances that ended because the member was removed or failed."""
    rebalance_started_ms: int | None = None
    rebalance_cause: RebalanceCause = "join"
    """Of the open rebalance, or of the last one."""
    join_cause: RebalanceCause = "join"
    """Why the member joined."""
    last_rebalance_ended_ms: int | None = None
    last_rebalance_latency_ms: int | None = None
    rebalance_latency_total_ms: int = 0
    rebalance_latency_max_ms: int = 0

    def moved(self, old: Phase, new: Phase, *, now_ms: int) -> None:
        """Note a move from *old* to *new*."""
        if new is Phase.JOINING:
            self.join_cause = _JOINED_AFTER.get(old, "join")
        if new in _OPEN:
            if old not in _OPEN:
                self.rebalance_started_ms = now_ms
                self.rebalance_cause = self.join_cause if old is Phase.JOINING else "assignment"
            return
        if self.rebalance_started_ms is None:
            return
        if new in _ENDED_WELL:
            latency_ms = now_ms - self.rebalance_started_ms
            self.rebalances += 1
            self.last_rebalance_ended_ms = now_ms
            self.last_rebalance_latency_ms = latency_ms
            self.rebalance_latency_total_ms += latency_ms
            self.rebalance_latency_max_ms = max(self.rebalance_latency_max_ms, latency_ms)
        elif new in {Phase.FENCED_RELEASE, Phase.FATAL_RELEASE}:
            self.failed_rebalances += 1
        self.rebalance_started_ms = None
