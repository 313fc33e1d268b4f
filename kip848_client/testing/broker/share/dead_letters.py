"""Dead-letter topics (KIP-1191): where records of share groups go that are given up.

Source:
    apache/kafka ``ShareGroupDLQStateManager``; KIP-1191.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kip848_client.common.clock import Clock
from kip848_client.errors import BrokerError, ErrorCode, ProtocolError
from kip848_client.testing.broker.metadata.topic_configs import DEAD_LETTERS_ENABLED
from kip848_client.testing.broker.topics.records import NewRecord, append_records
from kip848_client.testing.broker.topics.registry import Topic, TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import DeadLetterBatch
from kip848_client.wire.record_batch import Record, batches_of, records_of

_ENABLED: Final = "true"
_RECORD_BYTES: Final = 300
"""More than a letter needs besides its texts: the names of its headers, their lengths, and a batch's header."""


class DeadLetterTopics:
    """The dead-letter topics of a broker.

    Args:
        name_prefix: how their names begin (``errors.deadletterqueue.topic.name.prefix``).
        creates_topics: whether one is made that is not there (``errors.deadletterqueue.auto.create.topics.enable``).
        partitions: how many partitions such a topic has.
    """

    def __init__(
        self, topics: TopicRegistry, *, clock: Clock, name_prefix: str, creates_topics: bool, partitions: int
    ) -> None:
        self._topics: Final = topics
        self._clock: Final = clock
        self.name_prefix = name_prefix
        self.creates_topics = creates_topics
        self._partitions: Final = partitions

    def write(
        self, group_id: str, topic: Topic, partition: int, dead: DeadLetterBatch, *, settings: ShareSettings
    ) -> None:
        """Write one record for each that was given up: headers about it and, if the group wants it, key and value.

        Raises:
            BrokerError: the group's dead-letter topic does not take them, or one of them.
        """
        target = self._find(settings.dead_letter_topic)
        copies = self._copies(topic.partitions[partition], dead) if settings.dead_letter_copy_record else {}
        new = []
        for offset in range(dead.first_offset, dead.last_offset + 1):
            copy = copies.get(offset, Record(value=None))
            headers = (
                ("__dlq.errors.topic", topic.name.encode()),
                ("__dlq.errors.partition", b"%d" % partition),
                ("__dlq.errors.offset", b"%d" % offset),
                ("__dlq.errors.group", group_id.encode()),
                ("__dlq.errors.delivery.count", b"%d" % dead.delivery_count),
                ("__dlq.errors.message", dead.cause.encode()),
            )
            texts = (copy.value or b"", copy.key or b"", *(text for _, text in headers))
            size = _RECORD_BYTES + sum(map(len, texts))
            new.append((NewRecord(copy.value, copy.key, headers, partition % target.partition_count), size))
        refused: BrokerError | None = None
        for batch in _batches(new, self._topics.batch_bytes_max(target)):
            try:
                append_records(self._topics, target, batch, wall_ms=self._clock.wall_ms())
            except BrokerError as error:  # of one letter that is too large, the others have their place
                refused = error
        if refused is not None:
            raise refused

    def _copies(self, log: PartitionLog, dead: DeadLetterBatch) -> Mapping[int, Record]:
        """Offset -> record; empty if they cannot be read: the letters have headers then, as on Kafka."""
        first = max(dead.first_offset, log.log_start_offset)
        if first > dead.last_offset:
            return {}
        data = log.read(first, 1 << 62, last_offset=dead.last_offset)
        try:
            return {record.offset: record for at, _ in batches_of(data) for record in records_of(data, at)}
        except ProtocolError:
            return {}

    def _find(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is not None and topic.configs.get(DEAD_LETTERS_ENABLED) != _ENABLED:
            raise _refused(name, f"{DEAD_LETTERS_ENABLED} is not set for it")
        if topic is None and not self.creates_topics:
            raise _refused(name, "there is no such topic; errors.deadletterqueue.auto.create.topics.enable makes one")
        if not name.startswith(self.name_prefix):
            raise _refused(
                name, f"its name does not begin with {self.name_prefix!r} (errors.deadletterqueue.topic.name.prefix)"
            )
        return topic or self._topics.create(name, self._partitions, configs={DEAD_LETTERS_ENABLED: _ENABLED})


def _batches(new: Iterable[tuple[NewRecord, int]], bytes_max: int) -> Iterator[list[NewRecord]]:
    """Records that have room together; each comes with its size."""
    batch: list[NewRecord] = []
    room = bytes_max
    for record, size in new:
        if batch and size > room:
            yield batch
            batch, room = [], bytes_max
        batch.append(record)
        room -= size
    if batch:
        yield batch


def _refused(name: str, reason: str) -> BrokerError:
    return BrokerError(f"topic {name!r} takes no dead letters: {reason}", code=ErrorCode.INVALID_CONFIG)
