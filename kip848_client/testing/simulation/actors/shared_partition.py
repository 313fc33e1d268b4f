"""A share partition as a simulation keeps it: the production core, the records that were kept, and who has which job.

`Ledger` knows from the answers alone who has which job, and checks Q1, Q2 and Q4.

Does not own: sessions, requests (`simulated_queue`, `share_nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import (
    AcknowledgementBatch,
    AcquiredRecords,
    BatchOffsets,
    Change,
    RecordState,
    SharePartition,
)
from kip848_client.testing.share_partitions.share_state import ShareKey, ShareRecord, ShareStates
from kip848_client.testing.simulation.virtual.scheduler import Scheduler, Timer
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.share_state_records import decode_share_state_record, encode_share_state_record

_UPDATES_PER_SNAPSHOT: Final = 7
_DISK_FULL: Final = 0.01
"""Part of the changes that cannot be kept."""


class Ledger:
    """Who has which job, by the answers that were given: Q1, Q2 and Q4."""

    def __init__(self, *, delivery_count_limit: int) -> None:
        self._limit: Final = delivery_count_limit
        self._holders: Final[dict[int, tuple[str, int]]] = {}
        self._counts: Final[dict[int, int]] = {}
        self.done: Final[dict[int, str]] = {}
        """Jobs that are accepted, archived or deleted, and which of it."""

    def acquired(self, member: str, records: Iterable[AcquiredRecords], *, now_ms: int, until_ms: int) -> None:
        """A member got jobs."""
        for first, last, count in records:
            for offset in range(first, last + 1):
                holder, held_until_ms = self._holders.get(offset, ("", 0))
                if held_until_ms > now_ms:
                    fail(
                        "Q1", f"{member} gets the job {offset}, which {holder} has for {held_until_ms - now_ms} ms more"
                    )
                if offset in self.done:
                    fail("Q2", f"{member} gets the job {offset}, which is {self.done[offset]}")
                if not self._counts.get(offset, 1) <= count <= self._limit:
                    fail(
                        "Q4",
                        f"delivery {count} of the job {offset} follows delivery {self._counts.get(offset, 0)}, "
                        f"and there may be {self._limit}",
                    )
                self._holders[offset] = member, until_ms
                self._counts[offset] = count

    def acknowledged(self, member: str, offset: int, kind: int, *, now_ms: int, until_ms: int) -> None:
        """What a member said about a job counts."""
        holder, held_until_ms = self._holders.get(offset, ("", 0))
        if holder != member or held_until_ms < now_ms:
            fail("Q1", f"{member} may say {AcknowledgeType(kind).name} about the job {offset}, which it does not have")
        if kind == AcknowledgeType.RENEW:
            self._holders[offset] = member, until_ms
        else:
            del self._holders[offset]

    def expired(self, change: Change, *, now_ms: int) -> None:
        """Locks have ended."""
        for first, last, _, _ in change.batches:
            for offset in range(first, last + 1):
                holder, held_until_ms = self._holders.get(offset, ("", 0))
                if held_until_ms > now_ms:
                    fail("Q1", f"the lock of {holder} on the job {offset} ends at {now_ms}, and not at {held_until_ms}")

    def changed(self, change: Change) -> None:
        """Records were freed or are done with."""
        for first, last, state, _ in change.batches:
            for offset in range(first, last + 1):
                self._holders.pop(offset, None)
                if state.is_terminal or state is RecordState.ARCHIVING:
                    self.done[offset] = state.name.lower()

    def holder(self, offset: int) -> tuple[str, int]:
        """Who has a job, and until when; an empty name if nobody has it."""
        return self._holders.get(offset, ("", 0))

    def lost_memory(self) -> None:
        """The leader crashed: what was acquired is free."""
        self._holders.clear()

    def deleted(self, before: int) -> None:
        """Retention took the first jobs away; who has one may still say something about it."""
        for offset in range(before):
            self.done.setdefault(offset, "deleted")


class SharedPartition:
    """One partition of a share group: its log, what is kept of it, and the memory of the node that leads it.

    Args:
        name: of its random generator.
    """

    def __init__(
        self, scheduler: Scheduler, ledger: Ledger, *, key: ShareKey, settings: ShareSettings, name: str
    ) -> None:
        self.key: Final = key
        self.ledger: Final = ledger
        self._scheduler: Final = scheduler
        self._rng: Final = scheduler.random(name)
        self._settings: Final = settings
        self._kept: Final[list[tuple[bytes, bytes | None]]] = []
        self._states = ShareStates(updates_per_snapshot=_UPDATES_PER_SNAPSHOT)
        self.log: Final[list[BatchOffsets]] = []
        """Batches of jobs."""
        self._log_start = 0
        self._timer: Timer | None = None
        self.healed = False
        """The disk is never full any more."""
        self.life: int = 0
        """Grows when a node begins to lead the partition."""
        self._keep(self._states.initialize(key, state_epoch=1, start_offset=0, wall_ms=0))
        self._begin()

    @property
    def end_offset(self) -> int:
        """The offset of the next job."""
        return self.log[-1].last + 1 if self.log else 0

    def is_done(self) -> bool:
        """Whether every job is done with."""
        return self.partition.start_offset == self.end_offset

    def produce(self) -> None:
        """Write a batch of jobs."""
        self.log.append(BatchOffsets(self.end_offset, self.end_offset + self._rng.randint(0, 9)))

    def delete(self) -> None:
        """Retention deletes the first batch."""
        if len(self.log) > 1:
            self._log_start = self.log.pop(0).last + 1
            self.ledger.deleted(self._log_start)

    def lead_again(self) -> None:
        """A node begins to lead the partition, and reads what was kept: what was acquired is free."""
        self.life += 1
        again = ShareStates(updates_per_snapshot=_UPDATES_PER_SNAPSHOT)
        for record in self._kept:
            again.replay(decode_share_state_record(*record))
        if again.get(self.key) != self._states.get(self.key):
            fail("Q3", f"the records kept lead to {again.get(self.key)}, the leader had {self._states.get(self.key)}")
        self._states = again
        self.ledger.lost_memory()
        self._begin()

    # --- requests

    def acquire(self, member: str, *, most: int, limit: bool) -> list[AcquiredRecords]:
        """Give jobs to a member."""
        partition, now_ms = self.partition, self._scheduler.now_ms
        partition.log_start_moved(self._log_start)
        if not partition.can_acquire(self._settings):
            return []
        offset = partition.next_fetch_offset()
        acquired = partition.acquire(
            member,
            [batch for batch in self.log if batch.last >= offset][:6],
            fetch_offset=offset,
            max_records=most,
            batch_size=5,
            record_limit=limit,
            settings=self._settings,
            now_ms=now_ms,
        )
        until_ms = now_ms + self._settings.record_lock_duration_ms
        self.ledger.acquired(member, acquired, now_ms=now_ms, until_ms=until_ms)
        self._arm()
        return acquired

    def acknowledge(self, member: str, said: list[AcknowledgementBatch]) -> None:
        """Do what a member says about jobs.

        Raises:
            BrokerError: as the core; COORDINATOR_NOT_AVAILABLE: it could not be kept.
        """
        if not said:
            return
        start, now_ms = self.partition.start_offset, self._scheduler.now_ms
        change = self.partition.acknowledge(member, said, settings=self._settings, now_ms=now_ms)
        if self._write(change):
            until_ms = now_ms + self._settings.record_lock_duration_ms
            for batch in said:
                for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
                    kind = batch.types[0]
                    self.ledger.acknowledged(member, offset, kind, now_ms=now_ms, until_ms=until_ms)
            self.ledger.changed(change)
            self._settle(change)
        else:
            self.partition.settle(change, kept=False)
            raise BrokerError("the disk is full", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def release(self, member: str) -> None:
        """Free what a member had."""
        self._free(self.partition.release(member, settings=self._settings))

    # --- internals

    def _begin(self) -> None:
        state, record = self._states.read(self.key, leader_epoch=self.life, wall_ms=0)
        if record is not None:
            self._keep(record)
        self.partition: SharePartition = SharePartition(
            start_offset=state.start_offset,
            state_epoch=state.state_epoch,
            leader_epoch=self.life,
            batches=state.batches,
        )
        for dead in self.partition.archiving():
            self._free(self.partition.archived(dead))

    def _free(self, change: Change) -> None:
        self._write(change, always=True)
        self.ledger.changed(change)
        self._settle(change)

    def _settle(self, change: Change) -> None:
        self.partition.settle(change, kept=True)
        for dead in change.dead_letters:
            self._free(self.partition.archived(dead))
        self._arm()

    def _write(self, change: Change, *, always: bool = False) -> bool:
        if not change.batches:
            return True
        if not always and not self.healed and self._rng.random() < _DISK_FULL:
            self._scheduler.note("leader", "disk_full")
            return False
        partition = self.partition
        record = self._states.write(
            self.key,
            change.batches,
            state_epoch=partition.state_epoch,
            leader_epoch=partition.leader_epoch,
            start_offset=partition.start_offset,
            delivery_complete_count=partition.delivery_complete_count,
            wall_ms=self._scheduler.now_ms,
        )
        self._keep(record)
        return True

    def _keep(self, record: ShareRecord) -> None:
        self._kept.append(encode_share_state_record(*record))
        self._states.replay(record)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self.partition.deadline_ms()
        if due_ms is not None:
            self._timer = self._scheduler.call_in(max(due_ms - self._scheduler.now_ms, 0), self._expire)

    def _expire(self) -> None:
        self._scheduler.events += 1
        self._timer = None
        change = self.partition.expire(now_ms=self._scheduler.now_ms, settings=self._settings)
        self.ledger.expired(change, now_ms=self._scheduler.now_ms)
        self._free(change)
