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

Does not own: the steps of a leave (`leave_steps`), the request that leaves (`leaving`, `classic_leaving`), the lost
callback (`release`).

Source: Kafka's ``AbstractMembershipManager``; KAFKA-16933, KAFKA-17518.
Rules: R47 to R63, R131 to R142 and R211 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.errors import Kip848Error, MaxPollExceededError
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import Fail, LeaveDone, LeaveRequested
from kip848_client.member.core.states import FATAL, LEAVING, MEMBER, RELEASING, Phase
from kip848_client.member.group.leave_steps import LeaveSteps
from kip848_client.member.group.release import Release
from kip848_client.member.group.runs import Run, Runs
from kip848_client.member.offsets.positions import Positions
from kip848_client.model import Subscription

__all__ = ["GroupExit"]


class GroupExit:
    """Takes one member out of its group.

    Args:
        forget: called when the member is out: forgets the requests and answers of the protocol.
        keeps_id: whether the member id stays after a fatal error or a late poll().
    """

    def __init__(
        self,
        context: Context,
        *,
        reconciler: Runs,
        positions: Positions,
        leaving: LeaveSteps,
        release: Release,
        forget: Callable[[], None],
        keeps_id: bool,
    ) -> None:
        self._context: Final = context
        self._reconciler: Final = reconciler
        self._positions: Final = positions
        self._leaving: Final = leaving
        self._release: Final = release
        self._forget: Final = forget
        self._keeps_id: Final = keeps_id
        self._last_poll_ms = 0
        self.removals = 0
        """How often in a row the member was removed. `membership` and `classic_group` reset it."""

    def advance(self) -> None:
        """Go on with a leave; while there is none, have the member woken for `check_poll_timer`."""
        if self._context.phase in MEMBER:
            self._context.wake_at(self._last_poll_ms + self._context.config.max_poll_interval_ms + 1)
        else:
            self._leaving.advance()

    # --- leaving

    def leave(self, event: LeaveRequested) -> None:
        """unsubscribe() or close(). `LeaveDone` answers; at once if there is nothing to leave."""
        context = self._context
        context.closing = context.closing or event.closing
        if self._leaving.unfinished:
            self._leaving.wait(event)
        elif context.phase in MEMBER:
            self._leaving.start(event)
        else:
            context.subscription = Subscription()
            self._release.hurry()
            if context.phase is Phase.FENCED_RELEASE:
                context.incarnation += 1
            if context.phase in RELEASING:
                context.set_owned(())  # also if we are called inside the lost callback, which has yet to return
            if context.phase in {Phase.WAIT_FIRST_POLL, Phase.AWAITING_POLL, Phase.FENCED_RELEASE}:
                context.move("unsubscribed")
            context.emit(LeaveDone(event.leave_id))

    def abandon(self, leave_id: int) -> None:
        """The caller stopped waiting for this leave. The leave goes on."""
        self._leaving.abandon(leave_id)

    def put_off(self, subscription: Subscription) -> bool:
        """Keep a subscription for the end of a leave, or drop it if the member has stopped; False if it applies now."""
        if self._context.phase in FATAL or self._context.closing:
            return True
        if self._leaving.unfinished:
            self._leaving.resubscribe(subscription)
            return True
        return False

    # --- removed, failed, too late

    def removed(self, *, keep_id: bool = True) -> None:
        """The coordinator removed the member."""
        context = self._context
        if context.phase in MEMBER:
            context.move("fenced")
            self.removals += 1
            self._release.begin(self._drop_out(epoch=0, keep_id=keep_id))
        elif context.phase in LEAVING:
            context.move("fenced_while_leaving")
            self._leaving.left()
            self._leaving.over()

    def fail(self, error: Kip848Error) -> None:
        """Stop for good, with a fatal error. Does nothing if the member is not in the group."""
        context = self._context
        if context.phase in MEMBER:
            context.fatal_error = error
            context.move("failed")
            self._release.begin(self._drop_out(epoch=0, keep_id=self._keeps_id))
        elif context.phase in LEAVING:
            context.fatal_error = error
            context.move("failed")
            self._leaving.left()
            self._leaving.over()
        else:
            return
        context.emit(Fail(error))

    def seen_polling(self, at_ms: int) -> None:
        """The application was inside poll() at *at_ms*."""
        self._last_poll_ms = max(self._last_poll_ms, at_ms)

    def check_poll_timer(self) -> None:
        """Leave the group if the application did not poll in time. Call this after `seen_polling`."""
        context = self._context
        limit_ms = context.config.max_poll_interval_ms
        silent_ms = context.now_ms - self._last_poll_ms
        if context.phase not in MEMBER or silent_ms <= limit_ms:
            return
        epoch = self._leaving.send_late()
        context.move("poll_expired")
        self._release.begin(self._drop_out(epoch=epoch, keep_id=self._keeps_id))
        context.surface(
            MaxPollExceededError(
                f"poll() was not called for {silent_ms} ms, max.poll.interval.ms is {limit_ms}: the member left group "
                f"{context.config.group_id!r} and rejoins with the next poll(); poll more often, or raise the limit"
            ),
            key="max.poll.interval.ms",
            every_ms=0,
        )

    def _drop_out(self, *, epoch: int, keep_id: bool) -> Run | None:
        """End the membership: cancel the run, ignore answers in flight.

        Returns:
            The cancelled run if its listener call has not returned yet.
        """
        context = self._context
        context.incarnation += 1
        context.epoch = epoch
        run = self._reconciler.cancel()
        self._reconciler.reset()
        self._positions.clear()
        self._forget()
        if not keep_id:
            context.member_id = ""
        return run
