"""Finds partitions whose position does not move although records wait for it, whatever the reason.

librdkafka tries again without a word: a batch that it cannot read, a leader that this machine does not reach, a leader
epoch that it believes. So positions are compared with the ends of the logs from time to time, on the thread that
polls. A position that stays behind for some seconds, while librdkafka has nothing to hand out, is looked into: the
leader is asked for the batch there. Much is sound: the last offsets of a log may be markers of transactions, records
of aborted ones, or compacted away; a transaction may be open.

The end that librdkafka knows came with its last fetch. A partition that is silent for longer is therefore looked into,
too, less and less often.

Asking runs on a thread of its own, over connections of its own. Does not own: what the leader's answer means
(`stall_reasons`), records that are skipped (`gap_check`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from kip848_client.common.addresses import BootstrapServer
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.records.checks.leaders import leaders_of
from kip848_client.consumer.records.checks.stall_reasons import LeaderAnswer, Reason, StallKind, examine
from kip848_client.consumer.records.data_plane import KafkaException, RecordConsumer, public
from kip848_client.errors import Kip848Error, OutOfResourcesError
from kip848_client.network.connection_opener import ConnectionOpener

QUEUED_MIN: Final = 100_000
"""librdkafka's default of ``queued.min.messages``."""

_LOOK_EVERY_MS: Final = 1_000
_LOOK_MS_PER_PARTITION: Final = 3.0
"""Looking at a partition takes up to 30 microseconds."""

_ASK_AFTER_MS: Final = 4_000
"""How long a position stays behind before its leader is asked; the next time after twice as long, and so on."""

_ASK_MS_MAX: Final = 60_000
_ASK_IDLE_MS: Final = 60_000
"""The same for a position at the end that librdkafka knows."""

_ASK_IDLE_MS_MAX: Final = 600_000
_ASKED_MAX: Final = 1_000
"""Partitions of one check; the others come next."""

_TELL_AGAIN_MS: Final = 60_000
_TELL_AGAIN_MS_MAX: Final = 600_000


class Stall(msgspec.Struct, frozen=True):
    """A partition whose position does not move.

    Args:
        since_ms: when it was first seen to be behind, on the consumer's clock.
        reason: for people.
    """

    since_ms: int
    reason: str


class _Still(msgspec.Struct, eq=False):
    """A position that has not moved between two looks."""

    offset: int
    """-1: it is not known yet."""
    ask_ms: int
    behind_ms: int | None = None
    """Since when it is behind the end of its log, or that is not known."""
    turned_over: int = 0
    """Once so many records have been read, none is left of what was in librdkafka's queue then."""
    emptied: bool = False
    """A look since then found that queue emptied."""
    has_had_time: bool = False
    """librdkafka could have delivered since then; while its queue is full of other partitions' records it cannot."""
    asked: int = 0
    asked_idle: int = 0
    sound: int = -1
    """An end of the log before which nothing is left to be delivered; -1 if none is known."""
    reason: Reason | None = None
    reason_ms: int = 0
    told: int = 0
    """How often it was told."""
    tell_ms: int = 0
    fresh: bool = False
    """The reason was found since it was told."""


class WatchedFetcher(Protocol):
    """What reads the records: the `Fetcher`."""

    plane: RecordConsumer
    returned: int
    """How many records it has read."""
    emptied: int
    """How often that left nothing in librdkafka's queue."""

    @property
    def unread(self) -> Collection[NamedPartition]:
        """Partitions that are not to be read now, or have records that were read and not handed out."""

    def positions(self) -> dict[NamedPartition, OffsetAndMetadata]:
        """The next offset of each partition."""


class Tell(Protocol):
    """Told of stalled partitions."""

    def __call__(
        self, partitions: Collection[NamedPartition], seconds: float, reason: str | None, *, log: bool
    ) -> object:
        """See `StallWatch`."""


class StallWatch:
    """Watches the positions of one consumer.

    Args:
        opener, servers: for connections to the brokers.
        read_committed: whether records of open transactions wait.
        queued_min: records that librdkafka fetches ahead (``queued.min.messages``).
        tell: called on the thread that polls with (partitions, seconds, reason), each time that a reason was found;
            ``log=True`` the first time and now and then. The reason is None once they move.
    """

    def __init__(
        self,
        source: WatchedFetcher,
        opener: ConnectionOpener,
        servers: Iterable[BootstrapServer],
        *,
        read_committed: bool,
        queued_min: int,
        tell: Tell,
    ) -> None:
        self._source: Final = source
        self._opener: Final = opener
        self._servers: Final = tuple(servers)
        self._read_committed: Final = read_committed
        self._queued_max: Final = 2 * queued_min
        self._emptied = 0
        self._tell: Final = tell
        self._still: dict[NamedPartition, _Still] = {}
        self._busy = False
        self._answers: Mapping[NamedPartition, LeaderAnswer] = {}
        """Of the last check; taken by the next look."""
        self.due_ms: int = 0
        self.stalled: Mapping[NamedPartition, Stall] = {}
        """Replaced whole; any thread may read it."""

    def look(self, wanted: frozenset[NamedPartition], now_ms: int) -> None:
        """Compare positions with ends, on the thread that polls; waits for no broker.

        Args:
            wanted: partitions that are to be read.
        """
        self.due_ms = now_ms + int(_LOOK_EVERY_MS + _LOOK_MS_PER_PARTITION * len(wanted))
        answers, self._answers = self._answers, {}
        unread, positions = self._source.unread, self._source.positions()
        emptied, self._emptied = self._source.emptied != self._emptied, self._source.emptied
        highs = {partition: self._high(partition) for partition in positions if partition in wanted}
        queued = min(self._queued_max, sum(max(0, high - positions[p].offset) for p, high in highs.items()))
        still: dict[NamedPartition, _Still] = {}
        moving = []
        due = []
        for partition in wanted:
            if partition in unread:
                continue
            offset = positions[partition].offset if partition in positions else -1
            seen = self._still.get(partition)
            if seen is None or seen.offset != offset:
                if seen is not None and seen.told:
                    moving.append(partition)
                seen = _Still(offset, now_ms + _ASK_IDLE_MS)
            still[partition] = seen
            if (answer := answers.get(partition)) is not None and answer.offset == offset:
                self._heard(seen, answer, now_ms)
            self._compare(seen, highs.get(partition, -1), now_ms, queued=queued)
            seen.has_had_time = (emptied and seen.emptied) or self._source.returned >= seen.turned_over
            seen.emptied = seen.emptied or emptied
            if now_ms >= seen.ask_ms and seen.has_had_time:
                due.append(partition)
        self._still = still
        if moving:
            self._tell(sorted(moving), 0.0, None, log=True)
        if due and not self._busy:
            self._ask(sorted(due)[:_ASKED_MAX], now_ms)
        self._report(now_ms)

    def _compare(self, seen: _Still, high: int, now_ms: int, *, queued: int) -> None:
        """Note since when a position is behind the end of its log.

        Args:
            high: as librdkafka knows it; -1 if it does not.
            queued: how many records may be in librdkafka's queue.
        """
        if high < 0 or high > max(seen.offset, seen.sound):
            if seen.behind_ms is None:
                seen.behind_ms, seen.emptied = now_ms, False
                seen.turned_over = self._source.returned + max(1, queued)
                seen.ask_ms = now_ms + min(_ASK_AFTER_MS << seen.asked, _ASK_MS_MAX)
        elif seen.reason is None:
            seen.behind_ms = None

    def _high(self, partition: NamedPartition) -> int:
        """The end of the log as of librdkafka's last fetch; -1 if it has none."""
        try:
            return self._source.plane.get_watermark_offsets(public(partition), cached=True)[1]
        except KafkaException:
            return -1

    def _heard(self, seen: _Still, answer: LeaderAnswer, now_ms: int) -> None:
        reason = answer.reason
        if reason is None:
            seen.sound, seen.reason, seen.behind_ms = answer.high, None, None
            seen.ask_ms = now_ms + min(_ASK_IDLE_MS << seen.asked_idle, _ASK_IDLE_MS_MAX)
            seen.asked_idle += 1
            return
        if seen.behind_ms is None:
            seen.behind_ms = now_ms
        if seen.reason is None or seen.reason.kind is not reason.kind:
            seen.reason_ms = now_ms
        seen.reason = reason
        seen.ask_ms = now_ms + min(_ASK_AFTER_MS << seen.asked, _ASK_MS_MAX)
        seen.fresh = True

    def _report(self, now_ms: int) -> None:
        stalled: dict[NamedPartition, Stall] = {}
        found: dict[tuple[str, bool], list[NamedPartition]] = {}
        for partition, seen in self._still.items():
            reason, behind_ms = seen.reason, seen.behind_ms
            if reason is None or behind_ms is None:
                if seen.told:  # its records were deleted, or a transaction has ended
                    seen.told = 0
                    self._tell([partition], 0.0, None, log=True)
                continue
            lasted = now_ms - (behind_ms if reason.kind is StallKind.OPEN else seen.reason_ms) >= reason.kind.value
            if not seen.told and not (lasted and seen.has_had_time):
                continue
            stalled[partition] = Stall(behind_ms, reason.text)
            log = now_ms >= seen.tell_ms
            if log:
                seen.tell_ms = now_ms + min(_TELL_AGAIN_MS << seen.told, _TELL_AGAIN_MS_MAX)
                seen.told += 1
            if log or seen.fresh:
                found.setdefault((reason.text, log), []).append(partition)
                seen.fresh = False
        self.stalled = stalled
        for (text, log), partitions in found.items():
            since_ms = min(stalled[partition].since_ms for partition in partitions)
            self._tell(sorted(partitions), (now_ms - since_ms) / 1_000, text, log=log)

    # --- asking, on a thread of its own

    def _ask(self, partitions: Collection[NamedPartition], now_ms: int) -> None:
        positions = {}
        for partition in partitions:
            seen = self._still[partition]
            positions[partition] = seen.offset
            seen.asked += seen.behind_ms is not None
            seen.ask_ms = now_ms + _ASK_MS_MAX  # if no answer comes
        self._busy = True
        try:
            daemon_thread(self._check, "kip848-stall", positions).start()
        except OutOfResourcesError:
            self._busy = False  # a later look asks

    def _check(self, positions: Mapping[NamedPartition, int]) -> None:
        answers: dict[NamedPartition, LeaderAnswer] = {}
        try:
            asyncio.run(self._examine(positions, answers))
        except* (Kip848Error, OSError) as failed:  # alone, or in the group of the tasks of its connections
            reason = Reason(StallKind.FAILURE, f"the cluster cannot be asked: {_first(failed)}")
            answers |= {p: LeaderAnswer(at, reason=reason) for p, at in positions.items() if p not in answers}
        finally:
            self._answers = answers
            self._busy = False

    async def _examine(
        self, positions: Mapping[NamedPartition, int], answers: dict[NamedPartition, LeaderAnswer]
    ) -> None:
        async with leaders_of({p.topic for p in positions}, self._opener, self._servers) as leaders:
            ends = await leaders.ends({partition: offset for partition, offset in positions.items() if offset >= 0})
            for partition, offset in positions.items():
                if partition in ends and ends[partition] <= offset:  # as of most that are silent
                    answers[partition] = LeaderAnswer(offset, ends[partition])
                    continue
                try:
                    answers[partition] = await examine(leaders, partition, offset, read_committed=self._read_committed)
                except Kip848Error as error:
                    answers[partition] = LeaderAnswer(offset, reason=Reason(StallKind.FAILURE, str(error)))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
