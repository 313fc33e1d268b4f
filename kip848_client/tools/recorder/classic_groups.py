"""Rebuilds one classic group from its records: one for each generation, with the assignment of its leader.

The join phase is not in the records. A record says when the join phase was complete and when the assignment was there;
members stop reading before that, for an unknown time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.core.group_events import FactValue, GroupEvent
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.consumer_protocol import decode_assignment, decode_subscription

_STABLE: Final = "Stable"
_COMPLETING: Final = "CompletingRebalance"
_EMPTY: Final = "Empty"


class _Member(msgspec.Struct, frozen=True):
    client_id: str
    client_host: str
    instance_id: str | None
    rebalance_timeout_ms: int
    session_timeout_ms: int
    topics: tuple[str, ...]
    assigned: Mapping[str, tuple[int, ...]]


class RecordedClassicGroup:
    """One group; `written` applies its next record."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self._generation: int | None = None
        self._members: dict[str, _Member] = {}
        self._state: str | None = None

    @property
    def member_ids(self) -> frozenset[str]:
        """Its members."""
        return frozenset(self._members)

    @property
    def epoch(self) -> int:
        """The generation; 0 if it is not known."""
        return self._generation or 0

    def written(self, value: wire.GroupMetadataValue) -> tuple[Iterator[GroupEvent], Iterator[GroupEvent]]:
        """Apply a record; return the events of the completed join phase, and those of this record."""
        before, previous = self._members, self._generation
        self._generation = value.generation
        self._members = {member.member_id: _read(member) for member in value.members}
        began: list[GroupEvent] = []
        if value.members and value.generation != previous:
            began = [
                *self._moved_to(_COMPLETING),
                self._event(
                    "classic_generation_began",
                    {
                        "protocol": value.protocol,
                        "leader": value.leader,
                        "members": [member.member_id for member in value.members],
                    },
                ),
            ]
        ended = [*self._members_changed(before), *self._moved_to(_STABLE if value.members else _EMPTY)]
        return iter(began), iter(ended)

    def removed(self) -> Iterator[GroupEvent]:
        """The group's tombstone was read: the group was deleted, or has changed its protocol."""
        before, self._members = self._members, {}
        yield from self._members_changed(before)
        yield from self._moved_to("Dead")

    def snapshot(self) -> Iterator[GroupEvent]:
        """Yield the events that describe the group as it is now, as if it were new."""
        yield from self._members_changed({})
        old, self._state = self._state, None
        if old is not None:
            yield from self._moved_to(old)

    def owner_of(self, topic: str, partition: int, name_of: Callable[[UUID], str | None]) -> GroupEvent | None:
        """An event that names the owner of a partition, to be filled in; None if the owner is not known."""
        del name_of  # a classic assignment has names
        for member_id, member in self._members.items():
            if partition in member.assigned.get(topic, ()):
                return self._event("offsets_committed", {}, member_id, member)
        return None

    def _members_changed(self, before: Mapping[str, _Member]) -> Iterator[GroupEvent]:
        instances = {member.instance_id for member in self._members.values()} - {None}
        for member_id in before.keys() - self._members.keys():
            reason = "replaced" if before[member_id].instance_id in instances else "removed"
            yield self._event("member_left", {"reason": reason}, member_id, before[member_id])
        for member_id, member in self._members.items():
            if member_id not in before:
                fields: Mapping[str, FactValue] = {
                    "topics": list(member.topics),
                    "instance_id": member.instance_id,
                    "client_host": member.client_host,
                    "rebalance_timeout_ms": member.rebalance_timeout_ms,
                    "session_timeout_ms": member.session_timeout_ms,
                }
                yield self._event("member_joined", fields, member_id, member)
            if member_id not in before or member.assigned != before[member_id].assigned:
                yield self._event(
                    "member_assignment_changed",
                    {"state": "STABLE", "assigned": member.assigned, "pending_revocation": {}},
                    member_id,
                    member,
                )

    def _moved_to(self, state: str) -> Iterator[GroupEvent]:
        if state != self._state:
            old, self._state = self._state, state
            yield self._event("group_state_changed", {"old": old, "new": state})

    def _event(
        self, event: str, fields: Mapping[str, FactValue], member_id: str | None = None, member: _Member | None = None
    ) -> GroupEvent:
        return GroupEvent(
            event=event,
            group_id=self.group_id,
            member_id=member_id,
            client_id=None if member is None else member.client_id,
            member_epoch=None if member is None else self._generation,
            group_epoch=self._generation,
            fields=fields,
        )


def _read(member: wire.MemberMetadata) -> _Member:
    topics: tuple[str, ...] = ()
    assigned: dict[str, tuple[int, ...]] = {}
    try:
        topics = tuple(sorted(decode_subscription(member.subscription, version=0).topics))
        if member.assignment:
            for item in decode_assignment(member.assignment).assigned_partitions:
                assigned[item.topic] = tuple(item.partitions)
    except ProtocolError:
        pass  # a group of another protocol type, such as Connect's
    return _Member(
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        rebalance_timeout_ms=member.rebalance_timeout,
        session_timeout_ms=member.session_timeout,
        topics=topics,
        assigned=assigned,
    )
