"""One streaming query: decides where each batch ends. Knows Spark's order of calls, but imports nothing of Spark.

Spark's order: an initial offset (not after a restart, and more than once), ``latest(start)`` for each trigger, then
``partitions`` of the planned batch. After a restart ``partitions`` of the last batch may come first, before anything is
joined. ``latest(start)`` with the end of a batch means that this batch is complete and written down: that is when it is
committed to the group, because Spark's own ``commit`` call comes only after the next batch was planned.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

import msgspec

from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.errors import ConfigError, join_names
from kip848_client.spark.group.fixed import FixedPartitions
from kip848_client.spark.group.group_membership import GroupMembership
from kip848_client.spark.group.group_offsets import GroupOffsets
from kip848_client.spark.group.selection import matching_topics
from kip848_client.spark.group.settling import NotOwnedError, Outlook
from kip848_client.spark.source.fetch import check_settings, log_offsets
from kip848_client.spark.source.planner import Task, cut_tasks, plan_ranges
from kip848_client.spark.source.session_group import SessionGroup
from kip848_client.spark.source.stopping import StopWatch
from kip848_client.spark.values.data_loss import data_loss
from kip848_client.spark.values.marks import CommitMark
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.spark.values.options import SourceOptions

_log = logging.getLogger("kip848_client.spark")

IDLE_WAIT_S: Final = 0.05
"""How long a trigger without anything to read waits for a change of assignment; Spark asks again after 10 ms."""

OUTLOOK_EVERY_S: Final = 0.25
"""Pause between two checks whether the group has settled."""

FIRST_ASSIGNMENT_MS: Final = 10_000
"""How long the first trigger of a stream without end waits for partitions, unless firstAssignmentTimeout is set."""

TELL_WAITING_S: Final = 5.0
"""After so long a query that was interrupted says what it waits for."""

HAND_OVER_S: Final = 10.0
"""How long a query that stops waits for the others to be ready for its partitions."""

SESSION_MS_MAX: Final = 60_000
"""The longest session that Kafka allows by default: a crashed member may hold its partitions for as long."""


class Ownership(Protocol):
    """The partitions of a query: `GroupMembership` or `FixedPartitions`."""

    @property
    def rebalance_timeout_ms(self) -> int | None:
        """How long the group waits for a revocation."""
        ...

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def statistics(self) -> Mapping[str, float]:
        """For the progress of the query."""
        ...

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        """For the checkpoint."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """For the checkpoint."""
        ...

    def check(self) -> None:
        """Raise the error that ended the membership, if there is one."""
        ...

    def await_assignment(self, timeout_s: float) -> bool:
        """Wait for partitions."""
        ...

    def await_change(self, timeout_s: float) -> None:
        """Wait for other partitions."""
        ...

    def outlook(self, wanted: Iterable[NamedPartition]) -> Outlook:
        """Whether more partitions may come."""
        ...

    def readable(self) -> dict[NamedPartition, int]:
        """Next offset of each partition that may be read."""
        ...

    def plan(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Begin a batch."""
        ...

    def absent(self, partitions: Iterable[NamedPartition]) -> None:
        """Report partitions that brokers do not know."""
        ...

    def progress(self) -> dict[NamedPartition, int]:
        """Next offset of each partition that was read."""
        ...

    def rewind(self, positions: Mapping[NamedPartition, int]) -> None:
        """Go on at these offsets, after records were lost."""
        ...

    def restore(self, positions: Mapping[NamedPartition, int]) -> None:
        """Go on where an earlier run ended."""
        ...

    def finish(self, mark: CommitMark) -> None:
        """The batch is complete."""
        ...

    def abandon(self) -> None:
        """Drop the planned batch, which was never run."""
        ...

    def hand_over(self, timeout_s: float) -> None:
        """Leave between two batches, without a gap for the others."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Stream:
    """The driver's side of one query. Nothing is joined before the first trigger.

    Args:
        session: process id of the Spark session's JVM; None to let its streams divide the partitions of a group.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(self, options: SourceOptions, *, session: int | None = None) -> None:
        check_settings(options)
        self._options = options
        self._session_group = _session_group(options, session)
        self._log = log_offsets(options)
        self._source: Ownership | None = None
        self._planned: dict[str, Any] | None = None
        self._written: frozenset[NamedPartition] = frozenset()
        """Partitions whose positions are in the checkpoint, or in the planned batch."""
        self._stop_at: dict[NamedPartition, int] | None = None
        self._bounded = False
        self._ends: dict[NamedPartition, int] = {}
        self._turn = 0
        self._batch_s = -math.inf
        """When the last batch was planned. As in Spark's own source, the first one is not held back."""
        self._lock = threading.RLock()
        """`complete` comes on a thread of its own."""
        self._query = ""
        self._batch = 0
        self._repeated: tuple[dict[str, Any], tuple[OffsetRange, ...]] | None = None
        """The end of the batch in which an earlier run was interrupted, and the ranges of it that are left to read."""
        self._watch: StopWatch | None = None
        self._stopping = False

    def bound(self) -> None:
        """Read only records that are there at the first trigger (Trigger.AvailableNow)."""
        self._bounded = True

    def latest(self, start: dict[str, Any], *, rows_max: int | None) -> dict[str, Any]:
        """The end of the next batch; *start* itself if there is nothing to read.

        Args:
            start: the end of the last complete batch.
            rows_max: limit of the batch, in rows.

        Raises:
            DataLossError: records are gone, and failOnDataLoss is on.
            NotOwnedError: a query that ends by itself would end without having had its partitions.
            Kip848Error: the group refuses us, or brokers do not answer.
        """
        self._note_asked()
        waiting_s = time.monotonic()
        while True:
            with self._lock:
                source = self._joined(StreamOffset.from_json(start))
                self._end_planned(source, start)
                if self._stopping:
                    source.await_change(IDLE_WAIT_S)
                    return start
                source.check()
                seen = source.readable().keys()
                accepted = self._plan(source, rows_max)
                positions = source.progress()
                if accepted or not positions.keys() <= self._written:
                    return self._write_down(source, accepted, positions)
                if not self._bounded:
                    source.await_change(IDLE_WAIT_S)
                    return start
                had_its_share = self._has_had_its_share(source, waited_ms=(time.monotonic() - waiting_s) * 1_000)
                if (
                    had_its_share and source.readable().keys() <= seen
                ):  # partitions that came meanwhile are planned first
                    return start
            source.await_change(OUTLOOK_EVERY_S)

    def first_of_unknown_trigger(self, start: dict[str, Any]) -> dict[str, Any]:
        """The end of the first batch if Spark does not say whether it is the only one: it takes all waiting records.

        Waits until the group has given this query its part.

        Raises:
            NotOwnedError: the group did not settle, or left this query nothing although records wait.
            DataLossError, Kip848Error: as `latest`.
        """
        self.bound()
        waiting_s = time.monotonic()
        while True:
            with self._lock:
                source = self._joined(StreamOffset.from_json(start))
                source.check()
                settled = self._has_had_its_share(source, waited_ms=(time.monotonic() - waiting_s) * 1_000)
            if settled:
                break
            source.await_change(OUTLOOK_EVERY_S)
        end = self.latest(start, rows_max=None)
        self._bounded, self._stop_at = False, None
        return end

    def report(self) -> dict[str, Any] | None:
        """For the progress of the query: the ends of its partitions at the last trigger, and its state.

        Spark takes no metrics of a source in Python, and names it by a class of its own; this is passed on as it is.
        """
        source = self._source
        if source is None:
            return None
        positions = source.progress()
        behind = [max(0, end - positions.get(partition, end)) for partition, end in self._ends.items()] or [0]
        return {
            **StreamOffset(positions=self._ends).to_json(),
            "source": f"kip848 {self._options.selection} as {source.name} in group {self._options.group_id}",
            "records_behind": {"min": min(behind), "avg": round(sum(behind) / len(behind), 1), "max": max(behind)},
            **source.statistics,
        }

    def tasks(self, end: Mapping[str, Any]) -> list[Task]:
        """The ranges of the batch that ends at *end*.

        If this is the first call of all, an earlier run was interrupted in that batch, and the query joins first: what
        other members have read and committed meanwhile is left out.
        """
        self._note_asked()
        batch = StreamOffset.from_json(end)
        ranges = batch.ranges
        if self._source is None and ranges:
            left = self._without_read_by_others(batch)
            with self._lock:
                self._repeated = (dict(end), left)
                self._planned = dict(end)
        if self._repeated is not None and self._repeated[0] == end:
            ranges = self._repeated[1]
        return cut_tasks(
            ranges,
            tasks_min=self._options.tasks_min,
            tasks_max=self._options.tasks_max,
            task_rows_max=self._options.task_rows_max,
        )

    def complete(self, ends: Iterable[Mapping[str, Any]]) -> bool:
        """The query is to stop after the batch that runs: plan nothing more, and leave once it is complete.

        Args:
            ends: the ends of complete batches, according to Spark; this source's is among them once it is complete.

        Returns:
            Whether the query has left the group.
        """
        with self._lock:
            self._stopping = True
            if self._source is None:
                return False
            if self._planned is not None and self._planned in ends:
                self._end_planned(self._source, self._planned)
            if self._planned is not None:
                return False
            self._source.hand_over(HAND_OVER_S)
            return True

    def close(self) -> None:
        """Leave the group."""
        if self._watch is not None:
            self._watch.close()
        if self._source is not None:
            self._source.close()
        if self._session_group is not None:
            self._session_group.close()
        self._log.close()

    def _note_asked(self) -> None:
        if self._session_group is not None:
            self._session_group.note_asked()

    def _write_down(
        self, source: Ownership, accepted: tuple[OffsetRange, ...], positions: Mapping[NamedPartition, int]
    ) -> dict[str, Any]:
        """The end of the batch that was planned.

        A batch without records writes down where partitions begin; otherwise a restart would begin later.
        """
        if accepted:
            self._turn += 1
            self._batch_s = time.monotonic()
        self._batch += 1
        self._written = frozenset(positions)
        end = StreamOffset(accepted, positions, source.topic_ids, source.counts, self._query, self._batch)
        self._planned = end.to_json()
        return self._planned

    def _without_read_by_others(self, batch: StreamOffset) -> tuple[OffsetRange, ...]:
        """The ranges of an interrupted batch, without what other members have committed since.

        Waits until the group has settled, so that those who give partitions back have committed, and until those who
        keep some have committed the batch. A member may take as long for a batch as the group waits for a revocation,
        and a dead one holds its partitions until its session ends.
        """
        begins = {each.partition: each.start for each in batch.ranges}
        with self._lock:
            source = self._joined(msgspec.structs.replace(batch, positions={**batch.positions, **begins}))
        if self._options.assigned or not self._options.commit:
            return batch.ranges
        limit_ms = self._settling_ms(source)
        began_s = time.monotonic()
        tell_s = began_s + TELL_WAITING_S
        names = [each.partition for each in batch.ranges]
        group = GroupOffsets(self._options.client, timeout_ms=self._options.lookup_timeout_ms)
        try:
            while True:
                source.check()
                outlook = source.outlook(names)
                ours = source.readable()
                read = self._committed_by_others(group, names)
                left = tuple(
                    OffsetRange(each.partition, max(each.start, read.get(each.partition, 0)), each.end)
                    for each in batch.ranges
                    if read.get(each.partition, 0) < each.end
                )
                now_s = time.monotonic()
                complete = outlook.settled and all(each.partition in ours for each in left)
                if not self._stopping and (complete or now_s >= began_s + limit_ms / 1_000):
                    break
                if now_s >= tell_s:
                    tell_s = math.inf
                    _log.warning(
                        "batch %d was interrupted, and others hold partitions of it: %s. It is repeated once they have "
                        "committed what they read, or after %g s (firstAssignmentTimeout)",
                        batch.batch,
                        outlook.holders,
                        limit_ms / 1_000,
                    )
                source.await_change(OUTLOOK_EVERY_S)
        finally:
            group.close()
        with self._lock:
            source.plan(each for each in left if each.partition in ours)
        if not complete:
            _log.warning(
                "batch %d was interrupted, and is repeated although its partitions are not all back after %g s "
                "(firstAssignmentTimeout): %s. What these members read and have not committed is written twice",
                batch.batch,
                limit_ms / 1_000,
                outlook.holders,
            )
        rows, planned = sum(each.rows for each in left), sum(each.rows for each in batch.ranges)
        if rows < planned:
            _log.warning(
                "batch %d was interrupted; other members of the group have read %d of its %d rows meanwhile, and this "
                "query repeats the others",
                batch.batch,
                planned - rows,
                planned,
            )
        return left

    def _settling_ms(self, source: Ownership) -> int:
        """How long others may keep partitions that are to come here, unless firstAssignmentTimeout says it."""
        given_ms = self._options.first_assignment_ms
        return (source.rebalance_timeout_ms or 0) + SESSION_MS_MAX if given_ms is None else given_ms

    def _committed_by_others(
        self, group: GroupOffsets, partitions: Iterable[NamedPartition]
    ) -> dict[NamedPartition, int]:
        """Committed offsets, except the ones that an earlier run of this query has committed."""
        return {
            partition: at.offset
            for partition, at in group.committed(partitions).items()
            if (mark := CommitMark.parse(at.metadata)) is None or mark.query != self._query
        }

    def _joined(self, restored: StreamOffset) -> Ownership:
        """Join, in the first call; *restored* is where an earlier run came to."""
        if self._source is None:
            if self._session_group is not None:
                subscription = self._options.subscription
                topics = set(subscription.topics)
                if subscription.pattern is not None:
                    topics |= {subscription.pattern, *matching_topics(subscription, self._log)}
                self._session_group.enter(topics)
            self._written = frozenset(restored.positions)
            self._query, self._batch = restored.query or uuid4().hex, restored.batch
            restored = msgspec.structs.replace(restored, query=self._query)
            self._watch = StopWatch(self._query, self.complete)
            kind = FixedPartitions if self._options.assigned else GroupMembership
            self._source = kind(self._options, restored, self._log)
            self._warn_if_patient(self._source)
            if not self._options.assigned:
                self._look_for_topics()
            if not self._bounded:
                given_ms = self._options.first_assignment_ms
                self._source.await_assignment((FIRST_ASSIGNMENT_MS if given_ms is None else given_ms) / 1_000)
        if self._bounded and self._stop_at is None:
            self._stop_at = self._log.ends(self._subscribed())
        return self._source

    def _subscribed(self) -> Iterable[NamedPartition]:
        """Every partition that the group may give to this query, or that it reads by name."""
        if self._options.assigned:
            return self._options.assigned
        counts = matching_topics(self._options.subscription, self._log)
        return (NamedPartition(topic, number) for topic, count in counts.items() for number in range(count))

    def _has_had_its_share(self, source: Ownership, *, waited_ms: float) -> bool:
        """Whether a query that ends by itself may end: its partitions have no more records, and it will get no others.

        Raises:
            NotOwnedError: the group did not settle in time, or it left this query nothing although records wait.
        """
        assert self._stop_at is not None
        wanted = self._stop_at
        if wanted.keys() <= source.readable().keys():
            return True
        outlook = source.outlook(wanted)
        if outlook.settled and (outlook.owns or not self._records_wait(wanted)):
            return True
        group = f"group {self._options.group_id!r}"
        if outlook.settled:
            raise NotOwnedError(
                f"{group} has settled, and this query has no partition in it: {outlook.holders}. Its members read the "
                "records; to read them here, give the query a group.id of its own, or stop a member"
            )
        limit_ms = self._settling_ms(source)
        if waited_ms < limit_ms:
            return False
        raise NotOwnedError(
            f"{group} has not settled in {limit_ms / 1_000:g} s (firstAssignmentTimeout), and this query would end "
            f"without partitions that others hold: {outlook.holders}. A member that died holds them until its session "
            "ends, one that reads a long batch until the end of it: start the query again later, or raise the option"
        )

    def _records_wait(self, ends: Mapping[NamedPartition, int]) -> bool:
        """Whether the group has not committed everything up to *ends*."""
        group = GroupOffsets(self._options.client, timeout_ms=self._options.lookup_timeout_ms)
        try:
            committed = group.committed(ends)
        finally:
            group.close()
        begins = self._log.begins(ends.keys() - committed.keys())
        known = {**begins, **{partition: at.offset for partition, at in committed.items()}}
        return any(end > known.get(partition, 0) for partition, end in ends.items())

    def _end_planned(self, source: Ownership, start: Mapping[str, Any]) -> None:
        """End the planned batch. If the next batch starts at its end, it is complete, and the member commits it.

        Otherwise Spark dropped it, and its ranges are planned again.
        """
        if self._planned is None:
            return
        if self._planned == start:
            source.finish(CommitMark(self._query, self._batch))
            if self._repeated is not None:
                source.restore(StreamOffset.from_json(start).positions)  # also of ranges that other queries read
                self._repeated = None
        else:
            source.abandon()
        self._planned = None

    def _plan(self, source: Ownership, rows_max: int | None) -> tuple[OffsetRange, ...]:
        positions = source.readable()
        ends = self._log.ends(positions)
        self._ends = dict(ends)
        gone = positions.keys() - ends.keys()
        if gone:
            source.absent(gone)
        if self._stop_at is not None:
            ends = {partition: min(end, self._stop_at.get(partition, 0)) for partition, end in ends.items()}
        positions = self._without_lost(source, positions, ends)
        if self._too_few(positions, ends):
            return ()
        ranges = plan_ranges(positions=positions, ends=ends, rows_max=rows_max, turn=self._turn)
        return source.plan(self._of_living_topics(source, ranges)) if ranges else ()

    def _of_living_topics(self, source: Ownership, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Drop topics that were deleted and created again since the assignment; the group will revoke them."""
        known = source.topic_ids
        now = self._log.topic_ids({each.partition.topic for each in ranges} & known.keys())
        return [each for each in ranges if now.get(each.partition.topic) == known.get(each.partition.topic)]

    def _too_few(self, positions: Mapping[NamedPartition, int], ends: Mapping[NamedPartition, int]) -> bool:
        """Whether minOffsetsPerTrigger holds the batch back."""
        if self._options.rows_min is None or self._bounded:
            return False
        waiting = sum(max(0, ends.get(partition, 0) - position) for partition, position in positions.items())
        waited_ms = (time.monotonic() - self._batch_s) * 1_000
        return waiting < self._options.rows_min and waited_ms < self._options.trigger_delay_ms_max

    def _without_lost(
        self, source: Ownership, positions: dict[NamedPartition, int], ends: Mapping[NamedPartition, int]
    ) -> dict[NamedPartition, int]:
        """Positions that have records, moved forward where records are gone and that is allowed.

        Raises:
            DataLossError: it is not allowed.
        """
        moving = [partition for partition, position in positions.items() if ends.get(partition, position) != position]
        if not moving:
            return positions
        begins = self._log.begins(moving)
        lost = {partition: begin for partition, begin in begins.items() if begin > positions[partition]}
        beyond = [p for p in moving if self._stop_at is None and ends.get(p, positions[p]) < positions[p]]
        if beyond:
            # Positions of committed reads may lie beyond the last stable offset, but not beyond the log.
            highest = self._log.high_watermarks(beyond)
            lost.update({p: begins.get(p, 0) for p in beyond if highest.get(p, 0) < positions[p]})
        if not lost:
            return positions
        told = "; ".join(
            f"{partition} was read up to {positions[partition]}, and now begins at {begins.get(partition, 0)} "
            f"and ends at {ends.get(partition, 0)}"
            for partition in sorted(lost)
        )
        if self._options.fail_on_data_loss:
            raise data_loss(told)
        _log.warning("records are gone: %s; going on, because failOnDataLoss is off", told)
        source.rewind(lost)
        return {**positions, **lost}

    def _look_for_topics(self) -> None:
        """Warn about subscribed topics that do not exist: a group may wait for them, but one may be misspelt.

        Raises:
            ConfigError: the query ends by itself, and would end without having seen them.
            Kip848Error: no broker answers. A member would wait for one, and the query with it, for ever.
        """
        subscription = self._options.subscription
        found = matching_topics(subscription, self._log)
        missing = join_names(sorted(subscription.topics - found.keys()))
        if not found and subscription.pattern is not None:
            missing = f"any that match {subscription.pattern!r}"
        if not missing:
            return
        if self._bounded:
            raise ConfigError(
                f"topics that are subscribed to do not exist: {missing}. AvailableNow reads what is there and ends, "
                "and would end without them: correct the name, or create the topic first"
            )
        _log.warning("topics that are subscribed to do not exist: %s; they are read once they are there", missing)

    def _warn_if_patient(self, source: Ownership) -> None:
        """At the start: warn if a batch may take longer than the group waits. The interval of triggers is unknown."""
        limit_ms = source.rebalance_timeout_ms
        if limit_ms is not None and self._options.poll_timeout_ms >= limit_ms:
            _log.warning(
                "a task may wait %g s for a record (kafkaConsumer.pollTimeoutMs), and the group removes this query "
                "when a revocation takes %g s (kafka.max.poll.interval.ms): the interval between triggers, the time "
                "of a batch and that wait together must stay below; lower the one, or raise the other",
                self._options.poll_timeout_ms / 1_000,
                limit_ms / 1_000,
            )


def _session_group(options: SourceOptions, session: int | None) -> SessionGroup | None:
    """The lock that keeps two streams of the session apart; None if they may read in one group."""
    if session is None or options.assigned or options.share_group:
        return None
    assert options.group_id is not None, "options are checked"
    return SessionGroup(session, cluster=options.client["bootstrap.servers"], group_id=options.group_id)
