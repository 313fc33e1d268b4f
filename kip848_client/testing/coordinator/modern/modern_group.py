"""The common part of all groups of the new protocol: members, targets, holders of partitions, and the state.

`ConsumerGroup` and `ConnectGroup` build on it; each reads its own records. Every index (holders of
partitions, static members, counts of votes, members that are reconciled) is brought up to date by the replay of the
record that concerns it, so live and reloaded state cannot differ. No decision is taken here.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from kip848_client.errors import IllegalStateError
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig
from kip848_client.testing.coordinator.core.offset_store import OffsetExpiry
from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    AssignmentMetadata,
    AssignorVersions,
    Current,
    Held,
    KeyT,
    MemberRecord,
    MetadataT,
    ReconciliationState,
)
from kip848_client.wire.messages.group_records import GroupRecord


class GroupState(enum.StrEnum):
    """State of a group, spelled as on the wire. Derived, never stored."""

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


_NO_HOLDERS: Final[Mapping[int, str]] = {}


class ModernGroup(ABC, Generic[KeyT, MetadataT]):
    """One group. Read anything; change nothing except by the `replay` of its kind.

    Args:
        metadata: the metadata of a member that has not sent any yet.
    """

    def __init__(self, group_id: str, *, metadata: MetadataT) -> None:
        self.group_id: Final = group_id
        self.group_epoch: int = 0
        self.target_epoch: int = 0
        self.target_assignor: str = ""
        """The client-side assignor that computed the target; empty if a server-side one did."""
        self.members: dict[str, MemberRecord[KeyT, MetadataT]] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.target: dict[str, Mapping[KeyT, tuple[int, ...]]] = {}
        self.target_metadata: dict[str, AssignmentMetadata] = {}
        """Member id -> metadata for its client-side assignor, sent with the target; only where there is some."""
        self.assignor_votes: dict[str, int] = {}
        self.client_assignors: dict[str, dict[AssignorVersions, int]] = {}
        """Name of a client-side assignor -> number of members that offer it, by versions."""
        self.classic_count: int = 0
        """Number of members on the classic protocol."""
        self.classic_protocols: dict[str, int] = {}
        """Name of a classic protocol -> number of those members that offer it."""
        self.last_installer: str = ""
        """The member that computed the last target, if it is to be asked first for the next; a consumer group does not
        remember it."""
        self._no_metadata = metadata
        self._stable_at: dict[int, int] = {}
        """Epoch -> number of members that own their whole target of it."""
        self._sorted_ids: list[str] = []
        self._holders: dict[KeyT, dict[int, str]] = {}

    # --- for each kind of group

    kind: ClassVar[str]
    """Kafka's word for its type."""

    @abstractmethod
    def session_timeout_ms(self, config: GroupConfig) -> int:
        """How long a member may be silent, unless it speaks the classic protocol."""

    @abstractmethod
    def tombstones(self) -> Iterator[GroupRecord]:
        """Tombstones for all its records but the offsets, in the order that replay demands."""

    # --- reading

    @property
    def protocol_type(self) -> str:
        """The protocol type of its members."""
        return self.kind

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def has_private_topics(self) -> bool:
        """False: the metadata of its members names their topics."""
        return False

    @property
    def offset_expiry(self) -> OffsetExpiry:
        """The retention counts from each commit."""
        return OffsetExpiry()

    def reads(self, topic: str) -> bool:
        """Whether members read *topic*."""
        del topic
        return False

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

    def holders(self, key: KeyT) -> Mapping[int, str]:
        """Number -> member that counts it as assigned or pending revocation, for one key."""
        return self._holders.get(key, _NO_HOLDERS)

    def target_of(self, member_id: str) -> Mapping[KeyT, tuple[int, ...]]:
        """The target of a member; empty if none was computed for it yet."""
        return self.target.get(member_id, {})

    def target_metadata_of(self, member_id: str) -> AssignmentMetadata:
        """The metadata for a member's client-side assignor that belongs to `target_of`."""
        return self.target_metadata.get(member_id, NO_METADATA)

    def new_member(self, member_id: str) -> MemberRecord[KeyT, MetadataT]:
        """A member without metadata and partitions, which is not in the group yet."""
        return MemberRecord(member_id, self._no_metadata, Current())

    def state_after(
        self,
        member: MemberRecord[KeyT, MetadataT],
        *,
        group_epoch: int,
        target_epoch: int,
        replaced: MemberRecord[KeyT, MetadataT] | None = None,
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

    def check_invariants(self) -> None:
        """Assert what must hold after every replayed batch.

        Raises:
            AssertionError: says which member, partition or count is wrong. Only a bug, or a damaged log, can cause it.
        """
        held: dict[tuple[KeyT, int], str] = {}
        for member in self.members.values():
            current = member.current
            for partitions in (current.assigned, current.pending_revocation):
                for key, epochs in partitions.items():
                    for number, epoch in epochs.items():
                        other = held.setdefault((key, number), member.member_id)
                        assert other == member.member_id, (
                            f"partition {number} of {key} is held by {other!r} and {member.member_id!r}"
                        )
                        assert current.member_epoch < 0 or epoch <= current.member_epoch, (
                            f"{member.member_id!r} is at {current.member_epoch} and was given {number} at {epoch}"
                        )
            assert not _overlap(current.assigned, current.pending_revocation), f"{member.member_id!r} holds twice"
            assert current.member_epoch <= self.target_epoch <= self.group_epoch, (
                f"{member.member_id!r}: {current.member_epoch} <= {self.target_epoch} <= {self.group_epoch} is not so"
            )
        index = {(key, number): holder for key, numbers in self._holders.items() for number, holder in numbers.items()}
        assert index == held, "the index of holders differs from what the members hold"
        targets: dict[tuple[KeyT, int], str] = {}
        for member_id, target in self.target.items():
            assert member_id in self.members, f"target of {member_id!r}, which is not a member"
            for key, wanted in target.items():
                for number in wanted:
                    other = targets.setdefault((key, number), member_id)
                    assert other == member_id, f"partition {number} of {key} is in two targets"
        assert self.reconciled_count == sum(
            member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )
        assert self._sorted_ids == sorted(self.members)
        classic = [member.metadata.classic for member in self.members.values() if member.metadata.classic is not None]
        assert self.classic_count == len(classic), "members on the classic protocol are miscounted"
        assert self.classic_protocols == Counter(name for protocols in classic for name in protocols.names)
        assert not classic or len(classic) in self.classic_protocols.values(), "they have no protocol in common"

    # --- replay

    def _set_target_metadata(self, member_id: str, metadata: AssignmentMetadata) -> None:
        if metadata is NO_METADATA:
            self.target_metadata.pop(member_id, None)
        else:
            self.target_metadata[member_id] = metadata

    def _set_member(self, member: MemberRecord[KeyT, MetadataT]) -> None:
        before = self.members.get(member.member_id)
        if before is None:
            insort(self._sorted_ids, member.member_id)
            self._count_stable(member.current, 1)
            self._count_metadata(member.metadata, 1)
        elif before.metadata != member.metadata:
            self._count_metadata(before.metadata, -1)
            self._count_metadata(member.metadata, 1)
        self.members[member.member_id] = member
        self._note_metadata(member.member_id, member.metadata)
        if before is not None and (instance_id := before.metadata.instance_id) is not None:
            self._release_instance(instance_id, before.member_id)
        if (instance_id := member.metadata.instance_id) is not None:
            self.static_members[instance_id] = member.member_id

    def _set_current(self, member_id: str, current: Current[KeyT]) -> None:
        member = self.members.get(member_id)
        if member is None:
            self._set_member(self.new_member(member_id))
            member = self.members[member_id]
        before = member.current
        self.members[member_id] = MemberRecord(member_id, member.metadata, current)
        self._count_stable(before, -1)
        self._count_stable(current, 1)
        self._release(member_id, before.assigned)
        self._release(member_id, before.pending_revocation)
        self._hold(member_id, current.assigned)
        self._hold(member_id, current.pending_revocation)

    def _forget_current(self, member_id: str) -> None:
        if member_id in self.members:
            self._set_current(member_id, Current(member_epoch=-1))

    def _remove_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if member.current.member_epoch != -1 or member_id in self.target:
            raise self._damaged(f"the tombstone of member {member_id!r} came before those of its assignments")
        del self.members[member_id]
        self._note_metadata(member_id, None)
        del self._sorted_ids[bisect_left(self._sorted_ids, member_id)]
        self._count_stable(member.current, -1)
        self._count_metadata(member.metadata, -1)
        if member.metadata.instance_id is not None:
            self._release_instance(member.metadata.instance_id, member_id)

    def _check_gone(self) -> None:
        """Refuse the group's own tombstone as long as something is left of it."""
        if self.members or self.target or self.target_epoch != -1:
            raise self._damaged(
                f"the group's tombstone came before those of its {len(self.members)} members, "
                f"{len(self.target)} targets or target epoch ({self.target_epoch})"
            )

    def _forget_target_epoch(self) -> None:
        if self.target:
            raise self._damaged(f"the target epoch's tombstone came before those of {len(self.target)} targets")
        self.target_epoch = -1

    def _note_metadata(self, member_id: str, metadata: MetadataT | None) -> None:
        """A member joined, changed its metadata, or left (None)."""

    def _count_metadata(self, metadata: MetadataT, change: int) -> None:
        """Add a member's metadata to the group's counts, or subtract it."""
        if metadata.server_assignor is not None:
            count(self.assignor_votes, metadata.server_assignor, change)
        for assignor in metadata.client_assignors:
            offered = self.client_assignors.setdefault(assignor.name, {})
            count(offered, assignor.versions, change)
            if not offered:
                del self.client_assignors[assignor.name]
        if metadata.classic is not None:
            self.classic_count += change
            for name in metadata.classic.names:
                count(self.classic_protocols, name, change)

    def _count_stable(self, current: Current[KeyT], change: int) -> None:
        if current.state is ReconciliationState.STABLE:
            count(self._stable_at, current.member_epoch, change)

    def _hold(self, member_id: str, partitions: Held[KeyT]) -> None:
        for key, epochs in partitions.items():
            self._holders.setdefault(key, {}).update(dict.fromkeys(epochs, member_id))

    def _release(self, member_id: str, partitions: Held[KeyT]) -> None:
        """Forget this member as the holder of partitions; not where a later record named another holder."""
        for key, epochs in partitions.items():
            held = self._holders.get(key, {})
            for number in epochs:
                if held.get(number) == member_id:
                    del held[number]
            if not held:
                self._holders.pop(key, None)

    def _release_instance(self, instance_id: str, member_id: str) -> None:
        """Forget who has an instance id, unless a replacing member has it already."""
        if self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _damaged(self, what: str) -> IllegalStateError:
        return IllegalStateError(f"log of group {self.group_id!r} is damaged: {what}")


CountedT = TypeVar("CountedT", bound=Hashable)


def count(counts: dict[CountedT, int], key: CountedT, change: int) -> None:
    """Change a count; remove it at 0."""
    number = counts.get(key, 0) + change
    if number:
        counts[key] = number
    else:
        del counts[key]


def read_state(number: int) -> ReconciliationState:
    """The state of a member as its record has it."""
    try:
        return ReconciliationState(number)
    except ValueError:
        return ReconciliationState.UNKNOWN


def _overlap(one: Held[KeyT], other: Held[KeyT]) -> bool:
    return any(one[key].keys() & other[key].keys() for key in one.keys() & other.keys())
