"""A classic group as one frozen value, and the operations on it. No timers, requests or answers.

Every operation takes a group and returns another one. `rebalance` decides their order.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

import msgspec

from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.consumer_protocol import CONSUMER_PROTOCOL, decode_subscription


class ClassicState(enum.StrEnum):
    """The state's name in Kafka's tools."""

    EMPTY = "Empty"
    """No members. Ends with a join."""
    PREPARING = "PreparingRebalance"
    """Joins are parked until every member has joined, or the time is up."""
    COMPLETING = "CompletingRebalance"
    """The joins are answered; the others wait for the leader's assignment."""
    STABLE = "Stable"
    """Every member can have its assignment. Ends with a join, a leave or a timer."""
    DEAD = "Dead"
    """There is no such group. No value ever has this state; old versions of DescribeGroups show it."""


TRANSITIONS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING}),
    ClassicState.PREPARING: frozenset({ClassicState.COMPLETING, ClassicState.EMPTY}),
    ClassicState.COMPLETING: frozenset({ClassicState.STABLE, ClassicState.PREPARING}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING}),
}


class Parked(msgspec.Struct, frozen=True):
    """A request that is answered later."""

    request_id: int
    api_version: int


class ClassicMember(msgspec.Struct, frozen=True):
    """One member.

    Args:
        protocols: (name, metadata) of the assignors that it offers, the most preferred first.
        assignment: what the leader assigned to it last; empty if nothing.
        is_new: its first JoinGroup is not answered yet.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata that it sent for *protocol*; empty if it does not offer it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


class ClassicGroup(msgspec.Struct, frozen=True):
    """One classic group.

    Args:
        is_initial: this round began from EMPTY: it ends by its timer alone.
        generation: +1 whenever a join phase completes, also when it completes without members.
        protocol_type: kept when the last member goes.
        protocol: the assignor of this generation; None before the first one, and while the group is empty.
        members: by id, in the order in which they joined; a static member that replaces another takes its place.
        static_members: instance id -> member id.
        protocol_counts: protocol name -> how many members offer it.
        pending_joins: ids that were handed out with MEMBER_ID_REQUIRED and not used yet.
        pending_syncs: members of this generation that have not sent SyncGroup.
        awaiting_join: member id -> its parked JoinGroup.
        awaiting_sync: member id -> its parked SyncGroup.
        newcomer: a member joined since the initial delay began, or was extended.
        initial_left_ms: how far the initial delay may still be extended.
        subscribed_topics: topics of all members as of the last generation; None if they cannot be known.
        state_timestamp_ms: when the state changed last, in ms since 1970.
        is_logged: the log holds a record of this group.
    """

    kind: ClassVar[str] = "classic"

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    is_initial: bool = False
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, ClassicMember] = {}
    static_members: Mapping[str, str] = {}
    protocol_counts: Mapping[str, int] = {}
    pending_joins: frozenset[str] = frozenset()
    pending_syncs: frozenset[str] = frozenset()
    awaiting_join: Mapping[str, Parked] = {}
    awaiting_sync: Mapping[str, Parked] = {}
    newcomer: bool = False
    initial_left_ms: int = 0
    subscribed_topics: frozenset[str] | None = None
    state_timestamp_ms: int = -1
    is_logged: bool = False

    @property
    def exists(self) -> bool:
        """Whether anything is left to keep: a round, ids that may still join, or a record."""
        return self.state is not ClassicState.EMPTY or bool(self.pending_joins) or self.is_logged

    @property
    def size(self) -> int:
        """Number of members, and of ids handed out to clients that have not joined yet."""
        return len(self.members) + len(self.pending_joins)

    @property
    def all_joined(self) -> bool:
        """Whether the join phase can end: every member has joined, and every id that was handed out is used.

        Unused ids do not delay a group without members.
        """
        return not self.members or (len(self.awaiting_join) == len(self.members) and not self.pending_joins)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks for; there must be one."""
        return max(member.rebalance_timeout_ms for member in self.members.values())

    def supports(self, *, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member that offers *names* can be in the group: one of them is offered by every member."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        every = len(self.members)
        return protocol_type == self.protocol_type and any(self.protocol_counts.get(name, 0) == every for name in names)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is ClassicState.EMPTY

    @property
    def has_private_topics(self) -> bool:
        """Whether it has members that are not consumers: the coordinator cannot read their topics."""
        return bool(self.members) and self.protocol_type != CONSUMER_PROTOCOL

    @property
    def offset_expiry(self) -> OffsetExpiry:
        """In a group that is empty the retention counts from when its last member went.

        Source:
            Kafka's ``ClassicGroup.offsetExpirationCondition``; KIP-211.
        """
        ends_group = not self.size
        if self.protocol_type is None:
            return OffsetExpiry(ends_group=ends_group)
        if self.state is ClassicState.EMPTY:
            since_ms = None if self.state_timestamp_ms == -1 else self.state_timestamp_ms
            return OffsetExpiry(since_ms=since_ms, ends_group=ends_group)
        may_expire = self.state is ClassicState.STABLE and self.protocol_type == CONSUMER_PROTOCOL
        # Otherwise what its members read is not known, or not yet.
        return OffsetExpiry(may_expire=may_expire, ends_group=ends_group)

    def reads(self, topic: str) -> bool:
        """Whether members read *topic*; all topics if their subscriptions cannot be read."""
        return bool(self.members) and (self.subscribed_topics is None or topic in self.subscribed_topics)

    def tombstones(self) -> Iterator[wire.GroupRecord]:
        """Type 2: no classic group of this name any more."""
        yield wire.GroupRecord(wire.GroupMetadataKey(group=self.group_id), None)

    def check_invariants(self) -> None:
        """Assert what must hold between two events."""
        assert self.exists, f"nothing is left of the classic group {self.group_id!r}"
        ids = self.members.keys()
        if self.state is ClassicState.EMPTY:
            assert not self.members, f"{self.group_id!r} is Empty and has members"
        else:
            assert self.members or self.is_initial, f"{self.group_id!r} is {self.state} without members"
        assert (self.leader in ids) if self.members else self.leader is None, f"leader {self.leader!r} is not a member"
        assert not ids & self.pending_joins, "a member's id is pending"
        assert self.awaiting_join.keys() <= ids, "a parked JoinGroup is not from a member"
        assert not self.awaiting_join or self.state is ClassicState.PREPARING, f"joins are parked in {self.state}"
        assert self.awaiting_sync.keys() <= ids, "a parked SyncGroup is not from a member"
        assert not self.awaiting_sync or self.state is ClassicState.COMPLETING, f"syncs are parked in {self.state}"
        assert self.pending_syncs <= ids, "a SyncGroup is expected from a client that is not a member"
        assert not self.pending_syncs or self.state in (ClassicState.COMPLETING, ClassicState.STABLE), (
            f"syncs are owed in {self.state}"
        )
        assert self.static_members == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }, "static members are not those of the members"
        assert self.protocol_counts == count_protocols(self.members.values()), "protocols are miscounted"
        if self.state is ClassicState.STABLE:
            assert self.protocol_counts.get(self.protocol or "") == len(self.members), (
                f"not every member supports {self.protocol!r}"
            )


class ClassicGroupChanged(msgspec.Struct, frozen=True):
    """A classic group is now this; None: there is none. Overrides what replay has made of the group's record."""

    group_id: str
    group: ClassicGroup | None

    def apply(self, state: CoordinatorState) -> None:
        """Replace the group, or forget it."""
        put_classic_group(state, self.group_id, self.group)


def put_classic_group(state: CoordinatorState, group_id: str, group: ClassicGroup | None) -> None:
    """Replace a classic group whole; None: there is none. A group of another kind stays."""
    if group is not None:
        state.put_group(group)
    elif state.find(ClassicGroup, group_id) is not None:
        state.forget_group(group_id)


def transition(group: ClassicGroup, state: ClassicState, *, wall_ms: int) -> ClassicGroup:
    """*group* in another state."""
    assert state in TRANSITIONS[group.state], f"{group.group_id!r}: {group.state} -> {state}"
    return msgspec.structs.replace(group, state=state, state_timestamp_ms=wall_ms)


def with_member(group: ClassicGroup, member: ClassicMember, *, protocol_type: str) -> ClassicGroup:
    """*group* with one more member, or a member with new facts; its id is pending no longer."""
    before = group.members.get(member.member_id)
    members = {**group.members, member.member_id: member}
    static = group.static_members
    if before is None and member.instance_id is not None:
        static = {**static, member.instance_id: member.member_id}
    return msgspec.structs.replace(
        group,
        protocol_type=group.protocol_type if group.members else protocol_type,
        leader=group.leader or member.member_id,
        members=members,
        static_members=static,
        protocol_counts=_recounted(group.protocol_counts, old=before, new=member),
        pending_joins=group.pending_joins - {member.member_id},
    )


def with_replacement(group: ClassicGroup, *, old_id: str, member: ClassicMember) -> ClassicGroup:
    """*group* with the static *member* in the place of *old_id*, also as leader and as a member that owes SyncGroup."""
    old = group.members[old_id]
    assert member.instance_id is not None
    assert old.instance_id == member.instance_id
    assert old_id not in group.awaiting_join
    assert old_id not in group.awaiting_sync
    owes = group.pending_syncs
    return msgspec.structs.replace(
        group,
        leader=member.member_id if group.leader == old_id else group.leader,
        members={
            member.member_id if member_id == old_id else member_id: member if member_id == old_id else kept
            for member_id, kept in group.members.items()
        },
        static_members={**group.static_members, member.instance_id: member.member_id},
        protocol_counts=_recounted(group.protocol_counts, old=old, new=member),
        pending_syncs=(owes - {old_id}) | {member.member_id} if old_id in owes else owes,
    )


def without(group: ClassicGroup, member_ids: Iterable[str]) -> ClassicGroup:
    """*group* without these members, who have no parked requests. If the leader goes, the earliest member leads."""
    gone = {member_id: group.members[member_id] for member_id in member_ids}
    members = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
    counts = group.protocol_counts
    for member in gone.values():
        counts = _recounted(counts, old=member, new=None)
    return msgspec.structs.replace(
        group,
        leader=next(iter(members), None) if group.leader in gone else group.leader,
        members=members,
        static_members={
            instance: member_id for instance, member_id in group.static_members.items() if member_id not in gone
        },
        protocol_counts=counts,
        pending_syncs=group.pending_syncs.difference(gone),
    )


def select_protocol(group: ClassicGroup) -> str:
    """The protocol by vote: each member votes for the first that all support; of equals the earliest member's first."""
    every = len(group.members)
    candidates = [name for name, count in group.protocol_counts.items() if count == every]
    assert candidates, f"no protocol is supported by every member of {group.group_id!r}"
    if len(candidates) == 1:
        return candidates[0]
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates) for member in group.members.values()
    )
    most = max(votes.values())
    earliest = next(iter(group.members.values()))
    return next(name for name, _ in earliest.protocols if votes.get(name) == most)


def next_generation(group: ClassicGroup, *, wall_ms: int) -> ClassicGroup:
    """*group* after a completed join phase: every member owes a SyncGroup; without members it is empty."""
    if not group.members:
        empty = msgspec.structs.replace(
            group,
            generation=group.generation + 1,
            protocol=None,
            subscribed_topics=subscribed_topics(group.protocol_type, []),
        )
        return transition(empty, ClassicState.EMPTY, wall_ms=wall_ms)
    protocol = select_protocol(group)
    members = {
        member_id: msgspec.structs.replace(member, is_new=False) if member.is_new else member
        for member_id, member in group.members.items()
    }
    completing = msgspec.structs.replace(
        group,
        generation=group.generation + 1,
        protocol=protocol,
        members=members,
        pending_syncs=frozenset(members),
        awaiting_join={},
        subscribed_topics=subscribed_topics(
            group.protocol_type, [member.metadata(protocol) for member in members.values()]
        ),
    )
    return transition(completing, ClassicState.COMPLETING, wall_ms=wall_ms)


def with_assignments(group: ClassicGroup, assignments: Mapping[str, bytes]) -> ClassicGroup:
    """*group* with these assignments. Members that are not named get none; unknown ids are ignored."""
    return msgspec.structs.replace(
        group,
        members={
            member_id: msgspec.structs.replace(member, assignment=assignments.get(member_id, b""))
            for member_id, member in group.members.items()
        },
    )


def group_record(group: ClassicGroup) -> wire.GroupRecord:
    """Type 2: a classic group after a completed rebalance, or empty."""
    return wire.GroupRecord(wire.GroupMetadataKey(group=group.group_id), to_value(group))


def to_value(group: ClassicGroup) -> wire.GroupMetadataValue:
    """The record of *group*. It names no leader if the members have to join again before anything is assigned."""
    return wire.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=None if group.state is ClassicState.PREPARING else group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=tuple(
            wire.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def from_value(group_id: str, value: wire.GroupMetadataValue) -> ClassicGroup:
    """The group in the record *value*. Of the protocols that members offered, the record has only the selected one."""
    protocol = value.protocol or ""
    members = {
        stored.member_id: ClassicMember(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=(
                stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
            ),
            session_timeout_ms=stored.session_timeout,
            protocols=((protocol, stored.subscription),),
            assignment=stored.assignment,
        )
        for stored in value.members
    }
    protocol_type = value.protocol_type or None
    return ClassicGroup(
        group_id=group_id,
        state=_recorded_state(value),
        generation=value.generation,
        protocol_type=protocol_type,
        protocol=protocol if members else None,
        leader=value.leader if value.leader in members else next(iter(members), None),
        members=members,
        static_members={
            member.instance_id: member_id for member_id, member in members.items() if member.instance_id is not None
        },
        protocol_counts=count_protocols(members.values()),
        subscribed_topics=subscribed_topics(protocol_type, [stored.subscription for stored in value.members]),
        state_timestamp_ms=value.current_state_timestamp,
        is_logged=True,
    )


def _recorded_state(value: wire.GroupMetadataValue) -> ClassicState:
    if not value.members:
        return ClassicState.EMPTY
    return ClassicState.PREPARING if value.leader is None else ClassicState.STABLE


def subscribed_topics(protocol_type: str | None, subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Topics in *subscriptions*; None if their bytes are not those of consumers, or cannot be read.

    They are read as the oldest version: the topics are at one place in all.
    """
    if protocol_type != CONSUMER_PROTOCOL:
        return None
    topics: set[str] = set()
    try:
        for data in set(subscriptions):
            topics.update(decode_subscription(data, version=0).topics)
    except ProtocolError:
        return None
    return frozenset(topics)


def count_protocols(members: Iterable[ClassicMember]) -> dict[str, int]:
    """Protocol name -> how many of *members* offer it."""
    return dict(Counter(name for member in members for name in {name for name, _ in member.protocols}))


def _recounted(counts: Mapping[str, int], *, old: ClassicMember | None, new: ClassicMember | None) -> Mapping[str, int]:
    before = {name for name, _ in old.protocols} if old else set()
    after = {name for name, _ in new.protocols} if new else set()
    if before == after:
        return counts
    changed = dict(counts)
    for name in before - after:
        changed[name] -= 1
        if not changed[name]:
            del changed[name]
    for name in sorted(after - before):
        changed[name] = changed.get(name, 0) + 1
    return changed
