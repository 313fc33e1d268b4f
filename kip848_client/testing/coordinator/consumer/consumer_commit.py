"""Which member of a consumer group may commit and fetch which offsets."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, PartitionEpochs
from kip848_client.testing.coordinator.core.kind import CommitAttempt
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.modern.member_lookup import unknown_member


def check_commit(group: ConsumerGroup, commit: CommitAttempt) -> None:
    """Accept a commit of a member, or of a sender outside the group if the group has no members.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION in place of the last for
            a member on the classic protocol, and in a transaction before version 6.
    """
    if commit.epoch < 0 and not group.members:
        return
    member = group.members.get(commit.member_id)
    if member is None:
        raise unknown_member(group, member_id=commit.member_id)
    is_classic = member.metadata.classic is not None
    if not (is_classic or commit.is_transactional or commit.knows_member_epochs):
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, "OffsetCommit version 9 or above must be used by members of consumer groups."
        )
    if not may_commit(member, epoch=commit.epoch, partitions=commit.partitions):
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH
            if commit.knows_member_epochs and not is_classic
            else ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is at epoch {member.current.member_epoch} and sent {commit.epoch}.",
        )


def may_commit(member: ConsumerMember, *, epoch: int, partitions: Iterable[tuple[UUID, int]]) -> bool:
    """Whether *member* may commit *partitions* with *epoch*.

    With its current epoch it may commit any partition, even one that it does not own. With an older epoch it may commit
    partitions that it still holds and that were assigned to it at that epoch or before.
    """
    current = member.current
    if epoch >= current.member_epoch:
        return epoch == current.member_epoch
    return all(
        _given_by(current.assigned, topic_id, partition, epoch=epoch)
        or _given_by(current.pending_revocation, topic_id, partition, epoch=epoch)
        for topic_id, partition in partitions
    )


def _given_by(held: PartitionEpochs, topic_id: UUID, partition: int, *, epoch: int) -> bool:
    given = held.get(topic_id, {}).get(partition)
    return given is not None and given <= epoch


def check_fetch(group: ConsumerGroup, *, member_id: str, member_epoch: int) -> None:
    """Accept a sender that is a member, with its epoch.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; ILLEGAL_GENERATION for a member on the classic protocol.
    """
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id=member_id)
    if member.current.member_epoch != member_epoch:
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH if member.metadata.classic is None else ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is at epoch {member.current.member_epoch} and sent {member_epoch}.",
        )
