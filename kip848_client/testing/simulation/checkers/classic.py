"""Classic groups: their rounds (K2, K3, K5), what their members read (C1), and conversions to and from one (K6, K9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.member_record import STATIC_LEAVE_EPOCH
from kip848_client.testing.simulation.observed_group import Conversion, MemberChange
from kip848_client.testing.simulation.observer import Checker, RunState, about
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicRounds(Checker):
    """K2: each completed join phase adds one to the generation, and nothing else moves it.

    K3: one leader, who is a member; all members of a stable group offer its protocol. K5: a member gets what the leader
    handed in for it, once for each generation.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._before: ClassicGroup | None = None
        self._handed_in: Mapping[str, bytes] | None = None
        """Assignments that the leader sent in this step."""

    @about(SyncGroupRequest)
    def served(self, client_id: str, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        after = self._cluster.coordinator.classic_group(request.group_id)
        if response.error_code or after is None:
            return
        before = self._observed_group.classic
        if before is not None and before.state is ClassicState.COMPLETING and request.member_id == before.leader:
            self._handed_in = {each.member_id: each.assignment for each in request.assignments}
        if after.state is not ClassicState.STABLE or after.members[request.member_id].assignment != response.assignment:
            fail("K5", f"{client_id} is given {response.assignment!r} of {_text(after)}")

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        before, after = self._before, self._observed_group.classic
        handed_in, self._handed_in = self._handed_in, None
        self._before = after
        if after is None or after is before:
            return
        try:
            after.check_invariants()
        except AssertionError as broken:
            fail("K3", f"{broken}: {_text(after)}")
        if before is None or self._observed_group.is_loaded:
            return
        moved = after.generation - before.generation
        completes = after.state is not before.state and after.state in (ClassicState.COMPLETING, ClassicState.EMPTY)
        if moved not in (0, 1) or (completes and not moved) or (moved and after.state in _KEEPING):
            fail("K2", f"from generation {before.generation} in {before.state} to {after.generation} in {after.state}")
        if after.state is not ClassicState.STABLE:
            return
        given = _assignments(after)
        if before.state is ClassicState.STABLE and given != _assignments(before):
            fail("K5", f"a stable group went from {_assignments(before)} to {given}")
        if before.state is ClassicState.COMPLETING and self._cluster.up:
            wanted = {} if handed_in is None else handed_in
            if handed_in is None or any(
                member.assignment != wanted.get(member_id, b"") for member_id, member in after.members.items()
            ):
                fail("K5", f"the leader handed in {handed_in}, and given is {given}")


_KEEPING: Final = (ClassicState.PREPARING, ClassicState.STABLE)
"""States that a group enters with the generation that it has."""


def _text(group: ClassicGroup) -> str:
    return f"{group.state}@{group.generation} of {sorted(group.members)}, leader {group.leader}"


def _assignments(group: ClassicGroup) -> list[tuple[str | None, bytes]]:
    """By instance id where there is one: a static member that is back has what its former self had."""
    return sorted((member.instance_id or member_id, member.assignment) for member_id, member in group.members.items())


class ClassicReading(Checker):
    """C1 in a classic group: no two members of its present generation read one partition.

    Three kinds of members may read until they hear of the present generation, and their commits are refused: one that
    did not join in it; one that missed a generation, until its JoinGroup is answered; and one whose late JoinGroup was
    taken for what it owns now.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._joined: dict[str, int] = {}
        """Member -> generation for which its JoinGroup counted last."""
        self._overtaken: set[str] = set()

    @about(JoinGroupRequest)
    def stale(self, client_id: str, request: Any) -> None:
        """The request lists the partitions that its sender owned when it sent it, and may have lost since."""
        self._overtaken.add(client_id)

    @about(JoinGroupRequest)
    def answered(self, consumer: ClientProcess, request: Any, response: JoinGroupResponse) -> None:
        """Its present list counts again."""
        if not response.error_code:
            self._overtaken.discard(consumer.name)

    @about(JoinGroupRequest)
    def served(self, client_id: str, request: JoinGroupRequest, response: JoinGroupResponse) -> None:
        if response.error_code:
            return
        said = [decode_subscription(bytes(protocol.metadata)) for protocol in request.protocols]
        if any(each.owned_partitions and each.generation_id < response.generation_id - 1 for each in said):
            self._joined.pop(response.member_id, None)
        else:
            self._joined[response.member_id] = response.generation_id

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """A round that was not recorded never happened; members of another generation are told."""
        group = after.classic_group(self._observed_group.group_id)
        self._joined = _generations(group)
        for consumer in self._consumers():
            if group is not None and consumer.view.member_epoch != group.generation:
                self._joined.pop(consumer.view.member_id, None)

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        """A group that became a classic one has its members in its first generation, with their partitions.

        A member that reads more was cut off while the group changed its kind twice, and counts as not joined.
        """
        converted, observed_group = self._observed_group.converted, self._observed_group
        if converted is None:
            return
        self._joined = _generations(observed_group.classic)
        for consumer in self._consumers():
            seen = converted.members.get(consumer.view.member_id)
            if seen is not None and not consumer.readable <= observed_group.names(seen.held):
                self._joined.pop(consumer.view.member_id, None)

    def view_changed(self, consumer: ClientProcess) -> None:
        group = self._observed_group.classic
        if group is None or not consumer.readable or not self._is_present(group, consumer):
            return
        for other in self._consumers():
            if (
                other is not consumer
                and (both := consumer.readable & other.readable)
                and self._is_present(group, other)
            ):
                fail("C1", f"{consumer.name} and {other.name} read {sorted(map(str, both))}: {_text(group)}")

    def _is_present(self, group: ClassicGroup, consumer: ClientProcess) -> bool:
        member_id = consumer.view.member_id
        if not consumer.is_classic or member_id not in group.members or consumer.name in self._overtaken:
            return False
        return self._joined.get(member_id) == group.generation


def _generations(group: ClassicGroup | None) -> dict[str, int]:
    return {} if group is None else dict.fromkeys(group.members, group.generation)


class Conversions(Checker):
    """K9: a group becomes a classic one exactly when its last member on the new protocol goes, where that is allowed.

    K6: members keep their partitions, and their epoch or generation. A conversion is one step.
    """

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        observed_group = self._observed_group
        converted = observed_group.converted
        if observed_group.is_loaded or (converted is not None and converted.was_empty):
            return
        if converted is None:
            if any(after is None for _, _, after in changes) and self._is_owed():
                fail("K9", f"only members on the classic protocol are left: {sorted(observed_group.members)}")
        elif converted.classic is not None:
            self._upgraded(converted.classic)
        else:
            self._downgraded(converted)

    def _is_owed(self) -> bool:
        members, config = self._observed_group.members.values(), self._scene.config
        return (
            config.may_downgrade
            and 0 < len(members) <= config.classic_max_size
            and all(seen.member.metadata.classic is not None for seen in members)
        )

    def _upgraded(self, before: ClassicGroup) -> None:
        observed_group = self._observed_group
        if not self._scene.config.may_upgrade:
            fail("K9", f"the policy is {self._scene.config.migration_policy}, and {before} became a consumer group")
        if observed_group.group_epoch not in (before.generation, before.generation + 1):
            fail("K2", f"generation {before.generation} became epoch {observed_group.group_epoch}")
        for member_id, seen in observed_group.members.items():
            member = before.members.get(member_id)
            if member is not None and not observed_group.names(seen.held) <= _given(member.assignment):
                fail("K6", f"{member_id} had {member.assignment!r}, and holds {observed_group.names(seen.held)}")
        if missing := before.members.keys() - observed_group.members.keys():
            instances = {seen.member.metadata.instance_id for seen in observed_group.members.values()}
            if any(before.members[member_id].instance_id not in instances - {None} for member_id in missing):
                fail("K6", f"{sorted(missing)} are no members after the upgrade")

    def _downgraded(self, converted: Conversion) -> None:
        observed_group, after = self._observed_group, self._observed_group.classic
        assert after is not None
        if not self._scene.config.may_downgrade:
            fail("K9", f"the policy is {self._scene.config.migration_policy}, and the group became {after}")
        modern = {one for one, seen in converted.members.items() if seen.member.metadata.classic is None}
        if not modern or after.members.keys() & modern:
            fail("K9", f"{sorted(modern)} spoke the new protocol, and the group became {after}")
        if not observed_group.group_epoch <= after.generation <= observed_group.group_epoch + 1:
            fail("K2", f"epoch {observed_group.group_epoch} became generation {after.generation}")
        for member_id, member in after.members.items():
            seen = converted.members.get(member_id)
            if seen is None or seen.epoch == STATIC_LEAVE_EPOCH:
                continue
            if not _given(member.assignment) <= observed_group.names(seen.target):
                fail(
                    "K6", f"{member_id} was to have {observed_group.names(seen.target)}, and has {member.assignment!r}"
                )


def _given(data: bytes) -> frozenset[NamedPartition]:
    try:
        topics = decode_assignment(data).assigned_partitions if data else ()
    except ProtocolError as error:
        fail("K6", f"an assignment cannot be read: {error}")
    return frozenset(NamedPartition(topic.topic, index) for topic in topics for index in topic.partitions)
