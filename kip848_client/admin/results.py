"""Results of an administrator's calls: frozen values. Times (``_ms``) are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.errors import Kip848Error

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Results(msgspec.Struct, Generic[KeyT, ValueT], frozen=True):
    """One result for each thing that was asked about; a refusal for one does not lose the others.

    ``results["billing"]`` is the value, or raises the error of ``billing``.

    Args:
        values: what succeeded.
        errors: what failed, and why.
    """

    values: Mapping[KeyT, ValueT]
    errors: Mapping[KeyT, Kip848Error]

    def __getitem__(self, key: KeyT) -> ValueT:
        if key in self.errors:
            raise self.errors[key]
        return self.values[key]

    def raise_errors(self) -> None:
        """Raise if anything failed.

        Raises:
            Kip848Error: the error, or one that names all of them.
        """
        raise_all(self.errors.values())


class Listing(msgspec.Struct, Generic[KeyT], frozen=True):
    """The groups that the nodes of the cluster list, sorted by id.

    Args:
        found: of all nodes that answered.
        errors: id of a node -> why it did not answer; what only this node knows is missing from `found`.
    """

    found: tuple[KeyT, ...]
    errors: Mapping[int, Kip848Error]

    def raise_errors(self) -> None:
        """Raise if a node did not answer.

        Raises:
            Kip848Error: the error, or one that names all of them.
        """
        raise_all(self.errors.values())


def raise_all(errors: Iterable[Kip848Error]) -> None:
    """Raise what went wrong with some of several things.

    Raises:
        Kip848Error: the error, or one that names all of them.
    """
    several = list(errors)
    if len(several) == 1:
        raise several[0]
    if several:
        raise Kip848Error("; ".join(map(str, several)))


def split(answers: Mapping[KeyT, ValueT | Kip848Error]) -> Results[KeyT, ValueT]:
    """Answers and errors apart."""
    return Results(
        {key: answer for key, answer in answers.items() if not isinstance(answer, Kip848Error)},
        {key: answer for key, answer in answers.items() if isinstance(answer, Kip848Error)},
    )


class GroupListing(msgspec.Struct, frozen=True):
    """One group of the cluster.

    Args:
        type: ``consumer``, ``classic``, ``share``, ``streams``, ``connect``; blank before Kafka 3.8.
        state: ``Stable``, ``Empty`` and so on; blank before Kafka 2.6.
        protocol_type: ``consumer`` of consumers; ``connect`` of Kafka Connect.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True):
    """One member.

    Args:
        member_epoch: None in a classic group, because brokers do not report its generation.
        assigned: its partitions; empty for a classic member whose bytes are not a consumer's. target: partitions that
            it is to own.
        protocol: ``consumer``, ``classic`` or ``share``: which one it speaks.
    """

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    member_epoch: int | None
    subscription: str
    assigned: tuple[NamedPartition, ...]
    target: tuple[NamedPartition, ...]
    protocol: str = "consumer"


class Progress(msgspec.Struct, frozen=True):
    """How far a group has come in one partition.

    Args:
        committed: the committed offset, or None.
        end: the next offset of the partition, or None if its leader did not report it.
        owner: client id of the member that owns it, or None; in a share group, of all members that have it.
        left: of a share group, how many records are not done with, as its coordinator counts them, or None.
        is_shared: it is of a share group, and *committed* its start offset.
    """

    partition: NamedPartition
    committed: int | None
    end: int | None
    owner: str | None
    left: int | None = None
    is_shared: bool = False

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None if it is not known."""
        if self.is_shared:
            return self.left
        if not self.end:
            return self.end  # nothing was ever written there: a group that committed nothing misses nothing
        return None if self.committed is None else max(0, self.end - self.committed)


class GroupDescription(msgspec.Struct, frozen=True):
    """One group of consumers.

    Args:
        progress: sorted by partition; empty unless it was asked for.
        type: ``consumer``, ``classic`` or ``share``. A classic group has no epochs, and its assignor is known while it
            is stable.
    """

    group_id: str
    state: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str
    members: tuple[MemberDescription, ...]
    progress: tuple[Progress, ...] = ()
    type: str = "consumer"


class WorkerDescription(msgspec.Struct, frozen=True):
    """One worker.

    Args:
        worker_id: its ``worker.id``; its member id while its classic group rebalances.
        member_epoch: None in a classic group.
        state: of a connect group as its coordinator names it; in a classic group ``draining`` or blank.
    """

    worker_id: str
    client_id: str
    client_host: str
    member_id: str
    instance_id: str | None
    member_epoch: int | None
    state: str


class UnitDescription(msgspec.Struct, frozen=True):
    """One unit.

    Args:
        owner: worker id of the worker that runs it, or None.
        token: its fencing token, or None. Of a unit that moved since its owner last joined a classic group it is the
            newest token, which is above the owner's if the owner has renewed it since.
        target: worker id of the worker that should run it, or None.
        deferred: the assignor has left it without a worker for now.
        since_ms: when the owner was given it in a classic group; None if that is not known.
    """

    unit: str
    owner: str | None
    token: int | None
    target: str | None
    deferred: bool
    since_ms: int | None = None


class WorkerGroupDescription(msgspec.Struct, frozen=True):
    """A group of workers: its workers, and its units in their order.

    Args:
        group_epoch, assignment_epoch: of a connect group; None for a classic one.
        catalog_offset: version of the list of units; -1 if it is not known.
        type: ``classic`` or ``connect``.
    """

    group_id: str
    state: str
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str
    catalog_offset: int
    workers: tuple[WorkerDescription, ...]
    units: tuple[UnitDescription, ...]
    type: str


class OtherGroupDescription(msgspec.Struct, frozen=True):
    """A streams group, or on brokers before Kafka 4.1 a share group: only what the list of groups says of it."""

    group_id: str
    state: str
    type: str


class GroupLag(msgspec.Struct, frozen=True):
    """How far one group has come, sorted by partition."""

    group_id: str
    progress: tuple[Progress, ...]

    @property
    def lag(self) -> int | None:
        """Records behind in all partitions; None if the lag of any of them is unknown, because unknown is not 0."""
        return None if self.unknown else self.known_lag

    @property
    def known_lag(self) -> int:
        """Records behind in the partitions whose lag is known."""
        return sum(item.lag for item in self.progress if item.lag is not None)

    @property
    def unknown(self) -> int:
        """Partitions whose lag is unknown: nothing is committed, or the leader did not report the end."""
        return sum(item.lag is None for item in self.progress)


class TopicListing(msgspec.Struct, frozen=True):
    """One topic.

    Args:
        topic_id: None on brokers without ids.
        partitions: how many it has.
        is_internal: Kafka keeps its own records there.
    """

    topic: str
    topic_id: UUID | None
    partitions: int
    is_internal: bool = False


class ShiftBy(msgspec.Struct, frozen=True):
    """Where to reset to: *records* on from the committed offset, or back if it is negative."""

    records: int


class OffsetMove(msgspec.Struct, frozen=True):
    """One partition of a `ResetPlan`.

    Args:
        committed: the offset that is committed, or None.
        wanted: the offset that was asked for.
        new: the offset to commit: the one nearest to `wanted` that the partition has.
        first, end: the offsets that the partition has begin at `first` and end before `end`.
    """

    partition: NamedPartition
    committed: int | None
    wanted: int
    new: int
    first: int
    end: int


class ResetPlan(msgspec.Struct, frozen=True):
    """The offsets that a reset would commit, sorted by partition. Nothing is committed yet."""

    group_id: str
    moves: tuple[OffsetMove, ...]
    type: str = "consumer"
    """``share``: the moves are of start offsets, and nothing is committed."""


class TransactionListing(msgspec.Struct, frozen=True):
    """One transactional id; its state is ``Empty``, ``Ongoing``, ``PrepareCommit``, ``CompleteAbort`` and so on."""

    transactional_id: str
    producer_id: int
    state: str


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that was written and not ended, by its producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionDescription(msgspec.Struct, frozen=True):
    """Where one transactional id stands.

    Args:
        started_ms: when its transaction began, or None if there is none.
        partitions: those that the transaction has written to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[NamedPartition, ...]

    @property
    def opened(self) -> OpenTransaction:
        """The transaction, for `Admin.end_transactions`."""
        return OpenTransaction(self.transactional_id, self.producer_id, self.producer_epoch)


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that is open in a partition and that no coordinator will end. Readers of committed records wait.

    Args:
        coordinator_epoch: of the last marker of this producer; -1 if there was none.
        first_offset: of its first record: the last stable offset of the partition stays there.
        last_record_ms: when the producer wrote last.
    """

    partition: NamedPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_record_ms: int


class ClusterFeatures(msgspec.Struct, frozen=True):
    """Features of the cluster, such as ``group.version`` and ``metadata.version``.

    Args:
        supported: name -> lowest and highest version that the node which was asked could run.
        finalized: name -> version that the cluster has switched to.
        epoch: grows with each change of `finalized`; -1 if it is not known.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int
