"""The state of one transactional id, as a value. A transition is a new value, and a record of it.

Source:
    apache/kafka ``TransactionMetadata``, ``TransactionState``; KIP-98, KIP-890.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import Final

import msgspec

EPOCH_MAX: Final = 32_767
"""An epoch is an int16. The last one only fences: no producer is ever given it."""

GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
"""A group whose offsets a transaction commits stands among its partitions as the partition that keeps the group."""

GROUP_OFFSETS_PARTITIONS: Final = 50
"""Partitions of that topic; Kafka's default of ``offsets.topic.num.partitions``."""

TransactionPartition = tuple[str, int]
"""Topic name and partition number."""


class TransactionState(enum.IntEnum):
    """State of a transaction; the numbers are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id is forgotten. Its record is a tombstone."""

    @property
    def title(self) -> str:
        """The name on the wire: ``PrepareCommit``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class TransactionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One transactional id: the producer that holds it, and its transaction.

    Attributes:
        producer_id: the id that its batches carry.
        epoch: which life of the producer may write; an older one is fenced.
        last_epoch: the epoch with which a retry of the last request comes; -1 if there is no such retry.
        previous_producer_id: the producer id before its epochs were used up; -1 if there is none.
        next_producer_id: the producer id after the transaction that is being ended; -1 if it stays.
        timeout_ms: how long a transaction may take.
        partitions: what the transaction has written to; empty if it is not open.
        started_ms: when it began, in ms since 1970; -1 if none ever did.
        updated_ms: when this value was decided, in ms since 1970.
        client_version: of the protocol that the client spoke: 1, or 2 of KIP-890, where each end moves the epoch on.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    last_epoch: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TransactionPartition] = frozenset()
    started_ms: int = -1
    client_version: int = 1

    @classmethod
    def forgotten(cls, transactional_id: str) -> TransactionMetadata:
        """The last state of an id."""
        return cls(
            transactional_id=transactional_id,
            producer_id=-1,
            epoch=-1,
            timeout_ms=0,
            updated_ms=-1,
            state=TransactionState.DEAD,
        )

    @property
    def is_ending(self) -> bool:
        """Whether its end is decided and not yet written everywhere."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether it ends, or has ended, with a commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def deadline_ms(self) -> int | None:
        """When an open transaction has taken too long, in ms since 1970; None if it is not open."""
        return self.started_ms + self.timeout_ms if self.state is TransactionState.ONGOING else None


@functools.lru_cache(maxsize=10_000)
def offsets_partition(group_id: str, *, partitions: int = GROUP_OFFSETS_PARTITIONS) -> TransactionPartition:
    """The partition that keeps a group in Kafka, by Java's hash of the group's name.

    Args:
        partitions: how many the topic has.
    """
    value = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return GROUP_OFFSETS_TOPIC, _absolute(value) % partitions


def _absolute(value: int) -> int:
    if value < 2**31:
        return value
    return -value & 0x7FFF_FFFF  # -(2**31) has no absolute value; Kafka takes 0
