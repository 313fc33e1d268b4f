"""Rebuilds one KIP-848 group from its records, and derives the events of each decision of its coordinator.

Works on compacted logs, too: they lack the records of members that left, and a group's epoch may come after its
members.

Source:
    Kafka's ``GroupMetadataManager.replay``; the events are those of `kip848_client.testing.coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.testing.coordinator.consumer.consumer_records import read_partition_epochs, read_target
from kip848_client.testing.coordinator.core.group_events import FactValue, GroupEvent
from kip848_client.testing.coordinator.modern.member_record import ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState, derive_state
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord

_STATIC_LEAVE_EPOCH: Final = -2
_FIRST_EPOCHS: Final = (1, 2)
"""The epoch of a new group: 1, or 2 if a member has a client-side assignor."""

Target = Mapping[UUID, tuple[int, ...]]


class _Current(msgspec.Struct, frozen=True):
    """The current assignment of a member, and its epochs."""

    member_epoch: int
    previous_epoch: int
    state: ReconciliationState
    assigned: Mapping[UUID, frozenset[int]]
    pending: Mapping[UUID, frozenset[int]]


class _Member(msgspec.Struct, frozen=True):
    """A member; `metadata` is None until its record is read."""

    metadata: wire.ConsumerGroupMemberMetadataValue | None = None
    current: _Current | None = None
    target: Target = msgspec.field(default_factory=dict)

    @property
    def instance_id(self) -> str | None:
        """Its instance id, if it is static."""
        return None if self.metadata is None else self.metadata.instance_id

    @property
    def client_assignors(self) -> tuple[wire.Assignor, ...]:
        """The client-side assignors that it offers."""
        return () if self.metadata is None else self.metadata.client_assignors

    @property
    def server_assignor(self) -> str | None:
        """The server-side assignor that it asks for."""
        return None if self.metadata is None else self.metadata.server_assignor

    @property
    def subscription(self) -> tuple[tuple[str, ...], str | None]:
        """Topics, sorted, and pattern."""
        if self.metadata is None:
            return (), None
        return tuple(sorted(set(self.metadata.subscribed_topic_names))), self.metadata.subscribed_topic_regex or None


class RecordedGroup:
    """One group; `decide` applies the next decision to it."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self._epoch: int | None = None
        self._metadata_hash = 0
        self._target_epoch: int | None = None
        self._target_assignor = ""
        self._members: dict[str, _Member] = {}
        self._regexes: dict[str, tuple[str, ...]] = {}
        self._state: GroupState | None = None
        self._owners: dict[tuple[UUID, int], str] | None = None
        self._exists = True

    @property
    def exists(self) -> bool:
        """False once the group's own tombstone was read."""
        return self._exists

    def decide(self, records: Iterable[GroupRecord]) -> Iterator[GroupEvent]:
        """Replay the records of one decision, and yield an event for each change."""
        before = dict(self._members)
        epoch, hash_, target_epoch = self._epoch, self._metadata_hash, self._target_epoch
        regexes = dict(self._regexes)
        for record in records:
            self._replay(record)
        self._owners = None
        if epoch is None and self._epoch in _FIRST_EPOCHS and self._state is None:
            self._state = GroupState.EMPTY
        yield from self._departures(before, epoch=epoch or 0)
        if self._epoch is not None and self._epoch != epoch and (epoch is not None or self._epoch in _FIRST_EPOCHS):
            reason = self._reason(before, epoch=epoch, hash_changed=hash_ != self._metadata_hash, regexes=regexes)
            yield self._event("group_epoch_bumped", {"reason": reason})
        if self._target_epoch is not None and self._target_epoch != target_epoch and self._members:
            yield self._event(
                "target_assignment_computed",
                {
                    "assignor": self._target_assignor or None,
                    "members": {member_id: self._members[member_id].target for member_id in sorted(self._members)},
                },
            )
        for member_id in sorted(self._members):
            if self._members[member_id] is not before.get(member_id):
                yield from self._member_changed(member_id, before.get(member_id))
        yield from self._state_changed(bumped=self._epoch != epoch)

    def snapshot(self) -> Iterator[GroupEvent]:
        """Yield the events that describe the group as it is now, as if it were new."""
        for member_id in sorted(self._members):
            yield from self._member_changed(member_id, None)
        self._state = None
        yield from self._state_changed(bumped=False)

    def owner_of(self, topic: str, partition: int, name_of: Callable[[UUID], str | None]) -> GroupEvent | None:
        """An event that names the owner of a partition, to be filled in; None if the owner is not known."""
        if self._owners is None:
            self._owners = {
                (topic_id, number): member_id
                for member_id, member in self._members.items()
                if member.current is not None
                for partitions in (member.current.assigned, member.current.pending)
                for topic_id, numbers in partitions.items()
                for number in numbers
            }
            self._topic_ids = {name_of(topic_id) or str(topic_id): topic_id for topic_id, _ in self._owners}
        topic_id = self._topic_ids.get(topic)
        member_id = None if topic_id is None else self._owners.get((topic_id, partition))
        return None if member_id is None else self._event("offsets_committed", {}, member_id)

    @property
    def member_ids(self) -> frozenset[str]:
        """Its members."""
        return frozenset(self._members)

    @property
    def epoch(self) -> int:
        """The group epoch; 0 if it is not known."""
        return self._epoch or 0

    # --- changes

    def _departures(self, before: Mapping[str, _Member], *, epoch: int) -> Iterator[GroupEvent]:
        instances = {member.instance_id for member in self._members.values()} - {None}
        for member_id in sorted(before.keys() - self._members.keys()):
            replaced = before[member_id].instance_id in instances
            reason = "replaced" if replaced else "removed"
            left = self._event("member_left", {"reason": reason}, member_id, before[member_id])
            yield msgspec.structs.replace(left, group_epoch=epoch)

    def _reason(
        self,
        before: Mapping[str, _Member],
        *,
        epoch: int | None,
        hash_changed: bool,
        regexes: Mapping[str, tuple[str, ...]],
    ) -> str:
        """Why the epoch moved, if the records of the decision show it."""
        if epoch is None:
            return "group_created"
        instances = {member.instance_id for member in self._members.values()} - {None}
        if any(before[gone].instance_id not in instances for gone in before.keys() - self._members.keys()):
            return "member_left"
        for member_id, member in self._members.items():
            names, regex = member.subscription
            old_names, old_regex = before.get(member_id, _Member()).subscription
            # For a pattern that was not resolved before, the epoch moves when its topics are known.
            if names != old_names or (regex != old_regex and (regex is None or regex in regexes)):
                return "subscription_changed" if self._was_there(member_id, before) else "member_joined"
        # One that is forgotten was not resolved: its last subscriber changed its subscription.
        if any(regexes.get(regex) != topics for regex, topics in self._regexes.items()):
            return "regex_resolved"
        if hash_changed:
            return "topics_changed"
        after = self._members.items()
        if any(
            before.get(member_id, _Member()).client_assignors != member.client_assignors for member_id, member in after
        ):
            return "client_assignors_changed"
        if any(
            before.get(member_id, _Member()).server_assignor != member.server_assignor for member_id, member in after
        ):
            return "assignor_changed"
        return "unknown"

    def _was_there(self, member_id: str, before: Mapping[str, _Member]) -> bool:
        """Whether it is not a new member: it, or the static member that it replaces, was in the group."""
        instance_id = self._members[member_id].instance_id
        if instance_id is not None and any(member.instance_id == instance_id for member in before.values()):
            return True
        known = before.get(member_id)
        return known is not None and known.metadata is not None

    def _member_changed(self, member_id: str, before: _Member | None) -> Iterator[GroupEvent]:
        member = self._members[member_id]
        topics, regex = member.subscription
        if member.metadata is not None and (before is None or before.metadata is None):
            yield self._event(
                "member_joined",
                {
                    "topics": list(topics),
                    "instance_id": member.instance_id,
                    "client_host": member.metadata.client_host,
                    "rebalance_timeout_ms": member.metadata.rebalance_timeout_ms,
                },
                member_id,
                member,
            )
        elif before is not None and before.subscription != member.subscription:
            yield self._event("subscription_changed", {"topics": list(topics), "regex": regex}, member_id, member)
        current = member.current
        if current is None or (before is not None and current == before.current):
            return
        if current.member_epoch == _STATIC_LEAVE_EPOCH:
            yield self._event("member_left", {"reason": "static_leave"}, member_id, member)
            return
        yield self._event(
            "member_assignment_changed",
            {"state": current.state.name, "assigned": current.assigned, "pending_revocation": current.pending},
            member_id,
            member,
        )

    def _state_changed(self, *, bumped: bool) -> Iterator[GroupEvent]:
        state = self._derived_state()
        # A rebalance that begins and ends in one decision, or in one millisecond, has an end, too.
        ended = bumped and state in {GroupState.STABLE, GroupState.EMPTY}
        if state is None or (state is self._state and not ended):
            return
        old, self._state = self._state, state
        yield self._event("group_state_changed", {"old": None if old is None else str(old), "new": str(state)})

    def _derived_state(self) -> GroupState | None:
        if not self._exists:
            return GroupState.DEAD
        if self._epoch is None:
            return None
        target_epoch = self._target_epoch or 0
        reconciled = sum(
            member.current is not None
            and member.current.state is ReconciliationState.STABLE
            and member.current.member_epoch == target_epoch
            for member in self._members.values()
        )
        return derive_state(
            member_count=len(self._members),
            reconciled_count=reconciled,
            group_epoch=self._epoch,
            target_epoch=target_epoch,
        )

    def _event(
        self, event: str, fields: Mapping[str, FactValue], member_id: str | None = None, member: _Member | None = None
    ) -> GroupEvent:
        if member is None and member_id is not None:
            member = self._members[member_id]
        return GroupEvent(
            event=event,
            group_id=self.group_id,
            member_id=member_id,
            client_id=None if member is None or member.metadata is None else member.metadata.client_id,
            member_epoch=None if member is None or member.current is None else member.current.member_epoch,
            group_epoch=self.epoch,
            fields=fields,
        )

    # --- replay

    def _replay(self, record: GroupRecord) -> None:
        match record.key, record.value:
            case wire.ConsumerGroupMetadataKey(), wire.ConsumerGroupMetadataValue() as value:
                self._epoch, self._metadata_hash, self._exists = value.epoch, value.metadata_hash, True
            case wire.ConsumerGroupMetadataKey(), _:
                self._exists = False
                self._members.clear()
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), value:
                if isinstance(value, wire.ConsumerGroupTargetAssignmentMetadataValue):
                    self._target_epoch, self._target_assignor = value.assignment_epoch, value.assignor_name
            case wire.ConsumerGroupMemberMetadataKey(member_id=member_id), value:
                if isinstance(value, wire.ConsumerGroupMemberMetadataValue):
                    self._change(member_id, metadata=value)
                else:
                    self._members.pop(member_id, None)
            case wire.ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), value:
                if isinstance(value, wire.ConsumerGroupTargetAssignmentMemberValue):
                    self._change(member_id, target=read_target(value))
            case wire.ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), value:
                if isinstance(value, wire.ConsumerGroupCurrentMemberAssignmentValue):
                    self._change(member_id, current=_read_current(value))
                elif member_id in self._members:
                    # A departure begins so; a member that is there without one must give up everything.
                    self._change(member_id, current=None)
            case wire.ConsumerGroupRegularExpressionKey(regular_expression=regex), value:
                if isinstance(value, wire.ConsumerGroupRegularExpressionValue):
                    self._regexes[regex] = value.topics
                else:
                    self._regexes.pop(regex, None)
            case _:
                pass  # topic metadata as Kafka 4.0 kept it

    def _change(self, member_id: str, **fields: object) -> None:
        member = self._members.get(member_id) or _Member()
        self._members[member_id] = msgspec.structs.replace(member, **fields)


def _read_current(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> _Current:
    assigned, pending = (
        {
            topic_id: frozenset(epochs)
            for topic_id, epochs in read_partition_epochs(topics, member_epoch=value.member_epoch).items()
        }
        for topics in (value.assigned_partitions, value.partitions_pending_revocation)
    )
    try:
        state = ReconciliationState(value.state)
    except ValueError:
        state = ReconciliationState.UNKNOWN
    return _Current(value.member_epoch, value.previous_member_epoch, state, assigned, pending)
