"""`HandKeptRecords`: the record source of a GroupMember whose records are read elsewhere, by hand, process or cluster.

It reads nothing. It knows which partitions may be read from where, and is told how far they were processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kip848_client.errors import IllegalStateError
from kip848_client.model import OffsetAndMetadata, TopicIdPartition, TopicPartition


class HandKeptRecords:
    """Implements `RecordSource`; used on the thread that calls the GroupMember.

    Example::

        records = HandKeptRecords()
        member = build_group_member(config, records=records)
        member.subscribe(Subscription(frozenset({"orders"})), callbacks)
        while member.poll(0.1):
            for partition, start in records.open.items():
                records.advance(partition, read_somehow(partition, start))
    """

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._held: set[TopicPartition] = set()

    @property
    def open(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Partitions that may be read now, with the next offset of each."""
        return {partition: at for partition, at in self._positions.items() if partition not in self._held}

    def advance(self, partition: TopicPartition, position: OffsetAndMetadata) -> None:
        """Everything before *position* is processed, and may be committed.

        Raises:
            IllegalStateError: the partition is not owned (any more).
        """
        if partition not in self._positions:
            raise IllegalStateError(f"{partition} is not owned; another member may read it")
        self._positions[partition] = position

    def warm(self, topics: Iterable[str]) -> None:
        """Nothing is fetched here."""

    def start(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        """They may be read from there on."""
        for partition, position in positions.items():
            self._positions[partition.topic_partition] = position
            self._held.discard(partition.topic_partition)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """They are about to be revoked: nothing more may be read, what was read may still be reported."""
        self._held.update(set(partitions) & self._positions.keys())

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """They are gone."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._held.discard(partition)

    def let_go_all(self) -> None:
        """All are gone."""
        self._positions.clear()
        self._held.clear()

    def positions(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The next offset of each partition that is owned and was started."""
        return dict(self._positions)
