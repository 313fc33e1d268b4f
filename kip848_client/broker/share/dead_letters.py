"""Dead-letter topics (KIP-1191): where records of share groups go that are given up.

Source:
    apache/kafka ``ShareGroupDLQStateManager``; KIP-1191.
"""

from __future__ import annotations

from typing import Final

from kip848_client.broker.metadata.topic_configs import DEAD_LETTERS_ENABLED
from kip848_client.broker.topics.records import NewRecord, append_records
from kip848_client.broker.topics.registry import Topic, TopicRegistry
from kip848_client.clock import Clock
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.share_partitions.settings import ShareSettings
from kip848_client.share_partitions.share_partition import DeadLetters
from kip848_client.wire.record_batch import Record, batches_of, records_of

__all__ = ["DeadLetterTopics"]

_ENABLED: Final = "true"


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
        self._name_prefix: Final = name_prefix
        self._creates_topics: Final = creates_topics
        self._partitions: Final = partitions

    def write(self, group_id: str, topic: Topic, partition: int, dead: DeadLetters, *, settings: ShareSettings) -> None:
        """Write one record for each that was given up: headers about it and, if the group wants it, key and value.

        Raises:
            BrokerError: the group's dead-letter topic does not take them.
            ProtocolError: the records to copy are damaged.
        """
        target = self._find(settings.dead_letter_topic)
        log, copies = topic.partitions[partition], dict[int, Record]()
        first = max(dead.first_offset, log.log_start_offset)
        if settings.dead_letter_copy_record and first <= dead.last_offset:
            data = log.read(first, 1 << 62, last_offset=dead.last_offset)
            copies = {record.offset: record for at, _ in batches_of(data) for record in records_of(data, at)}
        new = []
        for offset in range(dead.first_offset, dead.last_offset + 1):
            copy = copies.get(offset, Record(value=None))
            headers = {
                "__dlq.errors.topic": topic.name,
                "__dlq.errors.partition": str(partition),
                "__dlq.errors.offset": str(offset),
                "__dlq.errors.group": group_id,
                "__dlq.errors.delivery.count": str(dead.delivery_count),
                "__dlq.errors.message": dead.cause,
            }
            new.append(NewRecord(copy.value, copy.key, headers, partition % target.partition_count))
        append_records(self._topics, target, new, wall_ms=self._clock.wall_ms())

    def _find(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is not None and topic.configs.get(DEAD_LETTERS_ENABLED) != _ENABLED:
            raise _refused(name, f"{DEAD_LETTERS_ENABLED} is not set for it")
        if topic is None and not self._creates_topics:
            raise _refused(name, "there is no such topic; errors.deadletterqueue.auto.create.topics.enable makes one")
        if not name.startswith(self._name_prefix):
            raise _refused(
                name, f"its name does not begin with {self._name_prefix!r} (errors.deadletterqueue.topic.name.prefix)"
            )
        return topic or self._topics.create(name, self._partitions, configs={DEAD_LETTERS_ENABLED: _ENABLED})


def _refused(name: str, reason: str) -> BrokerError:
    return BrokerError(f"topic {name!r} takes no dead letters: {reason}", code=ErrorCode.INVALID_CONFIG)
