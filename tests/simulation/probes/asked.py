"""Which member is asked for a target: S10, against docs/client-side-assignors.md. In every run with assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kip848_client.coordinator.assignment_round import AssignmentRound
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import (
    STATIC_LEAVE_EPOCH,
    ClientAssignor,
)
from kip848_client.errors import ErrorCode
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror, Seen
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import InvariantViolation, fail
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
)
from kip848_client.wire.schema import Request
from tests.simulation.probes.round_model import Runners, offers_of, runners, runners_of


class AskedMembers(Observer):
    """S10: the member that moves the group is asked for the target; one that failed is asked again after all others.

    A changed offer of a member moves the group; a withdrawn reason does not. No member is asked in a group whose
    members have nothing in common.

    Args:
        waits: the next target waits until the assignment interval is over.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, *, waits: bool) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._waits = waits
        self._round: AssignmentRound | None = None
        self._epoch = 0
        self._target_epoch = 0
        self._loads = -1

    @about(ConsumerGroupHeartbeatRequest, ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        """Look who is asked after a request; the mirror shows the group before."""
        group = self._mirror.group
        before = self._round
        flying = self._look({})
        if isinstance(response, ConsumerGroupInstallAssignmentResponse) and not response.error_code:
            is_behind = group is not None and group.group_epoch > group.target_epoch and not self._waits
            if before and group and is_behind and flying is None and _in_common(group, before.assignor_name):
                fail(
                    "S10",
                    f"a target of epoch {group.target_epoch} was installed, and no member is asked for a newer one",
                )
        if group is None or not isinstance(response, ConsumerGroupHeartbeatResponse):
            return
        if response.error_code:
            if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH and flying is not None and before is not None:
                self._fenced(group, flying, request)
            return
        if response.should_compute_assignment and (flying is None or not flying.is_notified):
            fail("S10", f"{response.member_id} is told to compute the target, and its time does not run: {flying}")
        moved = group.group_epoch > self._mirror.group_epoch and self._mirror.loads == self._cluster.loads
        asked = None if flying is None or before is not None else flying.member_id
        if flying is None or not moved or response.member_epoch <= 0 or asked in (None, response.member_id):
            return
        versions = runners_of(offers_of(group), flying.assignor_name)
        if response.member_id in versions.spanning or flying.member_id not in versions.spanning:
            fail("S10", f"{response.member_id} moved the group, and {asked} is asked for the target")

    def _fenced(self, group: ConsumerGroup, flying: AssignmentRound, request: Request[Any]) -> None:
        """A fenced member loses its round."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        failed, versions = request.member_id, runners_of(offers_of(group), flying.assignor_name)
        if flying.member_id == failed and failed not in flying.tried and self._others(group, failed, versions):
            fail("S10", f"{failed} was fenced, and is still asked for the target")

    @staticmethod
    def _others(group: ConsumerGroup, member_id: str, versions: Runners) -> bool:
        return any(
            other != member_id and member.current.member_epoch != STATIC_LEAVE_EPOCH and versions.include(other)
            for other, member in group.members.items()
        )

    def group_changed(self, changes: Sequence[Change]) -> None:
        """Look at offers that changed."""
        mirror = self._mirror
        loaded, moved = mirror.loads != self._loads, mirror.group_epoch != self._epoch
        self._look({member_id: before for member_id, before, after in changes if before is not None and after is None})
        self._epoch = mirror.group_epoch
        if loaded:
            return
        asks = [
            member_id
            for member_id, before, after in changes
            if before is not None
            and after is not None
            and _asks(before.member.metadata.client_assignors, after.member.metadata.client_assignors)
        ]
        if asks and not moved:
            fail("S10", f"{asks} offer other assignors than before, and the group does not move")
        came_or_went = any(before is None or after is None for _, before, after in changes)
        for fact in self._cluster.facts:
            if fact.fields.get("reason") == "client_assignors_changed" and not asks and not came_or_went:
                changed = [
                    member_id
                    for member_id, before, after in changes
                    if before is not None
                    and after is not None
                    and _names(before.member.metadata.client_assignors)
                    != _names(after.member.metadata.client_assignors)
                ]
                if not changed:
                    fail("S10", "the group moves for other assignors, and no member offers any")

    @staticmethod
    def _chosen(
        group: ConsumerGroup, before: AssignmentRound | None, flying: AssignmentRound, gone: Mapping[str, Seen]
    ) -> None:
        """A member that reads all that others may come to write goes before those that only read what there is.

        And the assignor is the one that members put first, all together; with those that are *gone*, if it was chosen
        first and they went then.
        """
        if before is not None and before.member_id == flying.member_id:
            return
        versions = runners_of(offers_of(group), flying.assignor_name)
        offers = offers_of(group)
        earlier = {**offers, **{member_id: seen.member.metadata.client_assignors for member_id, seen in gone.items()}}
        wanted = {found.assignor_name for found in (runners(offers), runners(earlier)) if found is not None}
        if (before is None or before.assignor_name != flying.assignor_name) and flying.assignor_name not in wanted:
            fail("S10", f"{flying.assignor_name} is asked for, and members prefer {wanted}")
        if flying.member_id in versions.spanning:
            return
        better = [
            member_id
            for member_id, member in group.members.items()
            if member_id not in flying.tried
            and member.current.member_epoch != STATIC_LEAVE_EPOCH
            and member_id in versions.spanning
        ]
        if better:
            fail("S10", f"{flying.member_id} is asked for the target, and {better} read more: {flying}")

    def _look(self, gone: Mapping[str, Seen]) -> AssignmentRound | None:
        """Compare the member that is asked with the one before; *gone* are those that left just now."""
        before, group = self._round, self._mirror.group
        self._round = flying = self._cluster.coordinator.round_in_flight(self._mirror.group_id)
        same_life = self._loads == self._cluster.loads
        target_epoch = 0 if group is None else group.target_epoch
        same_target = target_epoch == self._target_epoch
        self._loads, self._target_epoch = self._cluster.loads, target_epoch
        if flying is not None and group is not None:
            asked = group.members.get(flying.member_id)
            if asked is None:
                raise InvariantViolation("S10", f"{flying.member_id} is asked for the target, and is no member")
            if asked.current.member_epoch == STATIC_LEAVE_EPOCH:
                fail("S10", f"{flying.member_id} is asked for the target, and is away")
            self._chosen(group, before, flying, gone)
            if flying.member_id in flying.tried:
                fail("S10", f"{flying.member_id} failed, and is asked again before the others: {flying}")
            names = [set(_names(member.metadata.client_assignors)) for member in group.members.values()]
            if not set.intersection(*names):
                fail("S10", f"{flying.member_id} is asked for the target, and members have no assignor in common")
            able = runners_of(offers_of(group), flying.assignor_name)
            if flying.prepared is None and not able.include(flying.member_id):
                fail("S10", f"{flying.member_id} is asked for the target, and cannot read what others wrote")
        if before is None or group is None or not same_life or not same_target:
            return flying
        failed = before.member_id
        if flying is None:
            versions = runners_of(offers_of(group), before.assignor_name)
            somebody = failed in group.members or any(versions.include(member_id) for member_id in group.members)
            if somebody and _in_common(group, before.assignor_name):
                fail("S10", f"{failed} was asked for the target, and no member is asked now")
            return None
        if flying.member_id == failed or failed not in group.members:
            return flying
        if failed in flying.tried or flying.assignor_name != before.assignor_name:
            return flying
        if group.group_epoch != self._epoch:
            return flying  # the others may be others than when it failed, a moment ago
        versions = runners_of(offers_of(group), flying.assignor_name)
        if versions.include(failed) and any(
            member_id != failed
            and member_id not in before.tried
            and member.current.member_epoch != STATIC_LEAVE_EPOCH
            and versions.include(member_id)
            for member_id, member in group.members.items()
        ):
            fail("S10", f"{failed} was asked and failed, and counts as one that was not: {flying}")
        return flying


def _asks(before: tuple[ClientAssignor, ...], after: tuple[ClientAssignor, ...]) -> bool:
    if len(before) != len(after):
        return True
    return any(old != new and replace(old, reason=0) != new for old, new in zip(before, after, strict=True))


def _in_common(group: ConsumerGroup, assignor_name: str) -> bool:
    """Whether every member offers it, and none is away."""
    return all(
        assignor_name in _names(member.metadata.client_assignors) and member.current.member_epoch != STATIC_LEAVE_EPOCH
        for member in group.members.values()
    )


def _names(offered: tuple[ClientAssignor, ...]) -> list[str]:
    return [assignor.name for assignor in offered]
