"""KIP-848's ``PartitionAssignor`` in Python: the interface of an assignor, its input, and its result.

An assignor of this kind runs in one member of the group, chosen by the coordinator, and computes the target of all of
them. Values only, and no algorithm: ready-made ones to build on are in `spread`, the check of a result is in `check`.
The interface of the algorithms that run inside a coordinator is another one, `kip848_client.assignors.server.spec`.

Source: KIP-848 "New PartitionAssignor interface".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.common.model import TopicIdPartition

ASSIGNOR_RAISED: Final = -1
"""Assignment error that all members get when `PartitionAssignor.assign` raised. Negative errors are this
library's, positive ones the assignor's own."""

ASSIGNMENT_INVALID: Final = -2
"""Assignment error that all members get when the result of `PartitionAssignor.assign` cannot be applied."""

METADATA_UNREADABLE: Final = -3
"""Assignment error on the classic protocol: some member has metadata of a version that the leader's assignor does not
read."""

RETRY_REASON: Final = -1
"""`MemberSpec.reason` of a member that asks for another assignment after the assignor failed in it."""

METADATA_BYTES_MAX: Final = 65_536
"""Longest `AssignorMetadata.metadata`: a coordinator keeps that of all members, a classic one in one record of a
megabyte."""

_INT8: Final = range(-128, 128)
_INT16: Final = range(-(2**15), 2**15)


class PartitionLike(Protocol):
    """Anything that names a topic and a partition: `TopicIdPartition`, or the ``TopicPartition`` of a consumer."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Number of the partition, from 0."""
        ...


PartitionRef: TypeAlias = PartitionLike | tuple[str, int] | tuple[UUID, int]
"""How an assignor may name a partition: an object with ``topic`` and ``partition``, or a pair of the topic's name or
id and the partition."""


class AssignorMetadata(msgspec.Struct, frozen=True):
    """A member's metadata for the assignor, whichever member runs it.

    Args:
        metadata: bytes of any meaning, at most 64 KiB; only the assignor reads them.
        version: of the format of *metadata*; between the assignor's minimum and maximum version.
        reason: why it changed, -128..127; anything but 0 asks for a new assignment. A number of the assignor's own.

    Raises:
        TypeError: *metadata* is not bytes.
        ValueError: a number does not fit.
    """

    metadata: bytes = b""
    version: int = 0
    reason: int = 0

    def __post_init__(self) -> None:
        _check_metadata(self.metadata, self.version)
        if self.reason not in _INT8:
            raise ValueError(f"reason is {self.reason}; it must fit into one byte, -128 to 127")


class TopicSpec(msgspec.Struct, frozen=True):
    """A topic that some member subscribes to.

    Args:
        racks: of each partition the racks of its replicas; empty where they are not known: under KIP-848 the
            coordinator does not send them.
    """

    topic_id: UUID
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """All its partitions, in order. Made anew at each call."""
        return tuple(TopicIdPartition(self.name, index, self.topic_id) for index in range(self.partition_count))


class MemberSpec(msgspec.Struct, frozen=True):
    """One member, as it was when the coordinator took its snapshot of the group.

    Args:
        subscribed_topics: names, sorted; all of them are in `AssignmentSpec.topics`. A pattern is resolved already.
        metadata: what the member's own `PartitionAssignor.metadata` returned last.
        version: of the format of *metadata*; -1 if it comes from a member on the classic protocol.
        reason: what the member gave as the reason of its last change, 0 for none.
        target: the partitions that it is meant to have now, sorted. A topic that is gone is left out.
        member_epoch: as the coordinator counts it.
        instance_id: of a static member, or None.
        rack_id: where it runs, or None.
    """

    member_id: str
    subscribed_topics: tuple[str, ...]
    metadata: bytes = b""
    version: int = 0
    reason: int = 0
    target: tuple[TopicIdPartition, ...] = ()
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None


class AssignmentSpec(msgspec.Struct, frozen=True):
    """The group that an assignment is wanted for.

    Args:
        group_epoch: the epoch that the assignment will have; on the classic protocol the generation.
        members: by member id, sorted by it.
        topics: by name, sorted by it: every topic that some member subscribes to, and no other.
    """

    group_epoch: int
    members: Mapping[str, MemberSpec]
    topics: Mapping[str, TopicSpec]

    def topic(self, name_or_id: str | UUID) -> TopicSpec:
        """A topic by its name or its id.

        Raises:
            KeyError: no member subscribes to it.
        """
        if isinstance(name_or_id, str):
            return self.topics[name_or_id]
        for topic in self.topics.values():
            if topic.topic_id == name_or_id:
                return topic
        raise KeyError(name_or_id)

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """Every partition that must be assigned, sorted. Made anew at each call."""
        return tuple(partition for topic in self.topics.values() for partition in topic.partitions)

    def subscribers(self, topic: str) -> tuple[str, ...]:
        """Ids of the members that may be given partitions of *topic*, sorted. Computed anew at each call."""
        return tuple(member_id for member_id, member in self.members.items() if topic in member.subscribed_topics)


class MemberAssignment(msgspec.Struct, frozen=True):
    """The whole target of one member, and the metadata for its assignor.

    Args:
        partitions: its partitions, in any order. As an argument of `PartitionAssignor.on_assignment` a sorted
            tuple of `TopicIdPartition`.
        metadata: bytes of any meaning, for `PartitionAssignor.on_assignment` of that member.
        version: of the format of *metadata*: one that the member understands.

    Raises:
        TypeError: *metadata* is not bytes.
        ValueError: *version* does not fit into two bytes.
    """

    partitions: Iterable[PartitionRef] = ()
    metadata: bytes = b""
    version: int = 0

    def __post_init__(self) -> None:
        _check_metadata(self.metadata, self.version)


class GroupAssignment(msgspec.Struct, frozen=True):
    """The result of `PartitionAssignor.assign`: the target of every member, or an error.

    Args:
        members: by member id. A member that is left out gets nothing.
        error: 0, or 1..127 for an error of the assignor's own: then *members* is ignored, the group keeps the target it
            has, and every member gets the error in `PartitionAssignor.on_assignment`.

    Raises:
        ValueError: *error* is out of range.
    """

    members: Mapping[str, MemberAssignment] = msgspec.field(default_factory=dict)
    error: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.error <= 127:
            raise ValueError(f"error is {self.error}; 0 means no error, and 1 to 127 are for the assignor's own")

    @classmethod
    def of(cls, partitions: Mapping[str, Iterable[PartitionRef]]) -> GroupAssignment:
        """An assignment without metadata, from member id -> partitions."""
        return cls({member_id: MemberAssignment(tuple(given)) for member_id, given in partitions.items()})


class ConsumerGroupMetadata(msgspec.Struct, frozen=True):
    """The member that gets an assignment, and its epoch."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None


class PartitionAssignor(ABC):
    """A client-side assignor. Subclass it, and give it to the consumer with ``group.local.assignors``.

    All calls come from one thread of the library's own, never two at a time, and never from the heartbeat thread: a
    slow assignor delays no heartbeat. The application runs at the same time, so protect what both use. A call that
    takes longer than ``group.local.assignors.timeout.ms`` is abandoned, and its result is dropped.

    Attributes:
        name: the same in every member of the group that can run it; not blank.
        minimum_version, maximum_version: the metadata versions that `assign` understands, -1 <= minimum <= maximum and
            maximum >= 0. The coordinator asks only a member that understands the metadata of all. -1 stands for
            members on the classic protocol.
    """

    name: str
    minimum_version: int = 0
    maximum_version: int = 0

    def metadata(self) -> AssignorMetadata:
        """This member's metadata for the assignor; by default none.

        Called before the member joins and then once in each heartbeat interval. When the result changes, the group is
        assigned anew; so return equal values for equal circumstances, and no clock or counter. If it
        raises, the error is logged and the last result stays.
        """
        return AssignorMetadata()

    @abstractmethod
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Compute the target of every member.

        Every partition of *spec* must be given to exactly one member, and that member must subscribe to its topic.
        Anything else, and anything raised, is logged and reported to the group as an assignment error; then this is
        called again after a while.
        """

    def on_assignment(  # noqa: B027  not every assignor needs it
        self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata
    ) -> None:
        """This member has a new target; called once for each member epoch, in every member; by default does nothing.

        Args:
            error: 0, or what the assignor returned; negative if it failed (`ASSIGNOR_RAISED`, `ASSIGNMENT_INVALID`,
                `METADATA_UNREADABLE`).
            assignment: the complete target, with partitions that others have yet to revoke; the rebalance listener gets
                what this member really has. On the classic protocol, the result of this round: partitions that another
                member still owns come with the next round.
            group_metadata: the member and the epoch that this target belongs to.
        """


def _check_metadata(metadata: object, version: int) -> None:
    if not isinstance(metadata, bytes):
        raise TypeError(f"metadata must be bytes, got {type(metadata).__name__}; encode it first")
    if version not in _INT16:
        raise ValueError(f"version is {version}; it must fit into two bytes")
