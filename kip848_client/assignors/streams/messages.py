"""The metadata of a process for the assignor, and the assignor's for each process, as bytes (version 0).

The primitives are those of Kafka's flexible messages; every struct ends with (no) tagged fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from kip848_client.assignors.streams.topology import Task

RUNNING: Final = -2
"""Lag of a task that is active here."""
UNKNOWN: Final = -3
"""Lag of a task whose state is here, but whose distance is not known."""

ItemT = TypeVar("ItemT")
Partitions = Mapping[str, tuple[int, ...]]
"""Topic -> partition numbers, sorted."""


class MemberInfo(msgspec.Struct, frozen=True):
    """The metadata of a member.

    Args:
        process_id: members of one process share its disk: a task is there once.
        endpoint: ``host:port`` where it answers queries, or None.
        lags: task -> records behind of its local state; `RUNNING`, `UNKNOWN`; absent without state.
    """

    process_id: UUID
    endpoint: str | None
    tags: tuple[tuple[str, str], ...]
    topology_hash: UUID
    lags: Mapping[Task, int]

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join(
            (
                self.process_id.bytes,
                _blob(None if self.endpoint is None else self.endpoint.encode()),
                _array(self.tags, lambda pair: _text(pair[0]) + _text(pair[1]) + _NO_TAGS),
                self.topology_hash.bytes,
                _array(sorted(self.lags.items()), lambda item: _task(item[0]) + _int64(item[1]) + _NO_TAGS),
                _NO_TAGS,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> MemberInfo:
        """Read bytes.

        Raises:
            ValueError: they are something else.
        """
        reader = _Reader(data)
        process_id, endpoint = reader.uuid(), reader.blob()
        tags = tuple(reader.array(lambda: reader.ended((reader.text(), reader.text()))))
        topology_hash = reader.uuid()
        lags = dict(reader.array(lambda: reader.ended((reader.task(), reader.int64()))))
        reader.no_tags()
        reader.end()
        return cls(process_id, None if endpoint is None else _decoded(endpoint), tags, topology_hash, lags)


class HostPartitions(msgspec.Struct, frozen=True):
    """The source partitions whose tasks are active, or stand by, where an endpoint answers."""

    endpoint: str
    active: Partitions
    standby: Partitions


class TaskAssignment(msgspec.Struct, frozen=True):
    """The assignor's message to a member: its tasks, and the endpoint that answers for each partition.

    Args:
        standby, warmup: task -> the changelog partitions to restore from.
    """

    active: tuple[Task, ...] = ()
    standby: Mapping[Task, Partitions] = msgspec.field(default_factory=dict)
    warmup: Mapping[Task, Partitions] = msgspec.field(default_factory=dict)
    hosts: tuple[HostPartitions, ...] = ()

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join(
            (
                _array(sorted(self.active), lambda task: _task(task) + _NO_TAGS),
                *(
                    _array(sorted(copies.items()), lambda item: _task(item[0]) + _parts(item[1]) + _NO_TAGS)
                    for copies in (self.standby, self.warmup)
                ),
                _array(
                    self.hosts,
                    lambda host: _blob(host.endpoint.encode()) + _parts(host.active) + _parts(host.standby) + _NO_TAGS,
                ),
                _NO_TAGS,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> TaskAssignment:
        """Read bytes.

        Raises:
            ValueError: they are something else.
        """
        reader = _Reader(data)
        active = tuple(reader.array(lambda: reader.ended(reader.task())))
        standby, warmup = (dict(reader.array(lambda: reader.ended((reader.task(), reader.parts())))) for _ in range(2))
        hosts = reader.array(lambda: reader.ended((reader.blob() or b"", reader.parts(), reader.parts())))
        reader.no_tags()
        reader.end()
        return cls(
            active, standby, warmup, tuple(HostPartitions(_decoded(end), own, copies) for end, own, copies in hosts)
        )


_NO_TAGS: Final = b"\0"


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _blob(content: bytes | None) -> bytes:
    return b"\0" if content is None else _varint(len(content) + 1) + content


def _text(text: str) -> bytes:
    return _blob(text.encode())


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _array(items: Iterable[ItemT] | Sequence[ItemT], write: Callable[[ItemT], bytes]) -> bytes:
    written = [write(item) for item in items]
    return _varint(len(written) + 1) + b"".join(written)


def _task(task: Task) -> bytes:
    return _text(task.subtopology) + _int32(task.partition)


def _parts(partitions: Partitions) -> bytes:
    return _array(sorted(partitions.items()), lambda item: _text(item[0]) + _array(sorted(item[1]), _int32) + _NO_TAGS)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: {content!r}") from error


class _Reader:
    """Reads what the functions above write."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"the metadata ends at byte {len(self._data)}, within a field that begins at {self._at}")
        taken, self._at = self._data[self._at : end], end
        return taken

    def varint(self) -> int:
        """An unsigned number."""
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return number
            shift += 7
            if shift > 28:
                raise ValueError("a length of the metadata is too large")

    def uuid(self) -> UUID:
        """16 bytes."""
        return UUID(bytes=self.take(16))

    def blob(self) -> bytes | None:
        """Bytes or None."""
        size = self.varint()
        return None if size == 0 else self.take(size - 1)

    def text(self) -> str:
        """A string."""
        content = self.blob()
        if content is None:
            raise ValueError("a text of the metadata is null")
        return _decoded(content)

    def int32(self) -> int:
        """Four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """Eight bytes."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def array(self, read: Callable[[], ItemT]) -> list[ItemT]:
        """Read as many elements as the count before them says."""
        size = self.varint()
        if size == 0 or size - 1 > len(self._data):
            raise ValueError(f"a list of the metadata claims {size - 1} entries")
        return [read() for _ in range(size - 1)]

    def task(self) -> Task:
        """A task."""
        return Task(self.text(), self.int32())

    def parts(self) -> dict[str, tuple[int, ...]]:
        """Topic -> partitions."""
        return dict(self.array(lambda: self.ended((self.text(), tuple(self.array(self.int32))))))

    def ended(self, fields: ItemT) -> ItemT:
        """*fields*, which were the last ones of their struct."""
        self.no_tags()
        return fields

    def no_tags(self) -> None:
        """The end of a struct; fields of later versions are stepped over."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def end(self) -> None:
        """Refuse bytes after the end of the message."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow the metadata")
