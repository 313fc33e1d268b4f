"""The query's membership: a `GroupMember` on a thread of its own, and the gate between it and the batches.

Lives in the process that Spark keeps for one query on the driver's machine. The query's thread asks for readable
partitions and reports finished batches; the member's thread handles rebalances and commits. Both use the `Gate` under
one lock. `stream` decides what a batch reads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.model import (
    NamedPartition,
    OffsetAndMetadata,
    OffsetRange,
    TopicIdPartition,
    describe_partitions,
)
from kip848_client.config import parse_consumer_config
from kip848_client.consumer.group.assembly import build_group_member
from kip848_client.consumer.group.group_member import GroupMember
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    CommitFailedError,
    ConfigError,
    ConnectionLostError,
    FencedError,
    Kip848Error,
    ListenerError,
    MaxPollExceededError,
    RequestTimeoutError,
    join_names,
)
from kip848_client.journal import JsonLinesJournal
from kip848_client.member.core.events import LeaveMode
from kip848_client.spark.group.gate import Gate
from kip848_client.spark.group.log_offsets import LogOffsets
from kip848_client.spark.group.places import find_place
from kip848_client.spark.group.settling import Outlook, outlook
from kip848_client.spark.values.data_loss import data_loss
from kip848_client.spark.values.marks import CommitMark
from kip848_client.spark.values.offsets import StreamOffset
from kip848_client.spark.values.options import SourceOptions
from kip848_client.spark.values.starting import EARLIEST_OFFSET, AtCheckpoint, Edge

_log = logging.getLogger("kip848_client.spark")

POLL_S: Final = 0.02
"""How long the member waits for events before it checks for finished batches."""

COMMIT_TIMEOUT_MS: Final = 5_000
COMMIT_PAUSE_S: Final = 1.0
"""Pause after a failed commit."""

LEAVE_TIMEOUT_MS: Final = 3_000
LAST_COMMIT_TIMEOUT_MS: Final = 1_000
"""Timeout of the last commit when the query stops."""

LOOKUP_TIMEOUT_MS: Final = 10_000


class GroupMembership:
    """One member of the group, for one query.

    Args:
        options: of the query; has a subscription.
        restored: positions of an earlier run of the query, from the checkpoint.
        log: asks brokers about offsets.
    """

    def __init__(self, options: SourceOptions, restored: StreamOffset, log: LogOffsets) -> None:
        self.name: Final = options.client.get("client.id", f"kip848-spark-{restored.query[:8]}")
        """Unless the options name the query: the same in each of its runs, and none of another query."""
        config = parse_consumer_config({**options.client, "client.id": self.name})
        if config.slots.slots:
            raise ConfigError(
                "kafka.group.instance.id.pool and kafka.group.instance.id.takeover=wait are for consumers: a stream "
                "has its checkpoint for itself, so that no second driver can stand by; leave them out"
            )
        self._options = options
        self._log = log
        self._rebalance_timeout_ms: Final = config.rebalance_timeout_ms
        self._classic: Final = config.protocol == "classic"
        self._changed = threading.Condition()
        self._gate = Gate()
        self._gate.restore(restored.positions)
        self._mark = CommitMark(restored.query, restored.batch)
        self._topic_ids: dict[str, UUID] = dict(restored.topic_ids)
        self._counts: dict[str, int] = dict(restored.counts)
        # Topics of an earlier run that are gone are noticed by the first check().
        self._departed: set[str] = {partition.topic for partition in restored.positions}
        self._fresh = not restored.counts
        """Whether the query never planned a batch: only then does startingOffsets apply."""
        self._closing = False
        self._failure: Kip848Error | None = None
        self._next_commit_s = 0.0
        self._reset_moves: Final = options.client["auto.offset.reset"] not in {"earliest", "none"}
        """Whether a partition without a committed offset begins later, the later it begins."""
        self._begins_by_reset: frozenset[NamedPartition] = frozenset()
        """New partitions without a committed offset, if `_reset_moves`."""
        self._begins_as_told: frozenset[NamedPartition] = frozenset()
        """New partitions that begin where a starting option says."""
        self._triggered_s: float | None = None
        """When the last trigger came; None after a warning that it was long ago."""
        self._rebalances = 0
        self._revocation_wait_s = 0.0
        self._journal = _open_journal(options.event_log)
        self._member: GroupMember = build_group_member(
            config, records=_NoRecords(self._begin_reading), journal=self._journal
        )
        self._thread = daemon_thread(self._run, "kip848-spark-member")
        self._thread.start()

    # --- for the query's thread

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for a revocation."""
        return self._rebalance_timeout_ms

    @property
    def statistics(self) -> Mapping[str, float]:
        """How often the partitions changed since the query began, and how long other members waited for its batches."""
        return {"rebalances": self._rebalances, "revocation_wait_s": round(self._revocation_wait_s, 3)}

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        """Ids of all topics whose partitions the query ever owned."""
        return dict(self._topic_ids)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many partitions topics had when the query first saw them."""
        return dict(self._counts)

    def check(self) -> None:
        """A trigger came: raise the error that ended the membership, if there is one.

        Raises:
            Kip848Error: the group refuses us for good, or records are gone.
        """
        self._triggered_s = time.monotonic()
        with self._changed:
            if self._failure is not None:
                raise self._failure
        gone = self._topics_gone()
        if gone and self._options.fail_on_data_loss:
            raise data_loss(f"topics that this query has read do not exist any more: {join_names(sorted(gone))}")
        with self._changed:
            self._gate.forget(gone)

    def await_assignment(self, timeout_s: float) -> bool:
        """Wait until there is something to read, or the member failed. Returns whether it owns anything."""
        with self._changed:
            self._changed.wait_for(lambda: self._gate.readable or self._failure is not None, timeout_s)
            if self._failure is not None:
                raise self._failure
            return bool(self._gate.owned)

    def await_change(self, timeout_s: float) -> None:
        """Wait until the owned partitions change, for at most *timeout_s*."""
        with self._changed:
            self._changed.wait(timeout_s)

    def outlook(self, wanted: Iterable[NamedPartition]) -> Outlook:
        """Whether this query may still get partitions, according to the group's coordinator.

        Raises:
            Kip848Error: no answer.
        """
        group_id = self._options.group_id
        assert group_id is not None, "options are checked"
        group = self._log.group(group_id)
        with self._changed:
            owned = self._gate.owned
        return outlook(group, member_id=self._member.view.member_id, owned=owned, wanted=wanted)

    def readable(self) -> dict[NamedPartition, int]:
        """Next offset of each partition that a batch may read."""
        with self._changed:
            return self._gate.readable

    def plan(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Begin a batch with those of *ranges* that are still ours. Their revocation now waits for the batch."""
        owned_now = self._member.view.readable  # the coordinator's word; a loss shows here first
        with self._changed:
            accepted = self._gate.plan([each for each in ranges if each.partition in owned_now])
            if accepted:
                self._fresh = False
            return accepted

    def absent(self, partitions: Iterable[NamedPartition]) -> None:
        """Report partitions that brokers do not know: the group will revoke them, and `check` then finds out why."""

    def progress(self) -> dict[NamedPartition, int]:
        """For the checkpoint."""
        with self._changed:
            return self._gate.progress

    def rewind(self, positions: Mapping[NamedPartition, int]) -> None:
        """Go on at later offsets: the records before were lost, and that is allowed."""
        with self._changed:
            self._gate.rewind(positions)

    def restore(self, positions: Mapping[NamedPartition, int]) -> None:
        """A batch of an earlier run was repeated: go on from here."""
        with self._changed:
            self._gate.restore(positions)

    def finish(self, mark: CommitMark) -> None:
        """The planned batch is complete: commit it, and finish a revocation that waits for it."""
        with self._changed:
            self._gate.finish()
            self._mark = mark
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop the planned batch, which was never run."""
        with self._changed:
            self._gate.abandon()
            self._changed.notify_all()

    def hand_over(self, timeout_s: float) -> None:
        """Between two batches: commit, let the others prepare, revoke everything, leave. Waits until that is done."""
        self._member.hand_over(timeout_ms=int(timeout_s * 1_000))
        self._thread.join(timeout_s + LEAVE_TIMEOUT_MS / 1_000)

    def close(self, timeout_ms: int = LEAVE_TIMEOUT_MS) -> None:
        """Commit the finished batches and leave the group, without waiting for a batch in flight or committing it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join((timeout_ms + LAST_COMMIT_TIMEOUT_MS) / 1_000 + 1)

    def _topics_gone(self) -> set[str]:
        """Topics that lost partitions and no longer exist."""
        with self._changed:
            departed = set(self._departed)
            asked = departed & {partition.topic for partition in self._gate.progress}
        gone = asked - self._log.partition_counts(asked).keys() if asked else set()
        with self._changed:
            self._departed -= departed
        return gone

    # --- on the member's thread

    def _run(self) -> None:
        try:
            self._member.subscribe(self._options.subscription, self)
            while not self._closing and self._failure is None and not self._member.handed_over:
                self._take_part()
            if self._failure is None:
                self._commit(timeout_ms=LAST_COMMIT_TIMEOUT_MS)
        except Exception as error:  # noqa: BLE001  the query's thread must hear of it
            _log.exception("the member's thread failed")
            failure = error if isinstance(error, Kip848Error) else Kip848Error(f"the member's thread failed: {error!r}")
            self._fail(failure)
        finally:
            left = self._member.close(timeout_ms=LEAVE_TIMEOUT_MS, mode=LeaveMode.DEFAULT, release=lambda: None)
            for raised in left:
                _log.info("while leaving the group: %s", raised)
            if self._journal is not None:
                self._journal.close()

    def _take_part(self) -> None:
        self._warn_if_rare()
        try:
            self._member.poll(POLL_S)
        except (ListenerError, MaxPollExceededError) as error:
            _log.warning("%s", error)  # the step is tried again by the next poll
        except Kip848Error as error:
            if self._member.thread.fatal is not None or not passing(error):
                self._fail(error)
                return
            _log.warning("%s", error)
        if time.monotonic() >= self._next_commit_s:
            self._commit()

    def _fail(self, error: Kip848Error) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def _commit(self, only: frozenset[NamedPartition] | None = None, *, timeout_ms: int = COMMIT_TIMEOUT_MS) -> None:
        """Commit the finished batches."""
        if not self._options.commit:
            return
        with self._changed:
            due = {
                partition: OffsetAndMetadata(offset, metadata=self._mark.to_text())
                for partition, offset in self._gate.uncommitted.items()
                if only is None or partition in only
            }
        if not due:
            return
        try:
            self._member.commit_sync(due, timeout_ms=timeout_ms)
        except Kip848Error as error:
            # The query itself relies on its checkpoint. The member commits these offsets again in a second.
            _log.warning("offsets were not committed: %s", error)
            self._next_commit_s = time.monotonic() + COMMIT_PAUSE_S
            return
        with self._changed:
            self._gate.committed({partition: at.offset for partition, at in due.items()})

    # --- rebalance callbacks, on the same thread

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Say where to begin, unless the group's committed offset, or auto.offset.reset, is right."""
        if not partitions:
            return
        self._rebalances += 1
        try:
            self._check_incarnations(partitions)
            names = [tip.topic_partition for tip in partitions]
            self._count(names)
            committed = self._member.committed(names, timeout_ms=LOOKUP_TIMEOUT_MS)
            known = {partition: at.offset for partition, at in committed.items()}
            self._begins_by_reset = frozenset(names) - known.keys() if self._reset_moves else frozenset()
            for partition, offset in self._starts(names, known).items():
                self._member.seek(partition, OffsetAndMetadata(offset))
        except Kip848Error as error:
            if not passing(error):
                self._fail(error)
            raise

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Wait for the batch that reads these partitions and commit it; then the member revokes them."""
        names = frozenset(tip.topic_partition for tip in partitions)
        began_s = time.monotonic()
        with self._changed:
            self._gate.begin_revocation(names)
            while not (self._gate.may_revoke or self._closing or self._failure is not None or self._removed()):
                self._changed.wait(POLL_S)
                self._warn_if_rare()
            waited = time.monotonic() - began_s
            self._revocation_wait_s += waited
            self._rebalances += bool(names)
        self._commit(names)
        with self._changed:
            self._gate.end_revocation(names)
            self._departed.update(partition.topic for partition in names)
            self._changed.notify_all()
        if names:
            _log.info("handed over %s after %.3f s", describe_partitions(names), waited)

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Lost partitions may have another owner already: stop reading them, and commit nothing."""
        with self._changed:
            names = [tip.topic_partition for tip in partitions]
            self._gate.lose(names)
            self._departed.update(partition.topic for partition in names)
            self._changed.notify_all()
        self._rebalances += 1
        _log.warning("lost %s", describe_partitions(names))

    def _warn_if_rare(self) -> None:
        """Warn, once per trigger, if a revocation waits for the next trigger and nears the rebalance timeout."""
        triggered_s = self._triggered_s
        limit_ms = self._rebalance_timeout_ms
        if triggered_s is None or (time.monotonic() - triggered_s) * 2_000 < limit_ms:
            return
        self._triggered_s = None
        _log.warning(
            "no trigger for %.0f s; a revocation waits for the next one, and the group removes this query after %.0f "
            "s: raise kafka.max.poll.interval.ms, trigger more often, or make batches smaller",
            time.monotonic() - triggered_s,
            limit_ms / 1_000,
        )

    def _removed(self) -> bool:
        """Whether the member was removed meanwhile, so that it need not wait."""
        return self._member.view.member_epoch <= 0

    def _begin_reading(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        starts = {tip.topic_partition: at.offset for tip, at in positions.items()}
        with self._changed:
            self._gate.assign(starts)
            # Records from now on are ours to read: a restart, or another owner, must not begin later.
            self._gate.owe(
                {p: at for p, at in starts.items() if p in self._begins_by_reset and self._gate.floor(p) is None}
            )
            self._gate.settle(starts.keys() & (self._begins_by_reset | self._begins_as_told))
            self._changed.notify_all()

    def _starts(
        self, names: Iterable[NamedPartition], committed: Mapping[NamedPartition, int]
    ) -> dict[NamedPartition, int]:
        """Starting offsets of partitions that the member itself would start elsewhere."""
        starts: dict[NamedPartition, int] = {}
        explicit = self._options.starting
        asked = []
        with self._changed:
            for partition in names:
                floor = self._gate.floor(partition)
                if floor is not None:
                    starts[partition] = max(floor, committed.get(partition, 0))
                    if floor > committed.get(partition, -1):
                        self._gate.owe({partition: floor})
                elif explicit is not Edge.COMMITTED and self._fresh and not isinstance(explicit, AtCheckpoint):
                    asked.append(partition)
                elif partition in committed:
                    starts[partition] = committed[partition]
                elif isinstance(explicit, AtCheckpoint):
                    asked.append(partition)
                elif explicit is not Edge.COMMITTED or partition.partition >= self._counts.get(partition.topic, 0):
                    starts[partition] = EARLIEST_OFFSET
        if asked:
            starts.update(find_place(explicit, asked, self._log))
        self._begins_as_told = frozenset(asked)
        return starts

    def _check_incarnations(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Notice topics that were deleted and made again under their old name."""
        ids = {tip.topic: tip.topic_id for tip in partitions}
        if self._classic:
            ids = self._log.topic_ids(ids)  # that protocol names topics, and the member makes ids up
        with self._changed:
            read = {partition.topic for partition in self._gate.progress}
            anew = sorted(
                topic for topic, found in ids.items() if topic in read and self._topic_ids.get(topic, found) != found
            )
        if anew and self._options.fail_on_data_loss:
            error = data_loss(f"topics that this query has read were deleted and made anew: {', '.join(anew)}")
            self._fail(error)
            raise error
        with self._changed:
            self._gate.forget(anew)
            self._topic_ids.update(ids)
            self._counts.update(dict.fromkeys(anew, 0))  # all of their partitions are new, and begin at their beginning

    def _count(self, names: Iterable[NamedPartition]) -> None:
        """Remember how many partitions there are, so that those which come later are read from their beginning."""
        fresh = not self._counts
        topics = {partition.topic for partition in names}
        if fresh:
            topics |= self._options.subscription.topics
        unknown = topics - self._counts.keys()
        if unknown:
            counts = self._log.partition_counts(unknown) if fresh else {}
            self._counts.update({topic: counts.get(topic, 0) for topic in unknown})


def _open_journal(path: str | None) -> JsonLinesJournal | None:
    if path is None:
        return None
    try:
        return JsonLinesJournal.open(Path(path))
    except OSError as error:
        raise ConfigError(f"eventLog={path} cannot be written: {error.strerror}") from error


def passing(error: Kip848Error) -> bool:
    """Whether *error* may go away by itself, so that a query should go on."""
    if isinstance(error, BrokerError):
        return error.retriable or isinstance(error, FencedError)
    return isinstance(error, (RequestTimeoutError, ConnectionLostError, CommitFailedError)) and not isinstance(
        error, AuthenticationError
    )


class _NoRecords:
    """Replaces a consumer's fetcher: executors read the records, so this only tracks positions."""

    def __init__(self, begin: Callable[[Mapping[TopicIdPartition, OffsetAndMetadata]], None]) -> None:
        self._begin = begin

    def warm(self, topics: Iterable[str]) -> None:
        """Nothing to do."""

    def start(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        """These may be read from here on."""
        self._begin(positions)

    def hold(self, partitions: Iterable[NamedPartition]) -> None:
        """Nothing to do: `revoked` follows."""

    def stop(self, partitions: Iterable[NamedPartition]) -> None:
        """Nothing to do: `revoked` or `lost` did it."""

    def stop_all(self) -> None:
        """Nothing to do."""

    def positions(self) -> Mapping[NamedPartition, OffsetAndMetadata]:
        """None: offsets are committed explicitly."""
        return {}
