"""The ways out of a group, for both protocols: leave, removal, fatal error, and a poll() that comes too late.

The effect of each way out depends on the phase:

====================  =============  ====================  ===================  ======================  =============
event                 not in group   joining, in group     leaving              releasing               fatal
====================  =============  ====================  ===================  ======================  =============
leave                 done at once   revoked, then leaves  waits for its end    done at once            done at once
removed               ignored        lost, then joins      left, nothing sent   ignored                 ignored
fatal error           ignored        lost, then nothing    fatal, no callback   ignored                 ignored
poll() too late       -              leaves, lost          -                    -                       -
====================  =============  ====================  ===================  ======================  =============

A leave always succeeds, even if the listener raises, the coordinator is unknown, or the answer is an error or missing.
Its methods stand in the order in which they run; so do those of the lost callback.

Does not own: the requests (`ExitOwner` sends them), when the member joins.

Source: Kafka's ``AbstractMembershipManager`` (``leaveGroup``, ``transitionToFenced``, ``transitionToStale``,
``transitionToFatal``); KIP-1092 (leave modes); KAFKA-16933, KAFKA-17518.
Rules: R47 to R63, R89, R131 to R142 and R211 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from kip848_client.common.model import NamedPartition, Subscription
from kip848_client.errors import Kip848Error
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import (
    Fail,
    LeaveDone,
    LeaveMode,
    LeaveRequested,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from kip848_client.member.core.failures import late_poll, poll_missed
from kip848_client.member.core.states import FATAL, LEAVING, MEMBER, RELEASING, Phase
from kip848_client.member.group.runs import Run, Runs
from kip848_client.member.offsets.positions import Positions


class Unsent(enum.Enum):
    """Why no leave request was sent."""

    NOT_NEEDED = "not needed"
    """The member keeps its place in the group, or the coordinator does not know it."""
    NOT_YET = "not yet"
    """The request has to carry the member id that the answer in flight brings."""


class ExitOwner(ABC):
    """The protocol that a member leaves: it sends the leave, and forgets its own state."""

    keeps_member_id: bool
    """Whether the member has the same id when it joins again: with KIP-848, where the client chooses it."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """Take a subscription that was made while the member was leaving."""

    @abstractmethod
    def join(self) -> None:
        """Join again; the move to JOINING was made."""

    @abstractmethod
    def leave_begins(self) -> None:
        """The member begins to leave: forget a round that would bring it an assignment."""

    @abstractmethod
    def send_leave(self, mode: LeaveMode, *, reason: str, on_end: Callable[[object], None]) -> int | Unsent:
        """Tell the coordinator, which is known, that the member leaves. Returns the number of the request.

        Args:
            reason: for the coordinator's log.
            on_end: called with the answer or the failure.
        """

    @abstractmethod
    def epoch_after_leave(self, mode: LeaveMode) -> int:
        """The epoch of a member that has left in this way."""

    @abstractmethod
    def forget_group(self) -> None:
        """The member is out of the group: forget the requests, and ignore answers in flight."""


class _Waiter(msgspec.Struct, frozen=True):
    """A call of unsubscribe() or close() that waits for the leave."""

    leave_id: int
    deadline_ms: int


class GroupExit:
    """Takes one member out of its group."""

    def __init__(
        self, context: Context, *, discovery: Discovery, reconciler: Runs, positions: Positions, owner: ExitOwner
    ) -> None:
        self._context: Final = context
        self._discovery: Final = discovery
        self._reconciler: Final = reconciler
        self._positions: Final = positions
        self._owner: Final = owner
        self.removals: int = 0
        """How often in a row the member was removed. The protocol resets it."""

        self._waiters: list[_Waiter] = []
        self._mode = LeaveMode.DEFAULT
        self._leave_request: int | None = None
        self._resubscription: Subscription | None = None
        """Made during a leave, and applied when it is over."""

        self._settled: frozenset[NamedPartition] = frozenset()
        """Of a listener that had not returned when the leave began: it may still commit them (R115)."""
        self._awaited_run: Run | None = None
        """The lost callback waits for the listener call of this cancelled run."""
        self._polled = False
        """poll() was called since the member became stale."""

    def advance(self) -> None:
        """Go on with a leave; while there is none, have the member woken for `check_poll_timer`."""
        context = self._context
        if context.phase in MEMBER:
            context.wake_at(self._context.polled_ms + context.config.max_poll_interval_ms + 1)
        elif context.phase is Phase.LEAVE_DUE:
            self._send_leave()
        if not self._waiters or context.phase in LEAVING:
            return
        # The answer must not hold up close() longer than its caller wants to wait.
        if context.due(min(waiter.deadline_ms for waiter in self._waiters)):
            self._leave_ended()

    # --- leaving, from the call to `LeaveDone`

    def leave(self, event: LeaveRequested) -> None:
        """unsubscribe() or close(). `LeaveDone` answers; at once if there is nothing to leave."""
        context = self._context
        context.closing = context.closing or event.closing
        if self._leave_unfinished:
            self._wait(event)
        elif context.phase in MEMBER:
            self._wait(event)
            self._mode = event.mode
            self._begin_leave()
        else:
            self._unsubscribe_outside()
            context.emit(LeaveDone(event.leave_id))

    @property
    def _leave_unfinished(self) -> bool:
        """Whether the member is leaving or waits for the answer to its leave request."""
        return self._context.phase in LEAVING or self._leave_request is not None

    def _wait(self, event: LeaveRequested) -> None:
        """One more caller waits for this leave. A subscription made since it began is dropped."""
        self._waiters.append(_Waiter(event.leave_id, event.deadline_ms))
        self._resubscription = None

    def release(self) -> None:
        """Leave without a caller that waits: the slot goes to a standby. Everything was revoked before."""
        assert not self._context.owned
        self._mode = LeaveMode.DEFAULT
        self._begin_leave()

    def abandon(self, leave_id: int) -> None:
        """The caller stopped waiting for this leave. The leave goes on."""
        self._waiters = [waiter for waiter in self._waiters if waiter.leave_id != leave_id]

    def put_off(self, subscription: Subscription) -> bool:
        """Keep a subscription for the end of a leave, or drop it if the member has stopped; False if it applies now."""
        if self._context.phase in FATAL or self._context.closing:
            return True
        if self._leave_unfinished:
            self._resubscription = subscription
            return True
        return False

    def _unsubscribe_outside(self) -> None:
        """The member is in no group, or was removed from it and its lost callback has not ended."""
        context = self._context
        context.subscription = Subscription()
        if self._awaited_run is not None:
            # We are called inside the listener that the lost callback waits for: do not wait any longer.
            self._awaited_returned(self._awaited_run, None)
        if context.phase is Phase.FENCED_RELEASE:
            context.incarnation += 1  # the end of the lost callback must not let the member join
        if context.phase in RELEASING:
            context.set_owned(())  # also if we are called inside the lost callback, which has yet to return
        if context.phase in {Phase.AWAITING_POLL, Phase.FENCED_RELEASE}:
            context.move("unsubscribed")

    def _begin_leave(self) -> None:
        """Stop runs and requests, and call the revoked callback if partitions are owned."""
        context = self._context
        self._owner.leave_begins()
        context.move("leave_requested")
        run = self._reconciler.cancel()
        if run is not None and run.token is not None:
            # unsubscribe() inside a listener: the partitions that this listener revokes count as revoked.
            before = context.given_away
            self._reconciler.settle(run, revoked=True)
            self._settled, context.given_away = frozenset(context.given_away - before), before
            context.redirect_listener(run.token, None)
        # Inside on_partitions_assigned the application owns partitions that no heartbeat has named yet.
        self._reconciler.claim_owned()
        self._positions.clear()
        owned = context.owned
        if not owned:
            self._released(None)
            return
        context.emit(PausePartitions(owned))
        # As in Kafka: a member without an epoch is no longer one, and has lost its partitions.
        effect = RevokePartitions if context.epoch > 0 else LosePartitions
        context.call_listener(effect, owned, self._released)

    def _released(self, error: BaseException | None) -> None:
        """The listener returned or raised: the leave request is due in both cases."""
        del error
        if self._context.phase is Phase.LEAVE_REVOKING:
            self._context.move("leave_released")

    def _send_leave(self) -> None:
        """Send the leave request, if it is needed. From then on nothing can give the member partitions again."""
        context = self._context
        request: int | Unsent = Unsent.NOT_NEEDED
        if self._discovery.known:
            reason = "the consumer is being closed" if context.closing else "the consumer unsubscribed"
            request = self._owner.send_leave(self._mode, reason=reason, on_end=self._leave_answered)
        if request is Unsent.NOT_YET:
            return
        context.move("left")
        self._left()
        context.left_group(self._reason(told=request is not Unsent.NOT_NEEDED))
        if request is Unsent.NOT_NEEDED:
            self._leave_ended()
        else:
            self._leave_request = request

    def _reason(self, *, told: bool) -> str:
        """Why the member leaves, for the log; *told* is whether the coordinator hears of it."""
        reason = "the consumer is being closed" if self._context.closing else "the consumer unsubscribed"
        kept = "its partitions go to others only when its session has ended"
        if not told:
            return f"{reason}, and the coordinator is not told: {kept}"
        stays = self._context.subscription or not self._context.config.slots
        if self._context.instance_id is not None and self._mode is not LeaveMode.LEAVE_GROUP and stays:
            return f"{reason}, and as a static member keeps its place: {kept}"
        return reason

    def _left(self) -> None:
        """The member has left; the move was made. It owns nothing, and answers in flight are ignored."""
        self._end_membership(epoch=self._owner.epoch_after_leave(self._mode), keep_id=self._owner.keeps_member_id)
        self._context.set_owned(())
        self._context.given_away |= self._settled
        self._settled = frozenset()
        self._context.subscription = Subscription()

    def _leave_answered(self, answer: object) -> None:
        """The leave has ended, even if the answer is an error: the session ends the membership then."""
        del answer
        if self._leave_request is not None:  # else it took too long, and was ended
            self._leave_ended()

    def _leave_ended(self) -> None:
        """Answer the callers that wait, then apply a subscription that was made meanwhile."""
        waiters, self._waiters = self._waiters, []
        self._context.orphan(self._leave_request)
        self._leave_request = None
        self._mode = LeaveMode.DEFAULT
        for waiter in waiters:
            self._context.emit(LeaveDone(waiter.leave_id))
        subscription, self._resubscription = self._resubscription, None
        if subscription is not None:
            self._owner.subscribe(subscription)

    # --- removed, failed, too late

    def removed(self, why: str, *, keep_id: bool = True) -> None:
        """The coordinator removed the member.

        Args:
            why: what it answered.
        """
        context = self._context
        reason = f"the coordinator removed the member: {why}"
        if context.phase in MEMBER:
            context.move("fenced")
            context.left_group(reason)
            self.removals += 1
            self._begin_release(epoch=0, keep_id=keep_id)
        elif context.phase in LEAVING:
            # The revoked callback ran or runs, so nothing is lost, and there is no membership left to leave.
            context.move("fenced_while_leaving")
            self._left()
            context.left_group(reason)
            self._leave_ended()

    def fail(self, error: Kip848Error) -> None:
        """Stop for good, with a fatal error. Does nothing if the member is not in the group."""
        context = self._context
        if context.phase in MEMBER:
            context.fatal_error = error
            context.move("failed")
            self._begin_release(epoch=0, keep_id=self._owner.keeps_member_id)
        elif context.phase in LEAVING:
            context.fatal_error = error
            context.move("failed")
            self._left()
            self._leave_ended()
        else:
            return
        context.emit(Fail(error))

    def seen_polling(self, at_ms: int) -> None:
        """The application was inside poll() at *at_ms*."""
        self._context.polled_ms = max(self._context.polled_ms, at_ms)

    def polled(self) -> None:
        """poll() began."""
        self.seen_polling(self._context.now_ms)
        if self._context.phase is Phase.STALE_RELEASE:
            self._polled = True

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() lets a stale member join as soon as its lost callback is over."""
        stale = self._context.phase is Phase.STALE_RELEASE
        return stale and not self._polled and bool(self._context.subscription)

    def check_poll_timer(self) -> None:
        """Leave the group if the application did not poll in time. Call this after `seen_polling`."""
        context = self._context
        limit_ms = context.config.max_poll_interval_ms
        silent_ms = context.now_ms - self._context.polled_ms
        if context.phase not in MEMBER or silent_ms <= limit_ms:
            return
        if self._discovery.known:
            # Before the lost callback, because the group must not wait for an application that hangs.
            self._owner.send_leave(LeaveMode.DEFAULT, reason="max.poll.interval.ms was exceeded", on_end=ignore_answer)
        context.move("poll_expired")
        context.left_group(poll_missed(silent_ms=silent_ms, limit_ms=limit_ms), poll_missed=True)
        self._begin_release(epoch=self._owner.epoch_after_leave(LeaveMode.DEFAULT), keep_id=self._owner.keeps_member_id)
        context.surface(
            late_poll(silent_ms=silent_ms, limit_ms=limit_ms, group_id=context.config.group_id),
            key="max.poll.interval.ms",
            every_ms=0,
        )

    # --- the lost callback, and the steps after it

    def _begin_release(self, *, epoch: int, keep_id: bool) -> None:
        """Lose all owned partitions, once the listener call of a run that is under way has returned.

        That listener may revoke partitions; they must not be lost as well.
        """
        run = self._end_membership(epoch=epoch, keep_id=keep_id)
        self._polled = False
        self._awaited_run = run
        if run is None or run.token is None:
            self._lose()
        else:
            self._context.redirect_listener(run.token, lambda error: self._awaited_returned(run, error))

    def _end_membership(self, *, epoch: int, keep_id: bool) -> Run | None:
        """Cancel the run, and ignore answers in flight.

        Returns:
            The cancelled run if its listener call has not returned yet.
        """
        context = self._context
        context.incarnation += 1
        context.epoch = epoch
        run = self._reconciler.cancel()
        self._reconciler.reset()
        self._positions.clear()
        self._owner.forget_group()
        if not keep_id:
            context.member_id = ""
        return run

    def _awaited_returned(self, run: Run, error: BaseException | None) -> None:
        if self._awaited_run is run:
            self._awaited_run = None
            self._reconciler.settle(run, revoked=error is None)
            self._lose()

    def _lose(self) -> None:
        owned = self._context.owned
        if not owned:
            self._lost()
            return
        # If the member leaves, or is removed again, while the callback runs, its end must not change the new phase.
        incarnation = self._context.incarnation
        self._context.call_listener(LosePartitions, owned, lambda _: self._lose_returned(incarnation))

    def _lose_returned(self, incarnation: int) -> None:
        if incarnation == self._context.incarnation:
            self._lost()

    def _lost(self) -> None:
        """The lost callback returned or raised, or there was nothing to lose."""
        context = self._context
        context.set_owned(())
        match context.phase:
            case Phase.FENCED_RELEASE if context.subscription:
                context.move("released")
                self._owner.join()
            case Phase.FENCED_RELEASE:
                context.move("unsubscribed")
            case Phase.STALE_RELEASE:
                context.move("released")
                if not context.subscription:
                    context.move("unsubscribed")
                elif self._polled:
                    context.move("polled")
                    self._owner.join()
            case Phase.FATAL_RELEASE:
                context.move("released")
            case _:
                pass


def ignore_answer(_: object) -> None:
    """Use as the callback of a leave whose answer changes nothing."""
