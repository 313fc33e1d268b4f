"""Which member a heartbeat is about, and whether it may speak for it. Reads only.

Dynamic members are found by their id alone; static ones by their instance id, which survives a change of the member id.
"""

from __future__ import annotations

import random
import uuid

import msgspec
from msgspec.structs import replace

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.current_assignment import OwnedPartitions, is_subset
from kip848_client.coordinator.group_member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    CurrentAssignment,
    GroupMember,
    MemberMetadata,
    MemberState,
)
from kip848_client.coordinator.refusal import Refused, invalid_request
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class FoundMember(msgspec.Struct, frozen=True):
    """The member that a heartbeat is about.

    Args:
        member: as stored; for a new or replacing member, what it starts from.
        is_new: there is no member of this id yet, and it takes nobody's place.
        replaced: the static member whose place it takes.
    """

    member: GroupMember
    is_new: bool = False
    replaced: GroupMember | None = None

    @property
    def counted(self) -> MemberMetadata | None:
        """The metadata that the group's counts hold for it; None if it is new."""
        return None if self.is_new else (self.replaced or self.member).metadata


def find_member(
    state: CoordinatorState,
    group: ConsumerGroup,
    message: ConsumerGroupHeartbeatRequest,
    *,
    owned: OwnedPartitions | None,
) -> FoundMember:
    """Find the member, or make a new one for a join.

    Args:
        owned: what the member says it owns; None if it does not say.

    Raises:
        Refused: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; for static members also
            UNRELEASED_INSTANCE_ID and FENCED_INSTANCE_ID.

    Source:
        Kafka's ``GroupMetadataManager.getOrMaybeSubscribeStaticConsumerMember`` and its dynamic sibling.
    """
    member_id = message.member_id or new_member_id(state.rng)
    known = group.members.get(member_id)
    size_max = state.config.consumer_max_size
    # Also a static member that comes back under another id, although it would take the place that it left.
    if known is None and len(group.members) >= size_max:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group {group.group_id} has reached its maximum capacity of {size_max} members.",
        )
    if known is None and message.member_epoch == JOIN_EPOCH and message.instance_id not in group.static_members:
        check_room(state, group)
    if message.instance_id is not None:
        return _find_static(group, message, member_id=member_id, known=known, owned=owned)
    if known is not None:
        check_epoch(known, received=message.member_epoch, owned=owned)
        return FoundMember(known)
    if message.member_epoch != JOIN_EPOCH:
        raise unknown_member(group, member_id=member_id)
    return _new(member_id)


def _find_static(
    group: ConsumerGroup,
    message: ConsumerGroupHeartbeatRequest,
    *,
    member_id: str,
    known: GroupMember | None,
    owned: OwnedPartitions | None,
) -> FoundMember:
    instance_id = message.instance_id
    assert instance_id is not None
    if message.member_epoch != JOIN_EPOCH:
        member = static_member(group, instance_id=instance_id, member_id=member_id)
        check_epoch(member, received=message.member_epoch, owned=owned)
        return FoundMember(member)
    holder_id = group.static_members.get(instance_id)
    if holder_id is None or holder_id == member_id:
        # A fenced or restarted process that comes back under its own id is no second holder of the instance id.
        return _new(member_id) if known is None else FoundMember(known)
    holder = group.members[holder_id]
    if holder.current.member_epoch != STATIC_LEAVE_EPOCH and holder.metadata.classic is None:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {holder_id} member; it is released when that member leaves or times out.",
        )
    if known is not None:
        raise invalid_request(
            f"MemberId {member_id} is already in the group {group.group_id}, without instance id {instance_id}."
        )
    return FoundMember(replace(holder, member_id=member_id, current=returned(holder.current)), replaced=holder)


def check_epoch(member: GroupMember, *, received: int, owned: OwnedPartitions | None) -> None:
    """Let pass the member's own epoch, 0 (it joins again), and the epoch before if only an answer was lost.

    Raises:
        Refused: FENCED_MEMBER_EPOCH. The member stays in the group until its session ends, or it joins again.

    Source:
        Kafka's ``GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid``; KAFKA-19233 (epoch 0).
    """
    current = member.current
    if received in (JOIN_EPOCH, current.member_epoch):
        return
    if received < current.member_epoch:
        # The answer with the newer epoch was lost: the member cannot own more than it had been given before.
        if received == current.previous_member_epoch and owned is not None and is_subset(owned, current.assigned):
            return
        what = "smaller"
    else:
        what = "greater"
    raise fenced(
        f"The consumer group member has a {what} member epoch ({received}) than the one known by the group coordinator "
        f"({current.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def static_member(group: ConsumerGroup, *, instance_id: str, member_id: str) -> GroupMember:
    """The member that holds *instance_id*, if it is *member_id*.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, nobody holds it; FENCED_INSTANCE_ID, somebody else does.
    """
    holder_id = group.static_members.get(instance_id)
    if holder_id is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown in group {group.group_id}.")
    if holder_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}.",
        )
    return group.members[holder_id]


def returned(current: CurrentAssignment) -> CurrentAssignment:
    """What a static member starts from when it is back: its partitions, at epoch 0."""
    return replace(current, member_epoch=0, previous_member_epoch=0, state=MemberState.STABLE)


def new_member_id(rng: random.Random) -> str:
    """A member id for a client that brings none (heartbeat v0)."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def unknown_member(group: ConsumerGroup, *, member_id: str) -> Refused:
    """UNKNOWN_MEMBER_ID: the member was removed, or never joined; it must join again."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}; join with epoch 0."
    )


def fenced(message: str) -> Refused:
    """FENCED_MEMBER_EPOCH: the member must give up everything and join again."""
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)


def check_room(state: CoordinatorState, group: ConsumerGroup) -> None:
    """Refuse what would let memory grow without bounds, whoever floods this broker with joins."""
    members_max, groups_max = state.config.members_max, state.config.groups_max
    if state.member_count >= members_max:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The groups of this broker have {members_max} members, which is its limit (kip848.members.max).",
        )
    if not state.has_room_for_group(group.group_id):
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"This broker has {groups_max} groups, which is its limit (kip848.groups.max).",
        )


def _new(member_id: str) -> FoundMember:
    return FoundMember(GroupMember(member_id, MemberMetadata(), CurrentAssignment()), is_new=True)
