"""Frozen copies of a group, for tests, displays and checkers. Built on demand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMetadata, PartitionEpochs
from kip848_client.testing.coordinator.modern.member_record import NO_METADATA, AssignmentMetadata, ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState


class MemberImage(msgspec.Struct, frozen=True):
    """One member.

    Args:
        assigned: topic id -> partition -> assignment epoch; what it may use.
        pending_revocation: the same; what it must revoke.
        target: topic id -> partitions; what it should own in the end.
        metadata_told: what its client-side assignor got at *member_epoch*.
        target_metadata: what it will get with *target*.
    """

    member_id: str
    metadata: ConsumerMetadata
    member_epoch: int
    previous_member_epoch: int
    state: ReconciliationState
    assigned: PartitionEpochs
    pending_revocation: PartitionEpochs
    target: TopicPartitions
    metadata_told: AssignmentMetadata = NO_METADATA
    target_metadata: AssignmentMetadata = NO_METADATA


class GroupImage(msgspec.Struct, frozen=True):
    """One consumer group. Members by id, ascending."""

    group_id: str
    state: GroupState
    group_epoch: int
    target_epoch: int
    metadata_hash: int
    members: Mapping[str, MemberImage]
    static_members: Mapping[str, str]
    resolved_regexes: Mapping[str, ResolvedRegex]
    subscribed_topics: frozenset[str]
    target_assignor: str = ""
    """The client-side assignor that computed the target; empty if the server did."""


def image_of(group: ConsumerGroup) -> GroupImage:
    """Take a picture of *group*."""
    return GroupImage(
        group_id=group.group_id,
        state=group.state,
        group_epoch=group.group_epoch,
        target_epoch=group.target_epoch,
        metadata_hash=group.metadata_hash,
        members={member_id: _member(group, member_id) for member_id in group.sorted_member_ids},
        static_members=dict(sorted(group.static_members.items())),
        resolved_regexes=dict(sorted(group.resolved_regexes.items())),
        subscribed_topics=group.subscribed_topics,
        target_assignor=group.target_assignor,
    )


def _member(group: ConsumerGroup, member_id: str) -> MemberImage:
    member = group.members[member_id]
    current = member.current
    return MemberImage(
        member_id=member_id,
        metadata=member.metadata,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned={topic_id: dict(epochs) for topic_id, epochs in current.assigned.items()},
        pending_revocation={topic_id: dict(epochs) for topic_id, epochs in current.pending_revocation.items()},
        target=dict(group.target_of(member_id)),
        metadata_told=current.metadata,
        target_metadata=group.target_metadata_of(member_id),
    )
