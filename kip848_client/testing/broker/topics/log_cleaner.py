"""Retention and compaction: deletes the records that the configuration of their topic keeps no longer.

Runs on request, and every ``log.retention.check.interval.ms`` and ``log.cleaner.backoff.ms``. The profile ``default``
turns these off, so that a test loses no records while it waits.

Source:
    apache/kafka ``UnifiedLog.deleteOldSegments``, ``Cleaner``. Here a batch takes the place of a segment, and
    transaction markers stay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError, DataDirError, IllegalStateError, ProtocolError
from kip848_client.testing.broker.metadata.topic_configs import CLEANUP_POLICY, config_of
from kip848_client.testing.broker.topics.registry import Topic, TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.wire.record_batch import BatchHeader, Record, keep_records, parse_batch_header, records_of


def retained_from(log: PartitionLog, configs: Mapping[str, str], *, wall_ms: int) -> int:
    """The offset from which ``retention.ms`` and ``retention.bytes`` keep records; at least the start of the log.

    Whole batches go, oldest first, up to the last stable offset.
    """
    keep_ms = int(config_of(configs, "retention.ms"))
    keep_bytes = int(config_of(configs, "retention.bytes"))
    start, size = log.log_start_offset, log.size_bytes
    for batch in log.batches():
        header = parse_batch_header(batch)
        expired = keep_ms >= 0 and 0 <= header.max_timestamp < wall_ms - keep_ms
        too_much = keep_bytes >= 0 and size - header.size >= keep_bytes
        if not (expired or too_much) or header.next_offset > log.last_stable_offset:
            break
        start, size = max(start, header.next_offset), size - header.size
    return start


class _Job(msgspec.Struct, eq=False):
    """Something that is done again and again, and when it is due next."""

    run: Callable[[], object]
    interval_ms: int
    due_ms: int = 0


class LogCleaner:
    """Applies retention and compaction to the topics of a broker. Lives on the broker's loop.

    Args:
        retention_interval_ms: time between two rounds of retention; with 0 on request only.
        compaction_interval_ms: likewise.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        retention_interval_ms: int,
        compaction_interval_ms: int,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._loop = loop
        self._retention: Final = _Job(self.apply_retention, retention_interval_ms)
        self._compaction: Final = _Job(self._compact_dirty_topics, compaction_interval_ms)
        for job in (self._retention, self._compaction):
            job.due_ms = clock.now_ms() + job.interval_ms
        self._timer: asyncio.TimerHandle | None = None
        # Tombstone -> when a pass first saw it as the last record of its key.
        self._tombstones: dict[tuple[UUID, int, int], int] = {}
        self._cleaned_bytes: dict[tuple[UUID, int], int] = {}
        self._arm_timer()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def compact_every(self, interval_ms: int) -> None:
        """Compact in that interval from now on; with 0 on request only."""
        if interval_ms != self._compaction.interval_ms:
            self._compaction.interval_ms = interval_ms
            self._compaction.due_ms = self._clock.now_ms() + interval_ms
            self._arm_timer()

    def run_due(self) -> None:
        """Clean if it is time."""
        for job in self._running():
            if self._clock.now_ms() < job.due_ms:
                continue
            job.due_ms = self._clock.now_ms() + job.interval_ms
            with contextlib.suppress(
                DataDirError, BrokerError
            ):  # the data folder reports them; the next round tries again
                job.run()
        self._arm_timer()

    def apply_retention(self, topic: Topic | None = None) -> dict[NamedPartition, int]:
        """Delete what *topic*, or each topic, keeps no longer; return the new starts of the partitions that lost any.

        Raises:
            DataDirError: it could not be written.
        """
        moved = {}
        for each in (topic,) if topic is not None else tuple(self._topics):
            if "delete" in _policies(each):
                for partition, log in enumerate(each.partitions):
                    start = retained_from(log, each.in_force, wall_ms=self._clock.wall_ms())
                    if start > log.log_start_offset and self._topics.has_leader(each, partition):
                        self._topics.delete_records(each, partition, start)
                        moved[NamedPartition(each.name, partition)] = start
        return moved

    def compact(self, topic: Topic) -> dict[NamedPartition, int]:
        """Keep the last record of each key; return how many records went, by partition.

        The newest batch of a partition, and batches that are not below its last stable offset, stay as they are.

        Raises:
            IllegalStateError: the topic is not compacted.
            DataDirError: it could not be written.
        """
        if "compact" not in _policies(topic):
            raise IllegalStateError(
                f"topic {topic.name!r} has {CLEANUP_POLICY}={config_of(topic.in_force, CLEANUP_POLICY)}; "
                "create it with cleanup.policy=compact"
            )
        gone = {}
        for partition in range(topic.partition_count):
            count = self._compact_partition(topic, partition)
            if count:
                gone[NamedPartition(topic.name, partition)] = count
        return gone

    def _compact_dirty_topics(self) -> None:
        for topic in tuple(self._topics):
            if "compact" in _policies(topic):
                self._compact_dirty(topic)

    def _compact_dirty(self, topic: Topic) -> None:
        least = float(config_of(topic.in_force, "min.cleanable.dirty.ratio"))
        for partition, log in enumerate(topic.partitions):
            clean = self._cleaned_bytes.get((topic.topic_id, partition), 0)
            if not self._topics.has_leader(topic, partition):
                continue
            if log.size_bytes and (log.size_bytes - clean) / log.size_bytes >= least:
                self._compact_partition(topic, partition)

    def _compact_partition(self, topic: Topic, partition: int) -> int:
        log = topic.partitions[partition]
        batches = log.batches()
        aborted = log.aborted_between(log.log_start_offset, log.log_end_offset)
        opened: list[tuple[int, BatchHeader, tuple[Record, ...], bool]] = []
        last: dict[bytes, int] = {}
        for index, batch in enumerate(batches[:-1]):
            header = parse_batch_header(batch)
            if header.is_control or header.next_offset > log.last_stable_offset:
                continue
            try:
                records = records_of(batch)
            except ProtocolError:
                continue  # damaged or too much of it: it stays as it is
            is_aborted = header.is_transactional and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            opened.append((index, header, records, is_aborted))
            if not is_aborted:
                last.update((record.key, record.offset) for record in records if record.key is not None)
        now_ms, keep_ms = self._clock.wall_ms(), int(config_of(topic.in_force, "delete.retention.ms"))
        seen: dict[tuple[UUID, int, int], int] = {}

        def stays(record: Record) -> bool:
            if record.key is None or last.get(record.key) != record.offset:
                return record.key is None
            if record.value is not None:
                return True
            tombstone = (topic.topic_id, partition, record.offset)
            since_ms = self._tombstones.get(tombstone, now_ms)
            seen[tombstone] = since_ms
            return now_ms < since_ms + keep_ms

        after, gone = list(batches), 0
        for index, _, records, is_aborted in opened:
            kept = {record.offset for record in records if not is_aborted and stays(record)}
            gone += len(records) - len(kept)
            after[index] = keep_records(batches[index], lambda record, kept=kept: record.offset in kept)  # type: ignore[misc]
        if gone:
            self._topics.replace_batches(topic, partition, after)
        place = (topic.topic_id, partition)
        self._tombstones = {key: at for key, at in self._tombstones.items() if key[:2] != place} | seen
        self._cleaned_bytes[place] = log.size_bytes - (len(after[-1]) if after else 0)
        return gone

    def _running(self) -> list[_Job]:
        return [job for job in (self._retention, self._compaction) if job.interval_ms]

    def _arm_timer(self) -> None:
        self.close()
        if (jobs := self._running()) and not isinstance(self._clock, ManualClock):
            delay_ms = max(min(job.due_ms for job in jobs) - self._clock.now_ms(), 1)
            self._timer = self._loop.call_later(delay_ms / 1000, self.run_due)


def _policies(topic: Topic) -> set[str]:
    return {part.strip() for part in config_of(topic.in_force, CLEANUP_POLICY).split(",")}
