"""Reads ``__consumer_offsets`` from its beginning, partition by partition, and follows it. Decodes nothing.

Partitions are assigned by hand, so there is no group: the right to read that topic is all it needs. Offsets that
transactions commit come when their transaction has ended.

The end is where the topic ended when the reader was made. librdkafka reports an end only after a fetch that found
nothing for half a second, which a partition with steady commits never has.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from kip848_client.admin import Admin
from kip848_client.config import parse_consumer_config
from kip848_client.config.security import check_data_plane
from kip848_client.consumer.records.data_plane import (
    OFFSET_BEGINNING,
    PASSING_CODES,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    create_record_consumer,
    is_refused_lookup,
    translate,
)
from kip848_client.errors import ErrorCode, Kip848Error, RequestTimeoutError, error_for_code
from kip848_client.testing.transactions.transaction import offsets_partition
from kip848_client.tools.recorder import RawRecord

TOPIC: Final = "__consumer_offsets"

PartitionEnd: TypeAlias = int
"""No record of the partition of this number is missing up to here; it may be reported again."""

_BATCH_RECORDS: Final = 5_000
_FIXED: Final[Mapping[str, str | bool]] = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.metrics.push": False,
}
_PASSING: Final = PASSING_CODES | {KafkaError._AUTO_OFFSET_RESET}


class OffsetsReader:
    """Reads all partitions at once, on the caller's thread.

    Args:
        conf: properties of a consumer, with ``bootstrap.servers``.
        timeout_s: for questions to the brokers.
        groups: read the partitions of these groups only; of all if there are none.

    Raises:
        ConfigError: a property is wrong, or a secret would be sent unencrypted.
        BrokerError: there is no such topic, since no group was ever there, or reading it is not allowed.
        Kip848Error: no broker answers.
    """

    def __init__(self, conf: Mapping[str, str], *, timeout_s: float, groups: Collection[str] = ()) -> None:
        # librdkafka wants a group id, and looks its coordinator up; but nothing is subscribed and nothing committed.
        # It would repeat each refused connection twenty times a second.
        config = parse_consumer_config({"group.id": "kip848-groups", "log_level": "2", **conf})
        check_data_plane(config.security)
        settings = {**config.data_plane, **_FIXED}
        self._plane = create_record_consumer(settings)
        try:
            cluster = self._plane.list_topics(TOPIC, timeout=timeout_s)
            self.cluster_id: Final = str(cluster.cluster_id or "")
            metadata = cluster.topics[TOPIC]
            if metadata.error is not None:
                raise translate(metadata.error, what=f"reading {TOPIC}")
            count = len(metadata.partitions)
            wanted = {offsets_partition(group_id, partitions=count)[1] for group_id in groups if count}
            self.partitions: Final = tuple(sorted(wanted or metadata.partitions))
            if not count:
                raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {TOPIC}")
            self.began_ms: Final = time.time_ns() // 1_000_000
            """A time that no record behind the ends is from before, by this machine's clock."""
            self._ends = self._ask_for_ends(conf, timeout_s=timeout_s)
            self._plane.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in self.partitions])
        except KafkaException as error:
            self._plane.close()
            raise translate(error, what=f"reading {TOPIC}") from error
        except Kip848Error:
            self._plane.close()
            raise
        self._ahead: list[Message] = []
        """Records behind the end of their partition, which came together with others before it."""

    @property
    def ends(self) -> Mapping[int, int]:
        """Where each partition ended when this reader was made."""
        return self._ends

    @property
    def history(self) -> int:
        """How many records there were at most when this reader was made."""
        return sum(self._ends.values())

    def read(self, *, wait_s: float) -> Iterator[RawRecord | PartitionEnd]:
        """Yield the waiting records, in order within a partition; none if none comes for *wait_s*.

        Raises:
            BrokerError: reading is not allowed, or no longer.
        """
        for message in self._consume(wait_s):
            partition = _partition(message)
            if message.error() is None:
                yield _raw(message, partition)
            else:
                yield partition

    def read_to_end(self, *, patience_s: float) -> Iterator[RawRecord | PartitionEnd]:
        """Yield everything up to the end that each partition had when this reader was made, and then `PartitionEnd`.

        Raises:
            RequestTimeoutError: nothing came for *patience_s*, and some partitions have not ended yet.
        """
        left = {number: end for number, end in self._ends.items() if end > 0}
        behind: list[Message] = []
        self._plane.pause([TopicPartition(TOPIC, number) for number in self.partitions if number not in left])
        quiet_since_s = time.monotonic()
        while left:
            ended = []
            for message in self._consume(0.1):
                partition = _partition(message)
                if partition not in left:
                    behind.append(message)
                    continue
                quiet_since_s = time.monotonic()
                offset = message.offset() or 0
                is_record = message.error() is None
                if is_record and offset < left[partition]:
                    yield _raw(message, partition)
                if offset + is_record >= left[partition]:  # the last records may have been compacted away
                    del left[partition]
                    ended.append(TopicPartition(TOPIC, partition))
                    yield partition
                    if is_record and offset >= self._ends[partition]:
                        behind.append(message)
            if ended:
                self._plane.pause(ended)  # until the others have ended too
            if time.monotonic() - quiet_since_s > patience_s:
                raise RequestTimeoutError(
                    f"{TOPIC}: no record came in {patience_s:g} s, and {len(left)} of {len(self.partitions)} "
                    f"partitions have not been read to their ends ({sorted(left)[:10]}); are their leaders up?"
                )
        self._ahead = behind
        self._plane.resume([TopicPartition(TOPIC, number) for number in self.partitions])

    def _consume(self, wait_s: float) -> list[Message]:
        """Records and ends of partitions."""
        if self._ahead:
            messages, self._ahead = self._ahead, []
            return messages
        try:
            messages = self._plane.consume(_BATCH_RECORDS, wait_s)
        except KafkaException as error:
            raise translate(error, what=f"reading {TOPIC}") from error
        wanted = []
        for message in messages:
            failure = message.error()
            if failure is None or failure.code() == KafkaError._PARTITION_EOF:
                wanted.append(message)
            elif failure.code() not in _PASSING and not is_refused_lookup(failure):
                raise translate(failure, what=f"reading {TOPIC}")
        return wanted

    def _ask_for_ends(self, conf: Mapping[str, str], *, timeout_s: float) -> dict[int, int]:
        """The end of each partition, as far as it can be read while transactions are open."""
        partitions = [(TOPIC, number) for number in self.partitions]
        with Admin(conf) as admin:
            ends = admin.list_offsets(partitions, isolation_level="read_committed", timeout_s=timeout_s)
        ends.raise_errors()
        return {partition.partition: end for partition, end in ends.values.items() if end is not None}

    def close(self) -> None:
        """Close connections."""
        self._plane.close()


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def _raw(message: Message, partition: int) -> RawRecord:
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return RawRecord(partition, message.timestamp()[1], key, value, message.leader_epoch(), message.offset() or 0)


class TopicIdLookup:
    """Names of topic ids, asked of the cluster when an unknown one comes up.

    Topics that one may not see have no name here; the id is shown instead.
    """

    PAUSE_S: Final = 5.0

    def __init__(self, admin: Admin, *, timeout_s: float) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._names: dict[UUID, str] = {}
        self._ask_again_at_s = 0.0

    def __call__(self, topic_id: UUID) -> str | None:
        """The name of a topic; None if it is not known."""
        if topic_id not in self._names and time.monotonic() >= self._ask_again_at_s:
            self._ask_again_at_s = time.monotonic() + self.PAUSE_S
            try:
                self._names |= _names_of_ids(self._admin, timeout_s=self._timeout_s)
            except Kip848Error:
                return None  # asked again later; until then the id is shown
        return self._names.get(topic_id)


def topic_names(conf: Mapping[str, str]) -> dict[UUID, str]:
    """The names of all topics that may be seen, by id.

    Raises:
        Kip848Error: no broker answers.
    """
    with Admin(conf) as admin:
        return _names_of_ids(admin, timeout_s=30.0)


def _names_of_ids(admin: Admin, *, timeout_s: float) -> dict[UUID, str]:
    topics = admin.list_topics(timeout_s=timeout_s).values.values()
    return {one.topic_id: one.topic for one in topics if one.topic_id is not None}


def exact_names(patterns: Collection[str]) -> tuple[str, ...]:
    """The groups that *patterns* name, if each of them names one; their partitions are all there is to read."""
    if any(set(pattern) & set("*?[") for pattern in patterns):
        return ()
    return tuple(patterns)


def group_filter(patterns: Collection[str]) -> Callable[[str], bool]:
    """Whether a group's id matches one of *patterns* (``*``, ``?``, ``[...]``); every id does if there are none."""
    from fnmatch import fnmatchcase

    @functools.cache
    def wants(group_id: str) -> bool:
        return not patterns or any(fnmatchcase(group_id, pattern) for pattern in patterns)

    return wants
