"""Partitions that options name one by one (``assign``): the interface of a membership, without a group.

With ``commit=group`` finished batches are committed under the group's name, which a group accepts only while it has no
members.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from kip848_client.common.model import NamedPartition, OffsetRange, describe_partitions
from kip848_client.errors import Kip848Error
from kip848_client.spark.group.gate import Gate
from kip848_client.spark.group.group_offsets import GroupOffsets, begin_at_committed
from kip848_client.spark.group.log_offsets import LogOffsets
from kip848_client.spark.group.places import find_place
from kip848_client.spark.group.settling import Outlook
from kip848_client.spark.values.data_loss import data_loss
from kip848_client.spark.values.marks import CommitMark
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.spark.values.options import SourceOptions
from kip848_client.spark.values.starting import Edge

_log = logging.getLogger("kip848_client.spark")


class FixedPartitions:
    """Partitions that are never revoked. `Membership` explains the calls.

    Raises:
        Kip848Error: the starting offsets could not be looked up.
    """

    rebalance_timeout_ms: Final = None
    name: Final = "no member"
    statistics: Final[Mapping[str, float]] = {}
    topic_ids: Final[Mapping[str, UUID]] = {}
    counts: Final[Mapping[str, int]] = {}

    def __init__(self, options: SourceOptions, restored: StreamOffset, log: LogOffsets) -> None:
        self._options = options
        self._closed = threading.Event()
        self._gate = Gate()
        self._gate.restore(restored.positions)
        self._group = (
            GroupOffsets(options.client, timeout_ms=options.lookup_timeout_ms) if "group.id" in options.client else None
        )
        new = options.assigned - restored.positions.keys()
        kept = {partition: restored.positions[partition] for partition in options.assigned - new}
        try:
            self._gate.assign({**kept, **self._begin(new, log)})
            self._gate.settle(new)
        except BaseException:
            self.close()
            raise
        self._gate.owe(kept)

    def check(self) -> None:
        """See `Membership`; never raises."""

    def await_assignment(self, timeout_s: float) -> bool:
        """See `Membership`; returns at once, since all partitions are there from the start."""
        return True

    def outlook(self, wanted: Iterable[NamedPartition]) -> Outlook:
        """See `Membership`; the partitions never change."""
        return Outlook(settled=True, owns=True, holders="none")

    def await_change(self, timeout_s: float) -> None:
        """See `Membership`; waits for `close`, so that brokers are not asked in a loop."""
        self._closed.wait(timeout_s)

    def readable(self) -> dict[NamedPartition, int]:
        """See `Membership`."""
        return self._gate.readable

    def plan(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """See `Membership`."""
        return self._gate.plan(ranges)

    def absent(self, partitions: Iterable[NamedPartition]) -> None:
        """See `Membership`; there is no group that would take away partitions of a deleted topic.

        Raises:
            DataLossError: failOnDataLoss is on.
        """
        if self._options.fail_on_data_loss:
            raise data_loss(f"{describe_partitions(partitions)} cannot be read any more: no such partition")

    def progress(self) -> dict[NamedPartition, int]:
        """See `Membership`."""
        return self._gate.progress

    def rewind(self, positions: Mapping[NamedPartition, int]) -> None:
        """See `Membership`."""
        self._gate.rewind(positions)

    def finish(self, mark: CommitMark) -> None:
        """Commit the batch, if that was asked for."""
        self._gate.finish()
        due = self._gate.uncommitted
        if not self._options.commit or self._group is None or not due:
            return
        try:
            self._group.commit(due, metadata=mark.to_text())
            self._gate.committed(due)
        except Kip848Error as error:
            _log.warning("offsets were not committed: %s", error)

    def abandon(self) -> None:
        """See `Membership`."""
        self._gate.abandon()

    def restore(self, positions: Mapping[NamedPartition, int]) -> None:
        """See `Membership`."""
        self._gate.restore(positions)

    def hand_over(self, timeout_s: float) -> None:
        """See `Membership`; there are no other members to prepare, and finished batches are committed already."""
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._closed.set()
        if self._group is not None:
            self._group.close()

    def _begin(self, partitions: Iterable[NamedPartition], log: LogOffsets) -> dict[NamedPartition, int]:
        new = frozenset(partitions)
        missing = new - log.ends(new).keys()
        if missing and self._options.fail_on_data_loss:
            raise data_loss(f"partitions to read do not exist: {describe_partitions(missing)}")
        new -= missing
        if self._options.starting is not Edge.COMMITTED:
            return find_place(self._options.starting, new, log)
        assert self._group is not None, "options are checked"
        return begin_at_committed(self._group, new, log, reset=self._options.client["auto.offset.reset"])
