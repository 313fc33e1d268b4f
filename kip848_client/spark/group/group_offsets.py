"""Committed offsets of a group, without membership: read for a batch, written for fixed partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from kip848_client.admin import Admin
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.config.reset import duration_ms
from kip848_client.errors import NoOffsetForPartitionError
from kip848_client.spark.group.places import OffsetLookup, find_place
from kip848_client.spark.values.starting import AtTime, Edge, NoMatch, Place


class GroupOffsets:
    """The offsets of one group. Joins nothing.

    Args:
        client: configuration with a group.id.
        timeout_ms: of one question.
    """

    def __init__(self, client: Mapping[str, str], *, timeout_ms: int) -> None:
        self._timeout_s: Final = timeout_ms / 1_000
        self._group_id: Final = client["group.id"]
        self._admin: Final = Admin(client, await_broker=True)

    def committed(self, partitions: Iterable[NamedPartition]) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """The committed offsets; partitions without one are absent.

        Raises:
            Kip848Error: no answer.
        """
        asked = list(partitions)
        if not asked:
            return {}
        found = self._admin.committed_offsets(
            [self._group_id], partitions=asked, require_stable=True, timeout_s=self._timeout_s
        )
        return found[self._group_id]

    def commit(self, offsets: Mapping[NamedPartition, int], *, metadata: str) -> None:
        """Commit without membership, which the group accepts only while it is empty.

        Raises:
            Kip848Error: refused, or no answer.
        """
        named = {partition: OffsetAndMetadata(offset, metadata=metadata) for partition, offset in offsets.items()}
        self._admin.commit_offsets(self._group_id, named, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Close connections."""
        self._admin.close()


def begin_at_committed(
    group: GroupOffsets, partitions: frozenset[NamedPartition], log: OffsetLookup, *, reset: str
) -> dict[NamedPartition, int]:
    """The committed offset of each partition; without one what *reset* (auto.offset.reset) says.

    Raises:
        NoOffsetForPartitionError: there is none, and *reset* is ``none``.
        Kip848Error: no answer.
    """
    committed = group.committed(partitions)
    others = partitions - committed.keys()
    if others and reset == "none":
        raise NoOffsetForPartitionError(others)
    known = {partition: at.offset for partition, at in committed.items()}
    age_ms = duration_ms(reset)
    place: Place = Edge.EARLIEST if reset == "earliest" else Edge.LATEST
    if age_ms is not None:
        place = AtTime(max(0, time.time_ns() // 1_000_000 - age_ms), NoMatch.LATEST)
    return {**known, **find_place(place, others, log)}
