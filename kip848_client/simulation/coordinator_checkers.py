"""What must hold on the coordinator's side after every step, one class each.

Names follow the usual ones of this protocol: S for safety of the coordinator. See docs/simulation.md. What it accepts
from whom is in `fencing_checkers`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kip848_client.coordinator.consumer_group import GroupState
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.snapshot import GroupSnapshot
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.pictures import IdPartition
from kip848_client.simulation.violation import require
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.schema import Request, Response

CurrentStep: TypeAlias = tuple[int, int, frozenset[IdPartition], frozenset[IdPartition]]

_COMPARE_EVERY = 25
"""Records between two comparisons of the living state with the replayed one."""


class SingleOwner(Observer):
    """S1: no partition is assigned to, or awaited from, two members at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def coordinator_changed(self) -> None:
        """Look at every group."""
        for picture in self._cluster.pictures():
            owner: dict[IdPartition, str] = {}
            for member_id, partitions in picture.held.items():
                for partition in partitions:
                    other = owner.setdefault(partition, member_id)
                    require(other == member_id, "S1", f"{partition} is held by {other} and {member_id}")


class TargetLegality(Observer):
    """S2: a target gives no partition twice; once the group rests, it gives every subscribed partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def coordinator_changed(self) -> None:
        """No partition is in two targets."""
        for picture in self._cluster.pictures():
            targets = picture.targets.values()
            total = sum(len(target) for target in targets)
            group_id = picture.group.group_id
            require(len(frozenset().union(*targets)) == total, "S2", f"group {group_id}: targets overlap")

    def converged(self) -> None:
        """Every partition of every subscribed topic is in a target."""
        for picture in self._cluster.pictures():
            group = picture.group
            if group.members:
                targets = frozenset().union(*picture.targets.values())
                wanted = {
                    (topic.topic_id, index)
                    for topic in self._cluster.topics.topics
                    if topic.name in group.subscribed_topics
                    for index in range(topic.partition_count)
                }
                require(
                    targets == wanted, "S2", f"group {group.group_id}: unassigned {sorted(map(str, wanted - targets))}"
                )


class EpochOrder(Observer):
    """S3: previous epoch <= epoch of a member <= target epoch <= group epoch; the last two never go back.

    A crash in between changes nothing, because epochs are durable.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before: dict[str, tuple[int, int]] = {}

    def coordinator_changed(self) -> None:
        """Compare with the last look."""
        for picture in self._cluster.pictures():
            group = picture.group
            self._look(group)
            self._before[group.group_id] = (group.group_epoch, group.target_epoch)

    def _look(self, group: GroupSnapshot) -> None:
        before = self._before.get(group.group_id, (0, 0))
        require(
            group.group_epoch >= before[0] and group.target_epoch >= before[1],
            "S3",
            f"epochs of {group.group_id} went from {before} to {(group.group_epoch, group.target_epoch)}",
        )
        require(group.target_epoch <= group.group_epoch, "S3", f"{group.group_id}: the target is ahead of its group")
        for member in group.members.values():
            if member.member_epoch > 0:
                require(
                    member.previous_member_epoch <= member.member_epoch <= group.target_epoch,
                    "S3",
                    f"{member.member_id}: epochs {member.previous_member_epoch}, {member.member_epoch}, "
                    f"target {group.target_epoch}",
                )


class RevokeFirst(Observer):
    """S4: a member moves to an epoch only without anything left to revoke, and with nothing beyond its target."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epochs: dict[tuple[str, str], int] = {}

    def coordinator_changed(self) -> None:
        """Look at members whose epoch grew."""
        for picture in self._cluster.pictures():
            group = picture.group
            for member_id, member in group.members.items():
                before = self._epochs.get((group.group_id, member_id), 0)
                self._epochs[group.group_id, member_id] = member.member_epoch
                if member.member_epoch <= max(before, 0):
                    continue
                require(not member.pending_partitions, "S4", f"{member_id} is at {member.member_epoch} unrevoked")
                require(
                    member.member_epoch != group.target_epoch or picture.held[member_id] <= picture.targets[member_id],
                    "S4",
                    f"{member_id} is at {member.member_epoch} and holds more than its target",
                )


class GroupStates(Observer):
    """S6: STABLE means that everybody has its target of the group's epoch, EMPTY that nobody is there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def coordinator_changed(self) -> None:
        """Look at every group."""
        for picture in self._cluster.pictures():
            group = picture.group
            require(
                (group.state is GroupState.EMPTY) == (not group.members),
                "S6",
                f"{group.group_id} is {group.state} with {len(group.members)} members",
            )
            if group.state is GroupState.STABLE:
                for member_id, member in group.members.items():
                    require(
                        member.member_epoch == group.target_epoch == group.group_epoch
                        and not member.pending_revocation,
                        "S6",
                        f"{group.group_id} is stable at {group.group_epoch}, {member_id} is at {member.member_epoch}",
                    )


class Withholding(Observer):
    """S5: an answer never gives a partition that another member still has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """Look at an assignment that is about to leave."""
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        picture = self._cluster.picture(request.group_id)
        if response.assignment is None or picture is None:
            return
        given = {
            (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
        }
        for member_id, held in picture.held.items():
            if member_id != response.member_id:
                both = given & held
                require(not both, "S5", f"{client_id} is given {both}, which {member_id} still has")


class Durability(Observer):
    """S9: what is in the log leads to what is in memory.

    A second coordinator reads along in the log and is compared with the living one now and then; at the end a third
    reads all of it anew, as one does after a crash.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shadow = cluster.reloaded()
        self._replayed = 0
        self._compared = 0

    def coordinator_changed(self) -> None:
        """Read along."""
        records = self._cluster.records
        for record in records[self._replayed :]:
            self._shadow.replay(record)
        self._replayed = len(records)
        if self._cluster.up and self._replayed >= self._compared + _COMPARE_EVERY:
            self._compared = self._replayed
            self._compare(self._shadow)

    def converged(self) -> None:
        """Reload once more at the end."""
        self._compare(self._cluster.reloaded())

    def _compare(self, other: GroupCoordinator) -> None:
        living = self._cluster.coordinator
        require(living.groups() == other.groups(), "S9", "the log leads to other groups")
        for group_id in living.groups():
            require(living.snapshot(group_id) == other.snapshot(group_id), "S9", f"the log leads to another {group_id}")
            require(living.committed(group_id) == other.committed(group_id), "S9", f"other offsets of {group_id}")


class SlowRevokers(Observer):
    """L3: who does not give up partitions within its rebalance timeout is removed, so that others get them.

    The time starts anew when the coordinator is loaded, because timers are not in the log, and with every new step.
    """

    def __init__(self, cluster: Cluster, world: World) -> None:
        self._cluster = cluster
        self._world = world
        self._since: dict[str, tuple[CurrentStep, int]] = {}

    def coordinator_changed(self) -> None:
        """Look at everybody who has something to give up."""
        if not self._cluster.up:
            return  # nobody is there to remove anybody
        now_ms = self._world.now_ms
        before, self._since = self._since, {}
        for picture in self._cluster.pictures():
            for member_id, member in picture.group.members.items():
                if not member.pending_revocation:
                    continue
                step = (self._cluster.loads, member.member_epoch, picture.held[member_id], member.pending_partitions)
                known, since_ms = before.get(member_id, (step, now_ms))
                self._since[member_id] = (step, since_ms if known == step else now_ms)
                late_ms = now_ms - self._since[member_id][1] - member.metadata.rebalance_timeout_ms
                require(late_ms <= 0, "L3", f"{member_id} gave nothing up, and stays for {late_ms} ms more")


class OwnAssertions(Observer):
    """What the coordinator asserts of its groups itself, as after every replayed batch in its own tests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def coordinator_changed(self) -> None:
        """Ask it. Comes after the named invariants, which say more."""
        self._cluster.coordinator.check_invariants()
