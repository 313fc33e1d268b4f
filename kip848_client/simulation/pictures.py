"""Pictures of groups, taken once per change of the coordinator's state and shared by all who look. Checks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from kip848_client.coordinator.snapshot import GroupSnapshot
from kip848_client.coordinator.topics import TopicsImage
from kip848_client.model import TopicPartition

IdPartition: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """One group, with what several checkers need of it.

    Args:
        held: member id -> assigned and pending revocation, as (topic id, partition).
        held_by_name: the same as far as the topics still exist, by topic name.
        targets: member id -> target.
    """

    group: GroupSnapshot
    held: Mapping[str, frozenset[IdPartition]]
    held_by_name: Mapping[str, frozenset[TopicPartition]]
    targets: Mapping[str, frozenset[IdPartition]]


def take_picture(group: GroupSnapshot, topics: TopicsImage) -> GroupPicture:
    """Work out a `GroupPicture`."""
    held = {
        member_id: member.assigned_partitions | member.pending_partitions for member_id, member in group.members.items()
    }
    names = topics.by_id
    return GroupPicture(
        group=group,
        held=held,
        held_by_name={
            member_id: frozenset(
                TopicPartition(names[topic_id].name, index) for topic_id, index in partitions if topic_id in names
            )
            for member_id, partitions in held.items()
        },
        targets={member_id: member.target_partitions for member_id, member in group.members.items()},
    )
