"""Hard state of one share group, changed by `ShareGroup.replay` alone. No decision is taken here.

A partition may have several members, and members revoke nothing: there are no holders of partitions as in the other
kinds of groups, and a member that has its target is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.errors import IllegalStateError
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.wire.messages import share_group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.messages.share_group_heartbeat import TopicPartitions

Partitions = Mapping[UUID, tuple[int, ...]]
"""Topic id -> partitions, ascending; a topic without partitions is left out."""

_TOMBSTONES: Final = (
    wire.ShareGroupCurrentMemberAssignmentKey,
    wire.ShareGroupTargetAssignmentMemberKey,
    wire.ShareGroupMemberMetadataKey,
)


class ShareGroupMember(msgspec.Struct, frozen=True):
    """One member.

    Args:
        subscribed_topic_names: ascending, each once.
        assigned: the partitions that it may fetch from.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Partitions = msgspec.field(default_factory=dict)


class BegunTopic(msgspec.Struct, frozen=True):
    """The partitions of one topic that a group has begun, or is about to."""

    name: str
    partitions: frozenset[int]


class StatePartitions(msgspec.Struct, frozen=True):
    """The partitions whose share-group state is being made, or is there, and the topics whose state is being deleted.

    All by topic id.
    """

    initializing: Mapping[UUID, BegunTopic] = msgspec.field(default_factory=dict)
    initialized: Mapping[UUID, BegunTopic] = msgspec.field(default_factory=dict)
    deleting: Mapping[UUID, str] = msgspec.field(default_factory=dict)


class ShareGroup:
    """One group. Read anything; change nothing except by `replay`. As in Kafka it begins at epoch 1."""

    kind: ClassVar[str] = "share"
    protocol_type: ClassVar[str | None] = "share"
    has_private_topics: ClassVar[bool] = False
    offset_expiry: ClassVar[OffsetExpiry] = OffsetExpiry()

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.group_epoch: int = 1
        self.metadata_hash: int = 0
        """`TopicsImage.metadata_hash` of the topics that `group_epoch` accounts for."""
        self.target_epoch: int = 1
        self.target_timestamp_ms: int = 0
        """When the target was computed, in ms since 1970; 0 if it is empty because all members have left."""
        self.members: Final[dict[str, ShareGroupMember]] = {}
        self.target: Final[dict[str, Partitions]] = {}
        self.partitions: StatePartitions = StatePartitions()

    # --- reading

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def state(self) -> GroupState:
        """``Empty`` or ``Stable``: there is no other."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def reads(self, topic: str) -> bool:
        """False: it has no committed offsets that could expire."""
        del topic
        return False

    def subscribed_topics_with(self, updated: ShareGroupMember | None = None, *, without: str = "") -> frozenset[str]:
        """Names that members subscribe to, with one member as it will be, or without one."""
        members = {**self.members, **({} if updated is None else {updated.member_id: updated})}
        members.pop(without, None)
        return frozenset(name for member in members.values() for name in member.subscribed_topic_names)

    def tombstones(self) -> Iterator[GroupRecord]:
        """Tombstones for all its records, in the order that replay demands."""
        for member_id in sorted(self.members.keys() | self.target.keys()):
            yield from member_tombstones(self.group_id, member_id)
        yield GroupRecord(wire.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        yield GroupRecord(wire.ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None)
        yield GroupRecord(wire.ShareGroupMetadataKey(group_id=self.group_id), None)

    def check_invariants(self) -> None:
        """Assert what must hold between two events."""
        assert self.target.keys() <= self.members.keys(), "a target of no member"
        for member in self.members.values():
            assert member.member_epoch <= self.target_epoch <= self.group_epoch, (
                f"{member.member_id!r}: {member.member_epoch} <= {self.target_epoch} <= {self.group_epoch} is not so"
            )
        begun = (*self.partitions.initializing.values(), *self.partitions.initialized.values())
        assert all(topic.partitions for topic in begun), "a topic without partitions"

    # --- replay

    def replay(self, key: wire.ShareGroupRecordKey, value: wire.ShareGroupRecordValue | None) -> bool:
        """Bring the group to what one of its records says; see `ConsumerGroup.replay`.

        Returns:
            False if the record was the tombstone of the group itself.

        Raises:
            IllegalStateError: tombstones come in an order that no coordinator writes; the log is damaged.
        """
        match key, value:
            case wire.ShareGroupMetadataKey(), wire.ShareGroupMetadataValue():
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case wire.ShareGroupMetadataKey(), _:
                if self.members or self.target or self.target_epoch != -1:
                    raise self._damaged("the group's tombstone came before those of its members and its target")
                return False
            case wire.ShareGroupMemberMetadataKey(), wire.ShareGroupMemberMetadataValue():
                self.members[key.member_id] = replace(
                    self._member(key.member_id),
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    subscribed_topic_names=value.subscribed_topic_names,
                )
            case wire.ShareGroupMemberMetadataKey(), _:
                member = self.members.get(key.member_id)
                if member is not None and (member.member_epoch != -1 or key.member_id in self.target):
                    raise self._damaged(f"the tombstone of member {key.member_id!r} came before that of its assignment")
                self.members.pop(key.member_id, None)
            case wire.ShareGroupTargetAssignmentMetadataKey(), wire.ShareGroupTargetAssignmentMetadataValue():
                self.target_epoch, self.target_timestamp_ms = value.assignment_epoch, value.assignment_timestamp
            case wire.ShareGroupTargetAssignmentMetadataKey(), _:
                if self.target:
                    raise self._damaged("the target epoch's tombstone came before those of the targets")
                self.target_epoch, self.target_timestamp_ms = -1, 0
            case wire.ShareGroupTargetAssignmentMemberKey(), wire.ShareGroupTargetAssignmentMemberValue():
                self.target[key.member_id] = read_partitions(value.topic_partitions)
            case wire.ShareGroupTargetAssignmentMemberKey(), _:
                self.target.pop(key.member_id, None)
            case wire.ShareGroupCurrentMemberAssignmentKey(), wire.ShareGroupCurrentMemberAssignmentValue():
                self.members[key.member_id] = replace(
                    self._member(key.member_id),
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    assigned=read_partitions(value.assigned_partitions),
                )
            case wire.ShareGroupCurrentMemberAssignmentKey(), _:
                if key.member_id in self.members:
                    self.members[key.member_id] = replace(
                        self.members[key.member_id], member_epoch=-1, previous_member_epoch=-1, assigned={}
                    )
            case wire.ShareGroupStatePartitionMetadataKey(), wire.ShareGroupStatePartitionMetadataValue():
                self.partitions = StatePartitions(
                    initializing=_read_begun(value.initializing_topics),
                    initialized=_read_begun(value.initialized_topics),
                    deleting={topic.topic_id: topic.topic_name for topic in value.deleting_topics},
                )
            case wire.ShareGroupStatePartitionMetadataKey(), _:
                self.partitions = StatePartitions()
            case _:
                raise AssertionError(f"{type(key).__name__} is not a record of a share group")
        return True

    def _member(self, member_id: str) -> ShareGroupMember:
        return self.members.get(member_id) or ShareGroupMember(member_id)

    def _damaged(self, what: str) -> IllegalStateError:
        return IllegalStateError(f"the log of share group {self.group_id!r} is damaged: {what}")


def member_tombstones(group_id: str, member_id: str) -> Iterator[GroupRecord]:
    """Everything of one member, in the order that replay demands."""
    for key in _TOMBSTONES:
        yield GroupRecord(key(group_id=group_id, member_id=member_id), None)


def partitions_record(group_id: str, partitions: StatePartitions) -> GroupRecord:
    """Type 15: the partitions that the group has begun."""
    return GroupRecord(
        wire.ShareGroupStatePartitionMetadataKey(group_id=group_id),
        wire.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_write_begun(partitions.initializing),
            initialized_topics=_write_begun(partitions.initialized),
            deleting_topics=tuple(
                wire.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in sorted(partitions.deleting.items())
            ),
        ),
    )


def read_partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    """Partitions as in a record or an answer."""
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics if topic.partitions}


def write_partitions(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """The opposite of `read_partitions`, in ascending order."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in sorted(partitions.items())
    )


def _read_begun(topics: Iterable[wire.TopicPartitionsInfo]) -> dict[UUID, BegunTopic]:
    return {topic.topic_id: BegunTopic(topic.topic_name, frozenset(topic.partitions)) for topic in topics}


def _write_begun(topics: Mapping[UUID, BegunTopic]) -> tuple[wire.TopicPartitionsInfo, ...]:
    return tuple(
        wire.TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(topic.partitions)))
        for topic_id, topic in sorted(topics.items())
    )
