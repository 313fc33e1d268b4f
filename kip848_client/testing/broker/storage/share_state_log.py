"""Storage for what is kept of share partitions, in a folder or in memory: the bytes of ``__share_group_state``.

A key begins with its type: 0 is a snapshot, which takes the place of all records before it that are about the same
partition; 1 is an update, of which each one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_TYPE_BYTES: Final = 2
_SNAPSHOT: Final = b"\0\0"

KeyAndValue = tuple[bytes, bytes | None]


class MemoryShareStateLog:
    """Keeps the records of every partition since its last snapshot, for as long as the object lives."""

    def __init__(self) -> None:
        self._kept: Final[dict[bytes, list[KeyAndValue]]] = {}

    def load(self) -> Iterator[KeyAndValue]:
        """Yield the records, partition by partition."""
        for records in tuple(self._kept.values()):
            yield from tuple(records)

    def append(self, records: Iterable[KeyAndValue]) -> None:
        """Keep *records*; a snapshot without a value ends what is kept of its partition."""
        for record in records:
            _keep(self._kept, record)


def since_snapshots(records: Iterable[KeyAndValue]) -> list[KeyAndValue]:
    """The records that still count."""
    kept: dict[bytes, list[KeyAndValue]] = {}
    for record in records:
        _keep(kept, record)
    return [record for of_partition in kept.values() for record in of_partition]


def _keep(kept: dict[bytes, list[KeyAndValue]], record: KeyAndValue) -> None:
    key, value = record
    kind, partition = key[:_TYPE_BYTES], key[_TYPE_BYTES:]
    if kind != _SNAPSHOT:
        kept.setdefault(partition, []).append(record)
    elif value is None:
        kept.pop(partition, None)
    else:
        kept[partition] = [record]
