"""A stream's offset in a checkpoint, as a value and as JSON. Pure.

Spark keeps one offset for each batch and returns it after a restart. Ours carries the ranges of that batch, because
ownership changes between batches: the difference between two sets of positions would not show what the batch read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.errors import Kip848Error

VERSION: Final = 1


class OffsetFormatError(Kip848Error):
    """An offset in a checkpoint that this version cannot read."""


class StreamOffset(msgspec.Struct, frozen=True):
    """The ranges of a batch, and the positions of the query after it.

    Args:
        ranges: of this batch, sorted by partition.
        positions: next offset of every partition that the query ever read; those of `ranges` are at their ends.
        topic_ids: of the topics in `positions`, so that a topic that was deleted and made again is noticed.
        counts: partitions that each topic had when the query first had some of it; later ones begin at their beginning.
        query: names the query in its commits and to `stop_gracefully`; blank before its first batch.
        batch: number of this batch as the source counts them, from 1.
    """

    ranges: tuple[OffsetRange, ...] = ()
    positions: Mapping[NamedPartition, int] = msgspec.field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = msgspec.field(default_factory=dict)
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    query: str = ""
    batch: int = 0

    def to_json(self) -> dict[str, Any]:
        """The same as what `json` writes; equal values give equal text, because Spark compares texts."""
        return {
            "version": VERSION,
            "query": self.query,
            "batch": self.batch,
            "ranges": _by_topic((each.partition, [each.start, each.end]) for each in self.ranges),
            "positions": _by_topic(self.positions.items()),
            "topic_ids": {topic: str(self.topic_ids[topic]) for topic in sorted(self.topic_ids)},
            "counts": {topic: self.counts[topic] for topic in sorted(self.counts)},
        }

    @staticmethod
    def from_json(parsed: Mapping[str, Any]) -> StreamOffset:
        """Read what `to_json` made.

        Raises:
            OffsetFormatError: it was made by another source or a newer version.
        """
        if parsed.get("version") != VERSION:
            raise OffsetFormatError(
                f"the checkpoint holds an offset of version {parsed.get('version')!r}, this source reads version "
                f"{VERSION}: use a checkpoint of this source, or a new one with startingOffsets"
            )
        try:
            return StreamOffset(
                ranges=tuple(OffsetRange(partition, start, end) for partition, (start, end) in _flat(parsed["ranges"])),
                positions=dict(_flat(parsed["positions"])),
                topic_ids={topic: UUID(text) for topic, text in parsed.get("topic_ids", {}).items()},
                counts=dict(parsed.get("counts", {})),
                query=str(parsed.get("query", "")),
                batch=int(parsed.get("batch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OffsetFormatError(f"the checkpoint holds a damaged offset: {parsed!r}") from error


def _by_topic(entries: Iterable[tuple[NamedPartition, Any]]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for partition, content in sorted(entries, key=lambda entry: entry[0]):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = content
    return nested


def _flat(nested: Mapping[str, Mapping[str, Any]]) -> list[tuple[NamedPartition, Any]]:
    entries = [
        (NamedPartition(topic, int(number)), content)
        for topic, of_topic in nested.items()
        for number, content in of_topic.items()
    ]
    return sorted(entries, key=lambda entry: entry[0])
