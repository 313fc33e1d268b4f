"""Which requests count: S7, S8, S11, S12 and K11; and which members may be removed (S7, L3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicState
from kip848_client.testing.coordinator.consumer.consumer_member import CurrentAssignment
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern.member_record import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.testing.simulation.observed_group import IdPartition, MemberChange, Seen, accepted, fetched, listed
from kip848_client.testing.simulation.observer import Checker, RunState, about
from kip848_client.testing.simulation.virtual.scenario import SESSION_CHANGE_MS
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.schema import Request


class HeartbeatFencing(Checker):
    """S7: a heartbeat counts with the member's epoch, with 0, or with the previous epoch and no foreign partition.

    A refused one changes nothing. S8: an instance id has one holder, whom no other member displaces. S12: a group never
    has more members than allowed.
    """

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        group = self._observed_group.group
        if group is None or not changes:
            return
        if len(group.members) > (allowed := self._scene.config.consumer_max_size):
            fail("S12", f"the group has {len(group.members)} members, allowed are {allowed}")
        static = group.static_members
        for member_id, _, after in changes:
            if after is not None and (instance_id := after.member.metadata.instance_id) is not None:
                if static.get(instance_id) != member_id:
                    fail("S8", f"{instance_id} is held by {static.get(instance_id)} and {member_id}")
            elif after is None and member_id in static.values():
                fail("S8", f"{member_id} is gone, and holds an instance id")

    @about(ConsumerGroupHeartbeatRequest)
    def served(
        self, client_id: str, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        if response.error_code:
            if self._cluster.version != self._observed_group.version:
                fail("S7", f"{client_id} was refused, and yet something changed")
            seen = self._observed_group.members.get(request.member_id)
            if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH and seen is not None and _is_current(request, seen):
                fail("S7", f"{client_id} was fenced at epoch {request.member_epoch}, and is {seen}")
        elif self._observed_group.classic is None:
            self._accepted(client_id, request)

    def _accepted(self, client_id: str, request: ConsumerGroupHeartbeatRequest) -> None:
        """Check a heartbeat that counts. The observed group is still the group before it."""
        epoch, seen = request.member_epoch, self._observed_group.members.get(request.member_id)
        if request.instance_id is not None:
            holder_id, holder = self._holder(request.instance_id)
            if holder is not None and holder_id != request.member_id:
                is_away = holder.epoch == STATIC_LEAVE_EPOCH or holder.member.metadata.classic is not None
                if epoch != 0 or not is_away:
                    fail("S8", f"{client_id} counts at epoch {epoch} as {request.instance_id}, which {holder_id} holds")
        if epoch > 0 and (seen is None or not _is_current(request, seen)):
            fail("S7", f"{client_id} counts at epoch {epoch}, and is {seen}")

    def _holder(self, instance_id: str) -> tuple[str, Seen | None]:
        for member_id, seen in self._observed_group.members.items():
            if seen.member.metadata.instance_id == instance_id:
                return member_id, seen
        return "", None


def _is_current(request: ConsumerGroupHeartbeatRequest, seen: Seen) -> bool:
    if request.member_epoch in (0, seen.epoch):
        return True
    if request.member_epoch != seen.previous_epoch or request.topic_partitions is None:
        return False
    return request.member_epoch < seen.epoch and listed(request.topic_partitions) <= seen.assigned


class OffsetFencing(Checker):
    """S11: a commit counts only from a member, at its epoch or at one that the partition was assigned at.

    K11: in a classic group it counts only from a member at the group's generation, and not while the assignment is
    awaited. A fetch returns the offset that was committed last.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._committed: dict[IdPartition, int] = {}
        """Partition -> offset of the last accepted commit; after a load, of the last durable one."""
        self._stale: Request[Any] | None = None

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """Commits that were not durable are gone: no client was told that they were accepted."""
        found = {}
        for topic, partitions in after.committed(self._observed_group.group_id).items():
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
        if isinstance(request, OffsetFetchRequest):
            self._fetching(client_id, response)
            return
        stale, self._stale = self._stale, None
        for topic, partition in accepted(request, response):
            topic_id = self._cluster.topics.resolved(topic.topic_id, topic.name)
            if topic_id is None:
                continue
            place = topic_id, partition.partition_index
            if self._observed_group.classic is None:
                self._check(client_id, request, place)
            else:
                self._check_classic(client_id, request, self._observed_group.classic)
            self._committed[place] = partition.committed_offset
            remember = self._observed_group.rewound.add if request is stale else self._observed_group.rewound.discard
            remember(place)

    def _check(self, client_id: str, request: OffsetCommitRequest, place: IdPartition) -> None:
        seen, epoch = self._observed_group.members.get(request.member_id), request.generation_id_or_member_epoch
        if seen is None or epoch > seen.epoch:
            fail("S11", f"{client_id} committed at {epoch}, is {seen}, and its commit was accepted")
        elif epoch < seen.epoch and not (0 <= (since := _assigned_at(seen, *place)) <= epoch):
            fail("S11", f"{client_id} committed {place[1]} at {epoch}, has it since {since}")

    @staticmethod
    def _check_classic(client_id: str, request: OffsetCommitRequest, group: ClassicGroup) -> None:
        generation = request.generation_id_or_member_epoch
        if generation < 0 and group.state is ClassicState.EMPTY:
            return
        is_present = request.member_id in group.members and generation == group.generation
        if not is_present or group.state is ClassicState.COMPLETING:
            fail("K11", f"{client_id} committed at {generation} to {group.state}@{group.generation}")

    def _fetching(self, client_id: str, response: OffsetFetchResponse) -> None:
        for topic, partition in fetched(response):
            topic_id = self._cluster.topics.resolved(topic.topic_id, topic.name)
            if topic_id is None:
                continue
            committed = self._committed.get((topic_id, partition.partition_index), -1)
            if partition.committed_offset != committed:
                what = f"{self._cluster.topics.names[topic_id]}-{partition.partition_index}"
                fail("S11", f"{client_id} is told {partition.committed_offset} of {what}, not {committed}")


def _assigned_at(seen: Seen, topic_id: UUID, partition: int) -> int:
    """The epoch in which a member got a partition that it holds; -1 if it does not hold it."""
    current = seen.member.current
    return {**current.pending_revocation.get(topic_id, {}), **current.assigned.get(topic_id, {})}.get(partition, -1)


class Removals(Checker):
    """S7: a member is removed only if it leaves, is replaced, is silent for a session, or revokes too late.

    L3: one that does not revoke within its rebalance timeout is removed, so that others get its partitions. Timers are
    not in the log: all start again when a coordinator loads, and the one for revocations with every new step.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        shorter_ms = SESSION_CHANGE_MS if run_state.scenario.config_changes else 0
        self._session_ms = run_state.config.consumer_session_timeout_ms - shorter_ms
        """The shortest session that members may have been told."""
        self._left: set[str] = set()
        self._heard: dict[str, int] = {}
        """Member -> when a heartbeat of it counted last."""
        self._revokes: dict[str, tuple[CurrentAssignment, int]] = {}
        """Member that has to revoke -> its assignment, and since when it has it."""
        self._loaded_ms = 0

    @about(ConsumerGroupHeartbeatRequest)
    def served(self, client_id: str, request: Any, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code or response.member_id is None:
            return
        if response.member_epoch == LEAVE_EPOCH:
            self._left.add(response.member_id)
        elif response.member_epoch > 0:
            self._heard[response.member_id] = self._scheduler.now_ms

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        self._loaded_ms = self._scheduler.now_ms
        self._heard.clear()
        group = after.group(self._observed_group.group_id)
        members = {} if group is None else group.members
        self._revokes = {
            member_id: (member.current, self._loaded_ms)
            for member_id, member in members.items()
            if member.current.pending_revocation
        }

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        if not self._cluster.up:
            return  # without a coordinator no member is removed
        now_ms, observed_group = self._scheduler.now_ms, self._observed_group
        for member_id, before, after in changes:
            if (
                before is not None
                and after is None
                and not observed_group.is_loaded
                and observed_group.converted is None
            ):
                self._check_removed(member_id, before)
            if after is None or not after.pending:
                self._revokes.pop(member_id, None)
        for member_id, seen in observed_group.members.items():
            if seen.pending:
                current, since_ms = self._revokes.get(member_id, (None, 0))
                if current is not seen.member.current:
                    self._revokes[member_id] = seen.member.current, now_ms
                elif now_ms - since_ms > seen.member.metadata.rebalance_timeout_ms:
                    fail("L3", f"{member_id} has to revoke {sorted(seen.pending)} since {since_ms}, and stays")
        self._left.clear()

    def _check_removed(self, member_id: str, seen: Seen) -> None:
        metadata, now_ms = seen.member.metadata, self._scheduler.now_ms
        silent_ms = now_ms - self._heard.pop(member_id, self._loaded_ms)
        late_ms = now_ms - self._revokes.get(member_id, (None, now_ms))[1]
        if metadata.classic is not None or member_id in self._left or silent_ms >= self._session_ms:
            return
        instances = {other.member.metadata.instance_id for other in self._observed_group.members.values()} - {None}
        if metadata.instance_id not in instances and not 0 < metadata.rebalance_timeout_ms <= late_ms:
            fail("S7", f"{member_id} was removed {silent_ms} ms after its last heartbeat, and revokes for {late_ms} ms")
