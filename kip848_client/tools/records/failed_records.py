"""Records that have failed: what waits in retry topics and dead letters, and moving it in transactions.

Which records are done is an offset and marks, as ``process()`` commits them: for a retry topic those of the group whose
records they are, for dead letters those of a group of their own (`cursor_of`), which nobody joins. What is handed in,
moved or dropped is committed in the transaction that writes it, so that a repeated call finds it done.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Final

import msgspec

from kip848_client.admin import Admin
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, OffsetRange
from kip848_client.consumer.records.data_plane import group_metadata_bytes, public_commit
from kip848_client.consumer.transactions.producer_calls import ProducerCalls
from kip848_client.errors import ConfigError, IllegalStateError, Kip848Error
from kip848_client.member.processing.core import METADATA_BYTES
from kip848_client.member.processing.marks import Ranges, decode_marks, encode_marks
from kip848_client.member.processing.tiers import FailureHeaders, read_failed
from kip848_client.tools.records.without_group import read

SLICE_RECORDS: Final = 500
"""Records of one transaction."""
_NO_MEMBERS: Final = ("Empty", "Dead")


def cursor_of(topic: str) -> str:
    """The group whose commits say which dead letters of *topic* are done."""
    return f"kip848-retries-{topic}"


class FailedRecord(msgspec.Struct, frozen=True):
    """A record of a retry topic or of dead letters that is not done.

    Attributes:
        failed: what its headers say; None for one that was written by hand.
    """

    partition: NamedPartition
    offset: int
    timestamp_ms: int
    message: Any
    failed: FailureHeaders | None

    @property
    def failed_ms(self) -> int:
        """When it failed last; of old letters the time of the record."""
        failed_ms = None if self.failed is None else self.failed.failed_ms
        return self.timestamp_ms if failed_ms is None else failed_ms

    @property
    def group(self) -> str | None:
        """Whose record it is, in a retry topic; None in dead letters."""
        return None if self.failed is None or self.failed.due_ms is None else self.failed.group


class _Done:
    """What is done of one partition, for one group."""

    def __init__(self, at: OffsetAndMetadata | None) -> None:
        self.low: Final = -1 if at is None else at.offset
        # confluent_kafka commits metadata with the NUL that ends a text in C.
        marks = "" if at is None else at.metadata.partition("\0")[0]
        self.ranges: Final[Ranges] = (decode_marks(self.low, marks) or []) if marks else []

    def covers(self, offset: int) -> bool:
        """Whether a record is done."""
        return offset < self.low or any(first <= offset < end for first, end in self.ranges)


def topics_of(admin: Admin, name: str, *, timeout_s: float) -> list[str]:
    """The topics that *name* stands for: the one with this name, else the retry topics ``NAME-1``, ``NAME-2``, ...

    Raises:
        ConfigError: there are none.
    """
    found = admin.list_topics(timeout_s=timeout_s).values
    if name in found:
        return [name]
    tiers = list(itertools.takewhile(found.__contains__, (f"{name}-{number}" for number in itertools.count(1))))
    if not tiers:
        raise ConfigError(f"there is neither a topic {name!r} nor a retry topic '{name}-1'; see kip848 topics list")
    return tiers


class FailedRecords:
    """Reads topics once, from their beginnings to their present ends.

    Args:
        conf: of a consumer.
        chosen: which records are asked for.
    """

    def __init__(
        self, admin: Admin, conf: Mapping[str, Any], chosen: Callable[[FailedRecord], bool], *, timeout_s: float
    ) -> None:
        self._admin: Final = admin
        self._conf: Final = conf
        self._chosen: Final = chosen
        self._timeout_s: Final = timeout_s
        self._done: Final[dict[str, Mapping[NamedPartition, OffsetAndMetadata]]] = {}

    def partitions(self, topic: str) -> list[OffsetRange]:
        """What is to be read of a topic."""
        listed = self._admin.list_topics([topic], timeout_s=self._timeout_s)
        listed.raise_errors()
        names = [NamedPartition(topic, index) for index in range(listed.values[topic].partitions)]
        edges = []
        for at in ("earliest", "latest"):
            found = self._admin.list_offsets(
                names,
                at,
                isolation_level="read_committed",
                timeout_s=self._timeout_s,
            )
            found.raise_errors()
            edges.append(found.values)
        return [OffsetRange(name, edges[0][name] or 0, edges[1][name] or 0) for name in names]

    def read(self, topic: str) -> Iterator[FailedRecord]:
        """All records of a topic, those of a partition in order, done or not."""
        ranges = [each for each in self.partitions(topic) if each.rows > 0]
        for messages in read(self._conf, ranges, Event()) if ranges else ():
            for message in messages:
                place = NamedPartition(message.topic(), message.partition())
                failed = read_failed(message.headers())
                yield FailedRecord(place, message.offset(), message.timestamp()[1], message, failed)

    def waiting(self, topic: str) -> Iterator[FailedRecord]:
        """The chosen records of a topic that are not done."""
        for record in self.read(topic):
            group = record.group or cursor_of(topic)
            if not self.done(group, record.partition).covers(record.offset) and self._chosen(record):
                yield record

    def done(self, group: str, partition: NamedPartition) -> _Done:
        """What a group has done of a partition."""
        if group not in self._done:
            self._done[group] = self.committed(group)
        return _Done(self._done[group].get(partition))

    def committed(self, group: str) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """All that a group has committed."""
        found = self._admin.committed_offsets([group], require_stable=True, timeout_s=self._timeout_s)
        return found.values.get(group, {})

    # --- changes

    def take(
        self,
        topic: str,
        calls: ProducerCalls,
        write: Callable[[FailedRecord], dict[str, Any] | None],
        *,
        limit: int | None,
    ) -> int:
        """Write what becomes of the chosen records of a topic, each once, and call them done.

        Args:
            write: the arguments of ``produce()``; None drops a record.
            limit: so many records at most.

        Returns:
            How many.

        Raises:
            IllegalStateError: a retry topic's group has members, which are at these records, or there are several.
            Kip848Error: something was refused. What was taken before is done.
        """
        groups = {record.group or cursor_of(topic) for record in self.waiting(topic)}
        if not groups:
            return 0
        if len(groups) > 1:
            raise IllegalStateError(
                f"{topic} has records of the groups {', '.join(sorted(groups))}: choose with --group"
            )
        (group,) = groups
        if group != cursor_of(topic):
            self._check_empty(group, topic)
        self._done.clear()  # another call may have gone on until init_transactions() ended it
        taken = 0
        by_partition: defaultdict[NamedPartition, list[FailedRecord]] = defaultdict(list)
        for record in self.read(topic):
            by_partition[record.partition].append(record)
        for partition, records in sorted(by_partition.items()):
            left = None if limit is None else limit - taken
            taken += self._take_of(partition, records, group, calls, write, limit=left)
        return taken

    def _take_of(
        self,
        partition: NamedPartition,
        records: Sequence[FailedRecord],
        group: str,
        calls: ProducerCalls,
        write: Callable[[FailedRecord], dict[str, Any] | None],
        *,
        limit: int | None,
    ) -> int:
        done = self.done(group, partition)
        own = [one for one in records if (one.group or group) == group and not done.covers(one.offset)]
        chosen = [one for one in own if self._chosen(one)][:limit]
        left = {one.offset for one in own}
        end = max(records[-1].offset + 1, done.low, *(last for _, last in done.ranges), 0)
        for start in range(0, len(chosen), SLICE_RECORDS):
            slice_ = chosen[start : start + SLICE_RECORDS]
            left.difference_update(one.offset for one in slice_)
            low, marks, whole = _marks(sorted(left), end)
            if not whole:
                raise Kip848Error(
                    f"{partition}: a commit has no room for what would be done between the {len(left):,} records that "
                    "are left; take the oldest ones first (--before), or all of an error"
                )
            self._write(
                [(one, write(one)) for one in slice_], {partition: OffsetAndMetadata(low, metadata=marks)}, group, calls
            )
        return len(chosen)

    def _write(
        self,
        slice_: Collection[tuple[FailedRecord, dict[str, Any] | None]],
        offsets: Mapping[NamedPartition, OffsetAndMetadata],
        group: str,
        calls: ProducerCalls,
    ) -> None:
        calls.begin()
        try:
            for _, record in slice_:
                if record is not None:
                    calls.producer.produce(**record)
        except Exception:
            calls.abort()
            raise
        metadata = group_metadata_bytes(group_id=group, member_epoch=-1, member_id="", instance_id=None)
        calls.end([public_commit(name, at) for name, at in offsets.items()], metadata)

    def _check_empty(self, group: str, topic: str) -> None:
        described = self._admin.describe_groups([group], timeout_s=self._timeout_s)
        found = described.values.get(group)
        if found is not None and found.state not in _NO_MEMBERS:
            raise IllegalStateError(
                f"group {group!r} has members, which handle the records of {topic} when they are due; stop them first. "
                "Dead letters can be taken at any time"
            )


def _marks(left: Sequence[int], end: int) -> tuple[int, str, bool]:
    """The commit that calls all up to *end* done but the offsets *left*."""
    if not left:
        return end, "", True
    ranges = [(before + 1, after) for before, after in itertools.pairwise([*left, end]) if before + 1 < after]
    marks, whole = encode_marks(left[0], ranges, bytes_max=METADATA_BYTES)
    return left[0], marks, whole


def by_error(records: Iterable[FailedRecord]) -> dict[tuple[str, str], list[FailedRecord]]:
    """Records by (group or "-", type of the error)."""
    found: defaultdict[tuple[str, str], list[FailedRecord]] = defaultdict(list)
    for record in records:
        failed = record.failed
        group = "-" if failed is None or failed.group is None else failed.group
        found[group, "-" if failed is None else failed.error.partition(":")[0]].append(record)
    return dict(found)
