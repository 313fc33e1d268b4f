"""Bugs of the coordinator, put back one at a time; see `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.testing.coordinator.consumer import consumer_commit
from kip848_client.testing.coordinator.consumer import consumer_records as records
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, CurrentAssignment
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult
from kip848_client.testing.coordinator.core.timers import TimerKind
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern import current_assignment
from kip848_client.testing.coordinator.modern import member_lookup as membership
from kip848_client.testing.coordinator.modern import modern_group as group
from kip848_client.testing.coordinator.modern.current_assignment import Target
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("a partition is given to another member while its holder has not given it up (KAFKA-16147)", "S1", "S5")
def _(patch: Patch) -> None:
    original = ConsumerGroup.holders

    def holders(self: ConsumerGroup, topic_id: UUID) -> Mapping[int, str]:
        return {
            partition: holder
            for partition, holder in original(self, topic_id).items()
            if partition in self.members[holder].current.assigned.get(topic_id, {})
        }

    patch.setattr(ConsumerGroup, "holders", holders)


@known_bug("a revocation counts as done before the member confirmed it", "C1", "S4")
def _(patch: Patch) -> None:
    patch.setattr(current_assignment, "_owns_any", lambda owned, partitions: False)


@known_bug("an assignor gives every partition to every member", "S2")
def _(patch: Patch) -> None:
    def assign(self: UniformAssignor, spec: GroupSpec) -> TargetAssignment:
        everything = {topic_id: tuple(range(count)) for topic_id, count in spec.topics.items()}
        return {
            member_id: {topic_id: everything[topic_id] for topic_id in wanted if topic_id in everything}
            for member_id, wanted in spec.subscriptions.items()
        }

    patch.setattr(UniformAssignor, "assign", assign)


@known_bug("the group epoch falls back when a member leaves", "S3")
def _(patch: Patch) -> None:
    original = records.group_epoch_record
    patch.setattr(
        records,
        "group_epoch_record",
        lambda group_id, *, epoch, metadata_hash: original(
            group_id, epoch=epoch - 2 if epoch % 7 == 0 else epoch, metadata_hash=metadata_hash
        ),
    )


@known_bug("a member moves to the new epoch with partitions left to revoke", "S4")
def _(patch: Patch) -> None:
    original = current_assignment.reconcile

    def reconcile(current: CurrentAssignment, target: Target[Any], **named: Any) -> CurrentAssignment:
        after = original(current, target, **named)
        return replace(after, member_epoch=target.epoch) if after.pending_revocation else after

    patch.setattr("kip848_client.testing.coordinator.consumer.member_steps.reconcile", reconcile)


@known_bug("the group calls itself stable too early", "S6")
def _(patch: Patch) -> None:
    original = group.derive_state

    def derive_state(**named: int) -> GroupState:
        return GroupState.STABLE if (state := original(**named)) is GroupState.RECONCILING else state

    patch.setattr(group, "derive_state", derive_state)


@known_bug("any epoch is taken for the member's own", "S7", "S8")
def _(patch: Patch) -> None:
    patch.setattr(membership, "check_epoch", lambda member, *, received, owned: None)


@known_bug("a member that was fenced may not join again with epoch 0 (KAFKA-19233)", "S7")
def _(patch: Patch) -> None:
    original = membership.check_epoch

    def check_epoch(member: ConsumerMember, *, received: int, owned: Any) -> None:
        if received == 0:
            raise membership.fenced("epoch 0")
        original(member, received=received, owned=owned)

    patch.setattr(membership, "check_epoch", check_epoch)


@known_bug("hard state is changed beside the log", "S9")
def _(patch: Patch) -> None:
    original = GroupCoordinator.apply

    def apply(self: GroupCoordinator, result: CoordinatorResult) -> None:
        original(self, result)
        for consumers in self._state.all_of(ConsumerGroup):
            consumers.metadata_hash = 1

    patch.setattr(GroupCoordinator, "apply", apply)


@known_bug("a commit is accepted with any epoch of a member", "S11", seed=70)
def _(patch: Patch) -> None:
    patch.setattr(consumer_commit, "may_commit", lambda member, *, epoch, partitions: True)


@known_bug("a member may take any time to give up partitions", "L3", "S7", scenario="zombies", seed=23)
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


@known_bug("a join with an instance id pushes its holder out", "S8")
def _(patch: Patch) -> None:
    find_static = membership._find_static

    def find(group: ConsumerGroup, message: Any, *, member_id: str, known: Any, owned: Any) -> Any:
        holder = group.members.get(group.static_members.get(message.instance_id, ""))
        if message.member_epoch or holder is None or holder.member_id == member_id:
            return find_static(group, message, member_id=member_id, known=known, owned=owned)
        taken = replace(holder, member_id=member_id, current=membership.returned(holder.current))
        return membership.Found(taken, replaced=holder)

    patch.setattr(membership, "_find_static", find)


@known_bug("a member that gave up one of several topics has given up all", "S4", "S5", probes=True)
def _(patch: Patch) -> None:
    def owns_all(owned: Any, partitions: Any) -> bool:
        return owned is None or all(
            not epochs.keys().isdisjoint(owned.get(id_, ())) for id_, epochs in partitions.items()
        )

    patch.setattr(current_assignment, "_owns_any", owns_all)
