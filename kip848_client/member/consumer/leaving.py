"""Leaving a group of KIP-848: the heartbeat that does it. The steps are in `leave_steps`.

Source: KIP-848; KIP-1092 (leave modes). Rules: R131 to R142 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import LeaveMode
from kip848_client.member.group.leave_steps import LeaveSteps, ignore_answer
from kip848_client.member.group.runs import Runs
from kip848_client.member.offsets.positions import Positions
from kip848_client.model import Subscription
from kip848_client.wire.api_keys import ApiKey

__all__ = ["LEAVE_EPOCH", "STATIC_LEAVE_EPOCH", "Leaving"]

LEAVE_EPOCH: Final = -1
"""Leave for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""Leave for a while: a static member keeps its slot until the session ends."""


class Leaving(LeaveSteps):
    """The leave of one member, and the calls that wait for it.

    Args:
        subscribe: called with a subscription that was made while the member was leaving.
    """

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        heartbeats: Heartbeats,
        reconciler: Runs,
        positions: Positions,
        subscribe: Callable[[Subscription], None],
    ) -> None:
        super().__init__(context, discovery=discovery, reconciler=reconciler, positions=positions, subscribe=subscribe)
        self._heartbeats = heartbeats

    def _send(self) -> None:
        context = self._context
        silent = self._mode is LeaveMode.REMAIN_IN_GROUP and context.config.instance_id is None
        if silent or not self._discovery.known:
            self._end_unsent()
        elif self.can_be_named():
            epoch = self.epoch(self._mode)
            request_id = self._heartbeats.send_leave(epoch=epoch, on_answer=self._answered, on_failure=self._answered)
            context.move("left")
            self.left(epoch=epoch)
            self._request_id = request_id
        elif not self._heartbeats.in_flight:
            self._end_unsent()

    def send_late(self) -> int:
        """As in `LeaveSteps`."""
        epoch = self.epoch(LeaveMode.DEFAULT)
        if self.can_be_named():
            self.send_unawaited(epoch)
        return epoch

    def send_unawaited(self, epoch: int) -> None:
        """Send a leave, and ignore its answer."""
        self._heartbeats.send_leave(epoch=epoch, on_answer=ignore_answer, on_failure=ignore_answer)

    def can_be_named(self) -> bool:
        """Whether a leave can carry the member id: with version 0 the coordinator chooses it in its first answer."""
        version = self._discovery.highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        return version is not None and (version > 0 or self._context.member_id_confirmed)

    def epoch(self, mode: LeaveMode) -> int:
        """The epoch that says how the member leaves."""
        if self._context.config.instance_id is None or mode is LeaveMode.LEAVE_GROUP:
            return LEAVE_EPOCH
        return STATIC_LEAVE_EPOCH

    def left(self, *, epoch: int = LEAVE_EPOCH) -> None:
        """As in `LeaveSteps`."""
        super().left()
        self._context.epoch = epoch
        self._heartbeats.restart(removals=0)
