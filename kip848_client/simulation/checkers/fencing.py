"""Requests that must be accepted or refused (S7, S8, S11 and S12), and members that may be removed (L3).

The checkers derive the coordinator's rules a second time, from the requests and from the group before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from kip848_client.coordinator.classic.group import ClassicGroup, ClassicState
from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.errors import ErrorCode
from kip848_client.simulation.checkers.ownership import SingleOwner
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, IdPartition, Mirror, Seen, listed
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Request


class HeartbeatFencing(Observer):
    """S7: a heartbeat is accepted with the member's epoch, 0, or the previous epoch and no foreign partitions.

    Any other is refused and changes nothing. S8: an instance id has one holder, whom no other member displaces.
    S5: an answer never gives a partition that another member still has. S12: a group never has more members than
    allowed.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, owners: SingleOwner, *, max_size: int) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._owner = owners.owner
        self._max_size = max_size

    def group_changed(self, changes: Sequence[Change]) -> None:
        group = self._mirror.group
        if group is None or not changes:
            return
        if self._max_size and len(group.members) > self._max_size:
            fail("S12", f"the group has {len(group.members)} members, allowed are {self._max_size}")
        static = group.static_members
        for member_id, _, after in changes:
            if after is not None and (instance_id := after.member.metadata.instance_id) is not None:
                if static.get(instance_id) != member_id:
                    fail("S8", f"{instance_id} is held by {static.get(instance_id)} and {member_id}")
            elif after is None and member_id in static.values():
                fail("S8", f"{member_id} is gone, and holds an instance id")

    def served(self, client_id: str, request: Any, response: Any) -> None:
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        code = response.error_code
        if code and self._cluster.version != self._mirror.version:
            fail("S7", f"{client_id} was refused, and yet something changed")
        wanted = self._verdict(request)
        if wanted is not None and code != wanted:
            fail(
                "S8" if request.instance_id is not None else "S12" if wanted is _TOO_MANY else "S7",
                f"{client_id} sent epoch {request.member_epoch} and was told {code}, not {wanted.name}",
            )
        if response.assignment is not None and self._mirror.members:
            self._withheld(client_id, response)

    def _withheld(self, client_id: str, response: ConsumerGroupHeartbeatResponse) -> None:
        """S5. The mirror shows the group before: every partition that the answer gives must have been free in it."""
        assert response.assignment is not None
        owner, member_id = self._owner, response.member_id
        group = self._mirror.group
        for topic in response.assignment.topic_partitions:
            for index in topic.partitions:
                holder = owner.get((topic.topic_id, index), member_id)
                # A returning static member takes over the partitions of its former process.
                if holder != member_id and group is not None and holder in group.members:
                    fail("S5", f"{client_id} is given {topic.topic_id}-{index}, which {holder} still has")

    def _verdict(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
        """The error code that the answer must carry; None if other rules may refuse it too."""
        members = self._mirror.members
        if self._mirror.classic is not None:
            # Whether it becomes a consumer group is `migration`'s to say.
            return None if request.member_epoch == 0 else ErrorCode.GROUP_ID_NOT_FOUND
        if not self._mirror.group_epoch:
            return ErrorCode.NONE if request.member_epoch == 0 else ErrorCode.GROUP_ID_NOT_FOUND
        seen = members.get(request.member_id)
        full = seen is None and request.member_epoch >= 0 and self._if_there_is_room() is _TOO_MANY
        if full:
            # As in Kafka, also for a member that does not know of its removal, or returns to a static slot.
            return _TOO_MANY
        if request.instance_id is not None:
            holder = self._holder(request.instance_id)
            if request.member_epoch == 0:
                if holder is None or holder == request.member_id or members[holder].epoch == -2:
                    return ErrorCode.NONE
                if members[holder].member.metadata.classic is not None:
                    return ErrorCode.NONE
                return ErrorCode.UNRELEASED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != request.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if request.member_epoch == 0:
            return ErrorCode.NONE
        if seen is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_epoch < 0 or _is_current(request, seen):
            return ErrorCode.NONE
        return ErrorCode.FENCED_MEMBER_EPOCH

    def _holder(self, instance_id: str) -> str | None:
        for member_id, seen in self._mirror.members.items():
            if seen.member.metadata.instance_id == instance_id:
                return member_id
        return None

    def _if_there_is_room(self) -> ErrorCode:
        full = self._max_size and len(self._mirror.members) >= self._max_size
        return _TOO_MANY if full else ErrorCode.NONE


_TOO_MANY = ErrorCode.GROUP_MAX_SIZE_REACHED


def _is_current(request: ConsumerGroupHeartbeatRequest, seen: Seen) -> bool:
    if request.member_epoch == seen.epoch:
        return True
    if request.member_epoch != seen.previous_epoch or request.topic_partitions is None:
        return False
    return request.member_epoch < seen.epoch and listed(request.topic_partitions) <= seen.assigned


class OffsetFencing(Observer):
    """S11: a commit is accepted only from a member, at its epoch, or at one that the partition was assigned at.

    And a fetch returns the offset that was committed last.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._committed: dict[IdPartition, int] = {}
        """By the accepted commits; a load brings what was durable."""
        self._stale: Request[Any] | None = None

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """Commits that were not durable are gone: no client was told that they were accepted."""
        found = {}
        for topic, partitions in after.committed(self._mirror.group_id).items():
            for index, committed in partitions.items():
                topic_id = self._cluster.topics.resolved(committed.topic_id, topic)
                if topic_id is not None:
                    found[topic_id, index] = committed.offset
        self._committed = found

    @about(OffsetCommitRequest)
    def stale(self, client_id: str, request: Any) -> None:
        """A stale commit may overwrite later ones of its sender."""
        self._stale = request

    @about(OffsetCommitRequest, OffsetFetchRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        if isinstance(request, OffsetCommitRequest):
            self._committing(client_id, request, response)
        elif isinstance(request, OffsetFetchRequest):
            self._fetching(client_id, response)

    def _committing(self, client_id: str, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        stale, self._stale = self._stale, None
        if self._mirror.classic is not None:
            self._committing_to_classic(client_id, request, response, self._mirror.classic)
            return
        seen = self._mirror.members.get(request.member_id)
        epoch = request.generation_id_or_member_epoch
        if seen is not None and 0 < epoch <= seen.epoch:
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
            if ErrorCode.STALE_MEMBER_EPOCH in codes and self._covers(seen, request):
                fail("S11", f"{client_id} is refused at {epoch}, and has had all of it since then: {request}")
        for asked, topic in zip(request.topics, response.topics, strict=True):
            for wanted, partition in zip(asked.partitions, topic.partitions, strict=True):
                if partition.error_code:
                    continue
                if seen is None:
                    fail("S11", f"{client_id} is no member, and its commit was accepted")
                    return
                if epoch > seen.epoch:
                    fail("S11", f"{client_id} committed with an epoch from the future")
                topic_id = self._cluster.topics.resolved(asked.topic_id, asked.name)
                if epoch < seen.epoch and topic_id is not None:
                    assigned_at = _assigned_at(seen, topic_id, partition.partition_index)
                    if assigned_at is None or assigned_at > epoch:
                        fail(
                            "S11",
                            f"{client_id} committed {partition.partition_index} at {epoch}, has it since {assigned_at}",
                        )
                if topic_id is not None:
                    self._accept(topic_id, wanted, is_stale=request is stale)

    def _accept(self, topic_id: UUID, wanted: OffsetCommitRequestPartition, *, is_stale: bool) -> None:
        self._committed[topic_id, wanted.partition_index] = wanted.committed_offset
        remember = self._mirror.rewound.add if is_stale else self._mirror.rewound.discard
        remember((topic_id, wanted.partition_index))

    def _committing_to_classic(
        self, client_id: str, request: OffsetCommitRequest, response: OffsetCommitResponse, group: ClassicGroup
    ) -> None:
        """K11: in a classic group the member and its generation count, but not while the assignment is awaited."""
        generation, is_empty = request.generation_id_or_member_epoch, group.state is ClassicState.EMPTY
        if generation < 0 and is_empty:
            verdict = ErrorCode.NONE
        elif request.member_id not in group.members:
            verdict = ErrorCode.UNKNOWN_MEMBER_ID
        elif generation != group.generation:
            verdict = ErrorCode.ILLEGAL_GENERATION
        else:
            is_completing = group.state is ClassicState.COMPLETING
            verdict = ErrorCode.REBALANCE_IN_PROGRESS if is_completing else ErrorCode.NONE
        for asked, topic in zip(request.topics, response.topics, strict=True):
            topic_id = self._cluster.topics.resolved(asked.topic_id, asked.name)
            for wanted, partition in zip(asked.partitions, topic.partitions, strict=True):
                code = partition.error_code
                is_fenced = verdict is ErrorCode.UNKNOWN_MEMBER_ID and code == ErrorCode.FENCED_INSTANCE_ID
                if topic_id is not None and code != verdict and not is_fenced:
                    what = f"{generation} to {group.state}@{group.generation}"
                    fail("K11", f"{client_id} committed at {what}, was told {code}, not {verdict.name}")
                if topic_id is not None and not code:
                    self._accept(topic_id, wanted, is_stale=False)

    def _covers(self, seen: Seen, request: OffsetCommitRequest) -> bool:
        """Whether the epoch that a member sent is its own, or covers all that it commits."""
        epoch = request.generation_id_or_member_epoch
        if epoch == seen.epoch:
            return True
        for topic in request.topics:
            topic_id = self._cluster.topics.resolved(topic.topic_id, topic.name)
            for partition in topic.partitions:
                at = None if topic_id is None else _assigned_at(seen, topic_id, partition.partition_index)
                if at is None or at > epoch:
                    return False
        return True

    def _fetching(self, client_id: str, response: OffsetFetchResponse) -> None:
        for group in response.groups:
            for topic in group.topics:
                topic_id = self._cluster.topics.resolved(topic.topic_id, topic.name)
                if topic_id is None:
                    continue
                for partition in topic.partitions:
                    committed = self._committed.get((topic_id, partition.partition_index), -1)
                    if not partition.error_code and partition.committed_offset != committed:
                        what = f"{self._cluster.topics.names[topic_id]}-{partition.partition_index}"
                        fail("S11", f"{client_id} is told {partition.committed_offset} of {what}, not {committed}")


def _assigned_at(seen: Seen, topic_id: UUID, partition: int) -> int | None:
    """The epoch with which a member was given what it holds."""
    current = seen.member.current
    return {**current.pending_revocation.get(topic_id, {}), **current.assigned.get(topic_id, {})}.get(partition)


class Removals(Observer):
    """L3: a member that does not revoke within its rebalance timeout is removed, so that others get its partitions.

    S7: a member is removed only if it leaves, is replaced, is silent for a session, or revokes too late. All timers
    start again when a coordinator loads, because they are not in the log; a rebalance timer also with every new step.

    Args:
        session_ms: the shortest session that members may have been told.
    """

    def __init__(self, cluster: Cluster, mirror: Mirror, world: World, *, session_ms: int) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._world = world
        self._session_ms = session_ms
        self._since: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._left: set[str] = set()
        self._owes_ms: dict[str, int] = {}
        """Member on the classic protocol -> since when it owes a JoinGroup, or the SyncGroup after it."""
        self._loads = 0
        self._loaded_ms = 0
        self._as_loaded: dict[str, object] = {}
        """The members as the load found them."""

    def served(self, client_id: str, request: Any, response: Any) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
            assert response.member_id is not None
            if response.member_epoch == _LEFT:
                self._left.add(response.member_id)
            elif response.member_epoch > 0:
                self._heard[response.member_id] = self._world.now_ms
        elif isinstance(request, LeaveGroupRequest):
            self._left.update(member.member_id for member in request.members)
        elif isinstance(response, JoinGroupResponse) and not response.error_code:
            self._heard[response.member_id] = self._owes_ms[response.member_id] = self._world.now_ms
        elif isinstance(response, HeartbeatResponse | SyncGroupResponse):
            member_id, now_ms = request.member_id, self._world.now_ms
            is_told_to_join = response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            if is_told_to_join:
                self._owes_ms.setdefault(member_id, now_ms)
            elif not response.error_code and isinstance(request, SyncGroupRequest):
                self._owes_ms.pop(member_id, None)
            if not response.error_code or (is_told_to_join and isinstance(request, HeartbeatRequest)):
                self._heard[member_id] = now_ms

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        self._loaded_ms = self._world.now_ms
        self._heard.clear()
        group = after.group(self._mirror.group_id)
        self._as_loaded = {} if group is None else {name: member.current for name, member in group.members.items()}

    def group_changed(self, changes: Sequence[Change]) -> None:
        if not self._cluster.up:
            return  # without a coordinator no member is removed
        now_ms = self._world.now_ms
        if self._loads != self._mirror.loads:
            self._loads = self._mirror.loads
            # The load, or this step, armed the timers. A load may come between two steps, because faults end there.
            self._since = {
                member_id: self._loaded_ms if self._as_loaded.get(member_id) is seen.member.current else now_ms
                for member_id, seen in self._mirror.members.items()
                if seen.pending
            }
            changes = ()
        for member_id, before, after in changes:
            if after is None and before is not None and self._mirror.converted is None:
                self._check_removed(member_id, before)
            if after is None or not after.pending:
                self._since.pop(member_id, None)
            elif before is None or before.member.current is not after.member.current:
                self._since[member_id] = now_ms
        self._left.clear()
        for member_id, since_ms in self._since.items():
            limit_ms = self._mirror.members[member_id].member.metadata.rebalance_timeout_ms
            if now_ms - since_ms > limit_ms:
                fail("L3", f"{member_id} gave nothing up, and stays for {now_ms - since_ms - limit_ms} ms more")

    def _check_removed(self, member_id: str, seen: Seen) -> None:
        metadata, now_ms = seen.member.metadata, self._world.now_ms
        silent_ms = now_ms - self._heard.pop(member_id, self._loaded_ms)
        if member_id in self._left or silent_ms >= self._session_ms:
            return
        owes_ms = now_ms - self._owes_ms.pop(member_id, now_ms)
        if metadata.classic is not None and owes_ms >= metadata.rebalance_timeout_ms:
            return
        late_ms = now_ms - self._since.get(member_id, now_ms)
        if member_id in self._since and late_ms >= metadata.rebalance_timeout_ms:
            return
        if metadata.instance_id is None or metadata.instance_id not in self._instances():
            fail(
                "S7",
                f"{member_id} was removed {silent_ms} ms after its last heartbeat, {late_ms} ms after a revocation",
            )

    def _instances(self) -> set[str | None]:
        return {seen.member.metadata.instance_id for seen in self._mirror.members.values()}


_LEFT: Final = -1
