"""The folder behind an embedded broker: what survives when its process ends, however it ends.

Owns the layout and the meaning of entries; how entries are written and repaired is `entry_file`. Does not decide what
is stored: `topics` writes records and topics through `DataDir`, the group host writes through `CoordinatorLog`. ::

    lock                            held while a broker uses the folder; names its process
    cluster.log                     topics, partition counts, configurations, producer ids (JSON entries)
    coordinator.log                 records of groups and offsets: keys and values as in __consumer_offsets
    topics/<topic id>/<n>.log       records of one partition: batches as sent, and moves of the log start

Folders of topics that are not in cluster.log (a deletion that was interrupted) are removed on load.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from kip848_client.broker.entry_file import EntryFile
from kip848_client.errors import BrokerError, DataDirCorruptError, DataDirError, DataDirLockedError
from kip848_client.partition_log import PartitionLog

__all__ = ["DataDir", "CoordinatorLog", "StoredTopic", "Repair"]

_KIND_CLUSTER: Final = b"c"
_KIND_COORDINATOR: Final = b"o"
_KIND_RECORDS: Final = b"r"

_BATCH: Final = 0
_LOG_START: Final = 1

_OPEN_FILES_MAX: Final = 128
"""Partition files held open at once; the limit of a process is often 1024."""

COMPACT_FROM_RECORDS: Final = 10_000
"""A coordinator log with fewer records is not worth compacting."""

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_NULL_LENGTH: Final = -1


@dataclass(slots=True)
class StoredTopic:
    """A topic as the folder knows it."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repair:
    """A torn tail that was cut off while loading.

    Attributes:
        file: path of the file.
        cut_bytes: how many bytes were cut.
    """

    file: str
    cut_bytes: int


class DataDir:
    """A folder, locked for one broker. Use `DataDir.open`; close it in the end.

    Attributes:
        path: the folder.
        coordinator_log: the records of the group coordinator.
        repairs: torn tails cut off so far; more may come while partitions are loaded.
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path: Final = path
        self.repairs: list[Repair] = []
        self._lock_fd = lock_fd
        self._topics: dict[UUID, StoredTopic] = {}
        self._facts: dict[str, str] = {}
        self._group_configs: dict[str, dict[str, str]] = {}
        self._producer_id_end = 0
        self._cluster = EntryFile(path / "cluster.log", kind=_KIND_CLUSTER)
        self.coordinator_log: Final = CoordinatorLog(
            EntryFile(path / "coordinator.log", kind=_KIND_COORDINATOR), self._note_repair
        )
        self._open_files: OrderedDict[tuple[UUID, int], EntryFile] = OrderedDict()

    @classmethod
    def open(cls, path: Path | str) -> DataDir:
        """Lock the folder and read which topics it holds; it is made if it is not there.

        Raises:
            DataDirLockedError: another broker uses it.
            DataDirCorruptError: a file is damaged.
            DataDirError: it cannot be made, read or written.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirError(f"{path}: cannot be used as a data folder: {error.strerror}") from error
        try:
            _lock(path, lock_fd)
            data_dir = cls(path, lock_fd)
            data_dir._load_cluster()
            data_dir._remove_orphans()
        except BaseException:
            os.close(lock_fd)
            raise
        return data_dir

    def close(self) -> None:
        """Close all files and give the folder free. May be called twice."""
        for file in self._open_files.values():
            file.close()
        self._open_files.clear()
        self._cluster.close()
        self.coordinator_log.close()
        if self._lock_fd >= 0:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the same lock open
            os.close(self._lock_fd)
            self._lock_fd = -1

    # -- topics --------------------------------------------------------------------------------------------------

    def topics(self) -> list[StoredTopic]:
        """The topics of the folder, in the order in which they were created."""
        return list(self._topics.values())

    def create_topic(self, name: str, *, topic_id: UUID, partition_count: int, configs: Mapping[str, str]) -> None:
        """Remember a new topic."""
        self._write(
            {
                "entry": "topic_created",
                "topic": name,
                "topic_id": str(topic_id),
                "partitions": partition_count,
                "configs": dict(configs),
            }
        )

    def set_partition_count(self, topic_id: UUID, partition_count: int) -> None:
        """Remember that a topic grew."""
        self._write({"entry": "partitions_added", "topic_id": str(topic_id), "partitions": partition_count})

    def set_topic_configs(self, topic_id: UUID, configs: Mapping[str, str]) -> None:
        """Remember the whole configuration of a topic."""
        self._write({"entry": "configs_changed", "topic_id": str(topic_id), "configs": dict(configs)})

    def delete_topic(self, topic_id: UUID) -> None:
        """Forget a topic and remove its files."""
        partition_count = self._topics[topic_id].partition_count
        self._write({"entry": "topic_deleted", "topic_id": str(topic_id)})
        for partition in range(partition_count):
            file = self._open_files.pop((topic_id, partition), None)
            if file is not None:
                file.close()
        # What cannot be removed now is removed by the next load.
        shutil.rmtree(self._topic_folder(topic_id), ignore_errors=True)

    # -- records -------------------------------------------------------------------------------------------------

    def load_partition(self, topic_id: UUID, partition: int) -> PartitionLog:
        """Read the records of one partition; an absent file is an empty log.

        Raises:
            DataDirCorruptError: the file is damaged, or its batches do not continue each other.
            DataDirError: it cannot be read.
        """
        log = PartitionLog()
        file = self._records_file(topic_id, partition)
        loaded = file.load()
        self._note_repair(file.path, loaded.cut_bytes)
        restore = log.restore
        for index, payload in enumerate(loaded.payloads):
            try:
                if payload[0] == _BATCH:
                    restore(bytes(payload[1:]))
                elif payload[0] == _LOG_START:
                    log.delete_records(_INT64.unpack(payload[1:])[0])
                else:
                    raise ValueError(f"unknown kind of entry {payload[0]}")
            except (BrokerError, ValueError, IndexError, struct.error) as error:
                raise DataDirCorruptError(
                    f"entry {index}: {error}. Restore the folder from a copy", file=str(file.path), position=0
                ) from error
        return log

    def append_batch(self, topic_id: UUID, partition: int, batch: bytes) -> None:
        """Write one stored batch.

        Raises:
            DataDirError: it was not written.
        """
        self._append_record(topic_id, partition, b"\0" + batch)

    def set_log_start(self, topic_id: UUID, partition: int, offset: int) -> None:
        """Remember that everything below *offset* was deleted. The bytes stay in the file."""
        self._append_record(topic_id, partition, b"\1" + _INT64.pack(offset))

    # -- configuration of groups ---------------------------------------------------------------------------------

    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Group id -> what it overrides."""
        return self._group_configs

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Remember all that a group overrides; nothing is left of it if *configs* is empty."""
        self._write({"entry": "group_configs_changed", "group_id": group_id, "configs": dict(configs)})

    # -- small facts ---------------------------------------------------------------------------------------------

    def reserve_producer_ids(self, count: int) -> int:
        """Reserve *count* producer ids that were never handed out by a broker on this folder.

        Returns:
            The first of them.
        """
        first = self._producer_id_end
        self._write({"entry": "producer_ids_reserved", "end": first + count})
        return first

    def fact(self, name: str, make: Callable[[], str]) -> str:
        """A text that stays the same for the life of the folder, such as the cluster id; made when first asked for."""
        if name not in self._facts:
            self._write({"entry": "fact", "name": name, "value": make()})
        return self._facts[name]

    # -- inside --------------------------------------------------------------------------------------------------

    def _write(self, entry: dict[str, object]) -> None:
        self._cluster.append(json.dumps(entry, separators=(",", ":")).encode())
        self._replay(entry)

    def _load_cluster(self) -> None:
        loaded = self._cluster.load()
        self._note_repair(self._cluster.path, loaded.cut_bytes)
        for index, payload in enumerate(loaded.payloads):
            try:
                self._replay(json.loads(bytes(payload)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataDirCorruptError(
                    f"entry {index} cannot be understood ({error!r}); was it written by a newer version?",
                    file=str(self._cluster.path),
                    position=0,
                ) from error

    def _replay(self, entry: Mapping[str, object]) -> None:
        kind = entry["entry"]
        if kind == "fact":
            self._facts[str(entry["name"])] = str(entry["value"])
            return
        if kind == "producer_ids_reserved":
            self._producer_id_end = _integer(entry["end"])
            return
        if kind == "group_configs_changed":
            self._group_configs.pop(str(entry["group_id"]), None)
            if configs := _texts(entry["configs"]):
                self._group_configs[str(entry["group_id"])] = configs
            return
        topic_id = UUID(str(entry["topic_id"]))
        if kind == "topic_created":
            self._topics[topic_id] = StoredTopic(
                name=str(entry["topic"]),
                topic_id=topic_id,
                partition_count=_integer(entry["partitions"]),
                configs=_texts(entry["configs"]),
            )
        elif kind == "partitions_added":
            self._topics[topic_id].partition_count = _integer(entry["partitions"])
        elif kind == "configs_changed":
            self._topics[topic_id].configs = _texts(entry["configs"])
        elif kind == "topic_deleted":
            del self._topics[topic_id]
        else:
            raise ValueError(f"unknown entry {kind!r}")

    def _remove_orphans(self) -> None:
        known = {str(topic_id) for topic_id in self._topics}
        folder = self.path / "topics"
        if folder.is_dir():
            for child in folder.iterdir():
                if child.name not in known:
                    shutil.rmtree(child, ignore_errors=True)

    def _topic_folder(self, topic_id: UUID) -> Path:
        return self.path / "topics" / str(topic_id)

    def _records_file(self, topic_id: UUID, partition: int) -> EntryFile:
        return EntryFile(self._topic_folder(topic_id) / f"{partition}.log", kind=_KIND_RECORDS)

    def _append_record(self, topic_id: UUID, partition: int, payload: bytes) -> None:
        key = (topic_id, partition)
        file = self._open_files.get(key)
        if file is None:
            file = self._open_files[key] = self._records_file(topic_id, partition)
            if len(self._open_files) > _OPEN_FILES_MAX:
                self._open_files.popitem(last=False)[1].close()
        else:
            self._open_files.move_to_end(key)
        file.append(payload)

    def _note_repair(self, path: Path, cut_bytes: int) -> None:
        if cut_bytes:
            self.repairs.append(Repair(file=str(path), cut_bytes=cut_bytes))


class CoordinatorLog:
    """The coordinator's records, in the order in which they were decided.

    The records of one decision are one entry: after a crash either all of them are there or none.
    """

    def __init__(self, file: EntryFile, note_repair: Callable[[Path, int], None]) -> None:
        self._file = file
        self._note_repair = note_repair

    def load(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield every (key, value); a value of None is a tombstone.

        A file that holds mostly values which were replaced later is compacted first, as Kafka compacts
        ``__consumer_offsets``: the last value of each key stays, in the order of the last changes.

        Raises:
            DataDirCorruptError: the file is damaged.
            DataDirError: it cannot be read.
        """
        loaded = self._file.load()
        self._note_repair(self._file.path, loaded.cut_bytes)
        records: list[tuple[bytes, bytes | None]] = []
        for index, payload in enumerate(loaded.payloads):
            try:
                records += _unpack_records(bytes(payload))
            except (ValueError, struct.error) as error:
                raise DataDirCorruptError(
                    f"entry {index} does not hold coordinator records ({error})", file=str(self._file.path), position=0
                ) from error
        if len(records) >= COMPACT_FROM_RECORDS:
            latest = _latest(records)
            if len(latest) <= len(records) // 2:
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
            self._file.append(payload)

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


def _lock(path: Path, lock_fd: int) -> None:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = ""
        with contextlib.suppress(OSError, ValueError):
            holder = f" (process {int(os.pread(lock_fd, 32, 0))})"
        raise DataDirLockedError(
            f"{path}: another broker uses this folder{holder}; stop it, or choose another folder"
        ) from error
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return {str(name): str(text) for name, text in value.items()}
