"""A consumer group as a test or a person sees it: frozen values made from the coordinator's own description.

Nothing here reads the coordinator's state: it is what ConsumerGroupDescribe answers, with sets in place of arrays, and
which member was asked to compute the target.
"""

from __future__ import annotations

import msgspec

from kip848_client.model import TopicPartition, describe_partitions
from kip848_client.wire.messages import consumer_group_describe as wire

__all__ = ["GroupSnapshot", "MemberSnapshot"]


class MemberSnapshot(msgspec.Struct, frozen=True):
    """One member.

    Attributes:
        member_epoch: the epoch it has reconciled to.
        assigned: what it owns now, also what it was told to give up and has not confirmed.
        target: what it will own when it has reconciled.
        classic: it speaks the classic protocol (a group on its way from one protocol to the other).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int
    subscribed_topics: frozenset[str]
    subscribed_regex: str | None
    assigned: frozenset[TopicPartition]
    target: frozenset[TopicPartition]
    classic: bool

    def __str__(self) -> str:
        pending = self.target - self.assigned
        return f"{self.client_id or self.member_id}@{self.member_epoch} [{describe_partitions(self.assigned)}]" + (
            f" awaiting [{describe_partitions(pending)}]" if pending else ""
        )


class GroupSnapshot(msgspec.Struct, frozen=True):
    """A consumer group at one moment.

    Attributes:
        state: ``Empty``, ``Assigning``, ``Reconciling``, ``Stable`` or ``Dead``.
        group_epoch: grows with every change of members, subscriptions or topics.
        assignment_epoch: the group epoch that the target was computed for.
        assignor: name of the assignor in use; of a client-side one if all members offer it.
        members: by member id, ascending.
        computing_member: id of the member that was asked to compute the next target with its client-side assignor;
            None if nobody was.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberSnapshot, ...]
    computing_member: str | None = None

    def member(self, id_or_client_id: str) -> MemberSnapshot:
        """The member with that member id, or the only one with that client id.

        Raises:
            KeyError: there is none, or several share the client id.
        """
        found = [item for item in self.members if item.member_id == id_or_client_id] or [
            item for item in self.members if item.client_id == id_or_client_id
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} members of {self.group_id!r} answer to {id_or_client_id!r}")
        return found[0]

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Everything that some member owns now."""
        return frozenset().union(*(member.assigned for member in self.members))

    def __str__(self) -> str:
        members = "; ".join(map(str, self.members)) or "no members"
        computing = f", {self.computing_member!r} computes" if self.computing_member else ""
        return f"group {self.group_id!r} is {self.state} at epoch {self.group_epoch}{computing}: {members}"


def snapshot_of(group: wire.DescribedGroup, *, computing_member: str | None = None) -> GroupSnapshot:
    """Turn one group of a ConsumerGroupDescribe answer, that has no error, into a value."""
    assert not group.error_code, group
    return GroupSnapshot(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        members=tuple(sorted(map(_member, group.members), key=lambda member: member.member_id)),
        computing_member=computing_member,
    )


def _member(member: wire.Member) -> MemberSnapshot:
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        subscribed_topics=frozenset(member.subscribed_topic_names),
        subscribed_regex=member.subscribed_topic_regex or None,
        assigned=_partitions(member.assignment),
        target=_partitions(member.target_assignment),
        classic=member.member_type == 0,
    )


def _partitions(assignment: wire.Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
