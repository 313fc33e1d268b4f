"""The topics of one broker: creates, grows and deletes them, appends records, and notifies observers.

Checks names and numbers of partitions. A change is first written to the data folder (`data_dir`), then applied to
memory (`partition_log`), then reported to the observers. Everything runs on the broker's loop.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from kip848_client.common.model import ZERO_UUID
from kip848_client.common.typed import whole_number
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.metadata.placement import COORDINATOR_TOPICS, LeaderChange, Placement, TopicKey
from kip848_client.testing.broker.metadata.topic_configs import MAX_MESSAGE_BYTES, check_topic_configs
from kip848_client.testing.broker.metadata.topic_name_rules import check_topic_name
from kip848_client.testing.broker.topics.append_watchers import AppendWatchers, Watch
from kip848_client.testing.partitions.partition_log import PartitionLog, PreparedAppend
from kip848_client.testing.partitions.producer_batches import (
    MESSAGE_BYTES_MAX_DEFAULT,
    NO_RULES,
    RecordAllowance,
    RecordRules,
)
from kip848_client.testing.transactions.transaction import GROUP_OFFSETS_TOPIC

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir

STORAGE_FAILED: Final = ErrorCode.UNKNOWN_SERVER_ERROR
"""Error code if the data folder cannot be written. Clients stop and print it, most of them with our message. After
KAFKA_STORAGE_ERROR they would retry until they time out, and print only that."""

PARTITIONS_MAX: Final = 10_000
"""Partitions that one call may create; Kafka's controller has the same limit (``MAX_PARTITIONS_PER_BATCH``)."""

_PRODUCER_ID_BLOCK: Final = 1000
_ONLY_NODE: Final = 1


class Topic(msgspec.Struct, eq=False):
    """One incarnation of a topic.

    Attributes:
        partitions: the log of each partition, by index.
        configs: settings of the topic itself, without defaults.
        inherited: settings that were changed for the brokers at runtime, under their names for topics.
        deleted: it is no longer served; holders of this object must drop it.
    """

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionLog]
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    inherited: Mapping[str, str] = msgspec.field(default_factory=dict)
    deleted: bool = False

    @property
    def in_force(self) -> Mapping[str, str]:
        """Its settings and the inherited ones, without defaults."""
        return {**self.inherited, **self.configs} if self.inherited else self.configs

    @property
    def partition_count(self) -> int:
        """Number of partitions."""
        return len(self.partitions)


class TopicCreated(msgspec.Struct, frozen=True):
    """A topic was created."""

    topic: Topic


class PartitionsAdded(msgspec.Struct, frozen=True):
    """A topic grew."""

    topic: Topic


class TopicDeleted(msgspec.Struct, frozen=True):
    """A topic was deleted. Another one may get its name, with a new id."""

    topic: Topic


class TopicReconfigured(msgspec.Struct, frozen=True):
    """The configuration of a topic changed."""

    topic: Topic


TopicChange: TypeAlias = TopicCreated | PartitionsAdded | TopicDeleted | TopicReconfigured


class TopicRegistry:
    """The topics of one broker.

    Args:
        data_dir: where topics and records are kept; its content is loaded. None keeps all in memory.
        new_id: makes topic ids; random ones by default.
        message_bytes_max: the longest batch, unless a topic says otherwise.
        placement: which node leads what; a single node by default.

    Raises:
        DataDirError: the folder cannot be read, or is damaged.
    """

    def __init__(
        self,
        data_dir: DataDir | None = None,
        *,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
        message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
        placement: Placement | None = None,
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self.placement: Final = placement or Placement((_ONLY_NODE,))
        self._data_dir = data_dir
        self._new_id = new_id
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._by_metric_name: dict[str, Topic] = {}
        self._listeners: list[Callable[[TopicChange], None]] = []
        self.watchers: Final = AppendWatchers()
        self._inherited: Final[dict[str, str]] = {}
        """Shared by all topics."""
        self._next_producer_id = 0
        self._producer_id_end = 0
        if data_dir is not None:
            self._load(data_dir)

    def _load(self, data_dir: DataDir) -> None:
        logs = {
            stored.topic_id: [data_dir.load_partition(stored.topic_id, i) for i in range(stored.partition_count)]
            for stored in data_dir.topics()
        }
        data_dir.elect_leaders()
        for coordinators in COORDINATOR_TOPICS:
            placed = data_dir.placement(coordinators)
            if not self.placement.restore(coordinators, placed):
                self.placement.lead_after(coordinators, placed)
        for stored in data_dir.topics():
            placed = data_dir.placement(stored.topic_id)
            for log in logs[stored.topic_id]:
                # The entries of elections may be lost; the stored epoch is that of an earlier leader.
                log.set_leader_epoch(max(stored.leader_epoch, log.leader_epoch + (log.log_end_offset > 0)))
            for log, each in zip(logs[stored.topic_id], placed, strict=False):
                log.set_leader_epoch(max(log.leader_epoch, each.epoch + 1))
            topic = Topic(
                name=stored.name,
                topic_id=stored.topic_id,
                partitions=logs[stored.topic_id],
                configs=dict(stored.configs),
                inherited=self._inherited,
            )
            if len(placed) != stored.partition_count or not self.placement.restore(stored.topic_id, placed):
                self.placement.place(stored.topic_id, stored.partition_count)
                self._keep_placement(stored.topic_id)
            self._agree_on_epochs(topic)
            self._add(topic)

    def elect_leaders(self) -> None:
        """Lead every partition with the next epoch, as brokers do that start again: older ones are fenced."""
        self.placement.restart()
        for topic in self:
            for log in topic.partitions:
                log.set_leader_epoch(log.leader_epoch + 1)
            self._agree_on_epochs(topic)

    def leaders_changed(self, changes: Iterable[LeaderChange]) -> None:
        """Some partitions have other leaders: begin their next epoch, and wake requests that wait for them."""
        topics: dict[TopicKey, Topic | None] = {}
        for change in changes:
            topic = self._by_id.get(change.topic) if isinstance(change.topic, uuid.UUID) else None
            topics[change.topic] = topic
            if topic is not None:
                log = topic.partitions[change.partition]
                log.set_leader_epoch(max(log.leader_epoch, self.placement.get(change.topic, change.partition).epoch))
                self.watchers.gone(log)
        for key in topics:
            self._keep_placement(key)

    def has_leader(self, topic: Topic, partition: int) -> bool:
        """Whether some node leads the partition now, and does not hang."""
        return self.placement.acts(topic.topic_id, partition)

    def _agree_on_epochs(self, topic: Topic) -> None:
        for log, placed in zip(topic.partitions, self.placement.of(topic.topic_id), strict=False):
            placed.epoch = max(placed.epoch, log.leader_epoch)
            log.set_leader_epoch(placed.epoch)

    def _keep_placement(self, key: TopicKey) -> None:
        placed = self.placement.of(key)
        if self._data_dir is not None and placed:
            # The placement holds, written or not; the data folder has reported the error.
            with contextlib.suppress(DataDirError):
                self._data_dir.set_placement(key, placed)

    # --- contents

    def get(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        return self._by_name.get(name)

    def find(self, name: str, partition: int | None = None) -> Topic:
        """The topic of that name, which has *partition* if one is given.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION: there is no such topic or partition.
        """
        topic = self.get(name)
        if topic is None:
            known = ", ".join(sorted(self.names())) or "none"
            text = f"there is no topic {name!r}; topics are: {known}"
        elif partition is not None and not 0 <= whole_number(partition, name="partition") < topic.partition_count:
            text = f"topic {name!r} has no partition {partition}; it has 0 to {topic.partition_count - 1}"
        else:
            return topic
        raise BrokerError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def get_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic of that id, or None."""
        return self._by_id.get(topic_id)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._by_name)

    def __iter__(self) -> Iterator[Topic]:
        """All topics, by name."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    # --- changes

    def create(
        self,
        name: str,
        partitions: int,
        *,
        configs: Mapping[str, str] | None = None,
        topic_id: uuid.UUID | None = None,
        replication_factor: int | None = None,
        assignments: Sequence[tuple[int, ...]] | None = None,
    ) -> Topic:
        """Create a topic.

        Args:
            partitions: how many, 1 to `PARTITIONS_MAX`.
            configs: Kafka topic configuration.
            topic_id: its id; a new one if not given.
            replication_factor, assignments: see `Placement.place`.

        Raises:
            BrokerError: as `check_create` and `Placement.place`.
            DataDirError: it could not be written; there is no such topic then.
        """
        configs = dict(configs or {})
        self.check_create(name, partitions, configs=configs)
        if topic_id is None:
            topic_id = self._new_id()
        if topic_id == ZERO_UUID or topic_id in self._by_id:
            raise BrokerError(f"topic id {topic_id} is reserved or taken", code=ErrorCode.INVALID_REQUEST)
        self.placement.place(
            topic_id, partitions, replication_factor=replication_factor, assignments=assignments or None
        )
        if self._data_dir is not None:
            try:
                self._data_dir.create_topic(name, topic_id=topic_id, partition_count=partitions, configs=configs)
            except DataDirError:
                self.placement.forget(topic_id)
                raise
            self._keep_placement(topic_id)
        logs = [PartitionLog() for _ in range(partitions)]
        topic = Topic(name, topic_id, logs, configs, self._inherited)
        self._add(topic)
        self._announce(TopicCreated(topic))
        return topic

    def check_create(self, name: str, partitions: int, *, configs: Mapping[str, str | None] | None = None) -> None:
        """Whether `create` would do it (what ``validate_only`` asks).

        Raises:
            BrokerError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, POLICY_VIOLATION or
                INVALID_CONFIG.
        """
        check_topic_name(name)
        if name in self._by_name or name == GROUP_OFFSETS_TOPIC:
            raise BrokerError(f"Topic '{name}' already exists.", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        other = self._by_metric_name.get(_metric_name(name))
        if other is not None:
            raise BrokerError(
                f"Topic '{name}' collides with existing topic: {other.name}", code=ErrorCode.INVALID_TOPIC_EXCEPTION
            )
        if partitions < 1:
            raise BrokerError(
                "Number of partitions was set to an invalid non-positive value.", code=ErrorCode.INVALID_PARTITIONS
            )
        _check_added(partitions)
        check_topic_configs(configs or {})

    def add_partitions(self, name: str, count: int, *, assignments: Sequence[tuple[int, ...]] | None = None) -> Topic:
        """Grow a topic to *count* partitions.

        Args:
            assignments: the replicas of each new partition; None leaves it to the placement.

        Raises:
            BrokerError: as `check_add_partitions` and `Placement.grow`.
            DataDirError: it could not be written; the topic is as before.
        """
        topic = self.check_add_partitions(name, count)
        previous = topic.partition_count
        if assignments is not None:
            self.placement.check_added(topic.topic_id, assignments)
        if self._data_dir is not None:
            self._data_dir.set_partition_count(topic.topic_id, count)
        epoch = topic.partitions[0].leader_epoch
        topic.partitions.extend(PartitionLog(leader_epoch=epoch) for _ in range(count - previous))
        self.placement.grow(topic.topic_id, count, assignments=assignments)
        self._agree_on_epochs(topic)
        self._keep_placement(topic.topic_id)
        self._announce(PartitionsAdded(topic))
        return topic

    def check_add_partitions(self, name: str, count: int) -> Topic:
        """Whether `add_partitions` would do it.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not more than there are) or POLICY_VIOLATION.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise _unknown(name)
        current = topic.partition_count
        if count == current:
            raise BrokerError(f"Topic already has {current} partition(s).", code=ErrorCode.INVALID_PARTITIONS)
        if count < current:
            raise BrokerError(
                f"The topic {name} currently has {current} partition(s); {count} would not be an increase.",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        _check_added(count - current)
        return topic

    def delete(self, name: str) -> Topic:
        """Delete a topic and its records, and wake requests that wait for them.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
            DataDirError: it could not be written; the topic is as before.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise _unknown(name)
        if self._data_dir is not None:
            self._data_dir.delete_topic(topic.topic_id)
        del self._by_name[name], self._by_id[topic.topic_id], self._by_metric_name[_metric_name(name)]
        topic.deleted = True
        self.placement.forget(topic.topic_id)
        self._announce(TopicDeleted(topic))
        for log in topic.partitions:
            self.watchers.gone(log)
        return topic

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace the configuration of a topic as a whole.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
            DataDirError: it could not be written; the topic is as before.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise _unknown(name)
        check_topic_configs(configs)
        if self._data_dir is not None:
            self._data_dir.set_topic_configs(topic.topic_id, configs)
        topic.configs = dict(configs)
        self._announce(TopicReconfigured(topic))
        return topic

    def reassign(self, topic: Topic, partition: int, replicas: tuple[int, ...]) -> None:
        """Give a partition other replicas, and another leader if the present one is not among them.

        Raises:
            BrokerError: as `Placement.reassign`.
        """
        change = self.placement.reassign(topic.topic_id, partition, replicas)
        if change is not None:
            self.leaders_changed([change])
        else:
            self._keep_placement(topic.topic_id)
            self.watchers.gone(topic.partitions[partition])
        self._announce(TopicReconfigured(topic))

    def subscribe(self, listener: Callable[[TopicChange], None]) -> Callable[[], None]:
        """Call *listener* after each change, in order; the returned function ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- records

    def append(
        self,
        topic: Topic,
        partition: int,
        records: bytes,
        *,
        rules: RecordRules = NO_RULES,
        allowance: RecordAllowance | None = None,
    ) -> PreparedAppend:
        """Store one batch: first in the folder, then in memory; then wake waiting requests.

        Args:
            rules: what the topic demands of single records.
            allowance: how many of them may be looked at.

        Raises:
            BrokerError: as `PartitionLog.prepare`; `STORAGE_FAILED` if the folder could not be written.
        """
        assert not topic.deleted, topic.name
        max_bytes = self.batch_bytes_max(topic)
        prepared = topic.partitions[partition].prepare(records, max_bytes=max_bytes, rules=rules, allowance=allowance)
        if not prepared.duplicate:
            self._commit(topic, partition, prepared)
        return prepared

    def inherit(self, configs: Mapping[str, str]) -> None:
        """Let topics have these settings, which were changed for the brokers, unless they have their own."""
        self._inherited.clear()
        self._inherited.update(configs)

    def batch_bytes_max(self, topic: Topic) -> int:
        """The longest batch that a topic takes."""
        limit = topic.configs.get(MAX_MESSAGE_BYTES)
        return self.message_bytes_max if limit is None else int(limit)

    def append_marker(
        self,
        topic: Topic,
        partition: int,
        *,
        producer_id: int,
        epoch: int,
        commit: bool,
        timestamp_ms: int,
        coordinator_epoch: int = 0,
        moves_epoch: bool = True,
    ) -> None:
        """Store the end of a producer's transaction, and wake requests that wait for committed records.

        Raises:
            BrokerError: as `PartitionLog.prepare_marker`; `STORAGE_FAILED` if the folder could not be written.
        """
        prepared = topic.partitions[partition].prepare_marker(
            producer_id,
            epoch=epoch,
            commit=commit,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            moves_epoch=moves_epoch,
        )
        self._commit(topic, partition, prepared)

    def _commit(self, topic: Topic, partition: int, prepared: PreparedAppend) -> None:
        log = topic.partitions[partition]
        if self._data_dir is not None:
            try:
                self._data_dir.append_batch(
                    topic.topic_id, partition, prepared.batch, records=prepared.header.record_count
                )
            except DataDirError as error:
                raise BrokerError(str(error), code=STORAGE_FAILED) from error
        log.commit(prepared)
        self.watchers.appended(log, len(prepared.batch))

    def delete_records(self, topic: Topic, partition: int, before_offset: int) -> int:
        """Move the start of a partition; -1 means its end.

        Returns:
            The log start offset afterwards.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE.
            DataDirError: it could not be written; the start is as before.
        """
        log = topic.partitions[partition]
        start = log.start_after_deletion(before_offset)
        if self._data_dir is not None and start > log.log_start_offset:
            self._data_dir.set_log_start(topic.topic_id, partition, start)
        log.delete_records(start)
        self.watchers.gone(log)
        return start

    def replace_batches(self, topic: Topic, partition: int, batches: Sequence[bytes]) -> None:
        """Store a compacted partition.

        Raises:
            DataDirError: it could not be written; the partition is as before.
        """
        log = topic.partitions[partition]
        if self._data_dir is not None:
            self._data_dir.replace_log(topic.topic_id, partition, batches, log_start=log.log_start_offset)
        log.replace_batches(batches)

    def lose_records(self, topic: Topic, partition: int, count: int) -> int:
        """Lose the last *count* records of a partition, with the rest of their batches; return its new end.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: it holds fewer.
            DataDirError: it could not be written; the partition is as before.
        """
        log = topic.partitions[partition]
        end = log.log_end_offset - count
        if end < log.log_start_offset:
            raise BrokerError(
                f"{topic.name}-{partition} holds {log.log_end_offset - log.log_start_offset} records, not {count}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        if self._data_dir is not None:
            self._data_dir.truncate_log(topic.topic_id, partition, end)
        log.truncate(end)
        self.watchers.gone(log)
        return log.log_end_offset

    def watch(
        self, logs: Iterable[PartitionLog], *, on_append: Callable[[int], None], on_gone: Callable[[], None]
    ) -> Watch:
        """Wait for records; see `AppendWatchers.watch`."""
        return self.watchers.watch(logs, on_append=on_append, on_gone=on_gone)

    @property
    def watched_partitions(self) -> int:
        """How many partitions have waiters."""
        return len(self.watchers)

    def new_producer_id(self) -> int:
        """An id that no producer had before, also not before a restart on the same folder.

        Raises:
            DataDirError: the next ids could not be reserved in the folder.
        """
        if self._next_producer_id == self._producer_id_end:
            if self._data_dir is not None:
                self._next_producer_id = self._data_dir.reserve_producer_ids(_PRODUCER_ID_BLOCK)
            self._producer_id_end = self._next_producer_id + _PRODUCER_ID_BLOCK
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    # --- internals

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_metric_name[_metric_name(topic.name)] = topic

    def _announce(self, change: TopicChange) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def _metric_name(name: str) -> str:
    """Kafka names metrics after topics, with dots turned into underscores: two topics must not share one."""
    return name.replace(".", "_")


def _check_added(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise BrokerError(
            f"Excessively large number of partitions per request: {partitions}, at most {PARTITIONS_MAX}",
            code=ErrorCode.POLICY_VIOLATION,
        )


def _unknown(name: str) -> BrokerError:
    return BrokerError(f"topic '{name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
