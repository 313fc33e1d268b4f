"""``__consumer_offsets`` for readers: the coordinator's records as a topic of batches, laid out as Kafka's.

A view in memory. A restart reads the group log (`group_log`, `coordinator_log`) and fills the topic from it, under a
new topic id. Batches are made only when a client reads the topic, so it costs almost nothing before.

Kafka compacts the topic. Here the latest value of every key is written again after `PARTITION_RECORDS_MAX` records,
and what lies before the last such rewriting but one is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from kip848_client.testing.broker.topics.append_watchers import AppendWatchers
from kip848_client.testing.broker.topics.registry import Topic
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.transactions.transaction import (
    GROUP_OFFSETS_PARTITIONS,
    GROUP_OFFSETS_TOPIC,
    offsets_partition,
)
from kip848_client.wire.record_batch import Record, build_batch

PARTITION_RECORDS_MAX: Final = 10_000
"""Records between two rewritings of a partition."""

_BATCH_RECORDS_MAX: Final = 500
INT32_MAX: Final = 2**31 - 1
_CONFIGS: Final = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
"""Those of Kafka (``GroupCoordinator.groupMetadataTopicConfigs``)."""

KeyAndValue = tuple[bytes, bytes | None]


class OffsetsTopic:
    """The topic. All of it belongs to the broker's loop.

    Args:
        watchers: who waits for records of which partition.
    """

    def __init__(self, watchers: AppendWatchers) -> None:
        self._watchers = watchers
        self._topic: Final = Topic(
            GROUP_OFFSETS_TOPIC,
            uuid.uuid4(),
            [PartitionLog() for _ in range(GROUP_OFFSETS_PARTITIONS)],
            configs=dict(_CONFIGS),
        )
        self._latest: Final[dict[int, dict[bytes, Record]]] = {}
        self._unread: dict[int, list[Sequence[Record]]] | None = {}
        self._since_rewritten: Final[dict[int, int]] = {}
        self._rewritten_from: Final[dict[int, int]] = {}
        self._asked_for = False

    def create(self) -> None:
        """List it among the topics: a client asks for the coordinator of a group, which creates it on Kafka."""
        self._asked_for = True

    @property
    def is_listed(self) -> bool:
        """Whether answers about all topics have it. A client that names it finds it before, too."""
        return self._asked_for or bool(self._since_rewritten)

    def is_empty(self, group_id: str) -> bool:
        """Whether nothing was ever written to the partition of a group."""
        return offsets_partition(group_id)[1] not in self._since_rewritten

    @property
    def described(self) -> Topic:
        """Name, id and number of partitions; for the records see `readable`."""
        return self._topic

    def readable(self) -> Topic:
        """The topic with all its records; from the first call on every decision becomes a batch at once."""
        if self._unread is not None:
            unread, self._unread = self._unread, None
            for partition, decisions in unread.items():
                for records in decisions:
                    self._store(partition, records)
        return self._topic

    def elect_leader(self) -> None:
        """Lead every partition with the next epoch."""
        for log in self._topic.partitions:
            log.set_leader_epoch(log.leader_epoch + 1)

    def lead(self, partition: int, *, epoch: int) -> None:
        """Another node leads a partition, with *epoch* if that is higher than the present one."""
        log = self._topic.partitions[partition]
        log.set_leader_epoch(max(log.leader_epoch, epoch))
        self._watchers.gone(log)

    def append(self, group_id: str, records: Iterable[KeyAndValue], *, timestamp_ms: int) -> None:
        """Add the records of one decision about a group.

        Args:
            timestamp_ms: milliseconds since 1970.
        """
        batch = [Record(key=key, value=value, timestamp=timestamp_ms) for key, value in records]
        if not batch:
            return
        partition = offsets_partition(group_id)[1]
        latest = self._latest.setdefault(partition, {})
        for record in batch:
            assert record.key is not None
            latest.pop(record.key, None)
            if record.value is not None:
                latest[record.key] = record
        self._since_rewritten[partition] = count = self._since_rewritten.get(partition, 0) + len(batch)
        if self._unread is not None:
            self._unread.setdefault(partition, []).append(batch)
        else:
            self._store(partition, batch)
        if count > max(PARTITION_RECORDS_MAX, 2 * len(latest)):
            self._rewrite(partition)

    def _store(self, partition: int, records: Sequence[Record]) -> None:
        log = self._topic.partitions[partition]
        for begin in range(0, len(records), _BATCH_RECORDS_MAX):
            prepared = log.prepare(build_batch(records[begin : begin + _BATCH_RECORDS_MAX]), max_bytes=INT32_MAX)
            log.commit(prepared)
            self._watchers.appended(log, len(prepared.batch))

    def _rewrite(self, partition: int) -> None:
        latest = list(self._latest[partition].values())
        self._since_rewritten[partition] = 0
        if self._unread is not None:
            self._unread[partition] = [[record] for record in latest]
            return
        log = self._topic.partitions[partition]
        start, self._rewritten_from[partition] = self._rewritten_from.get(partition, 0), log.log_end_offset
        self._store(partition, latest)
        log.delete_records(start)
        self._watchers.gone(log)
