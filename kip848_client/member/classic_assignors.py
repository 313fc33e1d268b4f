"""The assignors of a classic member: it offers them, runs one as leader, and notifies them.

Every member offers names with its subscription; the coordinator chooses one that all offer, and one leader. The leader
asks for the topics of all members, runs the assignor in its own thread, and hands the result to the round. The
subscription carries the metadata of a user's assignor; when it changes, the member joins again.

Does not own: the requests (`join_round`), claims and bytes (`classic_plan`), calls and their limits (`assignor_calls`).

Source: Kafka's ``ConsumerCoordinator.onLeaderElected``, ``metadata`` and ``onJoinComplete``.
Rules: R214 to R218 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.classic import BUILT_IN
from kip848_client.assignors.interface import ASSIGNOR_RAISED, METADATA_UNREADABLE, ConsumerGroupMetadata
from kip848_client.assignors.user_data import (
    SubscriptionFrame,
    generation_user_data,
    read_assignment_frame,
    write_subscription_frame,
)
from kip848_client.errors import ClientAssignorError, TopicAuthorizationError
from kip848_client.member.assignor_calls import AssignorCalls
from kip848_client.member.assignor_events import (
    AssignorDone,
    AssignorEvent,
    AssignorFailed,
    AssignorsDescribed,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.classic_plan import ClassicPlan, GroupMemberData, partitions_by_topic, read_members
from kip848_client.member.context import Context
from kip848_client.member.deadlines import earliest
from kip848_client.member.events import TopicDescription, TopicsDescribed
from kip848_client.member.join_round import JoinRound
from kip848_client.member.states import IN_GROUP
from kip848_client.member.topic_watch import TopicWatch
from kip848_client.model import TopicIdPartition, TopicPartition
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

__all__ = ["ClassicAssignors"]

_LARGE_RECORD: Final = 900_000
"""Limit of the bytes of all assignments: a coordinator writes a group as one record, and brokers refuse larger ones."""
_DESCRIBE_MS_MIN: Final = 1_000
"""Shortest time between two calls of ``metadata()``, and between two joins because of it."""


class _Lead(msgspec.Struct, eq=False):
    """A round in which this member assigns.

    Args:
        give_up_ms: when it stops asking brokers that do not answer.
        retry_ms: when to ask them again; None while an answer is awaited or no longer needed.
        call_id: of the call of the assignor, once it was made.
    """

    round: JoinRound
    members: tuple[GroupMemberData, ...]
    give_up_ms: int
    retry_ms: int | None = None
    plan: ClassicPlan | None = None
    call_id: int | None = None


class ClassicAssignors:
    """The assignors that one member offers, and runs as leader.

    Args:
        rejoin: called with a reason when the group needs a new assignment.
    """

    def __init__(self, context: Context, *, topics: TopicWatch, rejoin: Callable[[str], None]) -> None:
        self._context: Final = context
        self._topics: Final = topics
        self._rejoin: Final = rejoin
        self._calls: Final = AssignorCalls(context)
        self._described = context.config.client_assignors
        self._own: Final = any(assignor.name not in BUILT_IN for assignor in self._described)
        self._describe_due_ms = 0
        self._asked: int | None = None
        """Reason of a request_reassignment() that waits for ``metadata()`` to be called."""
        self._reason = 0
        self._wish = 0
        self._lead: _Lead | None = None
        self._left_out_until_ms: int | None = None
        """Partitions were left out until their owners revoke them: these must have joined again by this time."""
        self._passed_over = False
        """This leader let all members keep what they have, because another call hung: it assigns once that returns."""
        self._notice: Callable[[int], CallOnAssignment] | None = None
        self._notice_call_id: int | None = None
        """Of the call that gives the notice, once it was made."""
        self.all_topics: frozenset[str] = frozenset()
        """Topics of all members, as this leader read them last."""
        self.described_topics: dict[str, TopicDescription] = {}
        """The topics from which this leader made its last assignment."""

    # ------------------------------------------------------------------------------------------------ what is offered

    def offers(
        self,
        *,
        topics: frozenset[str],
        owned: frozenset[TopicPartition],
        held: frozenset[TopicPartition],
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

    def _user_data(self, assignor: Assignor, *, held: frozenset[TopicPartition], generation: int) -> bytes | None:
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

    # ------------------------------------------------------------------------------------------------------- as leader

    def lead(self, members: tuple[JoinGroupResponseMember, ...], current: JoinRound) -> None:
        """This member leads: assign for all members, and give the result to *current*."""
        known = read_members(members, protocol=current.protocol)
        self.all_topics = frozenset[str]().union(*(member.topics or () for member in known))
        config = self._context.config
        lead = self._lead = _Lead(current, known, self._context.now_ms + config.rebalance_timeout_ms // 2)
        unreadable = [member.member_id for member in known if member.topics is None]
        if unreadable:
            self._report(lead, f"members {', '.join(unreadable)} have unreadable subscriptions, and get nothing")
        self._ask(lead)

    def _ask(self, lead: _Lead) -> None:
        lead.retry_ms = None
        self._topics.ask(self.all_topics, None, lambda event: self._answered(lead, event))

    def _answered(self, lead: _Lead, event: TopicsDescribed | None) -> None:
        if lead is not self._lead:
            return
        if event is None or (event.passing and self._context.now_ms < lead.give_up_ms):
            lead.retry_ms = self._context.now_ms + max(1, self._context.config.retry_backoff_ms)
            return
        if event.unauthorized:
            named = ", ".join(sorted(event.unauthorized))
            self._context.surface(
                TopicAuthorizationError(
                    f"group {self._context.config.group_id!r}: this member leads and must not describe {named}; "
                    "DESCRIBE is missing, and these topics are not assigned",
                    topics=event.unauthorized,
                ),
                key="leader topics",
            )
        self._plan_with(lead, dict(event.topics))

    def _plan_with(self, lead: _Lead, topics: dict[str, TopicDescription]) -> None:
        self.described_topics = topics
        name = lead.round.protocol
        lead.plan = ClassicPlan(lead.members, protocol=name, generation=self._context.epoch, topics=topics)
        assignor = next(each for each in self._described if each.name == name)
        strangers = lead.plan.unreadable_versions(minimum=assignor.minimum_version, maximum=assignor.maximum_version)
        if strangers:
            self._report(
                lead,
                f"the assignor reads metadata versions {assignor.minimum_version} to {assignor.maximum_version}, and "
                f"these members have others: {', '.join(strangers)}; every member keeps what it has",
            )
            self._end(lead, error=METADATA_UNREADABLE)

    def _end(self, lead: _Lead, members: tuple[InstallMember, ...] = (), *, error: int) -> None:
        assert lead.plan is not None
        self._lead = None
        assignments = lead.plan.assignments(members, error=error)
        heard_ms = self._context.now_ms + self._context.config.rebalance_timeout_ms
        self._left_out_until_ms = heard_ms if lead.plan.left_out else None
        sync_bytes = sum(len(each.assignment) for each in assignments)
        if sync_bytes > _LARGE_RECORD:
            self._report(lead, f"the assignment has {sync_bytes} bytes; a broker may refuse to store it")
        lead.round.assign(assignments)

    def stop_leading(self) -> None:
        """The round ended or was cancelled."""
        self._lead = None
        self._left_out_until_ms = None
        self._passed_over = False

    def _report(self, lead: _Lead, text: str) -> None:
        error = ClientAssignorError(f"group {self._context.config.group_id!r}: {text}", assignor=lead.round.protocol)
        self._context.emit(AssignorFailed(error))

    # ------------------------------------------------------------------------------------------------------- notices

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

    # --------------------------------------------------------------------------------------------------------- events

    def handle(self, event: AssignorEvent) -> None:
        """The user's code returned, or the application wants a new assignment."""
        match event:
            case AssignorsDescribed():
                if event.call_id is None or self._calls.returned(event.call_id) is not None:
                    self._take(event.assignors)
            case ReassignmentRequested():
                self._asked = event.reason
                self._describe_due_ms = self._context.now_ms
            case AssignorDone():
                self._calls.returned(event.call_id)
                if self._lead is not None and self._lead.call_id == event.call_id:
                    self._end(self._lead, event.members, error=event.error)
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
            self._rejoin("the application asked for a new assignment")
        elif changed:
            self._rejoin("metadata of an assignor changed")

    # ---------------------------------------------------------------------------------------------------------- calls

    def watch(self) -> None:
        """Abandon a call whose time is over."""
        if self._calls.watch() is not None:
            self.forget_notice()  # no other call is made until this one returns, and the listener does not wait for it
        if self._calls.stuck and self._asked is not None:
            self._take(self._described)

    def advance(self) -> None:
        """Ask again, and make the next call."""
        context = self._context
        lead = self._lead
        if lead is not None and lead.retry_ms is not None and context.now_ms >= lead.retry_ms:
            if context.now_ms >= lead.give_up_ms:
                self._lead = None
                lead.round.start("the topics of the group are not known", delayed=True)
            else:
                self._ask(lead)
        if self._calls.stuck and lead is not None and lead.plan is not None:
            if lead.call_id is None:
                self._passed_over = True
                self._report(lead, "a call of an assignor has not returned; every member keeps what it has until then")
            self._end(lead, error=ASSIGNOR_RAISED)
        if self._left_out_until_ms is not None and context.now_ms >= self._left_out_until_ms:
            self._left_out_until_ms = None
            self._rejoin("partitions have no owner")
        if not self._calls.free:
            return
        if self._passed_over:
            self._rejoin("the assignor can be called again")
        if lead is not None and (plan := lead.plan) is not None:
            lead.call_id = self._calls.start(lambda call_id: RunAssignor(call_id, plan.snapshot, plan.racks))
        elif self._notice is not None and self._notice_call_id is None:
            self._notice_call_id = self._calls.start(self._notice)
        elif (due_ms := self._describe_ms()) is not None and context.now_ms >= due_ms:
            self._describe_due_ms = context.now_ms + max(context.config.heartbeat_interval_ms, _DESCRIBE_MS_MIN)
            self._calls.start(DescribeAssignors)

    def _describe_ms(self) -> int | None:
        """When ``metadata()`` is to be called again."""
        return self._describe_due_ms if self._own and self._context.phase in IN_GROUP else None

    def deadline_ms(self) -> int | None:
        """When `watch` or `advance` would do something by time alone."""
        return earliest(
            (
                self._calls.deadline_ms(),
                self._lead.retry_ms if self._lead is not None else None,
                self._left_out_until_ms,
                self._describe_ms() if self._calls.free else None,
            )
        )
