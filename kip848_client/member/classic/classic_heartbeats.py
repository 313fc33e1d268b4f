"""Heartbeats of the classic protocol: when they are due, and their fields.

A heartbeat carries the member's generation; its answer says whether to join again. Heartbeats go on while a JoinGroup
waits on the other connection, so that the member notices a dead coordinator within the session.

In a cooperative group a second round follows as soon as the first member has revoked partitions. A member that has
applied its assignment therefore sends early heartbeats for a while. A member that has not applied it waits for its
interval: if it learned of the second round now, it would join without having revoked anything, and a third round would
follow.

Does not own: what an answer does to the member (`classic_protocol`).

Source: Kafka's ``AbstractCoordinator.HeartbeatThread`` and ``Heartbeat``.
Rules: R202, R208, R211 and R246 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import Destination, RequestFailed
from kip848_client.member.core.states import HEARTBEATING, Phase
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

EARLY_FIRST_MS: Final = 50
"""Delay of the first early heartbeat; each further delay is twice as long, up to the interval."""
_JITTER: Final = 0.2
_LEAVE_BY_LIST: Final = 3
"""First version of LeaveGroup that names members in a list."""


class ClassicHeartbeats:
    """Decides when the heartbeats of one member are due, and builds them."""

    def __init__(self, context: Context, *, discovery: Discovery) -> None:
        self._context: Final = context
        self._discovery: Final = discovery
        self._backoff: Final = context.new_backoff()
        self._in_flight: int | None = None
        self._due_ms = 0
        self._early_delay_ms: int | None = None
        """Delay of the next early heartbeat after the last heartbeat; None if no early one is planned."""
        self._early_due_ms = 0

    @property
    def in_flight(self) -> bool:
        """Whether an answer is awaited."""
        return self._in_flight is not None

    @property
    def interval_ms(self) -> int:
        """The configured heartbeat interval."""
        return self._context.config.heartbeat_interval_ms

    @property
    def timeout_ms(self) -> int:
        """How long to wait for an answer: three fit into a session."""
        config = self._context.config
        return min(config.request_timeout_ms, max(config.heartbeat_interval_ms, config.session_timeout_ms // 3))

    # --- timing

    @property
    def _planned_ms(self) -> int:
        if self._context.expedite:
            return self._context.now_ms
        early = self._early_delay_ms is not None and self._context.phase is Phase.IN_SYNC
        return min(self._due_ms, self._early_due_ms) if early else self._due_ms

    def due(self) -> bool:
        """Whether to send one now, given a coordinator."""
        context = self._context
        if self._in_flight is not None or not context.epoch or context.phase not in HEARTBEATING:
            return False
        return context.due(max(self._planned_ms, self._backoff.ready_ms))

    # --- sending

    def send(
        self, *, on_answer: Callable[[HeartbeatResponse], None], on_failure: Callable[[RequestFailed], None]
    ) -> None:
        """Send a heartbeat, and plan the next one."""
        context = self._context
        statistics = context.statistics
        statistics.heartbeats += 1
        statistics.last_heartbeat_ms = context.now_ms
        statistics.last_heartbeat_due_ms = self._planned_ms
        context.expedite = False
        self._due_ms = context.now_ms + self.interval_ms
        if self._early_delay_ms is not None and context.now_ms >= self._early_due_ms:
            self._plan_early(2 * self._early_delay_ms)
        self._in_flight = context.send(
            HeartbeatRequest(
                group_id=context.config.group_id,
                generation_id=context.epoch,
                member_id=context.member_id,
                group_instance_id=context.config.instance_id,  # JoinGroup refuses brokers that do not know it
            ),
            destination=Destination.COORDINATOR,
            timeout_ms=self.timeout_ms,
            on_answer=on_answer,
            on_failure=on_failure,
        )

    def send_leave(
        self,
        *,
        reason: str,
        on_answer: Callable[[LeaveGroupResponse], None],
        on_failure: Callable[[RequestFailed], None],
    ) -> int:
        """Send LeaveGroup, even while other requests are in flight. Returns its number."""
        context = self._context
        identity = MemberIdentity(context.member_id, context.config.instance_id, reason)
        by_list = (self._discovery.highest_version(ApiKey.LEAVE_GROUP) or 0) >= _LEAVE_BY_LIST
        return context.send(
            LeaveGroupRequest(
                group_id=context.config.group_id,
                member_id="" if by_list else context.member_id,
                members=(identity,) if by_list else (),
            ),
            destination=Destination.COORDINATOR,
            timeout_ms=self.timeout_ms,
            on_answer=on_answer,
            on_failure=on_failure,
            urgent=True,
        )

    # --- outcomes

    def begin(self) -> None:
        """The member got a generation. Its first heartbeat is due after one interval."""
        self._context.expedite = False
        self._due_ms = self._context.now_ms + self.interval_ms

    def assignment_applied(self) -> None:
        """The member has applied an assignment: in a cooperative group another round may follow soon (R246)."""
        if self._context.config.cooperative and self._context.config.early_heartbeats:
            self._plan_early(EARLY_FIRST_MS)

    def _plan_early(self, delay_ms: int) -> None:
        self._early_delay_ms = delay_ms if delay_ms < self.interval_ms else None
        jitter = self._context.rng.uniform(1 - _JITTER, 1 + _JITTER)
        self._early_due_ms = self._context.now_ms + round(delay_ms * jitter)

    def ended(self) -> None:
        """The heartbeat in flight was answered or failed."""
        self._in_flight = None

    def succeeded(self) -> None:
        """An answer without an error came."""
        self._backoff.reset()

    def failed(self, *, at_once: bool = False) -> None:
        """No answer, or a retriable error: send again after the backoff.

        Args:
            at_once: send again without the backoff, as soon as the coordinator is connected.
        """
        self._due_ms = self._context.now_ms
        if at_once:
            self._backoff.reset()
        else:
            self._backoff.failed(self._context.now_ms)

    def stop(self) -> None:
        """The member lost its generation: ignore answers in flight."""
        self._context.orphan(self._in_flight)
        self._in_flight = None
