"""The data folder of an embedded broker: everything that survives the end of its process, also a crash.

Owns the layout and the meaning of entries. `entry_file` writes entries, `data_folder` has marker and lock,
`topic_folder` the folder of one topic. `topics` stores records and topics through `DataDir`; the group host stores
records through `CoordinatorLog`. ::

    kip848-data-folder.json         the marker: this folder belongs to a broker; its cluster id
    lock                            held while a broker uses the folder; names its process
    cluster.log                     topics, partition counts, configurations, producer ids (JSON entries)
    coordinator.log                 records of groups and offsets: keys and values as in __consumer_offsets
    transactions.log                records of transactional ids: keys and values as in __transaction_state
    topics/<topic id>/topic.json    what cluster.log says about that topic, to restore it from
    topics/<topic id>/<n>.log       records of one partition: batches as sent, and moves of the log start
    set-aside/                      files that are not served: torn tails, damaged files, folders of no topic

A broker removes only files that it wrote for a topic whose deletion is in cluster.log. A missing or damaged cluster.log
is written again from its undamaged entries and from the folders of the topics; see `DataDir.repairs`.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.errors import BrokerError, DataDirCorruptError, DataDirError
from kip848_client.testing.broker.metadata.acls import Acl
from kip848_client.testing.broker.metadata.placement import PlacedPartition, TopicKey
from kip848_client.testing.broker.metadata.topic_configs import FLUSH_MESSAGES
from kip848_client.testing.broker.storage.cluster_log import (
    ClusterState,
    ConfigKind,
    CredentialKey,
    StoredTopic,
    acls_changed,
    configs_changed,
    decode_entry,
    encode_entry,
    leaders_elected,
    partitions_added,
    partitions_placed,
    producer_ids_reserved,
    resource_configs_changed,
    scram_changed,
    scram_changes_forgotten,
    topic_created,
    topic_deleted,
    topic_lost,
)
from kip848_client.testing.broker.storage.coordinator_log import CoordinatorLog
from kip848_client.testing.broker.storage.data_folder import SetAside, claim_folder, release_folder
from kip848_client.testing.broker.storage.entry_file import EntryFile, sync_folder
from kip848_client.testing.broker.storage.share_state_log import since_snapshots
from kip848_client.testing.broker.storage.topic_folder import KIND_RECORDS, TopicFile, TopicFolder, topic_folders
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.wire.record_batch import parse_batch_header
from kip848_client.wire.sasl.scram import ScramCredential

_KIND_CLUSTER: Final = b"c"
_KIND_COORDINATOR: Final = b"o"
_KIND_TRANSACTIONS: Final = b"t"
_KIND_SHARE_STATES: Final = b"s"

_BATCH: Final = 0
_LOG_START: Final = 1
_LOG_END: Final = 2
_LOG_BEGINS: Final = 3
"""The first entry of a file that was rewritten: where its first batch begins."""

_OPEN_FILES_MAX: Final = 128
"""Partition files held open at once; the limit of a process is often 1024."""

NEVER_FLUSH: Final = 2**63 - 1
"""Kafka's default of ``flush.messages``: the operating system decides when written records reach the disk."""

_TELL_EVERY_S: Final = 10.0

_INT64: Final = struct.Struct(">q")


class Repair(msgspec.Struct, frozen=True):
    """A repair of the folder while it was loaded.

    Attributes:
        path: the file or folder.
        what: the damage and the repair, as a sentence without the path. kept_in: path of the bytes that are no longer
            served; None if there are none.
    """

    path: str
    what: str
    kept_in: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f" (kept in {self.kept_in})" if self.kept_in else "")


class DataDir:
    """A folder, locked for one broker. Use `DataDir.open`; close it in the end.

    Attributes:
        path: the folder.
        cluster_id: the same for the life of the folder.
        coordinator_log: the records of the group coordinator.
        transaction_log: the records of the transaction coordinator.
        share_state_log: what is kept of the partitions of share groups.
        repairs: what was repaired so far; more may come while partitions are loaded.
        on_write_failed: called with the first of several writes that fail, and again every ten seconds.
        on_write_recovered: called when as much could be written as was refused.
    """

    def __init__(self, path: Path, lock_fd: int, cluster_id: str, *, flush_messages: int = NEVER_FLUSH) -> None:
        self.path: Final = path
        self.cluster_id: Final = cluster_id
        self.repairs: list[Repair] = []
        self.on_write_failed: Callable[[DataDirError], None] = _ignore
        self.on_write_recovered: Callable[[], None] = _ignore
        self._refused_size = 0
        self._tell_again_s = -math.inf
        self.flush_messages = flush_messages
        self._unflushed: dict[tuple[UUID, int], int] = {}
        self._unflushed_decisions = 0
        self._flushed_topics: set[UUID] = set()
        self._lock_fd = lock_fd
        self._set_aside: Final = SetAside(path)
        self._state: Final = ClusterState()
        self._cluster = EntryFile(path / "cluster.log", kind=_KIND_CLUSTER)
        self.coordinator_log: Final = CoordinatorLog(
            EntryFile(path / "coordinator.log", kind=_KIND_COORDINATOR),
            load=self._load_entries,
            append=self._append_decision,
        )
        self.transaction_log: Final = CoordinatorLog(
            EntryFile(path / "transactions.log", kind=_KIND_TRANSACTIONS),
            load=self._load_entries,
            append=self._append_decision,
        )
        self.share_state_log: Final = CoordinatorLog(
            EntryFile(path / "share-states.log", kind=_KIND_SHARE_STATES),
            load=self._load_entries,
            append=self._append_decision,
            latest=since_snapshots,
        )
        self._open_files: OrderedDict[tuple[UUID, int], EntryFile] = OrderedDict()

    @classmethod
    def open(cls, path: Path | str, *, flush_messages: int = NEVER_FLUSH) -> DataDir:
        """Lock the folder and read which topics it holds; it is made if it is not there.

        Args:
            flush_messages: every how many records of a partition its file is flushed to the disk, unless the topic
                says otherwise; below `NEVER_FLUSH` it holds for topics and groups as well.

        Raises:
            DataDirForeignError: it holds files that no broker wrote; nothing in it was touched.
            DataDirLockedError: another broker uses it.
            DataDirError: it cannot be made, read or written, or was written by another version.
        """
        path = Path(path)
        marker, lock_fd = claim_folder(path)
        try:
            data_dir = cls(path, lock_fd, marker.cluster_id, flush_messages=flush_messages)
            if data_dir._topics_folder.is_symlink():
                raise DataDirError(
                    f"{data_dir._topics_folder}: is a symbolic link, which is not followed, since folders are moved "
                    "and removed there. Let the data folder as a whole be the link"
                )
            data_dir._load_cluster()
        except BaseException:
            release_folder(lock_fd)
            raise
        return data_dir

    def close(self) -> None:
        """Close all files and give the folder free. May be called twice."""
        for file in self._open_files.values():
            file.close()
        self._open_files.clear()
        self._cluster.close()
        self.coordinator_log.close()
        self.transaction_log.close()
        self.share_state_log.close()
        if self._lock_fd >= 0:
            release_folder(self._lock_fd)
            self._lock_fd = -1

    # --- topics

    def topics(self) -> list[StoredTopic]:
        """The topics of the folder, in the order in which they were created."""
        return list(self._state.topics.values())

    def create_topic(self, name: str, *, topic_id: UUID, partition_count: int, configs: Mapping[str, str]) -> None:
        """Remember a new topic.

        Raises:
            DataDirError: it was not written; there is no such topic.
        """
        if os.path.lexists(self._topic_folder(topic_id).path):  # left of a topic of the same id that was deleted
            self._set_folder_aside(self._topic_folder(topic_id), "a topic of its id was deleted, and one is created")
        self._make_topic_folder(topic_id)
        self._write(topic_created(StoredTopic(name, topic_id, partition_count, dict(configs))))
        self._write_topic_file(topic_id)

    def set_partition_count(self, topic_id: UUID, partition_count: int) -> None:
        """Remember that a topic grew.

        Raises:
            DataDirError: it was not written; the topic is as before.
        """
        self._write(partitions_added(topic_id, partition_count))
        self._write_topic_file(topic_id)

    def set_topic_configs(self, topic_id: UUID, configs: Mapping[str, str]) -> None:
        """Remember the whole configuration of a topic.

        Raises:
            DataDirError: it was not written; the topic is as before.
        """
        self._write(configs_changed(topic_id, configs))
        self._write_topic_file(topic_id)

    def placement(self, key: TopicKey) -> Sequence[PlacedPartition]:
        """Where the partitions of a topic were last; empty if that was never written."""
        return self._state.placements.get(key, ())

    def set_placement(self, key: TopicKey, placed: Sequence[PlacedPartition]) -> None:
        """Remember where the partitions of a topic are, and who leads them.

        Raises:
            DataDirError: it was not written.
        """
        self._write(partitions_placed(key, placed))

    def delete_topic(self, topic_id: UUID) -> None:
        """Forget a topic and remove its files.

        Raises:
            DataDirError: it was not written; the topic is as before.
        """
        self._write(topic_deleted(topic_id))
        for key in [key for key in self._open_files if key[0] == topic_id]:
            self._open_files.pop(key).close()
        self._topic_folder(topic_id).remove()  # the next load tries again to remove leftovers

    def elect_leaders(self) -> None:
        """Remember that every partition has a new leader: this broker, which just started.

        Raises:
            DataDirError: it was not written.
        """
        if self._state.topics:
            self._write(leaders_elected())

    # --- records

    def load_partition(self, topic_id: UUID, partition: int) -> PartitionLog:
        """Read the records of one partition; an absent file is an empty log.

        Raises:
            DataDirCorruptError: the file is damaged, or its batches do not continue each other.
            DataDirError: it cannot be read.
        """
        log = PartitionLog()
        file = self._records_file(topic_id, partition)
        restore = log.restore
        for index, payload in enumerate(self._load_entries(file)):
            try:
                if payload[0] == _BATCH:
                    restore(bytes(payload[1:]))
                elif payload[0] == _LOG_START:
                    log.delete_records(_INT64.unpack(payload[1:])[0])
                elif payload[0] == _LOG_BEGINS:
                    log.begin_at(_INT64.unpack(payload[1:])[0])
                    restore = log.restore
                elif payload[0] == _LOG_END:
                    log.truncate(_INT64.unpack(payload[1:])[0])
                else:
                    raise ValueError(f"unknown kind of entry {payload[0]}")
            except (BrokerError, ValueError, IndexError, struct.error) as error:
                raise DataDirCorruptError(
                    f"entry {index}: {error}. Nothing was changed; restore this file from a copy of the folder",
                    file=str(file.path),
                    position=0,
                ) from error
        return log

    def append_batch(self, topic_id: UUID, partition: int, batch: bytes, *, records: int = 1) -> None:
        """Write one stored batch.

        Args:
            records: how many it holds; after ``flush.messages`` of them the file is flushed to the disk.

        Raises:
            DataDirError: it was not written.
        """
        to_disk = False
        flush_messages = self._state.topics[topic_id].configs.get(FLUSH_MESSAGES, self.flush_messages)
        if flush_messages != NEVER_FLUSH:
            unflushed = self._unflushed.get((topic_id, partition), 0) + records
            to_disk = unflushed >= int(flush_messages)
            if to_disk and topic_id not in self._flushed_topics:
                self._flush_topic_folder(topic_id)
        self._append_record(topic_id, partition, b"\0" + batch, to_disk=to_disk)
        if flush_messages != NEVER_FLUSH:
            self._unflushed[topic_id, partition] = 0 if to_disk else unflushed

    def set_log_start(self, topic_id: UUID, partition: int, offset: int) -> None:
        """Remember that everything below *offset* was deleted. The bytes stay in the file.

        Raises:
            DataDirError: it was not written.
        """
        self._append_record(topic_id, partition, b"\1" + _INT64.pack(offset))

    def replace_log(self, topic_id: UUID, partition: int, batches: Sequence[bytes], *, log_start: int) -> None:
        """Rewrite the file of a partition, completely or not at all.

        Raises:
            DataDirError: it was not written; the file is as it was.
        """
        begins = parse_batch_header(batches[0]).base_offset if batches else log_start
        entries = [bytes([_LOG_BEGINS]) + _INT64.pack(begins), *(bytes([_BATCH]) + batch for batch in batches)]
        if log_start > begins:
            entries.append(bytes([_LOG_START]) + _INT64.pack(log_start))
        open_file = self._open_files.pop((topic_id, partition), None)
        if open_file is not None:
            open_file.close()
        self._records_file(topic_id, partition).rewrite(entries)

    def truncate_log(self, topic_id: UUID, partition: int, end_offset: int) -> None:
        """Remember that the records from *end_offset* on were lost. The bytes stay in the file.

        Raises:
            DataDirError: it was not written.
        """
        self._append_record(topic_id, partition, b"\2" + _INT64.pack(end_offset))

    # --- settings of groups, of brokers and of clients

    def configs(self, kind: ConfigKind) -> Mapping[str, Mapping[str, str]]:
        """Name of a resource -> what was set for it."""
        return self._state.configs[kind]

    def set_configs(self, kind: ConfigKind, name: str, configs: Mapping[str, str]) -> None:
        """Remember all that is set for a resource; nothing is left of it if *configs* is empty."""
        self._write(resource_configs_changed(kind, name, configs))

    # --- access

    def acls(self) -> tuple[Acl, ...]:
        """The ACLs, in the order in which they were added."""
        return tuple(self._state.acls)

    def change_acls(self, *, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        """Remember ACLs, and forget others.

        Raises:
            DataDirError: it was not written.
        """
        self._write(acls_changed(added=added, removed=removed))

    def scram_changes(self) -> Mapping[CredentialKey, ScramCredential | None]:
        """Credentials that AlterUserScramCredentials set; None for a deleted one."""
        return self._state.scram

    def change_scram(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        """Remember changes, one by one.

        Raises:
            DataDirError: not all were written.
        """
        for (user, mechanism), credential in changes.items():
            self._write(scram_changed(user, mechanism, credential))

    def forget_scram_changes(self) -> None:
        """Forget all of them.

        Raises:
            DataDirError: that was not written.
        """
        self._write(scram_changes_forgotten())

    # --- small facts

    def reserve_producer_ids(self, count: int) -> int:
        """Reserve *count* producer ids that were never handed out by a broker on this folder.

        Returns:
            The first of them.
        """
        first = self._state.producer_id_end
        self._write(producer_ids_reserved(first + count))
        return first

    # --- loading

    @property
    def _topics_folder(self) -> Path:
        return self.path / "topics"

    def _load_cluster(self) -> None:
        is_behind, damage = self._replay_cluster()
        restored = self._restore_topics()
        is_behind = is_behind or bool(restored)
        entries = [topic_created(topic) for topic in restored]
        for topic in tuple(self._state.topics.values()):
            entries += self._heal_topic(topic, is_behind=is_behind)
        if is_behind:
            # Reservations may be lost, too. No broker hands out a million ids each second, so these are new.
            self._state.producer_id_end = max(self._state.producer_id_end, time.time_ns() // 1000)
            entries.append(producer_ids_reserved(self._state.producer_id_end))
        if damage:
            self._rewrite_cluster(damage, restored)
        else:
            for entry in entries:
                self._write(entry)
        for topic in self._state.topics.values():
            if self._topic_folder(topic.topic_id).read() != _topic_file(topic):
                self._write_topic_file(topic.topic_id)

    def _replay_cluster(self) -> tuple[bool, str]:
        """Replay cluster.log.

        Returns:
            Whether it may lack entries; and why it has to be written again, empty if it has not.
        """
        path = self._cluster.path
        if not path.exists() or not path.stat().st_size:
            used = self._topics_folder.exists() or (self.path / "coordinator.log").exists()
            return used, "" if not used else "was empty" if path.exists() else "was missing"
        try:
            payloads = self._load_entries(self._cluster)
        except DataDirCorruptError as error:
            for salvaged in self._cluster.salvage():
                with contextlib.suppress(ValueError):  # it looks like an entry but is none of ours
                    self._state.replay(decode_entry(salvaged))
            return True, f"was damaged at byte {error.position}"
        for payload in payloads:
            self._state.replay(decode_entry(payload))
        return bool(self.repairs), ""  # a tail was cut off

    def _restore_topics(self) -> list[StoredTopic]:
        """Look at the folders of topics that cluster.log does not know: restore the topic, or set the folder aside."""
        unknown = []
        for folder in topic_folders(self._topics_folder):
            if folder.topic_id in self._state.deleted:
                if not folder.remove():
                    self._set_folder_aside(folder, "its topic was deleted, and not all of it is a broker's")
            elif folder.topic_id not in self._state.topics:
                unknown.append(folder)
        restored = []
        names = {topic.name for topic in self._state.topics.values()}
        for folder in sorted(unknown, key=TopicFolder.modified_ns, reverse=True):
            try:
                found = folder.read_to_restore()
                if found.topic in names:
                    raise ValueError(f"its topic {found.topic!r} is there under another id")
            except ValueError as error:
                self._set_folder_aside(folder, str(error))
                continue
            names.add(found.topic)
            topic = StoredTopic(
                found.topic, found.topic_id, found.partitions, dict(found.configs), _leader_epoch_after_a_loss()
            )
            self._state.topics[topic.topic_id] = topic
            restored.append(topic)
            self._note(folder.path, f"was not in cluster.log; topic {topic.name!r} is restored from it")
        return restored

    def _heal_topic(self, topic: StoredTopic, *, is_behind: bool) -> Iterator[dict[str, object]]:
        """Compare a topic with what its folder says, and yield the entries that cluster.log lacks.

        Args:
            is_behind: cluster.log may lack entries, so that the folder knows better.
        """
        folder = self._topic_folder(topic.topic_id)
        if not os.path.lexists(folder.path):
            # An existing topic has a folder. Either cluster.log lacks its deletion, or the folder was removed by hand.
            self._note(folder.path, f"is missing, so topic {topic.name!r} is not there; put it back to restore it")
            del self._state.topics[topic.topic_id]
            yield topic_lost(topic.topic_id)
            return
        if not folder.path.is_dir():
            raise DataDirError(
                f"{folder.path}: is neither a folder nor a link to one; topic {topic.name!r} should be in it"
            )
        copy = folder.read()
        count = max([topic.partition_count, *(number + 1 for number in folder.partitions()[-1:])])
        if copy is not None and copy.topic_id == topic.topic_id:
            count = max(count, copy.partitions)
            if is_behind and copy.configs != topic.configs:
                topic.configs = dict(copy.configs)
                yield configs_changed(topic.topic_id, topic.configs)
        if count > topic.partition_count:
            known, topic.partition_count = topic.partition_count, count
            self._note(folder.path, f"topic {topic.name!r} has {count} partitions; cluster.log knew of {known}")
            yield partitions_added(topic.topic_id, count)

    def _rewrite_cluster(self, damage: str, restored: Sequence[StoredTopic]) -> None:
        path = self._cluster.path
        kept = self._set_aside.copy(path) if path.exists() and path.stat().st_size else None
        for topic in self._state.topics.values():
            topic.leader_epoch = max(topic.leader_epoch, _leader_epoch_after_a_loss())
        self._cluster.rewrite(map(encode_entry, self._state.entries()))
        self._note(
            path,
            f"{damage}; it was written again, with {len(self._state.topics)} topics, {len(restored)} of them restored "
            "from their folders. Settings of single groups may be lost",
            kept,
        )

    def _load_entries(self, file: EntryFile) -> Sequence[memoryview]:
        """The entries of a file; a torn tail is cut off and kept.

        Raises:
            DataDirCorruptError: the file is damaged elsewhere.
            DataDirError: it cannot be read, or its tail not be kept.
        """
        loaded = file.load()
        if tail := loaded.torn_tail:
            kept = self._set_aside.keep_tail(file.path, tail, position=loaded.end)
            file.cut(loaded)
            self._note(file.path, f"ended in an incomplete entry; {len(tail)} bytes were cut off", kept)
        return loaded.payloads

    def _set_folder_aside(self, folder: TopicFolder, why: str) -> None:
        try:
            kept = self._set_aside.move(folder.path)
        except OSError as error:
            self._note(folder.path, f"is left where it is and not served: {why}; it cannot be moved: {error.strerror}")
        else:
            self._note(folder.path, f"was set aside: {why}", kept)

    def _note(self, path: Path, what: str, kept: Path | None = None) -> None:
        self.repairs.append(Repair(path=str(path), what=what, kept_in=None if kept is None else str(kept)))

    # --- writing

    def _write(self, entry: dict[str, object]) -> None:
        self._append(self._cluster, encode_entry(entry), to_disk=self.flush_messages < NEVER_FLUSH)
        self._state.replay(entry)

    def _make_topic_folder(self, topic_id: UUID) -> None:
        folder = self._topic_folder(topic_id)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            failure = DataDirError(f"{folder.path}: cannot be made: {error.strerror}")
            self._write_failed(failure, size=1)
            raise failure from error

    def _write_topic_file(self, topic_id: UUID, *, to_disk: bool = False) -> None:
        """Write what the topic's folder says about it. That is a copy: without it the topic is served all the same."""
        folder = self._topic_folder(topic_id)
        try:
            folder.write(_topic_file(self._state.topics[topic_id]), to_disk=to_disk)
        except OSError as error:
            self._write_failed(DataDirError(f"{folder.path}: cannot be written: {error.strerror}"), size=1)

    def _append_record(self, topic_id: UUID, partition: int, payload: bytes, *, to_disk: bool = False) -> None:
        key = (topic_id, partition)
        file = self._open_files.get(key)
        if file is None:
            file = self._open_files[key] = self._records_file(topic_id, partition)
            if len(self._open_files) > _OPEN_FILES_MAX:
                self._open_files.popitem(last=False)[1].close()
        else:
            self._open_files.move_to_end(key)
        self._append(file, payload, to_disk=to_disk)

    def _append(self, file: EntryFile, payload: bytes, *, to_disk: bool = False) -> None:
        try:
            file.append(payload, to_disk=to_disk)
        except DataDirError as error:
            self._write_failed(error, size=len(payload))
            raise
        # A short entry may fit where a long one did not, so success does not mean that there is room again.
        if self._refused_size and (len(payload) >= self._refused_size or time.monotonic() >= self._tell_again_s):
            self._refused_size = 0
            self._tell_again_s = -math.inf
            self.on_write_recovered()

    def _append_decision(self, file: EntryFile, payload: bytes) -> None:
        self._unflushed_decisions += 1
        to_disk = self._unflushed_decisions >= self.flush_messages
        self._append(file, payload, to_disk=to_disk)
        if to_disk:
            self._unflushed_decisions = 0

    def _write_failed(self, error: DataDirError, *, size: int) -> None:
        now_s = time.monotonic()
        self._refused_size = max(self._refused_size, size)
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _TELL_EVERY_S
            self.on_write_failed(error)

    def _flush_topic_folder(self, topic_id: UUID) -> None:
        """Flush a topic's folder and its description to the disk: records are of no use without them."""
        self._write_topic_file(topic_id, to_disk=True)
        folder = self._topic_folder(topic_id).path
        try:
            for place in (folder, self._topics_folder, self.path):
                sync_folder(place)
        except OSError as error:
            raise DataDirError(f"{folder}: cannot be flushed to the disk: {error.strerror}") from error
        self._flushed_topics.add(topic_id)

    def _topic_folder(self, topic_id: UUID) -> TopicFolder:
        return TopicFolder(self._topics_folder / str(topic_id))

    def _records_file(self, topic_id: UUID, partition: int) -> EntryFile:
        return EntryFile(self._topic_folder(topic_id).records_file(partition), kind=KIND_RECORDS)


def _topic_file(topic: StoredTopic) -> TopicFile:
    return TopicFile(
        topic=topic.name, topic_id=topic.topic_id, partitions=topic.partition_count, configs=dict(topic.configs)
    )


def _leader_epoch_after_a_loss() -> int:
    """A leader epoch above the forgotten ones: consumers refuse a smaller one than they know.

    Minutes since 1970. Each start of a broker counts one, so this is above them unless it started once a minute.
    """
    return int(time.time()) // 60


def _ignore(*_: object) -> None:
    pass
