"""The assignors of a classic member: it offers them, makes the calls of the user's code, and notifies them.

Every member offers names with its subscription; the coordinator chooses one that all offer, and one leader. The
subscription carries the metadata of a user's assignor; when it changes, the member joins again.

Does not own: the requests (`join_round`), the leader's assignment (`classic_leader`), calls and their limits
(`assignor_calls`).

Source: Kafka's ``ConsumerCoordinator.metadata`` and ``onJoinComplete``. Rules: R216, R218 and R266 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.interface import ConsumerGroupMetadata
from kip848_client.assignors.client.user_data import (
    SubscriptionFrame,
    generation_user_data,
    read_assignment_frame,
    write_subscription_frame,
)
from kip848_client.common.model import NamedPartition, TopicIdPartition
from kip848_client.member.classic.classic_leader import ClassicLeader
from kip848_client.member.classic.classic_plan import partitions_by_topic
from kip848_client.member.classic.topic_watch import TopicWatch
from kip848_client.member.core.assignor_calls import AssignorCalls
from kip848_client.member.core.assignor_events import (
    AssignorDone,
    AssignorEvent,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
)
from kip848_client.member.core.context import Context
from kip848_client.member.core.last_plan import WISH_MS
from kip848_client.member.core.states import IN_GROUP
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.join_group import JoinGroupRequestProtocol

_DESCRIBE_MS_MIN: Final = 1_000
"""Shortest time between two calls of ``metadata()`` that the application did not ask for."""


class ClassicAssignors:
    """The assignors that one member offers.

    Args:
        rejoin: called with a reason when the group needs a new assignment.
    """

    def __init__(self, context: Context, *, topics: TopicWatch, rejoin: Callable[[str], None]) -> None:
        self._context: Final = context
        self._rejoin: Final = rejoin
        self._calls: Final = AssignorCalls(context)
        self._described = context.config.client_assignors
        self._own: Final = any(assignor.name not in BUILT_IN for assignor in self._described)
        self._describe_due_ms = 0
        self._asked: int | None = None
        """Reason of a request_reassignment() that waits for ``metadata()`` to be called."""
        self._reason = 0
        self._wish = 0
        self._next_wish_ms = 0
        """When request_reassignment() may make the member join again."""
        self.leader: Final = ClassicLeader(
            context, topics=topics, calls=self._calls, offered=lambda: self._described, rejoin=rejoin
        )
        self._notice: Callable[[int], CallOnAssignment] | None = None
        self._notice_call_id: int | None = None
        """Number of the call that gives the notice, once it was made."""

    # --- offers

    def offers(
        self,
        *,
        topics: frozenset[str],
        owned: frozenset[NamedPartition],
        held: frozenset[NamedPartition],
        generation: int,
    ) -> tuple[JoinGroupRequestProtocol, ...]:
        """The protocols of a JoinGroup: one for each assignor.

        Args:
            owned: what the member has now.
            held: what an eager member had before it gave everything up.
            generation: of *held*; -1 for none.
        """
        config = self._context.config
        subscription = ConsumerProtocolSubscription(
            topics=tuple(sorted(topics)),
            owned_partitions=partitions_by_topic(owned),
            generation_id=generation,
            rack_id=config.rack_id,
        )
        return tuple(
            JoinGroupRequestProtocol(
                assignor.name,
                encode_subscription(
                    replace(subscription, user_data=self._user_data(assignor, held=held, generation=generation))
                ),
            )
            for assignor in self._described
        )

    def _user_data(self, assignor: Assignor, *, held: frozenset[NamedPartition], generation: int) -> bytes | None:
        if assignor.name in BUILT_IN:
            return generation_user_data(generation) if assignor.name == "cooperative-sticky" else None
        cooperative = self._context.config.cooperative
        return write_subscription_frame(
            SubscriptionFrame(
                minimum_version=assignor.minimum_version,
                maximum_version=assignor.maximum_version,
                version=assignor.metadata_version,
                reason=self._reason or assignor.reason,
                wish=self._wish,
                cooperative=cooperative,
                held=None if cooperative else tuple(held),
                generation=generation,
                metadata=assignor.metadata_bytes,
            )
        )

    # --- notices

    def assigned(self, protocol: str, user_data: bytes | None, partitions: frozenset[TopicIdPartition]) -> None:
        """The leader's assignment arrived: on_assignment() comes before the listener."""
        self._reason = 0
        if protocol in BUILT_IN or self._calls.stuck:
            return
        frame = read_assignment_frame(user_data)
        context = self._context
        group = ConsumerGroupMetadata(
            context.config.group_id, context.member_id, context.epoch, context.config.instance_id
        )
        given = tuple(sorted(partitions))
        self._notice = lambda call_id: CallOnAssignment(
            call_id, protocol, frame.error, given, frame.metadata, frame.version, group
        )
        self._notice_call_id = None

    @property
    def holds_back(self) -> bool:
        """Whether the rebalance listener must wait, because on_assignment() comes first, within its time limit."""
        return self._notice is not None

    def forget_notice(self) -> None:
        """Drop the pending call of on_assignment()."""
        self._notice = None

    # --- events

    def handle(self, event: AssignorEvent) -> None:
        """The user's code returned, or the application wants a new assignment."""
        match event:
            case AssignorsDescribed():
                if event.call_id is None or self._calls.returned(event.call_id) is not None:
                    self._take(event.assignors)
            case ReassignmentRequested():
                # Several within a second count as one, so that they cost one rebalance.
                self._asked = event.reason
                self._describe_due_ms = min(self._describe_due_ms, max(self._context.now_ms, self._next_wish_ms))
            case AssignorDone():
                self._calls.returned(event.call_id)
                self.leader.done(event)
            case OnAssignmentDone():
                self._calls.returned(event.call_id)
                if self._notice_call_id == event.call_id:
                    self.forget_notice()

    def _take(self, described: tuple[Assignor, ...]) -> None:
        changed = self._described != described
        self._described = described
        if self._asked is not None:
            self._reason, self._asked = self._asked, None
            self._wish += 1
            self._next_wish_ms = self._context.now_ms + WISH_MS
            self._rejoin("the application asked for a new assignment")
        elif changed:
            self._rejoin("metadata of an assignor changed")

    # --- calls

    def watch(self) -> None:
        """Abandon a call whose time is over."""
        if self._calls.watch() is not None:
            self.forget_notice()  # no other call is made until this one returns, and the listener does not wait for it
            self.leader.timed_out()
        if self._calls.stuck and self._asked is not None and self._context.due(self._next_wish_ms):
            self._take(self._described)

    def advance(self) -> None:
        """Ask again, and make the next call."""
        context = self._context
        self.leader.advance()
        if not self._calls.free or self.leader.call():
            return
        if self._notice is not None and self._notice_call_id is None:
            self._notice_call_id = self._calls.start(self._notice)
        elif (due_ms := self._describe_ms()) is not None and context.due(due_ms):
            self._describe_due_ms = context.now_ms + max(context.config.heartbeat_interval_ms, _DESCRIBE_MS_MIN)
            self._calls.start(DescribeAssignors)

    def _describe_ms(self) -> int | None:
        """When ``metadata()`` is to be called again."""
        return self._describe_due_ms if self._own and self._context.phase in IN_GROUP else None
