"""Entering the group, being removed from it, leaving it, and giving up.

Every heartbeat outcome that changes what the member is ends here; so do poll(), subscribe(), unsubscribe() and the poll
timer. What this file decides, by phase:

====================  =============  ====================  ===================  ======================  =============
event                 not in group   joining, in group     leaving              releasing               fatal
====================  =============  ====================  ===================  ======================  =============
subscribe             poll() joins   next heartbeat        after the leave      after the callback      ignored
poll()                joins          `reconciler`          -                    stale: joins later      -
answer                ignored        epoch, assignment     epoch                ignored                 ignored
fenced                ignored        lost, then joins      left, nothing sent   ignored                 ignored
fatal error           ignored        lost, then nothing    fatal, no callback   ignored                 ignored
poll() too late       -              leaves, lost          -                    -                       -
leave                 done at once   revoked, then leaves  joins the waiting    done at once            done at once
====================  =============  ====================  ===================  ======================  =============

Source: KIP-848; Kafka's ``AbstractMembershipManager``; KAFKA-16165, KAFKA-16933, KAFKA-17518.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kip848_client.error_codes import ErrorCode
from kip848_client.errors import (
    Kip848Error,
    MaxPollExceededError,
    TopicAuthorizationError,
    error_for_code,
    error_name,
)
from kip848_client.member.assignment import partitions_from_wire
from kip848_client.member.context import MIN_REPEAT_MS, Context
from kip848_client.member.discovery import Discovery
from kip848_client.member.error_tables import FATAL_ADVICE, HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.events import (
    Fail,
    FailureKind,
    LeaveDone,
    LeaveMode,
    LeaveRequested,
    LosePartitions,
    PausePartitions,
    RequestFailed,
    RevokePartitions,
)
from kip848_client.member.failures import failure_error, is_passing
from kip848_client.member.heartbeat import Heartbeats
from kip848_client.member.positions import Positions
from kip848_client.member.reconciler import Reconciler, Run
from kip848_client.member.states import FATAL, IN_GROUP, LEAVING, Phase
from kip848_client.model import Subscription
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

__all__ = ["Membership"]

LEAVE_EPOCH: Final = -1
"""Leave for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""A static member goes, and keeps its slot until the session ends."""

_MEMBER: Final = IN_GROUP | {Phase.JOINING}


@dataclass(frozen=True, slots=True)
class _Waiter:
    leave_id: int
    deadline_ms: int


class Membership:
    """Moves one member in and out of its group."""

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        heartbeats: Heartbeats,
        reconciler: Reconciler,
        positions: Positions,
    ) -> None:
        self._context = context
        self._discovery = discovery
        self._heartbeats = heartbeats
        self._reconciler = reconciler
        self._positions = positions
        self._last_poll_ms = 0
        self._polled_while_stale = False
        self._awaited_run: Run | None = None
        """A listener call of a dead run that must end before the lost callback may start."""
        self._waiters: list[_Waiter] = []
        self._leave_mode = LeaveMode.DEFAULT
        self._leave_request: int | None = None
        self._resubscription: Subscription | None = None
        self._joining_since_ms = 0
        self._removals = 0
        """How often in a row the member was removed before a heartbeat worked."""

    # ----------------------------------------------------------------------------------------- subscribe and join

    def subscribe(self, subscription: Subscription) -> None:
        """The application wants these topics. While the member leaves, the wish waits until it has left."""
        context = self._context
        if context.phase in FATAL or context.closing:
            return
        if context.phase in LEAVING or self._leave_request is not None:
            self._resubscription = subscription
            return
        context.subscription = subscription
        if context.phase is Phase.IDLE:
            context.move("subscribed")

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() moves the member."""
        phase = self._context.phase
        return phase in {Phase.WAIT_FIRST_POLL, Phase.AWAITING_POLL} or (
            phase is Phase.STALE_RELEASE and not self._polled_while_stale and bool(self._context.subscription)
        )

    def seen_polling(self, at_ms: int) -> None:
        """The application was inside poll() at *at_ms*."""
        self._last_poll_ms = max(self._last_poll_ms, at_ms)

    def polled(self) -> None:
        """poll() began."""
        self.seen_polling(self._context.now_ms)
        match self._context.phase:
            case Phase.WAIT_FIRST_POLL | Phase.AWAITING_POLL:
                self._context.move("polled")
                self._join()
            case Phase.STALE_RELEASE:
                self._polled_while_stale = True
            case _:
                pass

    def _join(self) -> None:
        """Start over with epoch 0; the move to JOINING was made."""
        self._context.incarnation += 1
        self._context.epoch = 0
        self._joining_since_ms = self._context.now_ms
        self._reconciler.reset()
        self._heartbeats.restart(removals=self._removals)

    # -------------------------------------------------------------------------------------------------- heartbeats

    def advance(self) -> None:
        """Send the heartbeat that is due, if there is one, and end leaves that took too long."""
        if self._context.phase is Phase.LEAVE_DUE:
            self._send_leave()
        elif self._discovery.known and self._heartbeats.due():
            self._send_heartbeat()
        late = [waiter for waiter in self._waiters if self._context.now_ms >= waiter.deadline_ms]
        if late and self._context.phase not in LEAVING:
            self._leave_over()

    def deadline_ms(self) -> int | None:
        """When `advance` or `check_poll_timer` would do something by time alone."""
        times = []
        if self._discovery.known and (heartbeat_ms := self._heartbeats.deadline_ms()) is not None:
            times.append(heartbeat_ms)
        if self._context.phase in _MEMBER:
            times.append(self._last_poll_ms + self._context.config.max_poll_interval_ms + 1)
        if self._context.phase not in LEAVING:
            times += [waiter.deadline_ms for waiter in self._waiters]
        return min(times, default=None)

    def _send_heartbeat(self) -> None:
        context = self._context
        version = self._discovery.highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if version is None:
            self.fail(self._fatal(ErrorCode.UNSUPPORTED_VERSION, "the coordinator has no ConsumerGroupHeartbeat"))
            return
        if version == 0 and context.subscription.pattern is not None:
            self.fail(
                error_for_code(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the cluster cannot subscribe by regular expression ({context.subscription.pattern!r}): it offers "
                    "ConsumerGroupHeartbeat version 0 only; name the topics, or use Apache Kafka 4.0 or later",
                )
            )
            return
        incarnation = context.incarnation
        link = context.link
        self._heartbeats.send(
            current=self._reconciler.current,
            version=version,
            on_answer=lambda response: self._answered(incarnation, response, link),
            on_failure=lambda failure: self._heartbeat_failed(incarnation, failure),
        )
        if context.phase is Phase.ACK_DUE:
            in_sync = self._reconciler.current == self._reconciler.target
            context.move("acknowledged" if in_sync else "acknowledged_in_part")

    def _answered(self, incarnation: int, response: ConsumerGroupHeartbeatResponse, link: int | None) -> None:
        if incarnation != self._context.incarnation:
            return
        self._heartbeats.ended()
        if response.error_code:
            self._refused(response.error_code, response.error_message or "", link)
        elif response.member_epoch > 0:
            self._accepted(response)
        else:
            # Only an answer to a leave may carry such an epoch; do not ask again in a loop.
            self._heartbeats.failed()

    def _accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        context = self._context
        self._adopt_member_id(response)
        self._heartbeats.succeeded(interval_ms=response.heartbeat_interval_ms)
        if context.phase is Phase.LEAVE_DUE:
            return
        if context.phase is not Phase.JOINING:
            self._removals = 0
        context.epoch = response.member_epoch
        if context.phase is Phase.LEAVE_REVOKING:
            return
        if response.assignment is None:
            if context.phase is Phase.JOINING:
                context.move("joined")
            return
        changed = self._reconciler.receive(partitions_from_wire(response.assignment))
        if changed and context.phase in {Phase.JOINING, Phase.IN_SYNC, Phase.ACK_DUE}:
            context.move("assignment_received")

    def _adopt_member_id(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.member_id:
            self._context.member_id = response.member_id
            self._context.member_id_confirmed = True

    def _refused(self, code: int, message: str, link: int | None) -> None:
        """The answer carries an error code."""
        error_class = heartbeat_error_class(code)
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self._may_wait_for_instance():
            error_class = HeartbeatErrorClass.RETRY
        match error_class:
            case HeartbeatErrorClass.RETRY:
                self._heartbeats.failed()
            case HeartbeatErrorClass.REDISCOVER:
                self._heartbeats.failed(at_once=True)
                self._context.lose_link(link)
            case HeartbeatErrorClass.FENCED:
                self._heartbeats.failed(at_once=True)
                self._fenced()
            case HeartbeatErrorClass.SURFACE:
                self._heartbeats.failed()
                self._surface(code, message)
            case HeartbeatErrorClass.FATAL:
                self._heartbeats.failed()
                self.fail(self._fatal(code, message))

    def _heartbeat_failed(self, incarnation: int, failure: RequestFailed) -> None:
        if incarnation != self._context.incarnation:
            return
        self._heartbeats.ended()
        self._heartbeats.failed()
        if is_passing(failure):
            return
        if failure.kind is FailureKind.MALFORMED:
            # The connection is closed; another broker, or a repaired one, may do better.
            self._context.surface(failure_error(failure), key=failure.kind)
        elif failure.kind is FailureKind.UNSUPPORTED_VERSION:
            self.fail(self._fatal(ErrorCode.UNSUPPORTED_VERSION, failure.message))
        else:
            self.fail(failure_error(failure))

    def _may_wait_for_instance(self) -> bool:
        limit_ms = self._context.config.unreleased_instance_retry_ms
        return self._context.phase is Phase.JOINING and self._context.now_ms - self._joining_since_ms < limit_ms

    def _surface(self, code: int, message: str) -> None:
        error: Kip848Error
        text = f"{message or 'the coordinator gave no reason'}; the member keeps its partitions and retries"
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error = TopicAuthorizationError(f"{error_name(code)}: {text}", topics=self._context.subscription.topics)
        else:
            error = error_for_code(code, text)
        self._context.surface(error, key=code, every_ms=max(self._heartbeats.interval_ms, MIN_REPEAT_MS))

    def _fatal(self, code: int, message: str) -> Kip848Error:
        group_id = self._context.config.group_id
        text = f"group {group_id!r}: {message or 'the coordinator gave no reason'}"
        if code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            text += f" (pattern {self._context.subscription.pattern!r})"
        if code in FATAL_ADVICE:
            text += f"; {FATAL_ADVICE[code]}"
        return error_for_code(code, text)

    # ----------------------------------------------------------------------------------- removed, too late, failed

    def _fenced(self) -> None:
        """The coordinator removed the member."""
        context = self._context
        if context.phase in _MEMBER:
            context.move("fenced")
            self._removals += 1
            self._go_out(epoch=0)
            self._begin_release()
        elif context.phase in LEAVING:
            context.move("fenced_while_leaving")
            self._left()
            self._leave_over()

    def check_poll_timer(self) -> None:
        """Leave the group if the application did not poll in time. Called when the time of its last poll is fresh."""
        context = self._context
        limit_ms = context.config.max_poll_interval_ms
        silent_ms = context.now_ms - self._last_poll_ms
        if context.phase not in _MEMBER or silent_ms <= limit_ms:
            return
        epoch = self._leave_epoch(LeaveMode.DEFAULT)
        if self._discovery.known and self._can_be_named():
            self._heartbeats.send_leave(epoch=epoch, on_answer=_ignore, on_failure=_ignore)
        context.move("poll_expired")
        self._polled_while_stale = False
        self._go_out(epoch=epoch)
        self._begin_release()
        context.surface(
            MaxPollExceededError(
                f"poll() was not called for {silent_ms} ms, max.poll.interval.ms is {limit_ms}: the member left group "
                f"{context.config.group_id!r} and rejoins with the next poll(); poll more often, or raise the limit"
            ),
            key="max.poll.interval.ms",
            every_ms=0,
        )

    def fail(self, error: Kip848Error) -> None:
        """Stop for good. A member that is not in the group has nothing to stop."""
        context = self._context
        phase = context.phase
        if phase in _MEMBER:
            context.fatal_error = error
            context.move("failed")
            self._go_out(epoch=0)
            self._begin_release()
        elif phase in LEAVING:
            context.fatal_error = error
            context.move("failed")
            self._left()
            self._leave_over()
        else:
            return
        context.emit(Fail(error))

    def _go_out(self, *, epoch: int) -> None:
        """Nothing that is under way counts any more; what is owned is being lost."""
        self._context.incarnation += 1
        self._context.epoch = epoch
        self._awaited_run = self._reconciler.cancel()
        self._reconciler.reset()
        self._positions.clear()
        self._heartbeats.restart(removals=0)

    def _begin_release(self) -> None:
        """Lose what is owned, after the listener call that a dead run left behind."""
        run = self._awaited_run
        if run is None or run.token is None:
            self._lose()
            return
        self._context.redirect_listener(run.token, lambda error: self._awaited_ended(run, error))

    def _awaited_ended(self, run: Run, error: BaseException | None) -> None:
        if self._awaited_run is run:
            self._awaited_run = None
            self._reconciler.settle(run, revoked=error is None)
            self._lose()

    def _lose(self) -> None:
        if not self._context.owned:
            self._released()
            return
        incarnation = self._context.incarnation
        self._context.call_listener(
            LosePartitions, self._context.owned, lambda _: self._released() if self._is(incarnation) else None
        )

    def _is(self, incarnation: int) -> bool:
        return incarnation == self._context.incarnation

    def _lose_now(self) -> None:
        """unsubscribe() or close() inside the listener call that the release waits for: do not wait for it."""
        run, self._awaited_run = self._awaited_run, None
        if run is not None and run.token is not None:
            self._reconciler.settle(run, revoked=True)
            self._context.redirect_listener(run.token, None)
            self._lose()

    def _released(self) -> None:
        """The lost callback is over, however it ended."""
        context = self._context
        context.set_owned(())
        match context.phase:
            case Phase.FENCED_RELEASE:
                if not context.subscription:
                    context.move("unsubscribed")
                    return
                context.move("released")
                self._join()
            case Phase.STALE_RELEASE:
                context.move("released")
                if not context.subscription:
                    context.move("unsubscribed")
                elif self._polled_while_stale:
                    context.move("polled")
                    self._join()
            case Phase.FATAL_RELEASE:
                context.move("released")
            case _:
                pass

    # ----------------------------------------------------------------------------------------------------- leaving

    def leave(self, event: LeaveRequested) -> None:
        """unsubscribe() or close(): answered by `LeaveDone`."""
        context = self._context
        waiter = _Waiter(event.leave_id, event.deadline_ms)
        context.closing = context.closing or event.closing
        self._resubscription = None
        phase = context.phase
        if phase in LEAVING or (phase is Phase.IDLE and self._leave_request is not None):
            self._waiters.append(waiter)
        elif phase in _MEMBER:
            self._waiters.append(waiter)
            self._leave_mode = event.mode
            self._start_leaving()
        else:
            context.subscription = Subscription()
            self._lose_now()
            if context.phase in {Phase.WAIT_FIRST_POLL, Phase.AWAITING_POLL}:
                context.move("unsubscribed")
            elif context.phase is Phase.FENCED_RELEASE:
                context.move("unsubscribed")
                context.incarnation += 1
                context.set_owned(())
            context.emit(LeaveDone(event.leave_id))

    def abandon(self, leave_id: int) -> None:
        """Nobody waits for this leave any more; it goes on."""
        self._waiters = [waiter for waiter in self._waiters if waiter.leave_id != leave_id]

    def _start_leaving(self) -> None:
        context = self._context
        context.move("leave_requested")
        run = self._reconciler.cancel()
        if run is not None and run.token is not None:
            # unsubscribe() inside a listener: what that listener is revoking counts as revoked.
            self._reconciler.settle(run, revoked=True)
            context.redirect_listener(run.token, None)
        self._positions.clear()
        owned = context.owned
        if not owned:
            self._leave_released(None)
            return
        context.emit(PausePartitions(owned))
        effect = RevokePartitions if context.epoch > 0 else LosePartitions
        context.call_listener(effect, owned, self._leave_released)

    def _leave_released(self, error: BaseException | None) -> None:
        """The listener is over; that it raised keeps nobody in the group."""
        del error
        if self._context.phase is Phase.LEAVE_REVOKING:
            self._context.set_owned(())
            self._context.subscription = Subscription()
            self._context.move("leave_released")

    def _send_leave(self) -> None:
        context = self._context
        silent = self._leave_mode is LeaveMode.REMAIN_IN_GROUP and context.config.instance_id is None
        if silent or not self._discovery.known:
            self._end_leave_unsent()
        elif self._can_be_named():
            epoch = self._leave_epoch(self._leave_mode)
            incarnation = context.incarnation + 1
            request_id = self._heartbeats.send_leave(
                epoch=epoch,
                on_answer=lambda _: self._leave_ended(incarnation),
                on_failure=lambda _: self._leave_ended(incarnation),
            )
            context.move("left")
            self._left(epoch=epoch)
            self._leave_request = request_id
        elif not self._heartbeats.in_flight:
            # Version 0 of the protocol: the coordinator never told us who we are, so we cannot be named.
            self._end_leave_unsent()

    def _end_leave_unsent(self) -> None:
        self._context.move("left")
        self._left()
        self._leave_over()

    def _can_be_named(self) -> bool:
        """With version 0 the coordinator makes the id, and does not know ours before its first answer."""
        version = self._discovery.highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        return version is not None and (version > 0 or self._context.member_id_confirmed)

    def _leave_epoch(self, mode: LeaveMode) -> int:
        if self._context.config.instance_id is None or mode is LeaveMode.LEAVE_GROUP:
            return LEAVE_EPOCH
        return STATIC_LEAVE_EPOCH

    def _left(self, *, epoch: int = LEAVE_EPOCH) -> None:
        context = self._context
        context.incarnation += 1
        context.epoch = epoch
        context.set_owned(())
        context.subscription = Subscription()
        self._positions.clear()
        self._reconciler.reset()
        self._heartbeats.restart(removals=0)

    def _leave_ended(self, incarnation: int) -> None:
        """Whatever the answer is, the leave counts as done."""
        if self._is(incarnation):
            self._leave_over()

    def _leave_over(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._context.orphan(self._leave_request)
        self._leave_request = None
        self._leave_mode = LeaveMode.DEFAULT
        for waiter in waiters:
            self._context.emit(LeaveDone(waiter.leave_id))
        subscription, self._resubscription = self._resubscription, None
        if subscription is not None:
            self.subscribe(subscription)


def _ignore(_: object) -> None:
    """The answer to a leave after a poll timeout tells nothing that matters."""
