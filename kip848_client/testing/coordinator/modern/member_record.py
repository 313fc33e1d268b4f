"""One member as the coordinator knows it: frozen values, exactly what its records hold. No decisions.

A member has two parts, one for each of its records: its metadata, to which each kind of group adds its own
(`SharedMetadata`), and its epoch and assignment (`Current`).
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from kip848_client.wire.messages.group_record_keys import ClassicProtocol

KeyT = TypeVar("KeyT", bound=Hashable)
"""With a number, what a group assigns: topic ids in a consumer group, names of units in a connect group."""

Held: TypeAlias = Mapping[KeyT, Mapping[int, int]]
"""Key -> number -> assignment epoch: the epoch at which it was given to its member. A key without numbers is left out.
Never changed in place."""

JOIN_EPOCH: Final = 0
"""Epoch in a heartbeat of a member that joins, or joins again."""
LEAVE_EPOCH: Final = -1
"""Epoch in a heartbeat of a member that leaves for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch in a heartbeat of a static member that leaves and will be back; and of that member until it is."""


class ReconciliationState(enum.IntEnum):
    """The member's progress towards its target. The numbers are those on disk."""

    STABLE = 0
    """It owns its target of `member_epoch`."""
    UNREVOKED_PARTITIONS = 1
    """It has not confirmed a revocation yet, and stays at its epoch until then."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, but other members still hold some of its partitions."""
    UNKNOWN = 127
    """Written by a newer coordinator: the member must abandon its partitions and rejoin."""


class ClientAssignor(msgspec.Struct, frozen=True):
    """A client-side assignor that a member offers to run, with the metadata that the member sent for it.

    Args:
        minimum_version: least version of the metadata that it reads; -1 is what a member on the classic protocol has.
        maximum_version: greatest version that it reads.
        reason: why the metadata changed, the assignor's own number; 0: it did not.
        metadata_version: version of *metadata_bytes*, within the other two.
    """

    name: str
    minimum_version: int = 0
    maximum_version: int = 0
    reason: int = 0
    metadata_version: int = 0
    metadata_bytes: bytes = b""

    @property
    def versions(self) -> AssignorVersions:
        """The versions of metadata that it reads, and the one that it writes."""
        return AssignorVersions(self.minimum_version, self.maximum_version, self.metadata_version)


def read_assignors(offers: Iterable[object]) -> tuple[ClientAssignor, ...]:
    """Client-side assignors of a request or a record, whose structs have the fields of `ClientAssignor`."""
    return tuple([msgspec.convert(offer, ClientAssignor, from_attributes=True) for offer in offers])


class AssignorVersions(NamedTuple):
    """Least and greatest version of the metadata that a member reads, and the one that it writes."""

    minimum: int
    maximum: int
    written: int

    def reads(self, low: int, high: int) -> bool:
        """Whether every version from *low* to *high* is read."""
        return self.minimum <= low and high <= self.maximum


class AssignmentMetadata(msgspec.Struct, frozen=True):
    """Metadata that a client-side assignor gets with its member's partitions.

    Args:
        error: the assignor's own number if it could not compute the target; 0 if it could.
        version: version of *data*.
        assignor: whose error or data this is; "" if there is neither.
    """

    error: int = 0
    version: int = 0
    data: bytes = b""
    assignor: str = ""


NO_METADATA: Final = AssignmentMetadata()
"""The (empty) metadata of a server-side assignor's target."""


class ClassicProtocols(msgspec.Struct, frozen=True):
    """The fields of a member that only a member on the classic protocol has.

    Args:
        session_timeout_ms: how long it may be silent; it says so itself.
        protocols: (name, metadata) of the assignors that it offers, the most preferred first.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the assignors."""
        return frozenset(name for name, _ in self.protocols)


class StoredClassicMember(Protocol):
    """The fields of a member on the classic protocol in a record, which all kinds of groups share."""

    @property
    def session_timeout_ms(self) -> int:
        """How long it may be silent."""

    @property
    def supported_protocols(self) -> tuple[ClassicProtocol, ...]:
        """The assignors that it offers."""


def read_classic(value: StoredClassicMember) -> ClassicProtocols:
    """Read the classic fields of a member from a record."""
    return ClassicProtocols(
        session_timeout_ms=value.session_timeout_ms,
        protocols=tuple([(protocol.name, protocol.metadata) for protocol in value.supported_protocols]),
    )


class SharedMetadata(msgspec.Struct, frozen=True):
    """The metadata of a member in every kind of group.

    Args:
        server_assignor: the server-side assignor it prefers, or None.
        client_assignors: the client-side assignors it offers, the most preferred first.
        classic: it speaks the classic protocol; None if it sends heartbeats of the group's own kind.
    """

    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    client_assignors: tuple[ClientAssignor, ...] = ()
    classic: ClassicProtocols | None = None


MetadataT = TypeVar("MetadataT", bound=SharedMetadata)


class Current(msgspec.Struct, Generic[KeyT], frozen=True):
    """The epoch and assignment of a member.

    Args:
        member_epoch: the epoch it is at; 0 before its first target, `STATIC_LEAVE_EPOCH` while it is away.
        previous_member_epoch: the epoch before; a heartbeat that lost its answer still carries it.
        assigned: what it may use now.
        pending_revocation: what it must revoke and has not confirmed; it still holds it.
        metadata: what its client-side assignor got with the target of *member_epoch*.
    """

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: ReconciliationState = ReconciliationState.STABLE
    assigned: Held[KeyT] = msgspec.field(default_factory=dict)
    pending_revocation: Held[KeyT] = msgspec.field(default_factory=dict)
    metadata: AssignmentMetadata = NO_METADATA


class MemberRecord(msgspec.Struct, Generic[KeyT, MetadataT], frozen=True):
    """One member of a group."""

    member_id: str
    metadata: MetadataT
    current: Current[KeyT]

    @property
    def client_id(self) -> str:
        """The ``client.id`` of its client."""
        return self.metadata.client_id

    @property
    def member_epoch(self) -> int:
        """The epoch that it is at."""
        return self.current.member_epoch

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it owns its whole target of *epoch*."""
        current = self.current
        return current.member_epoch == epoch and current.state is ReconciliationState.STABLE
