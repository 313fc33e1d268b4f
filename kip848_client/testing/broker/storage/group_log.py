"""Storage for the records of a group coordinator: in a folder (`CoordinatorLog`) or in memory.

Does not interpret them. Both hold the bytes of ``__consumer_offsets``: a restart reads what any other tool would read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeAlias, TypeVar

KeyAndValue: TypeAlias = tuple[bytes, bytes | None]
"""A value of None is a tombstone."""

RecordT = TypeVar("RecordT")


class DecisionLog(Protocol[RecordT]):
    """Records in the order in which they were decided; those of one `append` are kept together or not at all."""

    def load(self) -> Iterator[RecordT]:
        """Yield every record."""
        ...

    def append(self, records: Iterable[RecordT]) -> None:
        """Keep the records of one decision.

        Raises:
            DataDirError: they were not kept.
        """
        ...


GroupLog: TypeAlias = DecisionLog[KeyAndValue]


class MemoryGroupLog:
    """Keeps the latest value of every key, as a compacted topic does, for as long as the object lives."""

    def __init__(self) -> None:
        self._latest: Final[dict[bytes, bytes]] = {}

    def load(self) -> Iterator[KeyAndValue]:
        """Yield the latest value of every key, in the order of their last change."""
        yield from tuple(self._latest.items())

    def append(self, records: Iterable[KeyAndValue]) -> None:
        """Keep *records*; a tombstone removes its key."""
        for key, value in records:
            self._latest.pop(key, None)
            if value is not None:
                self._latest[key] = value
