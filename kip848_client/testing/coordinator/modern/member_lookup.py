"""Decides which heartbeat is accepted: finds its member, and checks member id, epoch and instance id. Reads only.

A dynamic member is found by its member id; a static one by its instance id, which stays when the member id changes.
"""

from __future__ import annotations

import random
import uuid
from typing import Any, Generic, Protocol

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.modern.current_assignment import Owned, is_subset
from kip848_client.testing.coordinator.modern.member_record import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    Current,
    Held,
    KeyT,
    MemberRecord,
    MetadataT,
    ReconciliationState,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup


class MemberHeartbeat(Protocol):
    """The fields of a heartbeat, of any kind of group, that identify its sender."""

    @property
    def group_id(self) -> str:
        """The group."""

    @property
    def member_id(self) -> str:
        """The sender; empty: the coordinator chooses an id."""

    @property
    def member_epoch(self) -> int:
        """The epoch that it is at; 0: it joins; below: it leaves."""

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member."""


class Found(msgspec.Struct, Generic[KeyT, MetadataT], frozen=True):
    """The member that a heartbeat is about.

    Args:
        member: the stored member; if it joins or replaces another, its initial value.
        is_new: the group has no member with this id, and it replaces none.
        replaced: the static member that it replaces.
    """

    member: MemberRecord[KeyT, MetadataT]
    is_new: bool = False
    replaced: MemberRecord[KeyT, MetadataT] | None = None

    @property
    def counted(self) -> MetadataT | None:
        """The metadata that is part of the group's counts of subscribers; None if it is new."""
        return None if self.is_new else (self.replaced or self.member).metadata


def find_member(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    message: MemberHeartbeat,
    *,
    owned: Owned[KeyT] | None,
    size_max: int,
) -> Found[KeyT, MetadataT]:
    """Find the member, or make a new one for a join.

    Args:
        owned: what the member says it owns; None if it does not say.
        size_max: how many members the group may have.

    Raises:
        Refused: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; for static members also
            UNRELEASED_INSTANCE_ID and FENCED_INSTANCE_ID.

    Source:
        Kafka's ``GroupMetadataManager.getOrMaybeSubscribeStaticConsumerMember`` and its dynamic sibling.
    """
    member_id = message.member_id or new_member_id(state.rng)
    known = group.members.get(member_id)
    # A static member that returns under a new id replaces itself: the group does not grow.
    if known is None and message.instance_id not in group.static_members:
        if len(group.members) >= size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group {group.group_id} has reached its maximum capacity of {size_max} members.",
            )
        if message.member_epoch == JOIN_EPOCH:
            check_room(state, group.group_id)
    if message.instance_id is not None:
        return _find_static(group, message, member_id=member_id, known=known, owned=owned)
    if known is not None:
        check_epoch(known, received=message.member_epoch, owned=owned)
        return Found(known)
    if message.member_epoch != JOIN_EPOCH:
        raise unknown_member(group, member_id=member_id)
    return Found(group.new_member(member_id), is_new=True)


def _find_static(
    group: ModernGroup[KeyT, MetadataT],
    message: MemberHeartbeat,
    *,
    member_id: str,
    known: MemberRecord[KeyT, MetadataT] | None,
    owned: Owned[KeyT] | None,
) -> Found[KeyT, MetadataT]:
    instance_id = message.instance_id
    assert instance_id is not None
    if message.member_epoch != JOIN_EPOCH:
        member = static_member(group, instance_id=instance_id, member_id=member_id)
        check_epoch(member, received=message.member_epoch, owned=owned)
        return Found(member)
    holder_id = group.static_members.get(instance_id)
    if holder_id is None or holder_id == member_id:
        # A fenced or restarted member that joins with its old id still holds the instance id alone.
        return Found(group.new_member(member_id), is_new=True) if known is None else Found(known)
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
    return Found(replace(holder, member_id=member_id, current=returned(holder.current)), replaced=holder)


def check_epoch(member: MemberRecord[KeyT, MetadataT], *, received: int, owned: Owned[KeyT] | None) -> None:
    """Accept the member's epoch, 0 (it joins again), and the previous epoch if only an answer was lost.

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


def static_member(
    group: ModernGroup[KeyT, MetadataT], *, instance_id: str, member_id: str
) -> MemberRecord[KeyT, MetadataT]:
    """The member that holds *instance_id*, if it is *member_id*.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, no member holds it; FENCED_INSTANCE_ID, another member does.
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


def returned(current: Current[KeyT]) -> Current[KeyT]:
    """The current assignment of a static member that returns: its partitions, at epoch 0."""
    return replace(current, member_epoch=0, state=ReconciliationState.STABLE)


def away(current: Current[KeyT]) -> Current[KeyT]:
    """The current assignment of a static member that left for a while: it keeps its partitions, and revokes none.

    Every assignment epoch becomes 0, so that the member that replaces it may commit with any epoch (KIP-1251).
    """
    return Current(
        member_epoch=STATIC_LEAVE_EPOCH,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned=_epochs_zeroed(current.assigned),
        pending_revocation={},
        metadata=current.metadata,
    )


def _epochs_zeroed(partitions: Held[KeyT]) -> Held[KeyT]:
    return {key: dict.fromkeys(epochs, 0) for key, epochs in partitions.items()}


def new_member_id(rng: random.Random) -> str:
    """A member id for a client that brings none (heartbeat v0)."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def unknown_member(group: ModernGroup[Any, Any], *, member_id: str) -> Refused:
    """UNKNOWN_MEMBER_ID: the member was removed, or never joined; it must join again."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}; join with epoch 0."
    )


def fenced(message: str) -> Refused:
    """FENCED_MEMBER_EPOCH: the member must abandon all its partitions and join again."""
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)


def check_room(state: CoordinatorState, group_id: str) -> None:
    """Refuse a join beyond the limit of members, so that a flood of joins cannot exhaust memory."""
    members_max, groups_max = state.config.members_max, state.config.groups_max
    if not state.has_room_for_member:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The groups of this broker have {members_max} members, which is its limit (kip848.members.max).",
        )
    if not state.has_room_for_group(group_id):
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"This broker has {groups_max} groups, which is its limit (kip848.groups.max).",
        )
