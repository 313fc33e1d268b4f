"""Hard state of one consumer group, changed by `ConsumerGroup.replay` alone, and what is derived from it.

Every index (holders of partitions, static members, counts of subscribers and votes, members that are reconciled) is
brought up to date by the replay of the record that concerns it, so live and reloaded state cannot differ. No decision
is taken here.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar, assert_never
from uuid import UUID

import msgspec

from kip848_client.assignors import TopicPartitions
from kip848_client.coordinator.group_member import (
    NO_METADATA,
    AssignmentMetadata,
    AssignorVersions,
    CurrentAssignment,
    GroupMember,
    MemberMetadata,
    MemberState,
    PartitionEpochs,
)
from kip848_client.coordinator.records import (
    read_assignment_metadata,
    read_member_metadata,
    read_partition_epochs,
    read_target,
)
from kip848_client.errors import IllegalStateError
from kip848_client.wire.messages import group_records as wire


class GroupState(enum.StrEnum):
    """State of a consumer group, spelled as on the wire. Derived, never stored."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group epoch moved and its target is not computed yet."""
    RECONCILING = "Reconciling"
    """Some member does not own its target yet."""
    STABLE = "Stable"
    DEAD = "Dead"
    """There is no such group any more."""


def derive_state(*, member_count: int, reconciled_count: int, group_epoch: int, target_epoch: int) -> GroupState:
    """The state of a group.

    Args:
        reconciled_count: members that own their whole target of *target_epoch*.

    Source:
        Kafka's ``ConsumerGroup.maybeUpdateGroupState``.
    """
    if not member_count:
        return GroupState.EMPTY
    if group_epoch > target_epoch:
        return GroupState.ASSIGNING
    if reconciled_count < member_count:
        return GroupState.RECONCILING
    return GroupState.STABLE


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that a pattern matched.

    Args:
        version: `TopicsImage.version` at which it was matched.
        timestamp_ms: when, in ms since 1970.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


KeyT = TypeVar("KeyT", bound=Hashable)

_CHANGES_MIN: Final = 100
_NOBODY: Final[Mapping[int, str]] = {}
_NO_TARGET: Final[TopicPartitions] = {}


class ConsumerGroup:
    """One group. Read anything; change nothing except by `replay`."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """`TopicsImage.metadata_hash` of the topics that `group_epoch` accounts for."""
        self.target_epoch = 0
        self.target_assignor = ""
        """The client-side assignor that computed the target; empty if a server-side one did."""
        self.members: dict[str, GroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.target: dict[str, TopicPartitions] = {}
        self.target_metadata: dict[str, AssignmentMetadata] = {}
        """Member id -> what its client-side assignor hears with the target; only where there is something."""
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.regex_subscribers: dict[str, int] = {}
        self.assignor_votes: dict[str, int] = {}
        self.client_assignors: dict[str, dict[AssignorVersions, int]] = {}
        """Name of a client-side assignor -> number of members that offer it, by versions."""
        self.classic_count = 0
        """Number of members on the classic protocol."""
        self.classic_protocols: dict[str, int] = {}
        """Name of a classic protocol -> number of those members that offer it."""
        self.rack_ids: dict[str, str] = {}
        """Member id -> rack, where known."""
        self.metadata_changes: list[str] = []
        """Members that joined, left or changed their metadata, in that order. A new list begins when it grows long; a
        reader remembers the list and how much of it it has read."""
        self._stable_at: dict[int, int] = {}
        """Epoch -> number of members that own their whole target of it."""
        self._sorted_ids: list[str] = []
        self._holders: dict[UUID, dict[int, str]] = {}
        self._name_subscribers: dict[str, int] = {}
        self._subscribed: frozenset[str] | None = frozenset()

    # Reading

    @property
    def state(self) -> GroupState:
        """The state of the group, see `GroupState`."""
        return derive_state(
            member_count=len(self.members),
            reconciled_count=self.reconciled_count,
            group_epoch=self.group_epoch,
            target_epoch=self.target_epoch,
        )

    @property
    def reconciled_count(self) -> int:
        """Number of members that own their whole target of `target_epoch`."""
        return self._stable_at.get(self.target_epoch, 0)

    @property
    def sorted_member_ids(self) -> Sequence[str]:
        """Ids of all members, ascending."""
        return self._sorted_ids

    def holders(self, topic_id: UUID) -> Mapping[int, str]:
        """Partition -> member that counts it as assigned or pending revocation, for one topic."""
        return self._holders.get(topic_id, _NOBODY)

    def target_of(self, member_id: str) -> TopicPartitions:
        """What a member shall own; empty if no target was computed for it yet."""
        return self.target.get(member_id, _NO_TARGET)

    def target_metadata_of(self, member_id: str) -> AssignmentMetadata:
        """What a member's client-side assignor hears with `target_of` it."""
        return self.target_metadata.get(member_id, NO_METADATA)

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Names that a member subscribes to: by name, and by its pattern as far as that is resolved."""
        names = frozenset(metadata.subscribed_topic_names)
        if metadata.subscribed_topic_regex is None:
            return names
        resolved = self.resolved_regexes.get(metadata.subscribed_topic_regex)
        return names if resolved is None else names | resolved.topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Names that any member subscribes to, whether such a topic exists or not."""
        if self._subscribed is None:
            self._subscribed = self.subscribed_topics_with({})
        return self._subscribed

    def subscribed_topics_with(self, resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """`subscribed_topics` as it would be if these patterns matched these topics."""
        topics = set(self._name_subscribers)
        for regex in self.regex_subscribers:
            if regex in resolved:
                topics |= resolved[regex]
            elif known := self.resolved_regexes.get(regex):
                topics |= known.topics
        return frozenset(topics)

    def subscribed_topics_after(
        self, *, old: Sequence[MemberMetadata], new: MemberMetadata | None = None
    ) -> frozenset[str]:
        """`subscribed_topics` as it would be once metadata *old* of members are gone, and *new* is there."""
        subscribed = self.subscribed_topics
        if new is not None and all(before.subscribes_like(new) for before in old) and self.topics_of(new) <= subscribed:
            return subscribed
        names = dict(self._name_subscribers)
        regexes = dict(self.regex_subscribers)
        for before in old:
            for name in before.subscribed_topic_names:
                _count(names, name, -1)
            if before.subscribed_topic_regex is not None:
                _count(regexes, before.subscribed_topic_regex, -1)
        topics = set(names)
        if new is not None:
            topics.update(new.subscribed_topic_names)
            if new.subscribed_topic_regex is not None:
                _count(regexes, new.subscribed_topic_regex, 1)
        for regex in regexes:
            if resolved := self.resolved_regexes.get(regex):
                topics |= resolved.topics
        return frozenset(topics)

    def state_after(
        self, member: GroupMember, *, group_epoch: int, target_epoch: int, replaced: GroupMember | None = None
    ) -> GroupState:
        """`state` as it would be if *member* (new or not) and the epochs became these.

        Args:
            replaced: a member whose place *member* takes.
        """
        before = replaced or self.members.get(member.member_id)
        reconciled = 0
        if target_epoch == self.target_epoch:
            reconciled = self.reconciled_count - (before is not None and before.is_reconciled_to(target_epoch))
        return derive_state(
            member_count=len(self.members) + (before is None),
            reconciled_count=reconciled + member.is_reconciled_to(target_epoch),
            group_epoch=group_epoch,
            target_epoch=target_epoch,
        )

    def state_with_target(self, target_epoch: int) -> GroupState:
        """`state` as it would be if the target were of this epoch."""
        return derive_state(
            member_count=len(self.members),
            reconciled_count=self._stable_at.get(target_epoch, 0),
            group_epoch=self.group_epoch,
            target_epoch=target_epoch,
        )

    def state_at(self, *, group_epoch: int) -> GroupState:
        """`state` as it would be if the group epoch became this."""
        return derive_state(
            member_count=len(self.members),
            reconciled_count=self.reconciled_count,
            group_epoch=group_epoch,
            target_epoch=self.target_epoch,
        )

    # Replay

    def replay(self, key: wire.GroupRecordKey, value: wire.GroupRecordValue | None) -> bool:
        """Bring the group to what one of its records says.

        Replaying a record twice, or only the last one of each key, leads to the same state.

        Returns:
            False if the record was the tombstone of the group itself.

        Raises:
            IllegalStateError: tombstones come in an order that no coordinator writes; the log is damaged.

        Source:
            Kafka's ``GroupMetadataManager.replay``.
        """
        match key, value:
            case wire.ConsumerGroupMetadataKey(), wire.ConsumerGroupMetadataValue():
                self.group_epoch = value.epoch
                self.metadata_hash = value.metadata_hash
            case wire.ConsumerGroupMetadataKey(), _:
                if self.members or self.target or self.target_epoch != -1:
                    raise self._damaged(
                        f"the group's tombstone came before those of its {len(self.members)} members, "
                        f"{len(self.target)} targets or target epoch ({self.target_epoch})"
                    )
                return False
            case wire.ConsumerGroupMemberMetadataKey(), wire.ConsumerGroupMemberMetadataValue():
                member = self.members.get(key.member_id)
                current = CurrentAssignment() if member is None else member.current
                self._set_member(GroupMember(key.member_id, read_member_metadata(value), current))
            case wire.ConsumerGroupMemberMetadataKey(), _:
                self._remove_member(key.member_id)
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), wire.ConsumerGroupTargetAssignmentMetadataValue():
                self.target_epoch = value.assignment_epoch
                self.target_assignor = value.assignor_name
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), _:
                if self.target:
                    raise self._damaged(f"the target epoch's tombstone came before those of {len(self.target)} targets")
                self.target_epoch = -1
                self.target_assignor = ""
            case wire.ConsumerGroupTargetAssignmentMemberKey(), wire.ConsumerGroupTargetAssignmentMemberValue():
                self.target[key.member_id] = read_target(value)
                self._set_target_metadata(key.member_id, read_assignment_metadata(value))
            case wire.ConsumerGroupTargetAssignmentMemberKey(), _:
                self.target.pop(key.member_id, None)
                self.target_metadata.pop(key.member_id, None)
            case wire.ConsumerGroupCurrentMemberAssignmentKey(), wire.ConsumerGroupCurrentMemberAssignmentValue():
                self._set_current(key.member_id, _read_current(value))
            case wire.ConsumerGroupCurrentMemberAssignmentKey(), _:
                if key.member_id in self.members:
                    self._set_current(key.member_id, CurrentAssignment(member_epoch=-1, previous_member_epoch=-1))
            case wire.ConsumerGroupRegularExpressionKey(), wire.ConsumerGroupRegularExpressionValue():
                self.resolved_regexes[key.regular_expression] = ResolvedRegex(
                    frozenset(value.topics), version=value.version, timestamp_ms=value.timestamp
                )
                self._subscribed = None
            case wire.ConsumerGroupRegularExpressionKey(), _:
                self.resolved_regexes.pop(key.regular_expression, None)
                self._subscribed = None
            case wire.ConsumerGroupPartitionMetadataKey(), _:
                pass  # what Kafka 4.0 kept there is compared by hash since; see metadata_hash
            case ((wire.OffsetCommitKey() | wire.PendingOffsetKey() | wire.GroupMetadataKey()), _):
                raise AssertionError(f"{type(key).__name__} is no record of a consumer group")
            case _:
                assert_never(key)
        return True

    def check_invariants(self) -> None:
        """Assert what must hold after every replayed batch.

        Raises:
            AssertionError: says which member, partition or count is wrong. Only a bug, or a damaged log, can cause it.
        """
        held: dict[tuple[UUID, int], str] = {}
        for member in self.members.values():
            current = member.current
            for partitions in (current.assigned, current.pending_revocation):
                for topic_id, epochs in partitions.items():
                    for partition, epoch in epochs.items():
                        other = held.setdefault((topic_id, partition), member.member_id)
                        assert other == member.member_id, (
                            f"partition {partition} of {topic_id} is held by {other!r} and {member.member_id!r}"
                        )
                        assert current.member_epoch < 0 or epoch <= current.member_epoch, (
                            f"{member.member_id!r} is at {current.member_epoch} and was given {partition} at {epoch}"
                        )
            assert not _overlap(current.assigned, current.pending_revocation), f"{member.member_id!r} holds twice"
            assert current.member_epoch <= self.target_epoch <= self.group_epoch, (
                f"{member.member_id!r}: {current.member_epoch} <= {self.target_epoch} <= {self.group_epoch} is not so"
            )
        index = {
            (topic, number): holder for topic, numbers in self._holders.items() for number, holder in numbers.items()
        }
        assert index == held, "the index of holders differs from what the members hold"
        targets: dict[tuple[UUID, int], str] = {}
        for member_id, target in self.target.items():
            assert member_id in self.members, f"target of {member_id!r}, who is no member"
            for topic_id, target_partitions in target.items():
                for partition in target_partitions:
                    other = targets.setdefault((topic_id, partition), member_id)
                    assert other == member_id, f"partition {partition} of {topic_id} is in two targets"
        assert self.reconciled_count == sum(
            member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )
        assert self._sorted_ids == sorted(self.members)
        classic = [member.metadata.classic for member in self.members.values() if member.metadata.classic is not None]
        assert self.classic_count == len(classic), "members on the classic protocol are miscounted"
        assert self.classic_protocols == Counter(name for protocols in classic for name in protocols.names)
        assert not classic or len(classic) in self.classic_protocols.values(), "they have no protocol in common"

    def _set_target_metadata(self, member_id: str, metadata: AssignmentMetadata) -> None:
        if metadata is NO_METADATA:
            self.target_metadata.pop(member_id, None)
        else:
            self.target_metadata[member_id] = metadata

    def _set_member(self, member: GroupMember) -> None:
        before = self.members.get(member.member_id)
        if before is None:
            insort(self._sorted_ids, member.member_id)
            self._count_stable(member.current, 1)
            self._count_metadata(member.metadata, 1)
        elif before.metadata != member.metadata:
            self._count_metadata(before.metadata, -1)
            self._count_metadata(member.metadata, 1)
        self.members[member.member_id] = member
        self._note_metadata_change(member.member_id)
        if member.metadata.rack_id is not None:
            self.rack_ids[member.member_id] = member.metadata.rack_id
        if before is not None and (instance_id := before.metadata.instance_id) is not None:
            self._release_instance(instance_id, before.member_id)
        if (instance_id := member.metadata.instance_id) is not None:
            self.static_members[instance_id] = member.member_id

    def _set_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._set_member(GroupMember(member_id, MemberMetadata(), CurrentAssignment()))
            member = self.members[member_id]
        before = member.current
        updated = GroupMember(member_id, member.metadata, current)
        self.members[member_id] = updated
        self._count_stable(before, -1)
        self._count_stable(current, 1)
        self._release(member_id, before.assigned)
        self._release(member_id, before.pending_revocation)
        self._hold(member_id, current.assigned)
        self._hold(member_id, current.pending_revocation)

    def _remove_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if member.current.member_epoch != -1 or member_id in self.target:
            raise self._damaged(f"the tombstone of member {member_id!r} came before those of its assignments")
        del self.members[member_id]
        self._note_metadata_change(member_id)
        self.rack_ids.pop(member_id, None)
        del self._sorted_ids[bisect_left(self._sorted_ids, member_id)]
        self._count_stable(member.current, -1)
        self._count_metadata(member.metadata, -1)
        if member.metadata.instance_id is not None:
            self._release_instance(member.metadata.instance_id, member_id)

    def _note_metadata_change(self, member_id: str) -> None:
        if len(self.metadata_changes) > _CHANGES_MIN + 2 * len(self.members):
            self.metadata_changes = []
        self.metadata_changes.append(member_id)

    def _count_stable(self, current: CurrentAssignment, change: int) -> None:
        if current.state is MemberState.STABLE:
            count = self._stable_at.get(current.member_epoch, 0) + change
            if count:
                self._stable_at[current.member_epoch] = count
            else:
                del self._stable_at[current.member_epoch]

    def _hold(self, member_id: str, partitions: PartitionEpochs) -> None:
        for topic_id, epochs in partitions.items():
            self._holders.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def _release(self, member_id: str, partitions: PartitionEpochs) -> None:
        """Give up what is still this member's: a later record may have given it to another one already."""
        for topic_id, epochs in partitions.items():
            held = self._holders.get(topic_id, {})
            for partition in epochs:
                if held.get(partition) == member_id:
                    del held[partition]
            if not held:
                self._holders.pop(topic_id, None)

    def _release_instance(self, instance_id: str, member_id: str) -> None:
        """Forget who has an instance id, unless a replacing member has it already."""
        if self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _count_metadata(self, metadata: MemberMetadata, change: int) -> None:
        subscribed = self._subscribed
        for name in metadata.subscribed_topic_names:
            _count(self._name_subscribers, name, change)
        if subscribed is not None and not (change > 0 and subscribed.issuperset(metadata.subscribed_topic_names)):
            self._subscribed = None
        if metadata.subscribed_topic_regex is not None:
            _count(self.regex_subscribers, metadata.subscribed_topic_regex, change)
            self._subscribed = None
        if metadata.server_assignor is not None:
            _count(self.assignor_votes, metadata.server_assignor, change)
        if metadata.classic is not None:
            self.classic_count += change
            for name in metadata.classic.names:
                _count(self.classic_protocols, name, change)
        for assignor in metadata.client_assignors:
            offered = self.client_assignors.setdefault(assignor.name, {})
            _count(offered, assignor.versions, change)
            if not offered:
                del self.client_assignors[assignor.name]

    def _damaged(self, what: str) -> IllegalStateError:
        return IllegalStateError(f"log of group {self.group_id!r} is damaged: {what}")


def _count(counts: dict[KeyT, int], key: KeyT, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]


def _overlap(one: PartitionEpochs, other: PartitionEpochs) -> bool:
    return any(one[topic_id].keys() & other[topic_id].keys() for topic_id in one.keys() & other.keys())


def _read_current(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=state,
        assigned=read_partition_epochs(value.assigned_partitions, member_epoch=value.member_epoch),
        pending_revocation=read_partition_epochs(value.partitions_pending_revocation, member_epoch=value.member_epoch),
        metadata=read_assignment_metadata(value),
    )
