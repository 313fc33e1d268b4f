"""The leader of a classic group: it computes the assignment of a round for all members.

It asks for the topics of all members, has the assignor run in its own thread, and hands the result to the round. A
partition that another member still owns waits for a further round, which hands out the rest of the same plan, unless
members, topics, metadata or a wish for a new plan have changed meanwhile: an assignor whose plans depend on something
else, such as the lag, would otherwise move other partitions in each round.

If the assignor fails, every member keeps its partitions, and the leader calls the assignor again after a backoff. Only
a plan that is there makes the group join again.

Does not own: the requests (`join_round`), claims and bytes (`classic_plan`), calls and their limits (`assignor_calls`).

Source: Kafka's ``ConsumerCoordinator.onLeaderElected``. Rules: R212 to R215, R241 and R262 to R264 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.interface import ASSIGNOR_RAISED, METADATA_UNREADABLE
from kip848_client.errors import ClientAssignorError, TopicAuthorizationError, join_names
from kip848_client.member.classic.classic_plan import ClassicPlan, GroupMemberData, read_members
from kip848_client.member.classic.join_round import JoinRound
from kip848_client.member.classic.topic_watch import TopicWatch
from kip848_client.member.core.assignor_calls import AssignorCalls
from kip848_client.member.core.assignor_events import AssignorDone, AssignorFailed, GroupRestless, RunAssignor
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import TopicDescription, TopicsDescribed
from kip848_client.member.core.last_plan import RETRY_MS, RETRY_MS_MAX, PlanInputs, Unrest
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.join_group import JoinGroupResponseMember
from kip848_client.wire.messages.sync_group import SyncGroupRequestAssignment

LARGE_RECORD: Final = 900_000
"""Limit of the bytes of all subscriptions and assignments: a coordinator writes a group as one record, and brokers
refuse larger ones."""
_LARGEST_SHOWN: Final = 3


class _Lead(msgspec.Struct, eq=False):
    """A round in which this member assigns.

    Args:
        sizes: member id -> bytes of its subscription.
        give_up_ms: when it stops asking brokers that do not answer.
        retry_ms: when to ask them again; None while an answer is awaited or no longer needed.
        call_id: of the call of the assignor, once it was made.
    """

    round: JoinRound
    members: tuple[GroupMemberData, ...]
    sizes: dict[str, int]
    give_up_ms: int
    retry_ms: int | None = None
    plan: ClassicPlan | None = None
    inputs: PlanInputs | None = None
    call_id: int | None = None


class _Planned(msgspec.Struct, frozen=True, eq=False):
    """A plan that is not carried out yet, or not to its end.

    Args:
        generation: of the last round that had it, or failed for want of it.
    """

    inputs: PlanInputs
    members: tuple[InstallMember, ...]
    generation: int


class _Retry(msgspec.Struct, eq=False):
    """The assignor failed in a round that is over, and is to be called again for the same group."""

    plan: ClassicPlan
    inputs: PlanInputs
    generation: int
    due_ms: int
    call_id: int | None = None


class ClassicLeader:
    """Assigns for all members while its member leads the group.

    Args:
        offered: the assignors of this member, as described last.
        rejoin: called with a reason when the group needs another round.
    """

    def __init__(
        self,
        context: Context,
        *,
        topics: TopicWatch,
        calls: AssignorCalls,
        offered: Callable[[], tuple[Assignor, ...]],
        rejoin: Callable[[str], None],
    ) -> None:
        self._context: Final = context
        self._topics: Final = topics
        self._calls: Final = calls
        self._offered: Final = offered
        self._rejoin: Final = rejoin
        self._backoff: Final = Backoff(initial_ms=RETRY_MS, max_ms=RETRY_MS_MAX, rng=context.rng)
        self._unrest: Final = Unrest()
        self._lead: _Lead | None = None
        self._planned: _Planned | None = None
        self._retry: _Retry | None = None
        self._left_out_until_ms: int | None = None
        """Partitions were left out until their owners revoke them: these must have joined again by this time."""
        self.all_topics: frozenset[str] = frozenset()
        """Topics of all members, as this leader read them last."""
        self.described_topics: dict[str, TopicDescription] = {}
        """The topics from which this leader made its last assignment."""

    # --- the round

    def lead(self, members: tuple[JoinGroupResponseMember, ...], current: JoinRound) -> None:
        """Assign for all members, and give the result to *current*."""
        known = read_members(members, protocol=current.protocol)
        self.all_topics = frozenset[str]().union(*(member.topics or () for member in known))
        lead = self._lead = _Lead(
            current,
            known,
            sizes={member.member_id: len(member.metadata) for member in members},
            give_up_ms=self._context.now_ms + self._context.config.rebalance_timeout_ms // 2,
        )
        unreadable = [member.member_id for member in known if member.topics is None]
        if unreadable:
            self._report(lead, f"members {join_names(unreadable)} have unreadable subscriptions, and get nothing")
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
            named = join_names(sorted(event.unauthorized))
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
        name, generation = lead.round.protocol, self._context.epoch
        plan = lead.plan = ClassicPlan(lead.members, protocol=name, generation=generation, topics=topics)
        assignor = next(each for each in self._offered() if each.name == name)
        strangers = plan.unreadable_versions(minimum=assignor.minimum_version, maximum=assignor.maximum_version)
        inputs = lead.inputs = PlanInputs.of(
            plan.snapshot, racks=plan.racks, reads_metadata=name not in BUILT_IN, wishes=plan.wishes
        )
        if strangers:
            self._report(
                lead,
                f"the assignor reads metadata versions {assignor.minimum_version} to {assignor.maximum_version}, and "
                f"these members have others: {join_names(strangers)}; every member keeps what it has",
            )
            self._end(lead, error=METADATA_UNREADABLE)
            return
        planned = self._planned
        if planned is not None and planned.generation + 1 == generation and inputs.wants_the_plan_of(planned.inputs):
            self._end(lead, planned.members)
        elif (text := self._unrest.planned(inputs, now_ms=self._context.now_ms)) is not None:
            self._context.emit(GroupRestless(text))

    def _end(self, lead: _Lead, members: tuple[InstallMember, ...] = (), *, error: int = 0) -> None:
        assert lead.plan is not None
        assert lead.inputs is not None
        self._lead = None
        now_ms, generation = self._context.now_ms, self._context.epoch
        assignments = lead.plan.assignments(members, error=error)
        left_out = lead.plan.left_out
        self._planned = _Planned(lead.inputs, members, generation) if left_out else None
        self._left_out_until_ms = now_ms + self._context.config.rebalance_timeout_ms if left_out else None
        if not error:
            self._backoff.reset()
        elif error != METADATA_UNREADABLE:  # only other metadata can help, and that begins another round
            if lead.call_id is not None:  # else it could not even be called, and may do well
                self._backoff.failed(now_ms)
            self._retry = _Retry(lead.plan, lead.inputs, generation, due_ms=self._backoff.ready_ms)
        total, text = _record_size(lead.sizes, assignments)
        if total > LARGE_RECORD:
            self._report(lead, f"{text}; a broker may refuse to store it")
        lead.round.assign(assignments, size=text)

    def stop(self) -> None:
        """The round ended or was cancelled."""
        self._lead = None
        self._retry = None
        self._left_out_until_ms = None

    def _report(self, lead: _Lead, text: str) -> None:
        error = ClientAssignorError(f"group {self._context.config.group_id!r}: {text}", assignor=lead.round.protocol)
        self._context.emit(AssignorFailed(error))

    # --- the assignor

    def advance(self) -> None:
        """Do the due work that needs no call of the assignor."""
        context, lead = self._context, self._lead
        if lead is not None and lead.retry_ms is not None and context.due(lead.retry_ms):
            if context.now_ms >= lead.give_up_ms:
                self._lead = None
                lead.round.start("the topics of the group are not known", delayed=True)
            else:
                self._ask(lead)
        if self._calls.stuck and lead is not None and lead.plan is not None:
            if lead.call_id is None:
                self._report(lead, "a call of an assignor has not returned; every member keeps what it has until then")
            self._end(lead, error=ASSIGNOR_RAISED)
        if self._left_out_until_ms is not None and context.due(self._left_out_until_ms):
            self._left_out_until_ms = None
            self._rejoin("partitions have no owner")

    def call(self) -> bool:
        """Call the assignor if that is due; no other call is in progress. Returns whether it was called."""
        lead, retry = self._lead, self._retry
        if lead is not None and lead.plan is not None:
            lead.call_id = self._run(lead.plan)
        elif retry is not None and self._context.due(retry.due_ms):
            retry.call_id = self._run(retry.plan)
        else:
            return False
        return True

    def _run(self, plan: ClassicPlan) -> int:
        return self._calls.start(lambda call_id: RunAssignor(call_id, plan.snapshot, plan.racks))

    def done(self, event: AssignorDone) -> None:
        """The assignor returned, or failed."""
        lead, retry = self._lead, self._retry
        if lead is not None and lead.call_id == event.call_id:
            self._end(lead, event.members, error=event.error)
        elif retry is not None and retry.call_id == event.call_id:
            if event.error:
                self._try_later(retry)
            else:
                self._retry = None
                self._planned = _Planned(retry.inputs, event.members, retry.generation)
                self._rejoin("the assignor works again")

    def timed_out(self) -> None:
        """A call exceeded its limit. If it was one of a retry, the next retry waits until it has returned."""
        if self._retry is not None and self._retry.call_id is not None:
            self._try_later(self._retry)

    def _try_later(self, retry: _Retry) -> None:
        self._backoff.failed(self._context.now_ms)
        retry.due_ms, retry.call_id = self._backoff.ready_ms, None


def _record_size(subscriptions: dict[str, int], assignments: tuple[SyncGroupRequestAssignment, ...]) -> tuple[int, str]:
    """How many bytes of a group's record are its members', and whose they are."""
    assigned = {each.member_id: len(each.assignment) for each in assignments}
    of_member = {member_id: size + assigned.get(member_id, 0) for member_id, size in subscriptions.items()}
    largest = sorted(of_member, key=lambda member_id: (-of_member[member_id], member_id))[:_LARGEST_SHOWN]
    named = ", ".join(f"{member_id} {of_member[member_id]:,}" for member_id in largest)
    total = sum(of_member.values())
    return total, (
        f"the coordinator writes the group as one record, with {total:,} bytes of its members: "
        f"{sum(subscriptions.values()):,} of subscriptions (with what metadata() returns) and "
        f"{sum(assigned.values()):,} of assignments; the largest members: {named}"
    )
