"""The steps of a leave that the application asked for: revoked callback, leave request, answer.

A leave always succeeds, even if the listener raises, the coordinator is unknown, or the answer is an error or missing.
`LeaveDone` ends the wait of each caller.

Does not own: what is sent (`leaving`, `classic_leaving`).

Source: Kafka's ``AbstractMembershipManager.leaveGroup``; KIP-1092 (leave modes); KAFKA-16933, KAFKA-17518.
Rules: R131 to R142 in docs/protocol.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import (
    LeaveDone,
    LeaveMode,
    LeaveRequested,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from kip848_client.member.core.states import LEAVING, Phase
from kip848_client.member.group.runs import Runs
from kip848_client.member.offsets.positions import Positions
from kip848_client.model import Subscription

__all__ = ["LeaveSteps", "ignore_answer"]


class _Waiter(msgspec.Struct, frozen=True):
    leave_id: int
    deadline_ms: int


class LeaveSteps(ABC):
    """The leave of one member, and the calls that wait for it.

    Args:
        subscribe: called with a subscription that was made while the member was leaving.
    """

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        reconciler: Runs,
        positions: Positions,
        subscribe: Callable[[Subscription], None],
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._reconciler = reconciler
        self._positions = positions
        self._subscribe = subscribe
        self._waiters: list[_Waiter] = []
        self._mode = LeaveMode.DEFAULT
        self._request_id: int | None = None
        self._resubscription: Subscription | None = None

    @property
    def unfinished(self) -> bool:
        """Whether the member is leaving or waits for the answer to its leave request."""
        return self._context.phase in LEAVING or self._request_id is not None

    # --- callers

    def start(self, event: LeaveRequested) -> None:
        """Begin to leave; the member is joining or in the group."""
        self.wait(event)
        self._mode = event.mode
        context = self._context
        context.move("leave_requested")
        run = self._reconciler.cancel()
        if run is not None and run.token is not None:
            # unsubscribe() inside a listener: the partitions that this listener revokes count as revoked.
            self._reconciler.settle(run, revoked=True)
            context.redirect_listener(run.token, None)
        # Inside on_partitions_assigned the application owns partitions that no heartbeat has named yet.
        self._reconciler.claim_owned()
        self._positions.clear()
        owned = context.owned
        if not owned:
            self._released(None)
            return
        context.emit(PausePartitions(owned))
        effect = RevokePartitions if context.epoch > 0 else LosePartitions
        context.call_listener(effect, owned, self._released)

    def wait(self, event: LeaveRequested) -> None:
        """One more caller waits for this leave. A subscription made since it began is dropped."""
        self._waiters.append(_Waiter(event.leave_id, event.deadline_ms))
        self._resubscription = None

    def abandon(self, leave_id: int) -> None:
        """The caller with this number stopped waiting. The leave goes on."""
        self._waiters = [waiter for waiter in self._waiters if waiter.leave_id != leave_id]

    def resubscribe(self, subscription: Subscription) -> None:
        """Keep a subscription for the time after the leave."""
        self._resubscription = subscription

    # --- steps

    def _released(self, error: BaseException | None) -> None:
        """The listener returned or raised; the member leaves in both cases."""
        del error
        if self._context.phase is Phase.LEAVE_REVOKING:
            self._context.move("leave_released")

    def advance(self) -> None:
        """Send the leave request if it is due; stop waiting for its answer at the deadline."""
        if self._context.phase is Phase.LEAVE_DUE:
            self._send()
        if not self._waiters or self._context.phase in LEAVING:
            return
        if self._context.due(min(waiter.deadline_ms for waiter in self._waiters)):
            self.over()

    def _end_unsent(self) -> None:
        self._context.move("left")
        self.left()
        self.over()

    @abstractmethod
    def _send(self) -> None:
        """Send the leave, or end it unsent."""

    @abstractmethod
    def send_late(self) -> int:
        """Leave because poll() came too late, without waiting for the answer. Returns the member's new epoch."""

    def left(self) -> None:
        """The member has left: it owns nothing, and answers in flight are ignored. The caller has changed the phase."""
        context = self._context
        context.incarnation += 1
        context.set_owned(())
        context.subscription = Subscription()
        self._reconciler.reset()

    def _answered(self, answer: object) -> None:
        """The leave is done, even if the answer is an error."""
        del answer
        self.over()

    def over(self) -> None:
        """Answer the callers that wait, then apply a subscription that was made meanwhile."""
        waiters, self._waiters = self._waiters, []
        self._context.orphan(self._request_id)
        self._request_id = None
        self._mode = LeaveMode.DEFAULT
        for waiter in waiters:
            self._context.emit(LeaveDone(waiter.leave_id))
        subscription, self._resubscription = self._resubscription, None
        if subscription is not None:
            self._subscribe(subscription)


def ignore_answer(_: object) -> None:
    """Use as the callback of a leave whose answer changes nothing."""
