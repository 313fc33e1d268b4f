"""What one heartbeat makes of what its member has, told a second time in sets: S4 and S5, in probing runs.

As docs/coordinator.md has it: keep what is wanted; give up the rest first, unless the member says that it does not use
it; take what no other member has; and give up at once what is no longer subscribed to, whatever the target says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import (
    NO_METADATA,
    STATIC_LEAVE_EPOCH,
    AssignmentMetadata,
    CurrentAssignment,
    GroupMember,
    MemberMetadata,
    MemberState,
    PartitionEpochs,
)
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import IdPartition, Mirror, Partitions
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.simulation.probes.round_model import offers_of, runners

_Given: TypeAlias = Mapping[IdPartition, int]
"""Partition -> the epoch of the target with which it was given."""


class _Step(msgspec.Struct, frozen=True):
    """What a member has, flat."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    has: _Given = msgspec.field(default_factory=dict)
    gives_up: _Given = msgspec.field(default_factory=dict)
    metadata: AssignmentMetadata = NO_METADATA


class HeartbeatSteps(Observer):
    """S4, S5: a heartbeat moves its member as far as it may move, and no further."""

    def __init__(self, cluster: Cluster, mirror: Mirror) -> None:
        self._cluster = cluster
        self._mirror = mirror

    @about(ConsumerGroupHeartbeatRequest)
    def served(
        self, client_id: str, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Compare the member with what it was before; the mirror shows that."""
        group = self._mirror.group
        if response.error_code or request.member_epoch < 0 or group is None or not self._cluster.up:
            return
        if self._mirror.loads != self._cluster.loads or self._cluster.host.deposed:
            return
        member = group.members[response.member_id or request.member_id]
        before = self._before(member)
        found = _flat(member.current)
        owned = None if request.topic_partitions is None else _told(request)
        wanted = self._step(group, member, before, owned, changed=self._changed(group, member, before))
        if found != wanted:
            fail("S4", f"{member.member_id} was {before.current}, says {owned}, and is {found}, not {wanted}")

    def _before(self, member: GroupMember) -> GroupMember:
        """It, or the static member whose place it takes."""
        members, instance_id = self._mirror.members, member.metadata.instance_id
        seen = members.get(member.member_id)
        if seen is not None:
            return seen.member
        for other in members.values():
            if instance_id is not None and other.member.metadata.instance_id == instance_id:
                return other.member
        return GroupMember(member.member_id, MemberMetadata(), CurrentAssignment())

    def _changed(self, group: ConsumerGroup, member: GroupMember, before: GroupMember) -> bool:
        """Whether it subscribes to something else; a topic that is gone counts as that while a member computes."""
        gone = not before.current.assigned.keys() <= self._cluster.topics.image.by_id.keys()
        if gone and group.group_epoch > group.target_epoch and runners(offers_of(group)) is not None:
            return True
        return not _same_subscription(member.metadata, before.metadata)

    def _step(
        self, group: ConsumerGroup, member: GroupMember, before: GroupMember, owned: Partitions | None, *, changed: bool
    ) -> _Step:
        now, member_id = _flat(before.current), member.member_id
        if now.epoch == STATIC_LEAVE_EPOCH:
            now = replace(now, epoch=0, previous_epoch=0, state=MemberState.STABLE)
        topic_ids = set(self._cluster.topics.image.ids_of(group.topics_of(member.metadata)))
        if now.state is MemberState.STABLE and now.epoch == group.target_epoch:
            return _unsubscribed(now, topic_ids, owned) if changed else now
        if now.state is MemberState.UNREVOKED_PARTITIONS and _uses(owned, now.gives_up):
            return _unsubscribed(now, topic_ids, owned) if changed else now
        target = group.target_of(member_id)
        wanted = {(topic_id, index) for topic_id in target.keys() & topic_ids for index in target[topic_id]}
        surplus = {item: epoch for item, epoch in now.has.items() if item not in wanted}
        keep = {item: epoch for item, epoch in now.has.items() if item in wanted}
        if surplus and _uses(owned, surplus):
            return replace(
                now,
                previous_epoch=now.epoch,
                state=MemberState.UNREVOKED_PARTITIONS,
                has=keep,
                gives_up=surplus,
            )
        taken = {
            item
            for name, other in group.members.items()
            if name != member_id
            for item in (*_epochs(other.current.assigned), *_epochs(other.current.pending_revocation))
        }
        free = wanted - keep.keys() - taken
        return _Step(
            group.target_epoch,
            now.epoch,
            MemberState.STABLE if wanted == keep.keys() | free else MemberState.UNRELEASED_PARTITIONS,
            {**keep, **dict.fromkeys(free, group.target_epoch)},
            {},
            group.target_metadata_of(member_id),
        )


def _unsubscribed(now: _Step, topic_ids: set[UUID], owned: Partitions | None) -> _Step:
    gone = {item: epoch for item, epoch in now.has.items() if item[0] not in topic_ids}
    if not gone:
        return now
    kept = {item: epoch for item, epoch in now.has.items() if item[0] in topic_ids}
    awaited = {**now.gives_up, **gone}  # confirmed all at once: one that is still used holds up the others
    if not _uses(owned, awaited):
        return replace(now, previous_epoch=now.epoch, has=kept)
    return replace(now, previous_epoch=now.epoch, state=MemberState.UNREVOKED_PARTITIONS, has=kept, gives_up=awaited)


def _uses(owned: Partitions | None, partitions: _Given) -> bool:
    """Whether it has any of them as far as it says."""
    return owned is None or not owned.isdisjoint(partitions)


def _same_subscription(one: MemberMetadata, other: MemberMetadata) -> bool:
    return (one.subscribed_topic_names, one.subscribed_topic_regex) == (
        other.subscribed_topic_names,
        other.subscribed_topic_regex,
    )


def _told(request: ConsumerGroupHeartbeatRequest) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions or () for index in topic.partitions)


def _epochs(partitions: PartitionEpochs) -> dict[IdPartition, int]:
    return {(topic_id, index): epoch for topic_id, epochs in partitions.items() for index, epoch in epochs.items()}


def _flat(current: CurrentAssignment) -> _Step:
    return _Step(
        current.member_epoch,
        current.previous_member_epoch,
        current.state,
        _epochs(current.assigned),
        _epochs(current.pending_revocation),
        current.metadata,
    )
