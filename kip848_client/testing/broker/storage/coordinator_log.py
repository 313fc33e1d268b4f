"""The records of the group coordinator in a data folder: keys and values as in __consumer_offsets.

Packs records into entries, and drops old values. The coordinator gives them their meaning.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from kip848_client.errors import DataDirCorruptError, DataDirError
from kip848_client.testing.broker.storage.entry_file import EntryFile

KeyAndValue: TypeAlias = tuple[bytes, bytes | None]

COMPACT_FROM_RECORDS: Final = 10_000
"""A coordinator log with fewer records is not worth compacting."""

_INT32: Final = struct.Struct(">i")
_NULL_LENGTH: Final = -1


class CoordinatorLog:
    """The coordinator's records, in the order in which they were decided.

    The records of one decision are one entry: after a crash either all of them are there or none.

    Args:
        latest: the records that still count; by default the last one of each key.
    """

    def __init__(
        self,
        file: EntryFile,
        *,
        load: Callable[[EntryFile], Sequence[memoryview]],
        append: Callable[[EntryFile, bytes], None],
        latest: Callable[[Iterable[KeyAndValue]], list[KeyAndValue]] | None = None,
    ) -> None:
        self._file = file
        self._load = load
        self._append = append
        self._latest = latest or _latest

    def load(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield every (key, value); a value of None is a tombstone.

        A file that holds mostly values which were replaced later is compacted first, as Kafka compacts
        ``__consumer_offsets``: the last value of each key stays, in the order of the last changes.

        Raises:
            DataDirCorruptError: the file is damaged.
            DataDirError: it cannot be read.
        """
        records: list[tuple[bytes, bytes | None]] = []
        for index, payload in enumerate(self._load(self._file)):
            try:
                records += _unpack_records(bytes(payload))
            except (ValueError, struct.error) as error:
                raise DataDirCorruptError(
                    f"entry {index} does not hold coordinator records ({error}). Nothing was changed; restore "
                    "this file from a copy of the folder",
                    file=str(self._file.path),
                    position=0,
                ) from error
        if len(records) >= COMPACT_FROM_RECORDS:
            latest = self._latest(records)
            if len(latest) <= len(records) // 2:
                with contextlib.suppress(DataDirError):  # on a full disk it stays as long as it is
                    self._file.rewrite(_pack_records([record]) for record in latest)
                records = latest
        return iter(records)

    def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write the records of one decision as a whole; nothing is written if there are none.

        Raises:
            DataDirError: they were not written.
        """
        payload = _pack_records(records)
        if payload:
            self._append(self._file, payload)

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        self._file.close()


def _latest(records: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    latest: dict[bytes, bytes] = {}
    for key, value in records:
        latest.pop(key, None)
        if value is not None:
            latest[key] = value
    return list(latest.items())


def _pack_records(records: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    parts = []
    for key, value in records:
        parts += [_INT32.pack(len(key)), key]
        parts += [_INT32.pack(_NULL_LENGTH)] if value is None else [_INT32.pack(len(value)), value]
    return b"".join(parts)


def _unpack_records(payload: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    position = 0
    while position < len(payload):
        key, position = _unpack_bytes(payload, position)
        value, position = _unpack_bytes(payload, position)
        if key is None:
            raise ValueError("a key is null")
        yield key, value


def _unpack_bytes(payload: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(payload, position)
    begin = position + _INT32.size
    if length == _NULL_LENGTH:
        return None, begin
    if length < 0 or begin + length > len(payload):
        raise ValueError(f"a length of {length} at byte {position} of {len(payload)}")
    return payload[begin : begin + length], begin + length
