"""Finds the group and the member of a request to a classic group, and checks its ids and generation. Reads only."""

from __future__ import annotations

import random
import uuid
from typing import Final

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicMember
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused

MEMBER_ID_ROUND_VERSION: Final = 4
"""From this version of JoinGroup on, a dynamic member is sent an id first (KIP-394)."""


def existing_group(state: CoordinatorState, group_id: str) -> ClassicGroup:
    """The classic group of this id.

    Raises:
        Refused: UNKNOWN_MEMBER_ID: there is no such group.
    """
    group = state.find(ClassicGroup, group_id)
    if group is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no classic group {group_id}.")
    return group


def find_member(group: ClassicGroup, *, member_id: str, instance_id: str | None) -> ClassicMember:
    """The member of that id. One that is static may leave its instance id out.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member holds the instance id.

    Source:
        Kafka's ``ClassicGroup.validateMember``; KIP-345.
    """
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no static member {instance_id}.")
        if holder != member_id:
            raise Refused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {instance_id} of group {group.group_id} is {holder} and not {member_id}.",
            )
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def check_generation(group: ClassicGroup, generation: int) -> None:
    """Raise `Refused` (ILLEGAL_GENERATION) unless *generation* is that of *group*."""
    if generation != group.generation:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"Group {group.group_id} is at generation {group.generation}, and {generation} was sent.",
        )


def new_classic_member_id(rng: random.Random, *, client_id: str, instance_id: str | None) -> str:
    """An id for a member that has none: its client id and a random UUID."""
    return f"{client_id if instance_id is None else instance_id}-{uuid.UUID(int=rng.getrandbits(128), version=4)}"
