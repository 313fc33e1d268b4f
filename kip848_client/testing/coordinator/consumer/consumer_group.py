"""Hard state of one consumer group, changed only by `ConsumerGroup.replay`, and the indexes derived from it.

State that all kinds of groups share is in `modern.modern_group`; subscriptions and members on the classic protocol are
here. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final
from uuid import UUID

import msgspec

from kip848_client.testing.coordinator.consumer import consumer_records
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMetadata, CurrentAssignment
from kip848_client.testing.coordinator.consumer.consumer_records import (
    read_assignment_metadata,
    read_member_metadata,
    read_partition_epochs,
    read_target,
)
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry
from kip848_client.testing.coordinator.modern.member_record import Current, MemberRecord
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup, count, read_state
from kip848_client.wire.messages import group_records as wire


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics that a pattern matched.

    Args:
        version: `TopicsImage.version` at which it was matched.
        timestamp_ms: when, in ms since 1970.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


_CHANGES_MIN: Final = 100
_NO_METADATA: Final = ConsumerMetadata()


class ConsumerGroup(ModernGroup[UUID, ConsumerMetadata]):
    """One group. Read anything; change nothing except by `replay`."""

    kind: ClassVar[str] = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, metadata=_NO_METADATA)
        self.metadata_hash: int = 0
        """`TopicsImage.metadata_hash` of the topics that `group_epoch` accounts for."""
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.regex_subscribers: dict[str, int] = {}
        self.rack_ids: dict[str, str] = {}
        """Member id -> rack, where known."""
        self.metadata_changes: list[str] = []
        """Members that joined, left or changed their metadata, in that order. A new list begins when it grows long; a
        reader remembers the list and how much of it it has read."""
        self._name_subscribers: dict[str, int] = {}
        self._subscribed: frozenset[str] | None = frozenset()

    # --- reading

    @property
    def offset_expiry(self) -> OffsetExpiry:
        """The retention counts from each commit; a group without members goes with its last offset."""
        return OffsetExpiry(ends_group=not self.members)

    def reads(self, topic: str) -> bool:
        """Whether a member subscribes to *topic*."""
        return topic in self.subscribed_topics

    def session_timeout_ms(self, config: GroupConfig) -> int:
        """``consumer.session.timeout.ms``."""
        return config.session_timeout_ms

    def tombstones(self) -> Iterator[wire.GroupRecord]:
        """Tombstones for all its records but the offsets, in the order that replay demands."""
        group_id = self.group_id
        for member_id in self.sorted_member_ids:
            yield consumer_records.current_tombstone(group_id, member_id=member_id)
            yield consumer_records.target_tombstone(group_id, member_id=member_id)
            yield consumer_records.member_metadata_tombstone(group_id, member_id=member_id)
        for member_id in sorted(self.target.keys() - self.members.keys()):
            yield consumer_records.target_tombstone(group_id, member_id=member_id)
        yield consumer_records.target_epoch_tombstone(group_id)
        for regex in sorted(self.resolved_regexes):
            yield consumer_records.regex_tombstone(group_id, regex=regex)
        yield consumer_records.partition_metadata_tombstone(group_id)
        yield consumer_records.group_epoch_tombstone(group_id)

    def topics_of(self, metadata: ConsumerMetadata) -> frozenset[str]:
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
        self, *, old: Sequence[ConsumerMetadata], new: ConsumerMetadata | None = None
    ) -> frozenset[str]:
        """`subscribed_topics` as it would be once metadata *old* of members are gone, and *new* is there."""
        subscribed = self.subscribed_topics
        if new is not None and all(before.subscribes_like(new) for before in old) and self.topics_of(new) <= subscribed:
            return subscribed
        names = dict(self._name_subscribers)
        regexes = dict(self.regex_subscribers)
        for before in old:
            for name in before.subscribed_topic_names:
                count(names, name, -1)
            if before.subscribed_topic_regex is not None:
                count(regexes, before.subscribed_topic_regex, -1)
        topics = set(names)
        if new is not None:
            topics.update(new.subscribed_topic_names)
            if new.subscribed_topic_regex is not None:
                count(regexes, new.subscribed_topic_regex, 1)
        for regex in regexes:
            if resolved := self.resolved_regexes.get(regex):
                topics |= resolved.topics
        return frozenset(topics)

    # --- replay

    def replay(self, key: wire.RecordKey, value: wire.RecordValue | None) -> bool:
        """Apply one of the group's records.

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
                self.group_epoch: int = value.epoch
                self.metadata_hash = value.metadata_hash
            case wire.ConsumerGroupMetadataKey(), _:
                self._check_gone()
                return False
            case wire.ConsumerGroupMemberMetadataKey(), wire.ConsumerGroupMemberMetadataValue():
                current = (self.members.get(key.member_id) or self.new_member(key.member_id)).current
                self._set_member(MemberRecord(key.member_id, read_member_metadata(value), current))
            case wire.ConsumerGroupMemberMetadataKey(), _:
                self._remove_member(key.member_id)
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), wire.ConsumerGroupTargetAssignmentMetadataValue():
                self.target_epoch: int = value.assignment_epoch
                self.target_assignor: str = value.assignor_name
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), _:
                self._forget_target_epoch()
            case wire.ConsumerGroupTargetAssignmentMemberKey(), wire.ConsumerGroupTargetAssignmentMemberValue():
                self.target[key.member_id] = read_target(value)
                self._set_target_metadata(key.member_id, read_assignment_metadata(value))
            case wire.ConsumerGroupTargetAssignmentMemberKey(), _:
                self.target.pop(key.member_id, None)
                self.target_metadata.pop(key.member_id, None)
            case wire.ConsumerGroupCurrentMemberAssignmentKey(), wire.ConsumerGroupCurrentMemberAssignmentValue():
                self._set_current(key.member_id, _read_current(value))
            case wire.ConsumerGroupCurrentMemberAssignmentKey(), _:
                self._forget_current(key.member_id)
            case wire.ConsumerGroupRegularExpressionKey(), wire.ConsumerGroupRegularExpressionValue():
                self.resolved_regexes[key.regular_expression] = ResolvedRegex(
                    frozenset(value.topics), version=value.version, timestamp_ms=value.timestamp
                )
                self._subscribed = None
            case wire.ConsumerGroupRegularExpressionKey(), _:
                self.resolved_regexes.pop(key.regular_expression, None)
                self._subscribed = None
            case wire.ConsumerGroupPartitionMetadataKey(), _:
                pass  # written by Kafka 4.0; later versions keep a hash instead, see metadata_hash
            case _:
                raise AssertionError(f"{type(key).__name__} is not a record of a consumer group")
        return True

    def _note_metadata(self, member_id: str, metadata: ConsumerMetadata | None) -> None:
        if len(self.metadata_changes) > _CHANGES_MIN + 2 * len(self.members):
            self.metadata_changes = []
        self.metadata_changes.append(member_id)
        if metadata is None:
            self.rack_ids.pop(member_id, None)
        elif metadata.rack_id is not None:
            self.rack_ids[member_id] = metadata.rack_id

    def _count_metadata(self, metadata: ConsumerMetadata, change: int) -> None:
        super()._count_metadata(metadata, change)
        subscribed = self._subscribed
        for name in metadata.subscribed_topic_names:
            count(self._name_subscribers, name, change)
        if subscribed is not None and not (change > 0 and subscribed.issuperset(metadata.subscribed_topic_names)):
            self._subscribed = None
        if metadata.subscribed_topic_regex is not None:
            count(self.regex_subscribers, metadata.subscribed_topic_regex, change)
            self._subscribed = None


def _read_current(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return Current(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=read_state(value.state),
        assigned=read_partition_epochs(value.assigned_partitions, member_epoch=value.member_epoch),
        pending_revocation=read_partition_epochs(value.partitions_pending_revocation, member_epoch=value.member_epoch),
        metadata=read_assignment_metadata(value),
    )
