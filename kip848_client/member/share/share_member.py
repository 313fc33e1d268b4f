"""The heartbeats of one member of a share group: join, report, leave. Tells which partitions to read.

A partition of a share group has several members, so nothing is revoked and nothing acknowledged: a new assignment
replaces the old one at once. Phases are those of `STATES`, of which a share group uses the way in, the way out, and the
stable one.

Does not own: reading and acknowledging records (`share_reader`).

Source: KIP-932; Kafka's ``ShareMembershipManager`` and ``ShareHeartbeatRequestManager``.
Rules: R320 to R328 in docs/protocol.md.
"""

from __future__ import annotations

import random
from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import BrokerNode, Subscription
from kip848_client.errors import FatalGroupError, Kip848Error, TopicAuthorizationError, error_for_code, error_name
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.context import MIN_REPEAT_MS, Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.core.events import (
    CoordinatorConnected,
    CoordinatorDisconnected,
    Destination,
    Fail,
    LeaveDone,
    LeaveRequested,
    MemberEffect,
    RequestFailed,
    ResponseReceived,
    SubscriptionChanged,
    Tick,
)
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.settings import MemberConfig, missing_permission
from kip848_client.member.core.states import FATAL, IN_GROUP, LEAVING, MEMBER, RELEASING, MemberState, Phase
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_LEAVE_EPOCH: Final = -1
_FIRST_INTERVAL_MS: Final = 5_000

ShareEvent = (
    Tick
    | SubscriptionChanged
    | ResponseReceived
    | RequestFailed
    | CoordinatorConnected
    | CoordinatorDisconnected
    | LeaveRequested
)

_ADVICE: Final[dict[int, str]] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster does not serve share groups: they need Apache Kafka 4.1 or later with the feature share.version=1 "
        "(kafka-features.sh upgrade --feature share.version=1)"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the id belongs to a group of another type (kip848 groups list tells its type): use another group.id"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the id belongs to a group of another type (kip848 groups list tells its type): use another group.id"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.share.max.size, or use another group",
    ErrorCode.INVALID_REQUEST: "the coordinator refuses what this member sends",
}


class ShareMember:
    """One member, pure. `step` raises for no order of events.

    Args:
        config: only its group, member id, rack, user, and times are used.
        rng: source of jitter.
    """

    def __init__(self, config: MemberConfig, *, rng: random.Random) -> None:
        self._context: Final = Context(config, rng)
        self._discovery: Final = Discovery(
            self._context, on_refused=_ignore, on_connection_refused=self._connection_refused
        )
        self.assignment: frozenset[IdPartition] = frozenset()
        """What to read from. Empty outside of the group."""
        self._backoff: Final = self._context.new_backoff()
        self._interval_ms = _FIRST_INTERVAL_MS
        self._last_sent_ms = 0
        self._in_flight: int | None = None
        self._reported: tuple[str, ...] | None = None
        """Topics that the coordinator has heard of; None if it must hear everything again."""
        self._leave: LeaveRequested | None = None
        self._leave_request: int | None = None

    # --- step

    def step(self, event: ShareEvent, *, now_ms: int) -> list[MemberEffect]:
        """Take one event and return what to do, in order."""
        context = self._context
        context.begin_step(now_ms)
        match event:
            case Tick():
                pass
            case SubscriptionChanged(subscription):
                self._subscribe(subscription)
            case ResponseReceived(request_id, response):
                on_answer = context.take_answer(request_id)
                if on_answer is not None:
                    on_answer(response)
            case RequestFailed(request_id):
                on_failure, link = context.take_failure(request_id)
                context.lose_link(link)
                if on_failure is not None:
                    on_failure(event)
            case CoordinatorConnected():
                self._discovery.connected(event)
            case CoordinatorDisconnected():
                self._discovery.disconnected(event)
            case LeaveRequested():
                self._leave_requested(event)
        self._advance()
        return context.effects

    def _advance(self) -> None:
        context = self._context
        if context.phase is Phase.LEAVE_DUE:
            self._send_leave()
        elif context.phase in MEMBER and context.link is not None and self._in_flight is None and self._due():
            self._send_heartbeat()
        if self._leave is not None and context.phase not in MEMBER | LEAVING:
            leave = self._leave
            if self._leave_request is None or context.due(leave.deadline_ms):
                context.orphan(self._leave_request)
                self._leave = self._leave_request = None
                context.emit(LeaveDone(leave.leave_id))
        if context.link is None:
            self._discovery.advance(wanted=context.phase in MEMBER)

    # --- joining

    def _subscribe(self, subscription: Subscription) -> None:
        context = self._context
        if context.closing or context.phase in FATAL:
            return
        context.subscription = subscription
        if context.phase is Phase.IDLE and self._leave is None:
            context.move("subscribed")
            self._join()

    def _join(self) -> None:
        self._context.epoch = 0
        self._reported = None
        self._backoff.reset()

    def _due(self) -> bool:
        context = self._context
        if self._backoff.failures:
            return context.due(self._backoff.ready_ms)
        if context.phase is Phase.JOINING or self._reported != _names(context.subscription):
            return True
        return context.due(self._last_sent_ms + self._interval_ms)

    def _send_heartbeat(self) -> None:
        context = self._context
        if self._discovery.highest_version(ApiKey.SHARE_GROUP_HEARTBEAT) is None:
            self._fail(self._fatal(ErrorCode.UNSUPPORTED_VERSION, "the coordinator has no ShareGroupHeartbeat"))
            return
        names = _names(context.subscription)
        full = self._reported is None  # after a join, and after a heartbeat of which the answer is not known
        request = ShareGroupHeartbeatRequest(
            group_id=context.config.group_id,
            member_id=context.member_id,
            member_epoch=context.epoch,
            rack_id=context.config.rack_id if full else None,
            subscribed_topic_names=names if full or names != self._reported else None,
        )
        link = context.link
        self._reported = names
        self._last_sent_ms = context.now_ms
        context.statistics.heartbeats += 1
        context.statistics.last_heartbeat_ms = context.now_ms
        self._in_flight = context.send(
            request,
            destination=Destination.COORDINATOR,
            timeout_ms=self._timeout_ms,
            on_answer=lambda response: self._answered(response, link),
            on_failure=self._heartbeat_failed,
        )

    @property
    def _timeout_ms(self) -> int:
        """An answer that comes later than the interval is taken for lost: its session runs."""
        return max(1, min(self._context.config.request_timeout_ms, 2 * self._interval_ms))

    def _answered(self, response: ShareGroupHeartbeatResponse, link: int | None) -> None:
        self._in_flight = None
        context = self._context
        if context.phase not in MEMBER:
            return
        if response.error_code:
            self._refused(response.error_code, response.error_message or "", link)
            return
        self._discovery.proven()
        self._backoff.reset()
        if response.heartbeat_interval_ms > 0:
            self._interval_ms = response.heartbeat_interval_ms
        context.epoch = response.member_epoch
        if context.phase is Phase.JOINING:
            context.move("joined")
        if response.assignment is not None:
            self.assignment = frozenset(
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            )

    def _refused(self, code: int, message: str, link: int | None) -> None:
        context = self._context
        self._reported = None
        match heartbeat_error_class(code, joining=context.phase is Phase.JOINING):
            case HeartbeatErrorClass.RETRY:
                self._backoff.failed(context.now_ms)
            case HeartbeatErrorClass.REDISCOVER:
                context.lose_link(link)
            case HeartbeatErrorClass.FENCED:
                context.move("fenced")
                self.assignment = frozenset()
                context.incarnation += 1
                context.move("released")  # nothing to take away from the application: its locks tell what holds
                self._join()
            case HeartbeatErrorClass.SURFACE:
                self._backoff.failed(context.now_ms)
                lacks = missing_permission(context.config, "DESCRIBE", "each subscribed topic")
                text = f"{error_name(code)}: {message + '; ' if message else ''}{lacks}"
                error = TopicAuthorizationError(f"{text}; the member retries", topics=context.subscription.topics)
                context.surface(error, key=code, every_ms=max(self._interval_ms, MIN_REPEAT_MS))
            case HeartbeatErrorClass.FATAL:
                self._fail(self._fatal(code, message))

    def _heartbeat_failed(self, failure: RequestFailed) -> None:
        self._in_flight = None
        self._reported = None
        if self._context.phase not in MEMBER:
            return
        self._backoff.failed(self._context.now_ms)
        if not is_passing(failure):
            self._connection_refused(failure)

    def _connection_refused(self, failure: RequestFailed) -> None:
        self._fail(failure_error(failure))

    def _fatal(self, code: int, message: str) -> Kip848Error:
        group_id = self._context.config.group_id
        text = f"share group {group_id!r}: {message.rstrip('.') or 'the coordinator gave no reason'}"
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            text += f"; {missing_permission(self._context.config, 'READ', f'group {group_id!r}')}"
        if code in _ADVICE:
            text += f"; {_ADVICE[code]}"
        error = error_for_code(code, text, stopped=True)
        return error if isinstance(error, FatalGroupError) else FatalGroupError(text, code=code)

    def _fail(self, error: Kip848Error) -> None:
        context = self._context
        if context.phase not in MEMBER:
            return
        context.fatal_error = error
        context.move("failed")
        context.move("released")
        self.assignment = frozenset()
        context.emit(Fail(error))

    # --- leaving

    def _leave_requested(self, event: LeaveRequested) -> None:
        context = self._context
        context.closing = context.closing or event.closing
        if self._leave is not None:
            context.emit(LeaveDone(self._leave.leave_id))
        self._leave = event
        context.subscription = Subscription()
        self.assignment = frozenset()
        if context.phase in MEMBER:
            context.move("leave_requested")
            context.move("leave_released")
            context.orphan(self._in_flight)
            self._in_flight = None

    def _send_leave(self) -> None:
        context = self._context
        assert self._leave is not None
        if context.link is not None:
            self._leave_request = context.send(
                ShareGroupHeartbeatRequest(
                    group_id=context.config.group_id, member_id=context.member_id, member_epoch=_LEAVE_EPOCH
                ),
                destination=Destination.COORDINATOR,
                timeout_ms=max(1, self._leave.deadline_ms - context.now_ms),
                on_answer=self._left,
                on_failure=self._left,
                urgent=True,
            )
        context.move("left")
        context.epoch = _LEAVE_EPOCH

    def _left(self, answer: object) -> None:
        del answer  # the session ends the membership if this did not
        self._leave_request = None

    # --- for the shell

    def deadline_ms(self) -> int | None:
        """When the next `Tick` is due, or None if only an event can matter."""
        return self._context.wake_ms

    @property
    def state(self) -> MemberState:
        """The public state."""
        return self._context.phase.state

    @property
    def in_group(self) -> bool:
        """Whether the coordinator counts this member."""
        return self._context.phase in IN_GROUP

    @property
    def releasing(self) -> bool:
        """Whether it was removed, and has not joined again."""
        return self._context.phase in RELEASING

    @property
    def member_id(self) -> str:
        """Made by the client."""
        return self._context.member_id

    @property
    def member_epoch(self) -> int:
        """0 while joining, -1 after leaving."""
        return self._context.epoch

    @property
    def fatal_error(self) -> Kip848Error | None:
        """Why it has stopped for good."""
        return self._context.fatal_error

    @property
    def coordinator(self) -> BrokerNode | None:
        """The coordinator, while its connection is up."""
        return self._discovery.node

    @property
    def heartbeat_interval_ms(self) -> int:
        """As the coordinator says."""
        return self._interval_ms


def _names(subscription: Subscription) -> tuple[str, ...]:
    return tuple(sorted(subscription.topics))


def _ignore(error: Kip848Error) -> None:
    """`Discovery` surfaces it; no call waits for the coordinator here."""
