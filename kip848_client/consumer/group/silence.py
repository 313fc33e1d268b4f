"""Says once why a consumer reads nothing: the group gave it no partition, all are paused, or all are at their end.

The application's thread asks for it when a read has brought nothing, so there is no timer and no thread. A consumer
that has read a record since subscribe() or assign() is not looked at any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from kip848_client.common.logs import LogEvent
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, shorten_partitions
from kip848_client.common.plain_text import counted
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.consumer.records.data_plane import KafkaException, public
from kip848_client.consumer.records.fetcher import Fetcher
from kip848_client.member.core.events import StartCause, StartReason
from kip848_client.member.core.states import MemberState

SILENCE_MS: Final = 30_000
"""How long a consumer has read nothing when it says why."""

_BY_POLICY: Final = frozenset({StartReason.NOTHING_COMMITTED, StartReason.OUT_OF_RANGE})


class SilenceWatch:
    """Watches one consumer, on the thread that polls.

    Args:
        group: its membership.
        fetcher: its records.
    """

    def __init__(self, group: GroupMember, fetcher: Fetcher) -> None:
        self._group: Final = group
        self._fetcher: Final = fetcher
        self.watching: bool = False
        """Whether `nothing_came` is to be called."""
        self._since_ms: int | None = None
        self._owned: object = None
        self._told: Final[set[str]] = set()

    def begin(self) -> None:
        """subscribe() or assign() was called."""
        self.watching = True
        self._since_ms = None
        self._told.clear()

    def nothing_came(self) -> None:
        """A read has brought no record."""
        group = self._group
        now_ms = group.clock.now_ms()
        owned = group.manual or group.view.assigned
        if self._since_ms is None or owned is not self._owned:
            self._owned, self._since_ms = owned, now_ms
        elif not group.manual and group.view.member_epoch <= 0:
            self._since_ms = None  # it has not joined, or has left: other lines tell of that
        elif now_ms - self._since_ms >= SILENCE_MS:
            self._since_ms = now_ms
            self._look()

    def _look(self) -> None:
        owned, fetcher = self._group.assigned, self._fetcher
        if not owned:
            if self._group.view.state is MemberState.STABLE:
                self._tell(
                    "no partitions",
                    hint="the group gives this member none: it has more members than partitions, others have not given "
                    "theirs up yet, or the topics do not exist; see: kip848 groups describe "
                    f"{self._group.listeners.observer.group_id}",
                )
            return
        positions = fetcher.positions()
        if any(fetcher.began(partition) != at for partition, at in positions.items()):
            self.watching = False  # it has read something
        elif owned <= fetcher.paused:
            self._tell("paused", owned, hint="all partitions are paused; call resume()")
        elif positions.keys() == owned and (there := self._records_there(positions)) is not None:
            self.watching = False
            self._tell_of_the_end(positions, there)

    def _records_there(self, positions: Mapping[NamedPartition, OffsetAndMetadata]) -> dict[NamedPartition, int] | None:
        """How many records each partition holds, if all of them are at their end; asks no broker."""
        there = {}
        for partition, at in positions.items():
            try:
                low, high = self._fetcher.plane.get_watermark_offsets(public(partition), cached=True)
            except KafkaException:
                return None  # it was not fetched yet
            if high < 0 or at.offset < high:
                return None
            there[partition] = high - max(0, low)
        return there

    def _tell_of_the_end(
        self, positions: Mapping[NamedPartition, OffsetAndMetadata], there: Mapping[NamedPartition, int]
    ) -> None:
        known = self._group.thread.starts
        alike: dict[StartCause, list[NamedPartition]] = {}
        for partition in positions:
            start = known.get(partition, StartCause(StartReason.SOUGHT))
            alike.setdefault(StartCause(start.reason, start.policy), []).append(partition)
        records = sum(there.values())
        passed_over = {
            start.policy: sum(there[partition] for partition in its)
            for start, its in alike.items()
            if start.reason in _BY_POLICY and start.policy != "earliest"
        }
        group_id = self._group.listeners.observer.group_id
        again = f"kip848 groups reset-offsets {group_id} --to-earliest --execute"
        if any(passed_over.values()):
            policy = next(policy for policy, count in passed_over.items() if count)
            lost = any(start.reason is StartReason.OUT_OF_RANGE for start in alike)
            why = "has committed offsets that are not there any more" if lost else "has committed nothing"
            hint = (
                f"auto.offset.reset={policy} began at the end, as group {group_id!r} {why}: "
                f"{counted(sum(passed_over.values()), 'record')} before it will not be read. To read them, set "
                f"auto.offset.reset=earliest and use a new group.id, or close the group's consumers and run: {again}"
            )
        elif not records:
            hint = "the partitions are empty: nothing was produced, or it has been deleted since"
        elif any(start.reason is StartReason.COMMITTED for start in alike):
            hint = (
                "the group has committed these offsets, so what is before them counts as read. To read it again, close "
                f"the group's consumers and run: {again}"
            )
        else:
            hint = "nothing was produced since"
        self._tell(
            "at the end",
            positions,
            level=logging.WARNING if any(passed_over.values()) else logging.INFO,
            starts={_words(start): shorten_partitions(its) for start, its in alike.items()},
            records=records,
            hint=hint,
        )

    def _tell(
        self,
        reason: str,
        partitions: Mapping[NamedPartition, object] | frozenset[NamedPartition] = frozenset(),
        *,
        level: int = logging.INFO,
        **more: Any,
    ) -> None:
        if reason in self._told:
            return
        self._told.add(reason)
        self._group.listeners.observer.log(
            level,
            LogEvent.READS_NOTHING,
            reason=reason,
            seconds=SILENCE_MS // 1_000,
            partitions=shorten_partitions(partitions),
            count=len(partitions),
            **more,
        )


def _words(start: StartCause) -> str:
    return start.reason.value if start.policy is None else f"{start.reason.value}, auto.offset.reset={start.policy}"
