"""The host of share partitions: gives them the time and the log, keeps their changes, and wakes the fetches that wait.

A share partition lives on the node that leads the partition, from the first fetch of a group to the end of the group's
last session there. A change goes into the log of states first, then into `ShareStates`, and only then is it settled; if
it cannot be kept it is taken back. What a node did not keep, a node that leads after it does not know: acquired records
are available there at once.

Lives on the broker's loop. Locks end on the loop's time, or by `run_due` on a `ManualClock`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.clock import Clock, ManualClock
from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.config.reset import duration_ms
from kip848_client.errors import BrokerError, DataDirError, ErrorCode
from kip848_client.testing.broker.share.dead_letters import DeadLetterTopics
from kip848_client.testing.broker.share.waiters import ShareWaiters
from kip848_client.testing.broker.storage.group_log import GroupLog
from kip848_client.testing.broker.topics.registry import Topic, TopicChange, TopicDeleted, TopicRegistry
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import (
    AcknowledgementBatch,
    Change,
    DeadLetterBatch,
    InFlightRecords,
    SharePartition,
)
from kip848_client.testing.share_partitions.share_sessions import EndedSession, GoneConnection
from kip848_client.testing.share_partitions.share_state import ShareKey, ShareRecord, ShareState, ShareStates
from kip848_client.wire.messages.share_state_records import decode_share_state_record, encode_share_state_record

_UNINITIALIZED: Final = -1
_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)

Settings: TypeAlias = Callable[[str], ShareSettings]


class SharePartitionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as a share group sees it.

    Attributes:
        start_offset: the SPSO: every record before it is done with; None if no member has read from it yet.
        end_offset: the SPEO: no record from it on was acquired yet; None if no member has read from it yet.
        unfinished: records from the SPSO on that are neither accepted nor archived. The ends of transactions do not
            count, of which some clients do not speak as long as no other record comes.
        in_flight: the records between SPSO and SPEO.
    """

    topic: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    unfinished: int
    in_flight: tuple[InFlightRecords, ...]


class LivePartition(msgspec.Struct, eq=False):
    """A share partition on the node that leads it.

    Attributes:
        waiters: called after records may have become available; they may leave.
        locks_end_ms: not before this time does a lock end; None if none runs.
    """

    key: ShareKey
    topic: Topic
    log: PartitionLog
    partition: SharePartition
    waiters: dict[Callable[[], None], None] = msgspec.field(default_factory=dict)
    locks_end_ms: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether its node still leads the partition, and the topic is there."""
        return not self.topic.deleted and self.log.leader_epoch == self.partition.leader_epoch

    def wake(self) -> None:
        """Call the fetches that wait."""
        for waiter in tuple(self.waiters):
            waiter()


class SharePartitionManager:
    """All share partitions of a broker, and what is kept of them.

    Args:
        log: where the records of ``__share_group_state`` are kept.
        settings_of: the settings of a group by its id.
        dead_letter_topics: where records go that are given up.
    """

    def __init__(
        self,
        *,
        log: GroupLog,
        topics: TopicRegistry,
        settings_of: Settings,
        dead_letter_topics: DeadLetterTopics,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._log: Final = log
        self._topics: Final = topics
        self.settings_of: Final = settings_of
        self._dead_letter_topics: Final = dead_letter_topics
        self._clock: Final = clock
        self._loop: Final = loop
        self._states: Final = ShareStates()
        self._live: Final[dict[ShareKey, LivePartition]] = {}
        self._closed = False
        self._waiters: Final = ShareWaiters(topics, loop, snapshots=self.snapshots, logs=self._logs_of)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._unsubscribe: Final = topics.subscribe(self._topic_changed)

    # --- life

    def load(self) -> None:
        """Read what was kept.

        Raises:
            DataDirError: the log cannot be read.
            ProtocolError: a record of the log is not what its type says.
        """
        for key, value in self._log.load():
            self._states.replay(decode_share_state_record(key, value))
        for found in self._states:
            if self._topics.get_by_id(found.topic_id) is None:
                self.delete(found.group_id, [(found.topic_id, found.partition)])

    def close(self) -> None:
        """Stop timers, and free nothing any more: what members have, they have until the next start."""
        self._closed = True
        self._unsubscribe()
        self._waiters.refuse()
        if self._timer is not None:
            self._timer.cancel()

    def run_due(self) -> None:
        """Free the records whose locks have ended."""
        now_ms = self._clock.now_ms()
        for live in tuple(self._live.values()):
            if live.locks_end_ms is not None and live.locks_end_ms <= now_ms and self._serves(live):
                settings = self.settings_of(live.key.group_id)
                self._keep_or_log(live, live.partition.expire(now_ms=now_ms, settings=settings))
                live.locks_end_ms = live.partition.deadline_ms()
        self._arm()

    # --- what is kept

    def initialize(
        self,
        group_id: str,
        topic_id: uuid.UUID,
        partition: int,
        *,
        state_epoch: int,
        start_offset: int = _UNINITIALIZED,
    ) -> None:
        """Let a group read a partition, from an offset or, with -1, from where its reset says.

        Raises:
            DataDirError: it could not be kept.
        """
        self._append(
            self._states.initialize(
                ShareKey(group_id, topic_id, partition),
                state_epoch=state_epoch,
                start_offset=start_offset,
                wall_ms=self._clock.wall_ms(),
            )
        )
        self._waiters.tell(group_id)

    def summary(self, group_id: str, topic_id: uuid.UUID, partition: int) -> ShareState | None:
        """What is kept of a partition; None if the group never read it."""
        return self._states.get(ShareKey(group_id, topic_id, partition))

    def partitions_of(self, group_id: str) -> tuple[tuple[uuid.UUID, int], ...]:
        """The partitions of which something is kept for a group."""
        return tuple((key.topic_id, key.partition) for key in self._states if key.group_id == group_id)

    def delete(self, group_id: str, partitions: Iterable[tuple[uuid.UUID, int]]) -> None:
        """Forget all about partitions in a group.

        If the disk is full, what was kept comes back with the next start. That does no harm: a topic's id never comes
        back, and a later group of the same id begins its partitions anew.
        """
        keys = [ShareKey(group_id, *partition) for partition in partitions]
        records = [record for key in keys if (record := self._states.delete(key)) is not None]
        with contextlib.suppress(DataDirError):  # the data folder has reported it
            self._append(*records)
        for record in records:
            self._states.replay(record)
        for key in keys:
            self._drop(key)

    # --- share partitions

    def get(self, key: ShareKey) -> LivePartition | None:
        """The share partition if the group reads it on the node that leads it now."""
        live = self._live.get(key)
        if live is not None and not live.is_current:
            self._drop(key)
            return None
        return live

    def open(self, key: ShareKey, topic: Topic) -> LivePartition:
        """The share partition; it is read from what was kept if no member has read it since its node leads.

        Raises:
            BrokerError: as `ShareStates.read`; COORDINATOR_NOT_AVAILABLE: a record could not be kept.
        """
        live = self.get(key)
        if live is not None:
            return live
        log = topic.partitions[key.partition]
        state, record = self._states.read(key, leader_epoch=log.leader_epoch, wall_ms=self._clock.wall_ms())
        if record is not None:
            try:
                self._append(record)
            except DataDirError as error:
                raise _not_kept(error) from error
        start = state.start_offset if state.start_offset >= 0 else self._first_start(key.group_id, log)
        partition = SharePartition(
            start_offset=start, state_epoch=state.state_epoch, leader_epoch=log.leader_epoch, batches=state.batches
        )
        live = self._live[key] = LivePartition(key, topic, log, partition)
        self._bury(live, partition.archiving())
        self._changed(live)
        return live

    def acquired(self, live: LivePartition) -> None:
        """Records were acquired now: their locks run."""
        ends_ms = self._clock.now_ms() + self.settings_of(live.key.group_id).record_lock_duration_ms
        live.locks_end_ms = ends_ms if live.locks_end_ms is None else min(live.locks_end_ms, ends_ms)
        self._arm()
        self._changed(live)

    def acknowledge(
        self, live: LivePartition, member_id: str, acknowledgements: Iterable[AcknowledgementBatch]
    ) -> None:
        """Do what a member says about its records, all or nothing.

        Raises:
            BrokerError: as `SharePartition.acknowledge`; NOT_LEADER_OR_FOLLOWER: another node leads, or the group's
                offsets were set anew; COORDINATOR_NOT_AVAILABLE: it could not be kept.
        """
        settings, now_ms = self.settings_of(live.key.group_id), self._clock.now_ms()
        change = live.partition.acknowledge(member_id, acknowledgements, settings=settings, now_ms=now_ms)
        self._keep(live, change)
        live.wake()

    def session_ended(self, ended: EndedSession, *, node_id: int) -> None:
        """Free the records of a member whose session is over."""
        if self._closed or not self._topics.placement.is_active(node_id):
            return
        settings = self.settings_of(ended.group_id)
        for topic_id, partition in ended.partitions:
            live = self.get(ShareKey(ended.group_id, topic_id, partition))
            if live is not None:
                self._keep_or_log(live, live.partition.release(ended.member_id, settings=settings))

    def connection_gone(self, gone: GoneConnection, *, node_id: int) -> None:
        """Free the records of its member; forget the partitions of a group whose members all are gone."""
        if gone.ended is not None:
            self.session_ended(gone.ended, node_id=node_id)
        for key in tuple(self._live) if gone.left_group is not None else ():
            leads = self._topics.placement.get(key.topic_id, key.partition).leader == node_id
            if key.group_id == gone.left_group and leads:
                self._drop(key)

    # --- for tests

    def expire_locks(self, group_id: str, topic: str | None, partition: int | None) -> int:
        """End the locks of all records that members of a group have acquired; returns how many records there were."""
        settings, count = self.settings_of(group_id), 0
        for live in tuple(self._live.values()):
            if (
                live.key.group_id == group_id
                and topic in (None, live.topic.name)
                and partition in (None, live.key.partition)
                and live.is_current
            ):
                change = live.partition.expire_all(settings=settings)
                count += sum(batch.last_offset - batch.first_offset + 1 for batch in change.batches)
                self._keep_or_log(live, change)
        return count

    def snapshots(self, group_id: str) -> tuple[SharePartitionSnapshot, ...]:
        """The partitions of a group, by topic and number."""
        found = []
        for key in self._states:
            topic = self._topics.get_by_id(key.topic_id)
            if key.group_id != group_id or topic is None:
                continue
            found.append(self._snapshot(key, topic))
        return tuple(sorted(found, key=lambda each: (each.topic, each.partition)))

    def add_waiter(
        self,
        group_id: str,
        predicate: Callable[[tuple[SharePartitionSnapshot, ...]], bool],
        future: concurrent.futures.Future[tuple[SharePartitionSnapshot, ...]],
    ) -> None:
        """Resolve *future* with the first snapshot of a group's partitions for which *predicate* holds."""
        self._waiters.add(group_id, predicate, future)

    # --- internals

    def _snapshot(self, key: ShareKey, topic: Topic) -> SharePartitionSnapshot:
        live, state, log = self.get(key), self._states.get(key), topic.partitions[key.partition]
        partition = None if live is None else live.partition
        if partition is None and state is not None and state.start_offset >= 0:
            partition = SharePartition(start_offset=state.start_offset, batches=state.batches)
        start = log.log_start_offset if partition is None else partition.start_offset
        in_flight = () if partition is None else partition.in_flight()
        done = sum(
            _count_records(log, each.first_offset, each.last_offset + 1) for each in in_flight if each.state.is_terminal
        )
        return SharePartitionSnapshot(
            topic=topic.name,
            partition=key.partition,
            start_offset=None if partition is None else start,
            end_offset=None if partition is None else partition.end_offset,
            unfinished=max(_count_records(log, start, log.high_watermark) - done, 0),
            in_flight=in_flight,
        )

    def _first_start(self, group_id: str, log: PartitionLog) -> int:
        """Where a group begins that has no offset, by its ``share.auto.offset.reset``."""
        reset = self.settings_of(group_id).auto_offset_reset
        if reset == "earliest":
            return log.log_start_offset
        back_ms = duration_ms(reset)
        if back_ms is None:
            return log.high_watermark
        found = log.offset_for_timestamp(self._clock.wall_ms() - back_ms).offset
        return log.high_watermark if found < 0 else found

    def _logs_of(self, group_id: str) -> Iterable[PartitionLog]:
        return [
            topic.partitions[partition]
            for topic_id, partition in self.partitions_of(group_id)
            if (topic := self._topics.get_by_id(topic_id)) is not None
        ]

    def _serves(self, live: LivePartition) -> bool:
        return live.is_current and self._topics.placement.acts(live.key.topic_id, live.key.partition)

    def _keep(self, live: LivePartition, change: Change) -> None:
        partition, key = live.partition, live.key
        try:
            if change.batches:
                self._append(
                    self._states.write(
                        key,
                        change.batches,
                        state_epoch=partition.state_epoch,
                        leader_epoch=partition.leader_epoch,
                        start_offset=partition.start_offset,
                        delivery_complete_count=partition.delivery_complete_count,
                        wall_ms=self._clock.wall_ms(),
                    )
                )
        except DataDirError as error:
            partition.settle(change, kept=False)
            raise _not_kept(error) from error
        except BrokerError as error:
            partition.settle(change, kept=False)
            if error.code in _FENCED:
                self._drop(key)
                raise BrokerError(str(error), code=ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise BrokerError(str(error), code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
        partition.settle(change, kept=True)
        self._bury(live, change.dead_letters)
        self._changed(live)

    def _keep_or_log(self, live: LivePartition, change: Change) -> None:
        """Keep a change that no request waits for. If the disk is full the records are free all the same."""
        try:
            self._keep(live, change)
        except BrokerError as error:
            _log(LogEvent.SHARE_STATE_NOT_KEPT, live, error)
            self._drop(live.key)
        live.wake()

    def _bury(self, live: LivePartition, dead_letters: Iterable[DeadLetterBatch]) -> None:
        """Write records to the dead-letter topic; they are archived even if it does not take them."""
        settings = self.settings_of(live.key.group_id)
        for dead in dead_letters:
            try:
                self._dead_letter_topics.write(
                    live.key.group_id, live.topic, live.key.partition, dead, settings=settings
                )
            except BrokerError as error:
                _log(LogEvent.DEAD_LETTERS_NOT_WRITTEN, live, error)
            self._keep_or_log(live, live.partition.archived(dead))

    def _append(self, *records: ShareRecord) -> None:
        if records:
            self._log.append([encode_share_state_record(*record) for record in records])
        for record in records:
            self._states.replay(record)

    def _changed(self, live: LivePartition) -> None:
        self._waiters.tell(live.key.group_id)

    def _drop(self, key: ShareKey) -> None:
        live = self._live.pop(key, None)
        if live is not None:
            live.wake()
        self._waiters.tell(key.group_id)

    def _topic_changed(self, change: TopicChange) -> None:
        if isinstance(change, TopicDeleted):
            for key in self._states:
                if key.topic_id == change.topic.topic_id:
                    self.delete(key.group_id, [(key.topic_id, key.partition)])

    def _arm(self) -> None:
        if isinstance(self._clock, ManualClock):
            return
        due_ms = min((live.locks_end_ms for live in self._live.values() if live.locks_end_ms is not None), default=None)
        if due_ms is None or (self._timer_ms is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._clock.now_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = self._timer_ms = None
        self.run_due()


def _count_records(log: PartitionLog, start_offset: int, end_offset: int) -> int:
    return end_offset - start_offset - log.count_markers(start_offset, end_offset)


def _not_kept(error: DataDirError) -> BrokerError:
    return BrokerError(str(error), code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _log(event: LogEvent, live: LivePartition, error: BrokerError) -> None:
    key = live.key
    about: dict[str, object] = {"group_id": key.group_id, "topic": live.topic.name, "partition": key.partition}
    log_event(logging.WARNING, event, exc_info=None, logger=BROKER_LOGGER, reason=error, **about)
