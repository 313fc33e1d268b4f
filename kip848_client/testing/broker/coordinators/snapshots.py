"""Snapshots of groups, for tests and for display: frozen values from the coordinator's own description.

The snapshot of a consumer group has the fields of ConsumerGroupDescribe, with sets for arrays, and the member that was
asked to compute the target. The snapshot of a classic group has the coordinator's value, with the members' bytes
decoded.
"""

from __future__ import annotations

import contextlib

import msgspec

from kip848_client.common.model import NamedPartition, describe_partitions
from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicMember
from kip848_client.wire.messages import consumer_group_describe as wire
from kip848_client.wire.messages import share_group_describe
from kip848_client.wire.messages.consumer_protocol import CONSUMER_PROTOCOL, decode_assignment, decode_subscription


class MemberSnapshot(msgspec.Struct, frozen=True):
    """One member.

    Attributes:
        member_epoch: the epoch it has reconciled to; the generation, in a classic group.
        assigned: partitions that it owns, with those that it must revoke and has not confirmed. In a classic group, its
            part of the leader's last assignment; empty if those bytes are not a consumer's.
        target: partitions that it will own when it has reconciled; in a classic group, the ones that it owns.
        classic: it speaks the classic protocol.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None
    member_epoch: int
    subscribed_topics: frozenset[str]
    subscribed_regex: str | None
    assigned: frozenset[NamedPartition]
    target: frozenset[NamedPartition]
    classic: bool

    def __str__(self) -> str:
        pending = self.target - self.assigned
        return f"{self.client_id or self.member_id}@{self.member_epoch} [{describe_partitions(self.assigned)}]" + (
            f" awaiting [{describe_partitions(pending)}]" if pending else ""
        )


class GroupSnapshot(msgspec.Struct, frozen=True):
    """A group at one moment.

    In a share group a partition may be assigned to several members, and what is assigned is the target.

    Attributes:
        state: ``Empty``, ``Assigning``, ``Reconciling``, ``Stable`` or ``Dead``; a classic group is ``Empty``,
            ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``, a share group ``Empty`` or ``Stable``.
        group_epoch: grows with every change of members, subscriptions or topics; the generation of a classic group.
        assignment_epoch: the group epoch that the target was computed for.
        assignor: name of the assignor in use; of a client-side one if all members offer it. In a classic
            group, the protocol of this generation; empty if there is none yet.
        members: by member id, ascending.
        computing_member: id of the member that was asked to compute the next target with its client-side assignor;
            None if none was.
        type: ``consumer``, ``classic`` or ``share``.
        leader: id of the member that assigns the partitions of a classic group; None in a consumer group.
    """

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberSnapshot, ...]
    computing_member: str | None = None
    type: str = "consumer"
    leader: str | None = None

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
    def assigned(self) -> frozenset[NamedPartition]:
        """Everything that some member owns now."""
        return frozenset().union(*(member.assigned for member in self.members))

    def __str__(self) -> str:
        is_mixed = self.type != "classic"
        shown = [f"{member} (classic)" if is_mixed and member.classic else str(member) for member in self.members]
        members = "; ".join(shown) or "no members"
        computing = f", {self.computing_member!r} computes" if self.computing_member else ""
        kind = "group" if self.type == "consumer" else f"{self.type} group"
        epoch = "generation" if self.type == "classic" else "epoch"
        return f"{kind} {self.group_id!r} is {self.state} at {epoch} {self.group_epoch}{computing}: {members}"


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


def share_snapshot(group: share_group_describe.DescribedGroup) -> GroupSnapshot:
    """Turn one group of a ShareGroupDescribe answer, that has no error, into a value."""
    assert not group.error_code, group
    return GroupSnapshot(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        members=tuple(sorted(map(_share_member, group.members), key=lambda member: member.member_id)),
        type="share",
    )


def classic_snapshot(group: ClassicGroup) -> GroupSnapshot:
    """Turn a classic group into what a test sees of it."""
    return GroupSnapshot(
        group_id=group.group_id,
        state=str(group.state),
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        assignor=group.protocol or "",
        members=tuple(_classic_member(group, member) for _, member in sorted(group.members.items())),
        type="classic",
        leader=group.leader,
    )


def _classic_member(group: ClassicGroup, member: ClassicMember) -> MemberSnapshot:
    assigned: frozenset[NamedPartition] = frozenset()
    topics, rack_id = frozenset[str](), None
    if group.protocol_type == CONSUMER_PROTOCOL:
        with contextlib.suppress(ProtocolError):  # its own user data in its own format, or nothing yet
            assigned = frozenset(
                NamedPartition(item.topic, partition)
                for item in decode_assignment(member.assignment).assigned_partitions
                for partition in item.partitions
            )
        with contextlib.suppress(ProtocolError):
            subscription = decode_subscription(member.protocols[0][1])
            topics, rack_id = frozenset(subscription.topics), subscription.rack_id
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack_id=rack_id,
        member_epoch=group.generation,
        subscribed_topics=topics,
        subscribed_regex=None,
        assigned=assigned,
        target=assigned,
        classic=True,
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


def _share_member(member: share_group_describe.Member) -> MemberSnapshot:
    assigned = _partitions(member.assignment)
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        subscribed_topics=frozenset(member.subscribed_topic_names),
        subscribed_regex=None,
        assigned=assigned,
        target=assigned,
        classic=False,
    )


def _partitions(assignment: wire.Assignment | share_group_describe.Assignment) -> frozenset[NamedPartition]:
    return frozenset(
        NamedPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
