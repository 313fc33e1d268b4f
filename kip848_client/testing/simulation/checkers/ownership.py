"""The coordinator's owners, targets, epochs and states, and its log: S1 to S6, S9 and S10.

Each checker reads only the members that changed in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kip848_client.testing.coordinator.classic.classic_group import ClassicState, from_value, to_value
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.member_record import STATIC_LEAVE_EPOCH
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.testing.simulation.observed_group import (
    IdPartition,
    MemberChange,
    Partitions,
    id_partitions,
    listed,
    partitions_of,
)
from kip848_client.testing.simulation.observer import Checker, RunState, about
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)

_ASSERT_EVERY: Final = 8
"""Changes between two runs of the coordinator's own assertions."""
_NOTHING: Final[Partitions] = frozenset()


class SingleOwner(Checker):
    """S1: no partition has two owners. A partition under revocation still has its owner.

    S5: no answer gives a partition that another member still has.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._owner: dict[IdPartition, str] = {}
        """Partition -> its owner at the last look."""

    @about(ConsumerGroupHeartbeatRequest)
    def served(self, client_id: str, request: Any, response: ConsumerGroupHeartbeatResponse) -> None:
        """S5: every partition that the answer gives was free in the group before."""
        owner, group, member_id = self._owner, self._observed_group.group, response.member_id
        for topic in () if response.assignment is None else response.assignment.topic_partitions:
            for index in topic.partitions:
                holder = owner.get((topic.topic_id, index), member_id)
                # A returning static member takes over the partitions of its former process.
                if holder != member_id and group is not None and holder in group.members:
                    fail("S5", f"{client_id} is given {topic.topic_id}-{index}, which {holder} still has")

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        owner = self._owner
        given: list[tuple[str, Partitions]] = []
        for member_id, before, after in changes:
            had = before.held if before is not None else _NOTHING
            has = after.held if after is not None else _NOTHING
            if had == has:
                continue
            for partition in had - has:
                del owner[partition]
            given.append((member_id, has - had))
        for member_id, partitions in given:
            for partition in partitions:
                other = owner.setdefault(partition, member_id)
                if other != member_id:
                    fail("S1", f"{partition} is held by {other} and {member_id}")


class TargetLegality(Checker):
    """S2: a new target gives every partition of every subscribed topic to exactly one member that subscribes to it.

    This holds for the topics and members from which the target was computed. A target that a member computed is for the
    snapshot of that member, or is the rest of an old target after an error. Such a target must have no overlaps; that
    it is complete is checked at the end of the run.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._target_epoch = 0

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        observed_group = self._observed_group
        computed = observed_group.target_epoch != self._target_epoch and not observed_group.is_loaded
        self._target_epoch = observed_group.target_epoch
        group = observed_group.group
        if computed and group is not None and not self._was_kept():
            by_client = bool(group.target_assignor) or any(
                seen.member.metadata.client_assignors for seen in observed_group.members.values()
            )
            self._look(group, complete=not by_client)

    def _was_kept(self) -> bool:
        """Whether the target is what a classic group was given."""
        converted = self._observed_group.converted
        classic = None if converted is None else converted.classic
        return classic is not None and classic.generation == self._observed_group.target_epoch

    def converged(self) -> None:
        """At rest the target fits all subscriptions. S10: if all members have an assignor, theirs computed it."""
        group, members = self._observed_group.group, self._observed_group.members.values()
        if group is None:
            return
        self._look(group, complete=True)
        if members and all(seen.member.metadata.client_assignors for seen in members) and not group.target_assignor:
            fail("S10", "every member has an assignor, and the server computed the target")

    def _look(self, group: ConsumerGroup, *, complete: bool) -> None:
        observed_group, image = self._observed_group, self._cluster.topics.image
        given: set[IdPartition] = set()
        total = 0
        for member_id, seen in observed_group.members.items():
            given |= seen.target
            total += len(seen.target)
            wanted = set(image.ids_of(group.topics_of(seen.member.metadata)))
            if complete and any(topic_id not in wanted for topic_id, _ in seen.target):
                fail("S2", f"the target of {member_id} has partitions of topics that it does not subscribe to")
        if len(given) != total:
            fail("S2", f"targets of epoch {observed_group.target_epoch} overlap")
        if complete and given != (wanted_all := partitions_of(image, group.subscribed_topics)):
            missing = sorted(map(str, wanted_all - given))
            fail(
                "S2",
                f"the target of epoch {observed_group.target_epoch} leaves out {missing} or gives what is not there",
            )


class _Prepared(NamedTuple):
    """The last snapshot that a member got, and the load of the coordinator that sent it."""

    member_id: str
    group_epoch: int
    members: frozenset[str]
    loads: int


class InstalledTargets(Checker):
    """S10: only the member that prepared last installs a target, for the epoch of its snapshot and without changes.

    After an error the old target stays, except for topics that were deleted or that a member dropped.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._prepared: _Prepared | None = None
        self._installed: ConsumerGroupInstallAssignmentRequest | None = None
        self._before: Mapping[str, frozenset[IdPartition]] = {}

    @about(ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        match request, response:
            case ConsumerGroupPrepareAssignmentRequest(), ConsumerGroupPrepareAssignmentResponse(error_code=0):
                members = frozenset(member.member_id for member in response.members)
                self._prepared = _Prepared(request.member_id, response.group_epoch, members, self._observed_group.loads)
                if request.member_id not in members:
                    fail("S10", f"{request.member_id} is not in what it was shown")
            case ConsumerGroupInstallAssignmentRequest(), ConsumerGroupInstallAssignmentResponse(error_code=0):
                self._installed = request
                self._before = {
                    member_id: self._observed_group.without_what_is_gone(seen)
                    for member_id, seen in self._observed_group.members.items()
                }
                self._check_taken(request)
            case _:
                pass

    def _check_taken(self, request: ConsumerGroupInstallAssignmentRequest) -> None:
        prepared = self._prepared
        if prepared is None or prepared.loads != self._observed_group.loads:
            fail("S10", f"{request.member_id} installed what this coordinator had not prepared")
        if (request.member_id, request.group_epoch) != prepared[:2]:
            fail("S10", f"{request.member_id} installed epoch {request.group_epoch}; prepared was {prepared[:2]}")
        strangers = {member.member_id for member in request.members} - prepared.members
        if strangers and not request.error:
            fail("S10", f"the target of {sorted(strangers)} was installed, who were not in the snapshot")
        self._prepared = None

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        installed, self._installed = self._installed, None
        observed_group, before = self._observed_group, self._before
        if installed is None:
            return
        if observed_group.target_epoch != installed.group_epoch:
            fail("S10", f"installed for {installed.group_epoch}, and the target is of {observed_group.target_epoch}")
        handed_in = {
            member.member_id: frozenset(
                (topic.topic_id, partition) for topic in member.partitions for partition in topic.partitions
            )
            for member in installed.members
        }
        for member_id, seen in observed_group.members.items():
            target = seen.target
            wanted = before.get(member_id, frozenset()) if installed.error else handed_in.get(member_id)
            if wanted is not None and target != wanted:
                fail("S10", f"{member_id} was to get {len(wanted)} partitions, and its target has {len(target)}")


class EpochOrder(Checker):
    """S3: previous epoch <= epoch of a member <= target epoch <= group epoch; the last two never go back.

    After a crash or a failover they are at least the durable ones.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._durable = (0, 0)
        self._seen = (0, 0)

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        observed_group = self._observed_group
        epochs = (observed_group.group_epoch, observed_group.target_epoch)
        if observed_group.converted is not None and observed_group.converted.was_empty:
            self._seen = self._durable = (0, 0)  # a group without members may begin anew
        floor = self._durable if observed_group.is_loaded else self._seen
        if epochs[0] < floor[0] or epochs[1] < floor[1]:
            fail("S3", f"epochs went from {floor} to {epochs}")
        if epochs[1] > epochs[0]:
            fail("S3", f"the target is ahead of its group: {epochs}")
        for member_id, _, after in changes:
            if after is not None and after.epoch > 0:
                ordered = after.previous_epoch <= after.epoch <= epochs[1]
                if not ordered:
                    fail("S3", f"{member_id}: {after.previous_epoch} <= {after.epoch} <= {epochs[1]} is not so")
        self._seen = epochs
        if self._cluster.durable == len(self._cluster.log):
            self._durable = epochs


class RevokeFirst(Checker):
    """S4: a member moves to an epoch only without anything left to revoke, and with nothing beyond its target.

    A partition is taken from it only when it says that it does not have it any more. The epoch of a member goes back
    only when it joins again, leaves, or was not durable.
    """

    @about(ConsumerGroupHeartbeatRequest)
    def served(self, client_id: str, request: ConsumerGroupHeartbeatRequest, response: Any) -> None:
        before, group = self._observed_group.members.get(request.member_id), self._observed_group.group
        after = None if group is None else group.members.get(request.member_id)
        if before is None or after is None or response.error_code or request.member_epoch <= 0:
            return
        if after.current is before.member.current:
            return
        taken = before.held - id_partitions(after.current.assigned) - id_partitions(after.current.pending_revocation)
        if taken and (request.topic_partitions is None or taken & listed(request.topic_partitions)):
            fail("S4", f"{sorted(taken)} are taken from {client_id}, who says that it has {request.topic_partitions}")

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        observed_group = self._observed_group
        for member_id, before, after in changes:
            if after is None or observed_group.is_loaded:
                continue  # changes that were not durable are undone
            epoch_before = before.epoch if before is not None else 0
            if after.epoch > max(epoch_before, 0):
                if after.pending:
                    fail("S4", f"{member_id} is at {after.epoch} unrevoked")
                if after.epoch == observed_group.target_epoch and not after.held <= after.target:
                    fail("S4", f"{member_id} is at {after.epoch} and holds more than its target")
            elif 0 < after.epoch < epoch_before:
                fail("S3", f"{member_id} went from epoch {epoch_before} to {after.epoch}")


class GroupStates(Checker):
    """S6: STABLE: each member has its target of the group epoch; EMPTY: there is no member; otherwise neither."""

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        observed_group, group = self._observed_group, self._observed_group.group
        if group is None or not changes:
            return
        epoch, members = observed_group.group_epoch, observed_group.members.values()
        is_done = epoch == observed_group.target_epoch and all(
            seen.epoch in (epoch, STATIC_LEAVE_EPOCH) and not seen.pending for seen in members
        )
        if (group.state is GroupState.EMPTY) != (not members) or (group.state is GroupState.STABLE and not is_done):
            fail(
                "S6",
                f"the group is {group.state} at {epoch}, its target is of {observed_group.target_epoch}: {members}",
            )


class Durability(Checker):
    """S9: replaying the log leads to the state in memory: at every load, and at the end."""

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        if before is not None:
            same_as_log(before, after)

    def converged(self) -> None:
        same_as_log(self._cluster.coordinator, self._cluster.reloaded())


def same_as_log(living: GroupCoordinator, other: GroupCoordinator) -> None:
    """S9: *other*, which read the log of *living*, has the same state."""
    if living.groups() != other.groups():
        fail("S9", "the log leads to other groups")
    for group_id in living.groups():
        one, two = living.snapshot(group_id), other.snapshot(group_id)
        if one is None or one != two:
            fail("S9", f"the log leads to another {group_id}: {one} {two}")
        counted, counts = _derived(living.group(group_id)), _derived(other.group(group_id))
        if counted != counts:
            wrong = sorted(name for name in counted if counted[name] != counts[name])
            fail("S9", f"{group_id} counts {wrong} otherwise than its log: {[counted[name] for name in wrong]}")
        if living.committed(group_id) != other.committed(group_id):
            fail("S9", f"other offsets of {group_id}")
    for group_id in living.classic_groups():
        classic, found = living.classic_group(group_id), other.classic_group(group_id)
        assert classic is not None
        if classic.state is ClassicState.STABLE and from_value(group_id, to_value(classic)) != found:
            fail("K8", f"the log leads to {found}, and not to {classic}")
        if found is not None and classic.generation < found.generation:
            fail("K8", f"the log is ahead of {classic}: {found}")


class OwnAssertions(Checker):
    """The coordinator's own assertions about its groups, which its unit tests run after every batch."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._changes = 0

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        """Run them now and then, after the named invariants, whose messages say more."""
        self._changes += 1
        if not self._changes % _ASSERT_EVERY:
            self._cluster.coordinator.check_invariants()

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        after.check_invariants()

    def converged(self) -> None:
        self._cluster.coordinator.check_invariants()


_PASSING: Final = frozenset({"metadata_changes", "_subscribed"})
"""Caches: filled when they are first read."""


def _derived(group: ConsumerGroup | None) -> dict[str, object]:
    """A group's derived state, which must be the same from a compacted log."""
    kept = {name: value for name, value in vars(group).items() if name not in _PASSING} if group is not None else {}
    return kept | {"subscribed_topics": group.subscribed_topics if group is not None else None}
