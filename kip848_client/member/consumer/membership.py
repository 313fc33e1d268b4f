"""Being a member of a KIP-848 group: joining, and what the answers to heartbeats change.

Every heartbeat outcome that changes what the member is ends here; so do poll() and subscribe(). By phase:

=========  =============  ====================  ===================  ======================  =========
event      not in group   joining, in group     leaving              releasing               fatal
=========  =============  ====================  ===================  ======================  =========
subscribe  joins          next heartbeat        after the leave      after the callback      ignored
poll()     stale: joins   `reconciler`          -                    stale: joins later      -
answer     ignored        epoch, assignment     epoch                ignored                 ignored
=========  =============  ====================  ===================  ======================  =========

Does not own: the ways out of the group (`group_exit`): leave, removal, fatal error, poll() too late.

Source: KIP-848; Kafka's ``AbstractMembershipManager``; KAFKA-16165, KAFKA-16933, KAFKA-17518.
Rules: R3 to R19, R47 to R58, R125 to R130 and R144 to R146 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import Subscription
from kip848_client.errors import (
    FatalGroupError,
    Kip848Error,
    TopicAuthorizationError,
    error_for_code,
    error_name,
    join_names,
)
from kip848_client.member.consumer.assignor_round import AssignorRound
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.consumer.slots import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Release, Slots
from kip848_client.member.core.assignment import partitions_from_wire, pending_from_wire
from kip848_client.member.core.context import MIN_REPEAT_MS, Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.error_tables import FATAL_ADVICE, HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.core.events import (
    FailureKind,
    LeaveMode,
    RequestFailed,
)
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.settings import missing_permission
from kip848_client.member.core.states import Phase
from kip848_client.member.group.group_exit import ExitOwner, GroupExit, Unsent, ignore_answer
from kip848_client.member.offsets.positions import Positions
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


class Membership(ExitOwner):
    """Joins the group, sends its heartbeats, and applies their answers."""

    keeps_member_id = True

    def __init__(
        self,
        context: Context,
        *,
        discovery: Discovery,
        heartbeats: Heartbeats,
        reconciler: Reconciler,
        positions: Positions,
        assignors: AssignorRound,
    ) -> None:
        self._context = context
        self._assignors = assignors
        self._discovery = discovery
        self._heartbeats = heartbeats
        self._reconciler = reconciler
        self._joining_since_ms = 0
        self._may_hold_instance = False
        """A join of ours was, or may have been, accepted: the static slot may be ours."""
        self._instance_freed = False
        self.slots: Final = Slots(context, discovery=discovery, heartbeats=heartbeats) if context.config.slots else None
        self.release: Final = Release(context, discovery=discovery, heartbeats=heartbeats)
        self.releasing = False
        """A leave releases the slot, and gives it up if no standby takes it, whatever the settings say."""
        self.exit: Final = GroupExit(
            context, discovery=discovery, reconciler=reconciler, positions=positions, owner=self
        )

    # --- subscribe and join

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription. While the member leaves, the change waits for the end of the leave."""
        context = self._context
        if self.exit.put_off(subscription):
            return
        context.subscription = subscription
        if context.phase is Phase.IDLE:
            context.move("subscribed")
            self.exit.seen_polling(context.now_ms)  # the first poll() has as long as any other
            self.join()

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() moves the member."""
        return self._context.phase is Phase.AWAITING_POLL or self.exit.poll_wanted

    def polled(self) -> None:
        """poll() began."""
        self.exit.polled()
        if self._context.phase is Phase.AWAITING_POLL:
            self._context.move("polled")
            self.join()

    def join(self) -> None:
        """Start over with epoch 0; the move to JOINING was made."""
        self._context.epoch = 0
        self._joining_since_ms = self._context.now_ms
        self.release.forget()
        if self.slots is not None:
            self.slots.begin()
        self._heartbeats.restart(removals=self.exit.removals)

    # --- leaving: `ExitOwner`

    def leave_begins(self) -> None:
        """Nothing to forget: heartbeats go on until the revoked callback has returned."""

    def send_leave(self, mode: LeaveMode, *, reason: str, on_end: Callable[[object], None]) -> int | Unsent:
        """Send the heartbeat that leaves the group. It carries no reason."""
        del reason
        if self.slots is not None:
            self.slots.stop()
            if self._context.epoch <= 0 and not self._may_hold_instance and not self._heartbeats.in_flight:
                return Unsent.NOT_NEEDED  # a standby has no slot
        if mode is LeaveMode.REMAIN_IN_GROUP and self._context.instance_id is None:
            return Unsent.NOT_NEEDED  # its place is kept until its session ends; only a static member can say so
        if self._can_be_named and self._releases(mode):
            return self.release.begin(on_end, gives_up=not self.releasing)
        if self._can_be_named:
            return self._heartbeats.send_leave(epoch=self.epoch_after_leave(mode), on_answer=on_end, on_failure=on_end)
        return Unsent.NOT_YET if self._heartbeats.in_flight else Unsent.NOT_NEEDED

    def _releases(self, mode: LeaveMode) -> bool:
        """Whether a leave waits for a standby that takes the slot, and gives it up if none does."""
        config = self._context.config
        wanted = bool(config.slots) and (self.releasing or config.gives_up_slot)
        context = self._context
        return wanted and mode is LeaveMode.DEFAULT and context.epoch > 0 and bool(context.subscription)

    @property
    def _can_be_named(self) -> bool:
        """Whether a leave can carry the member id: with version 0 the coordinator chooses it in its first answer."""
        version = self._discovery.highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        return version is not None and (version > 0 or self._context.member_id_confirmed)

    def epoch_after_leave(self, mode: LeaveMode) -> int:
        """The epoch that says how the member leaves."""
        if self._context.instance_id is None or mode is LeaveMode.LEAVE_GROUP:
            return LEAVE_EPOCH
        config = self._context.config
        if config.slots and not self._context.subscription:
            return LEAVE_EPOCH  # it has handed over to others, since no standby came
        if config.gives_up_slot and self._context.epoch <= 0:
            return LEAVE_EPOCH  # its join may have been accepted, and it goes: nobody is to wait for the slot
        return STATIC_LEAVE_EPOCH

    def forget_group(self) -> None:
        """Forget the heartbeats."""
        self._heartbeats.restart(removals=0)

    # --- heartbeats

    def advance(self) -> None:
        """Send the heartbeat if one is due, and end a leave that took too long."""
        if self._context.link is not None:
            if self._heartbeats.due() and (
                self.slots is None or self._context.phase is not Phase.JOINING or self.slots.may_join()
            ):
                self._send_heartbeat()
            early = self._heartbeats.early
            if (
                early.wait is not None
                and early.question_wanted
                and self._discovery.highest_version(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None
            ):
                early.ask(timeout_ms=self._heartbeats.timeout_ms, target=self._reconciler.target.partitions)
        if self.release.watches:
            self.release.advance()
        self.exit.advance()

    def _send_heartbeat(self) -> None:
        context = self._context
        version = self._discovery.highest_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if version is None:
            self.exit.fail(self._fatal(ErrorCode.UNSUPPORTED_VERSION, "the coordinator has no ConsumerGroupHeartbeat"))
            return
        if version == 0 and context.subscription.pattern is not None:
            self.exit.fail(
                error_for_code(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the cluster cannot subscribe by regular expression ({context.subscription.pattern!r}): it offers "
                    "ConsumerGroupHeartbeat version 0 only; name the topics, or use Apache Kafka 4.0 or later",
                    stopped=True,
                )
            )
            return
        unsupported = self._assignors.check_coordinator(lambda key: self._discovery.highest_version(key) is not None)
        if unsupported is not None:
            self.exit.fail(unsupported)
            return
        link = context.link
        self._heartbeats.send(
            current=self._reconciler.current,
            version=version,
            on_answer=lambda response: self._answered(response, link),
            on_failure=self._heartbeat_failed,
        )
        if context.phase is Phase.ACK_DUE:
            in_sync = self._reconciler.current == self._reconciler.target
            context.move("acknowledged" if in_sync else "acknowledged_in_part")
            self._reconciler.advance()  # a remaining change without callbacks needs no poll()

    def _answered(self, response: ConsumerGroupHeartbeatResponse, link: int | None) -> None:
        self._heartbeats.ended()
        if response.error_code:
            self._refused(response.error_code, response.error_message or "", link)
        elif response.member_epoch > 0:
            self._accepted(response)
        else:
            # Only the answer to a leave may carry such an epoch. Back off instead of asking in a loop.
            self._heartbeats.failed()

    def _accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        context = self._context
        self._discovery.proven()
        self._adopt_member_id(response)
        self._may_hold_instance = True
        self._instance_freed = False
        if self.slots is not None and context.phase is Phase.JOINING:
            self.slots.taken()
        self._heartbeats.succeeded(interval_ms=response.heartbeat_interval_ms)
        if context.phase is not Phase.JOINING:
            self.exit.removals = 0
        self._look_for_partitions_on_their_way(response)
        context.epoch = response.member_epoch
        self._assignors.answered(response)
        if response.assignment is None:
            if context.phase is Phase.JOINING:
                context.move("joined")
            return
        changed = self._reconciler.receive(partitions_from_wire(response.assignment))
        if changed and context.phase in {Phase.JOINING, Phase.IN_SYNC, Phase.ACK_DUE}:
            context.move("assignment_received")

    def _look_for_partitions_on_their_way(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Tell the early heartbeats what the answer holds, before its epoch and target are applied."""
        assignment = response.assignment
        self._heartbeats.early.answered(
            joined=self._context.phase is Phase.JOINING,
            moved=response.member_epoch != self._context.epoch,
            target=None if assignment is None else partitions_from_wire(assignment),
            before=self._reconciler.target.partitions,
            pending=frozenset() if assignment is None else pending_from_wire(assignment),
        )

    def _adopt_member_id(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.member_id:
            self._context.member_id = response.member_id
            self._context.member_id_confirmed = True

    def _refused(self, code: int, message: str, link: int | None) -> None:
        """The answer carries an error code."""
        error_class = heartbeat_error_class(code, joining=self._context.phase is Phase.JOINING)
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self._context.phase is Phase.JOINING:
            if self._free_own_instance():
                return
            if self.slots is not None:
                self._may_hold_instance = self._instance_freed = False
                self.slots.refused()
                self._heartbeats.slot_refused()
                if self.releasing:
                    self.exit.release()  # a standby came after all, when the member wanted its slot back
                return
            if self._context.now_ms - self._joining_since_ms < self._context.config.unreleased_instance_retry_ms:
                error_class = HeartbeatErrorClass.RETRY
        match error_class:
            case HeartbeatErrorClass.RETRY:
                self._heartbeats.failed()
            case HeartbeatErrorClass.REDISCOVER:
                self._heartbeats.failed(at_once=True)
                self._context.lose_link(link)
            case HeartbeatErrorClass.FENCED:
                self.exit.removed(f"{error_name(code)} {message}".rstrip())
            case HeartbeatErrorClass.SURFACE:
                self._heartbeats.failed()
                self._surface(code, message)
            case HeartbeatErrorClass.FATAL:
                self._heartbeats.failed()
                self.exit.fail(self._fatal(code, message))

    def _heartbeat_failed(self, failure: RequestFailed) -> None:
        self._heartbeats.ended()
        self._heartbeats.failed()
        self._may_hold_instance = True
        if is_passing(failure):
            return
        if failure.kind is FailureKind.MALFORMED:
            # The connection is closed. The next coordinator may answer correctly.
            self._context.surface(failure_error(failure), key=failure.kind)
        else:
            self.connection_refused(failure)

    def connection_refused(self, failure: RequestFailed) -> None:
        """The coordinator refused the connection or does not offer our protocol. Ignored outside the group."""
        if failure.kind is FailureKind.UNSUPPORTED_VERSION:
            self.exit.fail(self._fatal(ErrorCode.UNSUPPORTED_VERSION, failure.message))
        else:
            self.exit.fail(failure_error(failure))

    def _free_own_instance(self) -> bool:
        """Leave the static slot that this member holds itself, so that its next join finds it free.

        The coordinator refuses a join with the instance id of a living member, even to that member. When the answer to
        its join was lost, or it was fenced, it would have to wait for the end of its own session. If another process
        holds the slot, the coordinator refuses this leave, and the next answer is final.
        """
        if not self._may_hold_instance or self._instance_freed or not self._can_be_named:
            return False
        self._instance_freed = True
        self._heartbeats.send_leave(epoch=STATIC_LEAVE_EPOCH, on_answer=ignore_answer, on_failure=ignore_answer)
        return True

    def _surface(self, code: int, message: str) -> None:
        """Report TOPIC_AUTHORIZATION_FAILED and go on: the permission may be granted later."""
        names = join_names(map(repr, sorted(self._context.subscription.topics)))
        lacks = missing_permission(self._context.config, "DESCRIBE", f"each subscribed topic: {names}")
        text = f"{error_name(code)}: {message + '; ' if message else ''}{lacks}"
        error = TopicAuthorizationError(
            f"{text}; the member keeps its partitions and retries", topics=self._context.subscription.topics
        )
        self._context.surface(error, key=code, every_ms=max(self._heartbeats.interval_ms, MIN_REPEAT_MS))

    def _fatal(self, code: int, message: str) -> Kip848Error:
        group_id = self._context.config.group_id
        text = f"group {group_id!r}: {message.rstrip('.') or 'the coordinator gave no reason'}"
        if code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            text += f" (pattern {self._context.subscription.pattern!r})"
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            text += f"; {missing_permission(self._context.config, 'READ', f'group {group_id!r}')}"
        if code in FATAL_ADVICE:
            text += f"; {FATAL_ADVICE[code]}"
        error = error_for_code(code, text, stopped=True)
        # Applications catch FatalGroupError, so a code without a class of its own must be one too.
        return error if isinstance(error, FatalGroupError) else FatalGroupError(str(error), code=code)
