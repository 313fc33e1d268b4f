"""Leaving a classic group: LeaveGroup, even while a JoinGroup waits. The steps are in `leave_steps`.

A dynamic member sends LeaveGroup. A static one sends it only to leave for good; otherwise it keeps its slot until a new
process takes it or the session ends. A member that has an id but never joined leaves too: the group would wait for it.

Source: Kafka's ``AbstractCoordinator.maybeLeaveGroup``; KIP-345, KIP-800. Rules: R211 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable

from kip848_client.member.classic.classic_heartbeats import ClassicHeartbeats
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import LeaveMode, LeaveRequested
from kip848_client.member.group.leave_steps import LeaveSteps, ignore_answer
from kip848_client.member.group.runs import Runs
from kip848_client.member.offsets.positions import Positions
from kip848_client.model import Subscription

__all__ = ["ClassicLeaving"]


class ClassicLeaving(LeaveSteps):
    """The leave of one member, and the calls that wait for it.

    Args:
        subscribe: called with a subscription that was made while the member was leaving.
        on_leave: called when the member begins to leave; ends its round.
    """

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        heartbeats: ClassicHeartbeats,
        reconciler: Runs,
        positions: Positions,
        subscribe: Callable[[Subscription], None],
        on_leave: Callable[[], None],
    ) -> None:
        super().__init__(context, discovery=discovery, reconciler=reconciler, positions=positions, subscribe=subscribe)
        self._heartbeats = heartbeats
        self._on_leave = on_leave

    def start(self, event: LeaveRequested) -> None:
        """Begin to leave; the member is joining or in the group."""
        self._on_leave()
        super().start(event)

    def _send(self) -> None:
        static = self._context.config.instance_id is not None
        stays = self._mode is LeaveMode.REMAIN_IN_GROUP or (static and self._mode is not LeaveMode.LEAVE_GROUP)
        if stays or not self._discovery.known or not self._context.member_id:
            self._end_unsent()
            return
        reason = "the consumer is being closed" if self._context.closing else "the consumer unsubscribed"
        request_id = self._heartbeats.send_leave(reason=reason, on_answer=self._answered, on_failure=self._answered)
        self._context.move("left")
        self.left()
        self._request_id = request_id

    def send_late(self) -> int:
        """As in `LeaveSteps`. A static member sends nothing."""
        if self._discovery.known and self._context.member_id and self._context.config.instance_id is None:
            self._heartbeats.send_leave(
                reason="max.poll.interval.ms was exceeded", on_answer=ignore_answer, on_failure=ignore_answer
            )
        return 0

    def left(self) -> None:
        """As in `LeaveSteps`."""
        super().left()
        self._context.epoch = 0
        self._context.member_id = ""
        self._heartbeats.stop()
