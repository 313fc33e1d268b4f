"""Bugs, put back one at a time: those that other implementations of this protocol had, and those that seeds found here.

A checker that no bug can trip checks nothing. Each `Mutant` says what is broken and which invariants may say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from kip848_client.assignors import GroupAssignment, GroupSpec
from kip848_client.assignors.uniform import UniformAssignor
from kip848_client.coordinator import consumer_group, current_assignment, departure, membership, records
from kip848_client.coordinator import offset_commit as coordinator_commit
from kip848_client.coordinator.consumer_group import ConsumerGroup, GroupState
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.group_member import CurrentAssignment, GroupMember
from kip848_client.coordinator.refusal import Refused
from kip848_client.coordinator.result import ArmTimer, CancelTimer, CoordinatorResult
from kip848_client.coordinator.timers import TimerKind
from kip848_client.member import commit_requests
from kip848_client.member import heartbeat as member_heartbeat
from kip848_client.member import member as member_module
from kip848_client.member import membership as member_membership
from kip848_client.member.commit_requests import FetchResult
from kip848_client.member.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.heartbeat import Heartbeats
from kip848_client.member.positions import Positions
from kip848_client.member.reconciler import Reconciler, Run
from kip848_client.member.release import Release
from kip848_client.member.states import HEARTBEATING, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Args:
        name: what is wrong, as a sentence.
        killed_by: invariants that may notice it.
        put: puts the bug in.
        scenario: where it shows.
        seed: the first seed to try.
    """

    name: str
    killed_by: frozenset[str]
    put: Callable[[Patch], None]
    scenario: str = "mixed"
    seed: int = 0


MUTANTS: list[Mutant] = []


def mutant(name: str, *killed_by: str, scenario: str = "mixed", seed: int = 0) -> Callable[[Any], Any]:
    """Add a bug to the list."""

    def add(put: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append(Mutant(name, frozenset(killed_by), put, scenario, seed))
        return put

    return add


# ------------------------------------------------------------------------------------------------------ the coordinator


@mutant("a partition is given to another member while its holder has not given it up (KAFKA-16147)", "S1", "S5")
def _(patch: Patch) -> None:
    original = ConsumerGroup.holders

    def holders(self: ConsumerGroup, topic_id: UUID) -> Mapping[int, str]:
        return {
            partition: holder
            for partition, holder in original(self, topic_id).items()
            if partition in self.members[holder].current.assigned.get(topic_id, {})
        }

    patch.setattr(ConsumerGroup, "holders", holders)


@mutant("a revocation counts as done before the member confirmed it", "C1")
def _(patch: Patch) -> None:
    patch.setattr(current_assignment, "_owns_any", lambda owned, partitions: False)


@mutant("an assignor gives every partition to every member", "S2")
def _(patch: Patch) -> None:
    def assign(self: UniformAssignor, spec: GroupSpec) -> GroupAssignment:
        everything = {topic_id: tuple(range(count)) for topic_id, count in spec.topics.items()}
        return {
            member_id: {topic_id: everything[topic_id] for topic_id in wanted if topic_id in everything}
            for member_id, wanted in spec.subscriptions.items()
        }

    patch.setattr(UniformAssignor, "assign", assign)


@mutant("an assignor forgets partition 0 of every topic", "S2", "L1")
def _(patch: Patch) -> None:
    original = UniformAssignor.assign

    def assign(self: UniformAssignor, spec: GroupSpec) -> GroupAssignment:
        return {
            member_id: {topic_id: tuple(index for index in held if index) for topic_id, held in target.items()}
            for member_id, target in original(self, spec).items()
        }

    patch.setattr(UniformAssignor, "assign", assign)


@mutant("the group epoch falls back when a member leaves", "S3")
def _(patch: Patch) -> None:
    original = records.group_epoch_record
    patch.setattr(
        records,
        "group_epoch_record",
        lambda group_id, *, epoch, metadata_hash: original(
            group_id, epoch=epoch - 2 if epoch % 7 == 0 else epoch, metadata_hash=metadata_hash
        ),
    )


@mutant("a member moves to the new epoch with partitions left to revoke", "S4")
def _(patch: Patch) -> None:
    original = current_assignment.reconcile

    def reconcile(current: CurrentAssignment, target: current_assignment.Target, **named: Any) -> CurrentAssignment:
        after = original(current, target, **named)
        return replace(after, member_epoch=target.epoch) if after.pending_revocation else after

    patch.setattr("kip848_client.coordinator.heartbeat.reconcile", reconcile)


@mutant("the group calls itself stable too early", "S6")
def _(patch: Patch) -> None:
    original = consumer_group.derive_state

    def derive_state(**named: int) -> GroupState:
        return GroupState.STABLE if (state := original(**named)) is GroupState.RECONCILING else state

    patch.setattr(consumer_group, "derive_state", derive_state)


@mutant("any epoch is taken for the member's own", "S7", "S8")
def _(patch: Patch) -> None:
    patch.setattr(membership, "check_epoch", lambda member, *, received, owned: None)


@mutant("a member that was fenced may not join again with epoch 0 (KAFKA-19233)", "S7")
def _(patch: Patch) -> None:
    original = membership.check_epoch

    def check_epoch(member: GroupMember, *, received: int, owned: Any) -> None:
        if received == 0:
            raise membership.fenced("epoch 0")
        original(member, received=received, owned=owned)

    patch.setattr(membership, "check_epoch", check_epoch)


@mutant("a refused heartbeat keeps the session alive and writes its member's place anew", "S7")
def _(patch: Patch) -> None:
    original = GroupCoordinator.handle

    def handle(self: GroupCoordinator, request: Any, *, now_ms: int) -> CoordinatorResult:
        result = original(self, request, now_ms=now_ms)
        if not result.records and any(event.event == "member_fenced" for event in result.events):
            epoch_of = self._state.groups[request.message.group_id]
            record = records.group_epoch_record(
                epoch_of.group_id, epoch=epoch_of.group_epoch + 1, metadata_hash=epoch_of.metadata_hash
            )
            return replace(result, records=(record,))
        return result

    patch.setattr(GroupCoordinator, "handle", handle)


@mutant("hard state is changed beside the log", "S9")
def _(patch: Patch) -> None:
    original = GroupCoordinator.apply

    def apply(self: GroupCoordinator, result: CoordinatorResult) -> None:
        original(self, result)
        for group in self._state.groups.values():
            group.metadata_hash = 1

    patch.setattr(GroupCoordinator, "apply", apply)


@mutant("a commit is accepted with any epoch of a member", "S11", seed=50)
def _(patch: Patch) -> None:
    patch.setattr(coordinator_commit, "check_commit", lambda member, *, epoch, topics: True)


@mutant("a commit of somebody who is no member any more is accepted", "S11")
def _(patch: Patch) -> None:
    original = coordinator_commit._check_member

    def check(state: Any, request: Any, message: Any, topics: Any) -> None:
        try:
            original(state, request, message, topics)
        except Refused as refused:
            if refused.code != 25:
                raise

    patch.setattr(coordinator_commit, "_check_member", check)


@mutant("sessions never end", "L1", "L3")
def _(patch: Patch) -> None:
    original = departure.time_is_up

    def time_is_up(state: Any, key: Any, timer: Any, *, wall_ms: int) -> CoordinatorResult:
        result = original(state, key, timer, wall_ms=wall_ms)
        return CoordinatorResult(soft=(CancelTimer(key),)) if result.records else result

    patch.setattr(departure, "time_is_up", time_is_up)


@mutant("nobody watches how long a member takes to give up partitions", "L3")
def _(patch: Patch) -> None:
    original = GroupCoordinator.apply

    def apply(self: GroupCoordinator, result: CoordinatorResult) -> None:
        armed = tuple(
            change
            for change in result.soft
            if not (isinstance(change, ArmTimer) and change.key.kind is TimerKind.REBALANCE)
        )
        original(self, replace(result, soft=armed))

    patch.setattr(GroupCoordinator, "apply", apply)


@mutant("whoever joins with an instance id pushes its holder out", "S8")
def _(patch: Patch) -> None:
    find_static = membership._find_static

    def find(group: ConsumerGroup, message: Any, *, member_id: str, known: Any, owned: Any) -> membership.FoundMember:
        holder = group.members.get(group.static_members.get(message.instance_id, ""))
        if message.member_epoch or holder is None or holder.member_id == member_id:
            return find_static(group, message, member_id=member_id, known=known, owned=owned)
        taken = replace(holder, member_id=member_id, current=membership.returned(holder.current))
        return membership.FoundMember(taken, replaced=holder)

    patch.setattr(membership, "_find_static", find)


# ----------------------------------------------------------------------------------------------------------- the member


@mutant("partitions are acknowledged as given up while on_partitions_revoked runs", "C1", "C2")
def _(patch: Patch) -> None:
    original = Reconciler._revoke

    def revoke(self: Reconciler, run: Run) -> None:
        self.current = run.resolved
        self._heartbeats.ack_due = True
        original(self, run)

    patch.setattr(Reconciler, "_revoke", revoke)


@mutant("partitions are taken while a heartbeat without them is on its way", "C1", seed=39)
def _(patch: Patch) -> None:
    patch.setattr(Heartbeats, "telling_partitions", False)


@mutant(
    "a hanging callback returns, and its partitions are read though they were given away",
    "C1",
    "L1",
    seed=458,
)
def _(patch: Patch) -> None:
    original = Reconciler._assignment_ended

    def assignment_ended(self: Reconciler, run: Run, error: BaseException | None) -> None:
        original(self, run, error)
        self.in_doubt = frozenset()

    patch.setattr(Reconciler, "_assignment_ended", assignment_ended)


@mutant("a member that was removed keeps its partitions and is given others on top", "C3", "C2", "C1")
def _(patch: Patch) -> None:
    patch.setattr(Release, "_lose", Release._over)


@mutant("an on_partitions_assigned that raised counts as having returned", "C2")
def _(patch: Patch) -> None:
    original = Reconciler._assignment_ended
    patch.setattr(Reconciler, "_assignment_ended", lambda self, run, error: original(self, run, None))


@mutant("heartbeats go on while the lost callback runs (KAFKA-16251)", "C4")
def _(patch: Patch) -> None:
    phases = HEARTBEATING | {Phase.FENCED_RELEASE, Phase.STALE_RELEASE}
    patch.setattr(member_heartbeat, "HEARTBEATING", phases)
    patch.setattr(member_module, "HEARTBEATING", phases)


@mutant("a heartbeat does not wait for the answer to the one before", "C4")
def _(patch: Patch) -> None:
    patch.setattr(Heartbeats, "in_flight", False)


@mutant("the heartbeat after a failure repeats nothing", "C4")
def _(patch: Patch) -> None:
    original, build = Heartbeats.failed, Heartbeats.build

    def failed(self: Heartbeats, *, at_once: bool = False) -> None:
        sent = self._sent
        original(self, at_once=at_once)
        self._sent = sent

    def build_on_any_connection(self: Heartbeats, **named: Any) -> Any:
        if self._sent is not None:
            self._sent = replace(self._sent, link=self._context.link)
        return build(self, **named)

    patch.setattr(Heartbeats, "failed", failed)
    patch.setattr(Heartbeats, "build", build_on_any_connection)


@mutant("the rebalance timeout is never sent (Dekaf#2767)", "C4")
def _(patch: Patch) -> None:
    original = Heartbeats.build
    patch.setattr(Heartbeats, "build", lambda self, **named: replace(original(self, **named), rebalance_timeout_ms=-1))


@mutant("being fenced is the end of a member", "C5")
def _(patch: Patch) -> None:
    def classify(code: int) -> HeartbeatErrorClass:
        found = heartbeat_error_class(code)
        return HeartbeatErrorClass.FATAL if found is HeartbeatErrorClass.FENCED else found

    patch.setattr(member_membership, "heartbeat_error_class", classify)


@mutant("commits run one record ahead of what was handed out", "C6")
def _(patch: Patch) -> None:
    original = commit_requests.build_commit

    def build_commit(context: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
        return original(context, {key: OffsetAndMetadata(at.offset + 1) for key, at in offsets.items()})

    patch.setattr("kip848_client.member.commits.build_commit", build_commit)


@mutant("an owner starts one record before the committed offset", "C6")
def _(patch: Patch) -> None:
    original = Positions._looked_up

    def looked_up(self: Positions, lookup: Any, slots: Any, result: FetchResult | None, error: Any) -> None:
        if result is not None:
            earlier = {key: OffsetAndMetadata(at.offset - 1) for key, at in result.offsets.items()}
            result = replace(result, offsets=earlier)
        original(self, lookup, slots, result, error)

    patch.setattr(Positions, "_looked_up", looked_up)


@mutant("a member never hears that it was removed", "L1", "C4")
def _(patch: Patch) -> None:
    def classify(code: int) -> HeartbeatErrorClass:
        found = heartbeat_error_class(code)
        return HeartbeatErrorClass.RETRY if found is HeartbeatErrorClass.FENCED else found

    patch.setattr(member_membership, "heartbeat_error_class", classify)
