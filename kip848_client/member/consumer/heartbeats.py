"""Heartbeats: when the next one is due, and its fields.

A heartbeat repeats only what changed since the last one (`Sent`). After any failure, a join, or on another connection
everything is repeated: the coordinator accepts a member's previous epoch only together with its partitions, and it
repeats a lost assignment only to a full request.

At most one heartbeat is in flight, except for the leave heartbeat. "At once" skips the interval, never the backoff. The
interval runs from the last send; when an answer changes it, it starts again with that answer.

Does not own: what an answer does to the member (`membership`).

Source: KIP-848 "ConsumerGroupHeartbeat"; Kafka's ``AbstractHeartbeatRequestManager`` and ``HeartbeatState``. Unlike
Kafka, a joining or acknowledging member waits for the backoff, and a changed subscription does not wait for the
interval.
Rules: R27 to R46 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from kip848_client.common.model import Subscription
from kip848_client.member.consumer.early_heartbeats import EarlyHeartbeats
from kip848_client.member.core.assignment import LocalAssignment, partitions_to_wire
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import Destination, RequestFailed
from kip848_client.member.core.states import HEARTBEATING, Phase
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_MIN_TIMEOUT_MS = 5000
_OMITTED_TIMEOUT_MS = -1
_DEFAULT_INTERVAL_MS = 5000  # Kafka's group.consumer.heartbeat.interval.ms, for a coordinator that never names one


class Sent(msgspec.Struct, frozen=True):
    """The fields of the last heartbeat that the next one leaves out if they are unchanged."""

    link: int | None
    """Number of the connection to the coordinator that carried it."""
    subscription: Subscription
    assignment: LocalAssignment
    assignors: tuple[Assignor, ...]


class Heartbeats:
    """Decides when the heartbeats of one member are due, and builds them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.early: Final = EarlyHeartbeats(context)
        self._backoff = context.new_backoff()
        self._sent: Sent | None = None
        self._in_flight: int | None = None
        self._ownership_report_pending = False
        self.ownership_reports: int = 0
        """How many of the sent heartbeats listed the owned partitions."""
        self._due_ms = 0
        self._interval_ms = 0
        self._expected_ms: int | None = None
        """When the coordinator expects the next heartbeat: one interval after the last. Failures do not change it."""
        self.ack_due: bool = False
        """The next heartbeat acknowledges a reconciled assignment, and is sent at once."""

    @property
    def in_flight(self) -> bool:
        """Whether an answer is awaited."""
        return self._in_flight is not None

    @property
    def ownership_report_pending(self) -> bool:
        """Whether a heartbeat that listed the owned partitions was sent, and no heartbeat was answered since.

        A failed heartbeat may have arrived or may still arrive. Only the answer to a later one shows its effect.
        """
        return self._ownership_report_pending

    @property
    def interval_ms(self) -> int:
        """The interval that the coordinator named; 0 before the first answer."""
        return self._interval_ms

    @property
    def timeout_ms(self) -> int:
        """How long to wait for an answer: less than a session, because only one heartbeat may be under way."""
        return min(self._context.config.request_timeout_ms, max(self._interval_ms, _MIN_TIMEOUT_MS))

    # --- timing

    def due(self) -> bool:
        """Whether to send one now, given a coordinator."""
        if self._in_flight is not None or self._context.phase not in HEARTBEATING:
            return False
        # An immediate heartbeat skips the interval, but no heartbeat is sent before the backoff ends.
        due_ms = self._backoff.ready_ms
        context = self._context
        if not (context.phase is Phase.JOINING or self.ack_due or context.expedite or self._has_news()):
            early_ms = self.early.due_ms()
            due_ms = max(due_ms, self._due_ms if early_ms is None else min(early_ms, self._due_ms))
        return context.due(due_ms)

    def _has_news(self) -> bool:
        """Whether subscription or assignors have changed since the last heartbeat."""
        sent, context = self._sent, self._context
        if sent is None or (sent.subscription is context.subscription and sent.assignors is context.assignors):
            return False  # most of the time
        return self._subscription_changed() or self._assignors_changed()

    def _subscription_changed(self) -> bool:
        if self._sent is None or self._sent.subscription is self._context.subscription:
            return False  # most of the time
        return self._sent.subscription != self._context.subscription and self._context.phase is not Phase.LEAVE_REVOKING

    def _assignors_changed(self) -> bool:
        """Whether to send the assignors now. A withdrawn reason (now 0) waits for the next interval."""
        if self._sent is None or self._sent.assignors is self._context.assignors:
            return False  # most of the time
        sent_reasons = {assignor.name: assignor.reason for assignor in self._sent.assignors}
        compared = tuple(
            assignor if assignor.reason else replace(assignor, reason=sent_reasons.get(assignor.name, 0))
            for assignor in self._context.assignors
        )
        return compared != self._sent.assignors and self._context.phase is not Phase.LEAVE_REVOKING

    @property
    def known_assignors(self) -> tuple[Assignor, ...] | None:
        """The assignors that the coordinator knows from the last heartbeat; None if that is uncertain."""
        return self._sent.assignors if self._sent is not None else None

    @property
    def empty_subscription_known(self) -> bool:
        """Whether the coordinator answered a heartbeat with an empty subscription."""
        return self._sent is not None and not self._sent.subscription and not self.in_flight

    # --- sending

    def send(
        self,
        *,
        current: LocalAssignment,
        version: int,
        on_answer: Callable[[ConsumerGroupHeartbeatResponse], None],
        on_failure: Callable[[RequestFailed], None],
    ) -> None:
        """Build and send a heartbeat.

        Args:
            current: the assignment that was reconciled last.
            version: highest ConsumerGroupHeartbeat version of the coordinator.
        """
        context = self._context
        request = self.build(current=current, version=version)
        self._sent = Sent(context.link, context.subscription, current, context.assignors)
        if request.topic_partitions is not None:
            self._ownership_report_pending = True
            self.ownership_reports += 1
        self.ack_due = False
        self._context.expedite = False
        self._note_send(due_ms=None if context.phase is Phase.JOINING else self._expected_ms)
        self.early.sent(interval_ms=self._interval_ms)
        self._due_ms = context.now_ms + self._interval_ms
        self._expected_ms = self._due_ms if self._interval_ms else None
        self._in_flight = context.send(
            request,
            destination=Destination.COORDINATOR,
            timeout_ms=self.timeout_ms,
            on_answer=on_answer,
            on_failure=on_failure,
        )

    def build(self, *, current: LocalAssignment, version: int) -> ConsumerGroupHeartbeatRequest:
        """Build a heartbeat with all fields, or only with those that changed."""
        context = self._context
        config = context.config
        joining = context.phase is Phase.JOINING
        # On a new connection everything is repeated: its coordinator may be another one.
        sent = self._sent if self._sent is not None and self._sent.link == context.link else None
        full = joining or sent is None
        with_subscription = full or self._subscription_changed()
        with_partitions = full or (sent is not None and current != sent.assignment)
        with_assignors = bool(config.client_assignors) and (sent is None or full or sent.assignors != context.assignors)
        subscription = context.subscription
        return ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=self._member_id(version),
            member_epoch=context.epoch,
            instance_id=context.instance_id,
            rack_id=config.rack_id if full else None,
            rebalance_timeout_ms=config.rebalance_timeout_ms if full else _OMITTED_TIMEOUT_MS,
            subscribed_topic_names=tuple(sorted(subscription.topics)) if with_subscription else None,
            subscribed_topic_regex=(subscription.pattern or "") if with_subscription and version >= 1 else None,
            server_assignor=config.server_assignor if full else None,
            topic_partitions=(partitions_to_wire(() if joining else current.partitions) if with_partitions else None),
            client_assignors=context.assignors if with_assignors else None,
        )

    def send_leave(
        self,
        *,
        epoch: int,
        on_answer: Callable[[ConsumerGroupHeartbeatResponse], None],
        on_failure: Callable[[RequestFailed], None],
        instance_id: str | None = None,
    ) -> int:
        """Send the heartbeat that leaves the group, even while another is in flight. Returns its number.

        Args:
            instance_id: the slot that is left; the member's own by default.
        """
        context = self._context
        self._note_send(due_ms=None)
        return context.send(
            ConsumerGroupHeartbeatRequest(
                group_id=context.config.group_id,
                member_id=context.member_id,
                member_epoch=epoch,
                instance_id=instance_id or context.instance_id,
            ),
            destination=Destination.COORDINATOR,
            timeout_ms=self.timeout_ms,
            on_answer=on_answer,
            on_failure=on_failure,
            urgent=True,
        )

    def _member_id(self, version: int) -> str:
        """With version 0 the coordinator chooses the id, so the first heartbeat carries an empty one."""
        if version == 0 and not self._context.member_id_confirmed:
            return ""
        return self._context.member_id

    def _note_send(self, *, due_ms: int | None) -> None:
        statistics = self._context.statistics
        statistics.heartbeats += 1
        statistics.last_heartbeat_ms = self._context.now_ms
        statistics.last_heartbeat_due_ms = due_ms

    # --- outcomes

    def ended(self) -> None:
        """The heartbeat in flight was answered or failed."""
        self._in_flight = None

    def succeeded(self, *, interval_ms: int) -> None:
        """An answer without an error code came. An interval of 0 or less is ignored."""
        self._backoff.reset()
        self._ownership_report_pending = False
        if interval_ms <= 0:
            interval_ms = self._interval_ms or _DEFAULT_INTERVAL_MS
        longest_ms = self._context.config.heartbeat_interval_max_ms
        if longest_ms is not None:
            interval_ms = min(interval_ms, longest_ms)
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self._due_ms = self._expected_ms = self._context.now_ms + interval_ms

    def failed(self, *, at_once: bool = False) -> None:
        """No answer came, or an error code. The next heartbeat carries all fields and is sent after the backoff.

        Args:
            at_once: send it without the backoff.
        """
        self._sent = None
        self._due_ms = self._context.now_ms
        if at_once:
            self._backoff.reset()
        else:
            self._backoff.failed(self._context.now_ms)

    def slot_refused(self) -> None:
        """Another member has the slot that the join named: the next join carries all fields, and needs no backoff."""
        self._sent = None
        self._backoff.reset()

    def coordinator_found(self) -> None:
        """The coordinator is connected. If this is a new connection, the next heartbeat is sent early."""
        if self._sent is not None and self._sent.link != self._context.link:
            self.early.coordinator_found(interval_ms=self._interval_ms)

    def restart(self, *, removals: int) -> None:
        """The member joins, was removed, or left: forget the fields that were sent, and ignore answers in flight.

        Args:
            removals: how often in a row the coordinator removed the member. After the first removal it joins again at
                once; after each further one it backs off first.
        """
        self.early.stop()
        self._context.orphan(self._in_flight)
        self._in_flight = None
        self._sent = None
        self._backoff.reset()
        if removals > 1:
            self._backoff.failures = removals - 2
            self._backoff.failed(self._context.now_ms)
        self.ack_due = False
