"""Members of a share group that work through one partition: the production cores of a share partition, and Q1 to Q4.

`play_queue` plays one run of a scenario with jobs. The node that leads the partition crashes and returns with what it
kept; members crash, hang until their locks end, lose connections before and after a request counts, and say about each
job something else.

Does not own: the protocol (`share_partitions`), the members of the group, which are its coordinator's.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Final

from kip848_client.common.acknowledge_type import AcknowledgeType
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.share_partitions.settings import ShareSettings
from kip848_client.testing.share_partitions.share_partition import AcknowledgementBatch, AcquiredRecords
from kip848_client.testing.share_partitions.share_sessions import (
    FINAL_EPOCH,
    OPENING_EPOCH,
    ReadPartition,
    ShareSessions,
)
from kip848_client.testing.share_partitions.share_state import ShareKey
from kip848_client.testing.simulation.actors.shared_partition import Ledger, SharedPartition
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.violation import fail

_KEY: Final = ShareKey("workers", uuid.UUID(int=1), 0)
_READ: Final = ReadPartition(_KEY.topic_id, _KEY.partition)
_WORDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
_WEIGHTS: Final = (80, 10, 4, 6)


class QueueLeader(SharedPartition):
    """The node that leads the one partition: its memory ends with a crash, what it kept does not."""

    def __init__(self, scheduler: Scheduler, ledger: Ledger, *, settings: ShareSettings) -> None:
        self.sessions: ShareSessions = ShareSessions(sessions_max=100)
        super().__init__(scheduler, ledger, key=_KEY, settings=settings, name="leader")

    def crash(self) -> None:
        """Forget what is in memory only, and begin again."""
        self._scheduler.note("leader", "coordinator_crashed", when="between_events")
        self.sessions = ShareSessions(sessions_max=100)
        self.lead_again()

    # --- requests

    def fetch(
        self, member: str, *, epoch: int, said: list[AcknowledgementBatch], connection_id: int, most: int, limit: bool
    ) -> list[AcquiredRecords]:
        """Acknowledge, then acquire.

        Raises:
            BrokerError: as the cores; COORDINATOR_NOT_AVAILABLE: it could not be kept.
        """
        self.sessions.fetch(
            _KEY.group_id,
            member,
            epoch=epoch,
            named=(_READ,) if epoch == OPENING_EPOCH else (),
            forgotten=(),
            acknowledges=bool(said),
            connection_id=connection_id,
        )
        self.acknowledge(member, said)
        return self.acquire(member, most=most, limit=limit)

    def said(self, member: str, *, epoch: int, said: list[AcknowledgementBatch]) -> None:
        """Acknowledge, and end the session with the last epoch.

        Raises:
            BrokerError: as `fetch`.
        """
        self.sessions.acknowledge(_KEY.group_id, member, epoch=epoch)
        self.acknowledge(member, said)
        if epoch == FINAL_EPOCH and self.sessions.end(_KEY.group_id, member) is not None:
            self.release(member)

    def connection_gone(self, connection_id: int) -> None:
        """Free what a member had."""
        gone = self.sessions.connection_gone(connection_id)
        if gone.ended is not None:
            self.release(gone.ended.member_id)


class QueueMember:
    """One worker of the queue, from its start to its end."""

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue: Final = queue
        self.name: Final = name
        self._rng: Final = queue.scheduler.random(name)
        self._epoch = OPENING_EPOCH
        self._connection_id = queue.new_connection()
        self._jobs: list[int] = []
        self.dead: bool = False
        self._later(self._rng.randint(0, 300), self._work)

    def crash(self) -> None:
        """The process ends; the leader hears of it soon."""
        self.dead = True
        self._queue.scheduler.note(self.name, "crashed")
        self._disconnect()

    def _work(self) -> None:
        rng, leader = self._rng, self._queue.leader
        said = [] if self._epoch == OPENING_EPOCH else self._say()
        kind = rng.random()
        if self._epoch != OPENING_EPOCH and kind < 0.3:
            epoch = self._epoch
            last = not leader.healed and rng.random() < 0.05
            self._send(lambda: leader.said(self.name, epoch=FINAL_EPOCH if last else epoch, said=said))
            if last:
                self._epoch, self._jobs = OPENING_EPOCH - 1, []
            return
        epoch, most, limit = self._epoch, rng.choice((1, 3, 8, 50)), rng.random() < 0.4

        def fetch() -> None:
            acquired = leader.fetch(
                self.name, epoch=epoch, said=said, connection_id=self._connection_id, most=most, limit=limit
            )
            self._jobs += [offset for first, last, _ in acquired for offset in range(first, last + 1)]

        self._send(fetch)

    def _say(self) -> list[AcknowledgementBatch]:
        """Something about some of the jobs."""
        said = []
        for offset in sorted(set(self._jobs)):
            if self._rng.random() < 0.8:
                weights = (1, 0, 0, 0) if self._queue.leader.healed else _WEIGHTS
                (kind,) = self._rng.choices(_WORDS, weights)
                said.append(AcknowledgementBatch(offset, offset, (kind,)))
                if kind != AcknowledgeType.RENEW:
                    self._jobs.remove(offset)
        return said

    def _send(self, request: Callable[[], None]) -> None:
        """Let a request arrive, or its connection break before or after it counts."""
        rng, queue = self._rng, self._queue
        life, faults = queue.leader.life, queue.scenario.faults
        lost, unanswered = (not queue.leader.healed and rng.random() < faults.loss for _ in range(2))

        def arrive() -> None:
            if self.dead:
                return
            queue.scheduler.events += 1
            if lost or queue.leader.life != life:
                queue.scheduler.note(self.name, "request_lost", api="ShareFetch")
                self._reconnect()
                return
            try:
                request()
            except BrokerError as error:
                queue.scheduler.note(self.name, "refused", code=error.code)
                if error.code not in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._reconnect()
                    return
                self._jobs.clear()
            if unanswered:
                queue.scheduler.note(self.name, "answer_lost", api="ShareFetch")
                self._reconnect()
                return
            self._epoch += 1
            self._later(self._think_ms(), self._work)

        self._later(rng.randint(*faults.delay_ms), arrive)

    def _think_ms(self) -> int:
        if not self._queue.leader.healed and self._rng.random() < 0.08:  # the handler hangs until its locks end
            hang_ms = self._queue.settings.record_lock_duration_ms + self._rng.randint(0, 500)
            self._queue.scheduler.note(self.name, "application_stalls", ms=hang_ms)
            return hang_ms
        return self._rng.randint(0, 200)

    def _reconnect(self) -> None:
        self._disconnect()
        self._connection_id = self._queue.new_connection()
        self._epoch, self._jobs = OPENING_EPOCH, []
        self._later(self._rng.randint(0, 300), self._work)

    def _disconnect(self) -> None:
        leader, life, connection_id = self._queue.leader, self._queue.leader.life, self._connection_id

        def gone() -> None:
            if leader.life == life:
                leader.connection_gone(connection_id)

        self._queue.scheduler.call_in(self._rng.randint(0, 100), gone)

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._queue.scheduler.call_in(delay_ms, lambda: None if self.dead else action())


class Queue:
    """The leader and the members of one run."""

    def __init__(self, scenario: Scenario, scheduler: Scheduler) -> None:
        self.scenario: Final = scenario
        self.scheduler: Final = scheduler
        self._rng: Final = scheduler.random("queue")
        self._connections = 0
        self.settings: Final = ShareSettings(
            record_lock_duration_ms=self._rng.choice((1_000, 3_000)),
            delivery_count_limit=self._rng.choice((2, 3, 5, 8)),
            partition_max_record_locks=self._rng.choice((20, 60, 500)),
            dead_letter_topic=self._rng.choice(("", "dlq.jobs")),
        )
        self.ledger: Final = Ledger(delivery_count_limit=self.settings.delivery_count_limit)
        self.leader: Final = QueueLeader(scheduler, self.ledger, settings=self.settings)
        self._members = [QueueMember(self, f"member-{number}") for number in range(scenario.members)]
        self._started = scenario.members

    def new_connection(self) -> int:
        """The number of a new connection."""
        self._connections += 1
        return self._connections

    def play(self) -> None:
        """Faults, then healing, and then every job must be done with within a bounded time."""
        scenario, scheduler, rng = self.scenario, self.scheduler, self._rng
        for number in range(scenario.jobs):
            scheduler.call_in(rng.randrange(scenario.duration_ms), self.leader.produce)
            if number % 20 == 0 and rng.random() < 0.2:
                scheduler.call_in(rng.randrange(scenario.duration_ms), self.leader.delete)
        self._plan(scenario.coordinator_crashes, self.leader.crash)
        self._plan(scenario.crashes, self._replace)
        scheduler.run_until(scenario.duration_ms)
        self.leader.healed = True
        limit_ms = 60_000 + 200 * self.leader.end_offset
        if not scheduler.wait_until(self.leader.is_done, limit_ms):
            left = self.leader.partition.in_flight()
            fail("Q3", f"jobs are left {limit_ms} ms after the last fault: {left[:3]}")
        if undone := [offset for offset in range(self.leader.end_offset) if offset not in self.ledger.done]:
            fail("Q3", f"the start is at {self.leader.end_offset}, and the jobs {undone[:5]} were never done")

    def _plan(self, rate: float, event: Callable[[], None]) -> None:
        for _ in range(_expected(self._rng, rate * self.scenario.duration_ms / 1_000)):
            self.scheduler.call_in(self._rng.randrange(self.scenario.duration_ms), event)

    def _replace(self) -> None:
        victim = self._rng.randrange(len(self._members))
        self._members[victim].crash()
        self._members[victim] = QueueMember(self, f"member-{self._started}")
        self._started += 1


def _expected(rng: random.Random, mean: float) -> int:
    return int(mean) + (rng.random() < mean % 1)


def play_queue(scenario: Scenario, scheduler: Scheduler) -> None:
    """Play one run.

    Raises:
        InvariantViolation: Q1, Q2, Q3 or Q4.
    """
    Queue(scenario, scheduler).play()
