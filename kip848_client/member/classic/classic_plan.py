"""The plan of a classic group's leader: from its members' subscriptions to one assignment for each. Pure.

A member claims the partitions that it owns or, if it revoked everything to join, the ones that it owned before. If two
members claim a partition, the later generation wins; claims of the same generation cancel each other (KIP-792). The
plan leaves out a partition that another member still owns: the owner revokes it and joins again, and the next round
assigns it to the new owner (KIP-429). If the assignor fails, every member gets the partitions that it claims.

Source: kafka-clients 4.3.1 ``ConsumerCoordinator.onLeaderElected``, ``CooperativeStickyAssignor.adjustAssignment``.
Rules: R212 to R216 in docs/protocol.md.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.user_data import (
    AssignmentFrame,
    SubscriptionFrame,
    read_generation,
    read_subscription_frame,
    write_assignment_frame,
)
from kip848_client.common.model import NO_EPOCH, ZERO_UUID, NamedPartition
from kip848_client.errors import ProtocolError
from kip848_client.member.core.events import TopicDescription
from kip848_client.wire.messages.consumer_group_install_assignment import Member as InstallMember
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    Assignor,
    ConsumerGroupPrepareAssignmentResponse,
    Member,
    TopicMetadata,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import TopicPartition as Held
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_subscription,
    embedded_version,
    encode_assignment,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as Partitions
from kip848_client.wire.messages.join_group import JoinGroupResponseMember
from kip848_client.wire.messages.sync_group import SyncGroupRequestAssignment

_NAMESPACE: Final = UUID("6f1a3f3e-5d6e-4c1b-9a53-2f6f0f2b7a10")
"""For ids of topics that have none (brokers before Kafka 2.8); they never leave this process."""
_FOREIGN_VERSION: Final = -1
"""Metadata version of a member whose user data is not ours."""
_NEWEST: Final = 3


class GroupMemberData(msgspec.Struct, frozen=True):
    """A member, as the leader reads it.

    Args:
        topics: None if its bytes cannot be read.
        claims: partitions that it owns, or had.
        owns: whether it still reads what it claims.
        generation: of its claims; -1 if it says none.
        embedded_version: of its bytes, and of the answer.
    """

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] | None = None
    claims: frozenset[NamedPartition] = frozenset()
    owns: bool = True
    generation: int = -1
    rack_id: str | None = None
    frame: SubscriptionFrame | None = None
    user_data: bytes = b""
    embedded_version: int = 0


def read_members(members: Iterable[JoinGroupResponseMember], *, protocol: str) -> tuple[GroupMemberData, ...]:
    """Read the leader's answer to JoinGroup; of two members with one id the first counts."""
    found: dict[str, GroupMemberData] = {}
    for member in members:
        if member.member_id not in found:
            found[member.member_id] = _read_member(member, protocol=protocol)
    return tuple(found[member_id] for member_id in sorted(found))


def _read_member(member: JoinGroupResponseMember, *, protocol: str) -> GroupMemberData:
    try:
        version = embedded_version(member.metadata)
        subscription = decode_subscription(member.metadata)
    except ProtocolError:
        return GroupMemberData(member.member_id, member.group_instance_id)
    frame = None if protocol in BUILT_IN else read_subscription_frame(subscription.user_data)
    claims, owns, generation = _named(subscription), True, subscription.generation_id
    if protocol == "cooperative-sticky" and generation == NO_EPOCH:
        generation = read_generation(subscription.user_data)
    if frame is not None and frame.held is not None:
        claims, owns, generation = frozenset(frame.held), False, frame.generation
    return GroupMemberData(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        topics=frozenset(subscription.topics),
        claims=claims,
        owns=owns,
        generation=generation,
        rack_id=subscription.rack_id or None,
        frame=frame,
        user_data=subscription.user_data or b"",
        embedded_version=min(version, _NEWEST),
    )


def _named(subscription: ConsumerProtocolSubscription) -> frozenset[NamedPartition]:
    return frozenset(
        NamedPartition(owned.topic, index) for owned in subscription.owned_partitions for index in owned.partitions
    )


class ClassicPlan:
    """One assignment of one generation, from the members to the bytes for each.

    Args:
        protocol: name of the assignor that the coordinator chose.
        topics: what the cluster has of the topics that members subscribe to.
    """

    def __init__(
        self,
        members: Iterable[GroupMemberData],
        *,
        protocol: str,
        generation: int,
        topics: Mapping[str, TopicDescription],
    ) -> None:
        self._members: Final = tuple(members)
        self._protocol: Final = protocol
        self._generation: Final = generation
        self._topics: Final = dict(sorted(topics.items()))
        self._ids: Final = {name: _topic_id(name, topic) for name, topic in self._topics.items()}
        self._names: Final = {topic_id: name for name, topic_id in self._ids.items()}
        self._owners: Final[dict[NamedPartition, GroupMemberData]] = {}
        """The member with the winning claim to a partition."""
        self._contested: Final[set[NamedPartition]] = set()
        """Partitions that several members of one generation claim."""
        self._left_out = False
        self.wishes: Final = tuple(member.frame.wish if member.frame else 0 for member in self._members)
        """How often each member called request_reassignment()."""
        self._settle_claims()
        self.snapshot: Final = self._snapshot()
        """The group, as an assignor is called with it."""
        self.racks: Final = {self._ids[name]: topic.racks for name, topic in self._topics.items()}
        """By topic id, beside it."""

    def _settle_claims(self) -> None:
        for member in self._members:
            for partition in member.claims:
                topic = self._topics.get(partition.topic)
                if (
                    topic is None
                    or partition.topic not in (member.topics or ())
                    or not 0 <= partition.partition < topic.partition_count
                ):
                    continue
                other = self._owners.get(partition)
                if other is None or member.generation > other.generation:
                    self._owners[partition] = member
                    self._contested.discard(partition)
                elif member.generation == other.generation:
                    self._contested.add(partition)

    def _snapshot(self) -> ConsumerGroupPrepareAssignmentResponse:
        targets: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for partition, member in self._owners.items():
            if partition not in self._contested:
                targets[member.member_id][partition.topic].append(partition.partition)
        return ConsumerGroupPrepareAssignmentResponse(
            group_epoch=self._generation,
            assignor_name=self._protocol,
            members=tuple(
                Member(
                    member_id=member.member_id,
                    member_epoch=max(0, member.generation),
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    subscribed_topic_ids=tuple(
                        self._ids[topic] for topic in sorted(member.topics) if topic in self._ids
                    ),
                    assignor=_assignor(member),
                    topic_partitions=tuple(
                        Held(self._ids[topic], tuple(sorted(indexes)))
                        for topic, indexes in sorted(targets[member.member_id].items())
                    ),
                )
                for member in self._members
                if member.topics is not None
            ),
            topics=tuple(
                TopicMetadata(self._ids[name], name, topic.partition_count) for name, topic in self._topics.items()
            ),
        )

    def unreadable_versions(self, *, minimum: int, maximum: int) -> tuple[str, ...]:
        """Members whose metadata version is outside of these versions."""
        return tuple(
            f"{member.member_id} ({version})"
            for member in self._members
            if member.topics is not None
            and self._protocol not in BUILT_IN
            and not minimum <= (version := member.frame.version if member.frame else _FOREIGN_VERSION) <= maximum
        )

    def assignments(
        self, members: Iterable[InstallMember], *, error: int = 0
    ) -> tuple[SyncGroupRequestAssignment, ...]:
        """The assignments of SyncGroup: the assignor's result, or every member's claims if the assignor failed."""
        if error:
            frame = AssignmentFrame(error=error)
            given = {member.member_id: (self._kept(member), frame) for member in self._members}
        else:
            given = {
                member.member_id: (
                    self._adjusted(
                        member.member_id,
                        (
                            NamedPartition(self._names[topic.topic_id], index)
                            for topic in member.partitions
                            for index in topic.partitions
                        ),
                    ),
                    AssignmentFrame(version=member.metadata_version, metadata=member.metadata_bytes),
                )
                for member in members
            }
            dealt = [partition for partitions, _ in given.values() for partition in partitions]
            assert len(dealt) == len(set(dealt)), "a partition was given twice"
        nothing: tuple[frozenset[NamedPartition], AssignmentFrame] = (frozenset(), AssignmentFrame())
        return tuple(
            SyncGroupRequestAssignment(member.member_id, self._bytes(member, *given.get(member.member_id, nothing)))
            for member in self._members
        )

    def _kept(self, member: GroupMemberData) -> frozenset[NamedPartition]:
        return frozenset(
            partition
            for partition in member.claims
            if partition not in self._contested and self._owners.get(partition) is member
        )

    @property
    def left_out(self) -> bool:
        """Whether the last assignment left out partitions that a member should get in the next round."""
        return self._left_out

    def _adjusted(self, member_id: str, partitions: Iterable[NamedPartition]) -> frozenset[NamedPartition]:
        """Leave out partitions that another member still reads."""
        kept = set()
        for partition in partitions:
            owner = self._owners.get(partition)
            moves = owner is not None and owner.owns and (owner.member_id != member_id or partition in self._contested)
            if not moves:
                kept.add(partition)
            self._left_out = self._left_out or moves
        return frozenset(kept)

    def _bytes(self, member: GroupMemberData, partitions: frozenset[NamedPartition], frame: AssignmentFrame) -> bytes:
        return encode_assignment(
            ConsumerProtocolAssignment(
                assigned_partitions=partitions_by_topic(partitions),
                user_data=None if self._protocol in BUILT_IN else write_assignment_frame(frame),
            ),
            version=member.embedded_version,
        )


def partitions_by_topic(partitions: Iterable[NamedPartition]) -> tuple[Partitions, ...]:
    """Encode partitions, sorted, so that equal sets give equal bytes."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        topics[partition.topic].append(partition.partition)
    return tuple(Partitions(topic, tuple(indexes)) for topic, indexes in topics.items())


def _assignor(member: GroupMemberData) -> Assignor:
    frame = member.frame
    if frame is None:
        return Assignor(0, _FOREIGN_VERSION, member.user_data)
    return Assignor(frame.reason, frame.version, frame.metadata)


def _topic_id(name: str, topic: TopicDescription) -> UUID:
    return topic.topic_id if topic.topic_id != ZERO_UUID else uuid.uuid5(_NAMESPACE, name)
