"""`Processing`: the pure core of ``process()``.

It is told what happened, with the time, and answers with effects. It decides what starts when: round-robin over the
partitions, within one by offset, at most one running call a lane, at most ``concurrency`` in all. It knows what is done
out of order, and so what may be committed; and which partitions to pause, because their records fill the buffer.

Does not own: calling handlers, retries' delays, dead letters, commits (the shells).

Source: own.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member.processing.buffer import Buffer
from kip848_client.member.processing.limits import Limits, Pacing
from kip848_client.member.processing.marks import Ranges, body_bytes, decode_marks, encode_marks
from kip848_client.member.processing.metadata_limit import MetadataLimit
from kip848_client.member.processing.outbox import Outbox, Slice, cover
from kip848_client.member.processing.partition import AssignedPartition, Lane
from kip848_client.member.processing.work import (
    Cancel,
    Effect,
    Failed,
    Give,
    Item,
    ProcessingStatus,
    Renew,
    Start,
    Work,
)

METADATA_BYTES: Final = 4096
"""What a broker takes in a commit, unless ``offset.metadata.max.bytes`` says otherwise."""
_MARKS_HEAD_BYTES: Final = 2
_METADATA_BYTES_LEAST: Final = 64
"""With a broker that takes none, as many are handled ahead as these would hold: one at a time would be worse."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one `Processing`.

    Attributes:
        concurrency: handlers that run at once.
        buffer: records in hand above which partitions are paused.
        buffer_bytes: the same in bytes of keys and values.
        timeout_ms: how long one call may take; None has no limit.
        grace_ms: how long a cancelled call may take to end before it is abandoned; and how long all slots may be taken
            by abandoned calls.
        cancellable: whether a running call can be ended; a thread cannot.
        renewable: whether calls run in a pool of processes that can be made again.
        batch: records that a call gets at most.
        batch_ms: how long the first of them waits for others.
        metadata_bytes: most bytes of a commit's metadata.
        metadata_known: whether the broker takes so many; else commits find out how many it takes.
        slice_records: with transactions, how many done records make one due at once; None without transactions.
        slice_ms: how long the first of them waits for others.
        limits: how fast calls may begin; None has no limit.
    """

    concurrency: int
    buffer: int
    buffer_bytes: int
    timeout_ms: int | None = None
    grace_ms: int = 5000
    cancellable: bool = True
    renewable: bool = False
    batch: int = 1
    batch_ms: int = 0
    metadata_bytes: int = METADATA_BYTES
    metadata_known: bool = False
    slice_records: int | None = None
    slice_ms: int = 0
    limits: Limits | None = None


class Processing:
    """See the module. Every method that takes *now_ms* may add effects, which `take_effects` returns."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._partitions: Final[dict[NamedPartition, AssignedPartition]] = {}
        self._unknown: set[NamedPartition] = set()
        self._pacing = None if bounds.limits is None else Pacing(bounds.limits)
        self._levels: dict[int, deque[AssignedPartition]] = {0: deque()}
        """Partitions that have something to start, by priority."""
        self._turns: Collection[deque[AssignedPartition]] = tuple(self._levels.values())
        """In each they take turns; the highest priority comes first."""
        self._paced_ms: int | None = None
        """When a limit lets start what it holds up now."""
        self._stands = False
        """The limit of all calls is what holds up."""
        self._full_topics: Final[list[Work]] = []
        """Retries that are due, of topics with as many calls as may run."""
        self._works: Final[dict[int, Work]] = {}
        """Works that are not decided, by id()."""
        self._occupied = 0
        """Slots: running calls, also abandoned ones."""
        self._abandoned: Final[dict[int, Work]] = {}
        self._stuck_since_ms: int | None = None
        """Since when all slots are taken by abandoned calls."""
        self._retries: Final[list[tuple[int, int, Work]]] = []
        self._suspects: Final[deque[Work]] = deque()
        """Works that may have ended a worker process, and wait until each runs alone."""
        self._lone: Work | None = None
        """The one of them that runs."""
        self._pool = 0
        """Which pool of processes calls run in."""
        self._renewing = False
        """It is broken, and the next one is not ready."""
        # All calls may take equally long, so that these are in the order of their ends. A call that has ended leaves
        # them: they would hold the records of hours.
        self._timeouts: Final[OrderedDict[int, tuple[int, Work]]] = OrderedDict()
        """Running calls, by id() of their work: when they have taken too long."""
        self._graces: Final[OrderedDict[int, tuple[int, Work]]] = OrderedDict()
        """Calls that have taken too long and were cancelled: when they are abandoned."""
        self._batches: Final[list[tuple[int, int, AssignedPartition, Lane]]] = []
        self._keys: Final[dict[tuple[str, object], deque[tuple[int, AssignedPartition, Lane]]]] = {}
        """Topic and key -> lanes that wait for the key's limit."""
        self._key_turns: Final[list[tuple[int, int, tuple[str, object]]]] = []
        """When the next ones of a key may go on. All at once would wait again, but for the first of them."""
        self._ties: Final = itertools.count()
        self._generations: Final = itertools.count(1)
        self._effects: list[Effect] = []
        self._buffer: Final = Buffer(bounds.buffer, bounds.buffer_bytes)
        self.metadata_limit: Final = MetadataLimit(bounds.metadata_bytes, known=bounds.metadata_known)
        self._marks_room = 0
        """Bytes of marks that a commit holds."""
        self.commit_urgent: bool = False
        """Records wait until it is known how many marks a commit holds, and a commit finds out."""
        self._asked = False
        """A commit has."""
        self._look_at_limit()
        self._waiting_dead_letter = self._waiting_output = self._waiting_retry = self._running = 0
        """Records."""
        self._startable_lanes = 0
        """Lanes with records of which none is under way."""
        self.outbox: Final = None if bounds.slice_records is None else Outbox(bounds.slice_records, bounds.slice_ms)
        self.stopping: bool = False
        """Nothing starts any more."""
        self.done_total: int = 0
        self.retries_total: int = 0
        self.dead_letters_total: int = 0
        self.retry_later_total: int = 0
        self.skipped_total: int = 0
        self.abandoned_total: int = 0

    def take_effects(self) -> Sequence[Effect]:
        """What is to be done, in order."""
        if not self._effects:
            return ()
        effects, self._effects = self._effects, []
        return effects

    # --- partitions

    def assigned(self, name: NamedPartition, offset: int, done: Ranges = ()) -> None:
        """A partition was assigned.

        Args:
            offset: its committed offset; -1 without one.
            done: what the commit says is done beyond.
        """
        partition = AssignedPartition(
            name, offset, done, generation=next(self._generations), level=self._level_of(name)
        )
        self._partitions[name] = partition
        if offset >= 0:
            partition.committed = (offset, self._marks(partition))
        else:
            self._unknown.add(name)
        self._buffer.paused.discard(name)

    @property
    def without_position(self) -> Collection[NamedPartition]:
        """Partitions without a committed offset of which nothing was delivered yet."""
        if self._unknown:
            self._unknown = {name for name in self._unknown if name in self._partitions and self._low_mark_of(name) < 0}
        return self._unknown

    def _low_mark_of(self, name: NamedPartition) -> int:
        return self._partitions[name].progress.low_mark

    def begins_at(self, name: NamedPartition, offset: int) -> None:
        """A partition without a committed offset is read from here on: else ``latest`` would skip what comes later."""
        partition = self._partitions.get(name)
        if partition is not None and self._low_mark_of(name) < 0:
            partition.progress.reached(offset)
            partition.began = offset
            if self.outbox is not None:
                self.outbox.hurry()

    @property
    def at_rest(self) -> Collection[NamedPartition]:
        """Partitions of which all that was delivered is done."""
        return [name for name, partition in self._partitions.items() if partition.progress.at_rest]

    def reached(self, positions: Mapping[NamedPartition, int]) -> None:
        """Positions that were asked for when all that was read had arrived here, of partitions that are at rest.

        Behind the last record there may be markers of transactions: without this, the group would lag for ever.
        """
        for name, offset in positions.items():
            partition = self._partitions.get(name)
            if partition is not None and partition.progress.at_rest:
                partition.progress.reached(offset)

    def revoke(self, names: Iterable[NamedPartition], now_ms: int) -> None:
        """Start nothing more of these partitions. What runs goes on: see `busy`, `cancel`, and then `forget`."""
        for name in names:
            partition = self._partitions.get(name)
            if partition is None or partition.draining:
                continue
            partition.draining = True
            partition.startable.clear()
            waiting = [item for lane in partition.lanes.values() for item in lane.waiting]
            for lane in partition.lanes.values():
                self._startable_lanes -= lane.startable
                lane.waiting.clear()
                lane.singles = 0
            self._release(partition, waiting)
            for key in tuple(partition.busy):
                work = self._works[key]
                if work.state == "waiting":  # for a retry: the next owner begins with it
                    self._drop(partition, work, now_ms)
        self._retries[:] = [entry for entry in self._retries if id(entry[2]) in self._works]
        heapq.heapify(self._retries)
        if self._suspects:
            left = [work for work in self._suspects if id(work) in self._works]
            self._suspects.clear()
            self._suspects.extend(left)
        if self._full_topics:
            self._full_topics[:] = [work for work in self._full_topics if id(work) in self._works]
        self._start(now_ms)

    def busy(self, names: Iterable[NamedPartition]) -> bool:
        """Whether calls of these partitions are under way, or dead letters."""
        return any(self._partitions[name].busy for name in names if name in self._partitions)

    def cancel(self, names: Iterable[NamedPartition]) -> None:
        """Let running calls of these partitions end."""
        for name in names:
            partition = self._partitions.get(name)
            for key in tuple(partition.busy) if partition is not None else ():
                self._cancel(self._works[key])

    def forget(self, names: Iterable[NamedPartition], now_ms: int) -> None:
        """The partitions were revoked or lost: results that come later are ignored."""
        names = tuple(names)
        self.revoke(names, now_ms)
        self.cancel(names)
        if self.outbox is not None:
            self.outbox.forget(names)
        for name in names:
            partition = self._partitions.pop(name, None)
            self._buffer.paused.discard(name)
            for key in tuple(partition.busy) if partition is not None else ():
                assert partition is not None
                work = self._works[key]
                if work.state == "ended":
                    self._waiting_dead_letter -= len(work.items)
                elif work.state == "producing":
                    self._waiting_output -= len(work.items)
                else:
                    self._running -= len(work.items)
                    self._graces.pop(key, None)
                    self._abandoned[key] = work
                self._drop(partition, work, now_ms)
        self._look_if_stuck(now_ms)

    @property
    def partitions(self) -> Sequence[NamedPartition]:
        """Those that are assigned."""
        return tuple(self._partitions)

    # --- records

    def arrived(self, items: Iterable[Item], now_ms: int) -> None:
        """Records were delivered, of each partition by ascending offset."""
        batch = self._bounds.batch
        for item in items:
            partition = self._partitions.get(item.partition)
            if partition is None:
                self.assigned(item.partition, item.offset)
                partition = self._partitions[item.partition]
            number = partition.deliver(item.offset)
            if number is None or partition.draining:
                continue
            item.number, item.taken_ms = number, now_ms
            self._take(partition, item)
            key = item if item.lane is None else item.lane
            lane = partition.lanes.get(key)
            if lane is None:
                lane = partition.lanes[key] = Lane(key)
            self._startable_lanes += not lane.busy and not lane.waiting
            lane.waiting.append(item)
            if not lane.busy and (not lane.queued or len(lane.waiting) == batch > 1):
                self._queue(partition, lane, now_ms)
        self._start(now_ms)

    def arrived_failed(self, item: Item, error: BaseException, now_ms: int) -> None:
        """A record was delivered that cannot be given to the handler: it has failed already."""
        if item.partition not in self._partitions:
            self.assigned(item.partition, item.offset)
        partition = self._partitions[item.partition]
        number = partition.deliver(item.offset)
        if number is None or partition.draining:
            return
        item.number, item.taken_ms = number, now_ms
        self._take(partition, item)
        lane = Lane(item)
        lane.busy = True
        work = Work([item], item.partition, partition.generation, lane=lane, state="ended", first_started_ms=now_ms)
        self._works[id(work)] = work
        partition.busy.add(id(work))
        partition.begun += 1
        self._waiting_dead_letter += 1
        self._effects.append(Failed(work, error))

    def _take(self, partition: AssignedPartition, item: Item) -> None:
        partition.in_hand[item.number] = item
        partition.held_bytes += item.size
        self._buffer.held += 1
        self._buffer.held_bytes += item.size

    def _queue(self, partition: AssignedPartition, lane: Lane, now_ms: int) -> None:
        """A lane that is not busy has records: let it start, now or when its batch is due."""
        first = lane.waiting[0]
        lane.queued = True
        due_ms = first.taken_ms + self._bounds.batch_ms
        if len(lane.waiting) < self._bounds.batch and now_ms < due_ms and not (lane.singles or self.stopping):
            lane.batch = next(self._ties)
            heapq.heappush(self._batches, (due_ms, lane.batch, partition, lane))
            return
        lane.batch = -1
        heapq.heappush(partition.startable, (first.offset, next(self._ties), lane))
        if not partition.turn:
            partition.turn = True
            partition.level.append(partition)

    def _start(self, now_ms: int) -> None:
        """Fill the free slots, with due retries first."""
        if self.stopping or self._held_up:
            return
        pacing, bounds = self._pacing, self._bounds
        if pacing is not None:
            self._paced_ms, self._stands = None, False
        if self._suspects or self._renewing or self._lone is not None:
            self._start_alone(now_ms)
            if self._apart:
                return
        while self._retries and self._retries[0][0] <= now_ms and self._occupied < bounds.concurrency:
            if pacing is not None and self._waits(pacing, now_ms):
                return
            work = heapq.heappop(self._retries)[2]
            if id(work) in self._works and work.state == "waiting":
                if pacing is not None and self._put_off(pacing, work, now_ms):
                    continue
                self.retries_total += 1
                if work.alone:
                    self._suspects.append(work)
                    self._start_alone(now_ms)
                    return
                self._waiting_retry -= len(work.items)
                self._call(work, now_ms)
        for turns in self._turns:
            gated = 0
            while turns and self._occupied < bounds.concurrency and gated < len(turns):
                if pacing is not None and self._waits(pacing, now_ms):
                    return
                partition = turns.popleft()
                startable = partition.startable
                if startable and not (
                    self._fits(partition, startable[0][2]) and (pacing is None or self._may(pacing, partition, now_ms))
                ):
                    turns.append(partition)
                    gated += 1
                    continue
                lane = heapq.heappop(startable)[2] if startable else None
                starts = (
                    lane is not None
                    and lane.startable
                    and not (pacing is not None and self._set_aside(pacing, partition, lane, now_ms))
                )
                if not startable:
                    partition.turn = False
                elif starts:
                    turns.append(partition)
                else:
                    turns.insert(len(turns) - gated, partition)  # behind those it would not be looked at again
                if lane is None or not starts:
                    continue
                gated = 0
                waiting = lane.waiting
                items = [waiting.popleft() for _ in range(1 if lane.singles else min(bounds.batch, len(waiting)))]
                lane.singles -= lane.singles > 0
                lane.busy, lane.queued = True, False
                self._startable_lanes -= 1
                work = Work(items, partition.name, partition.generation, lane=lane, first_started_ms=now_ms)
                self._works[id(work)] = work
                partition.busy.add(id(work))
                partition.begun += len(items)
                partition.marks_end = max(partition.marks_end, items[-1].offset + 1)
                self._call(work, now_ms)

    # --- limits

    def change(self, bounds: Bounds, now_ms: int) -> None:
        """Other bounds hold from now on. What runs goes on."""
        self._bounds = bounds
        self._buffer.records_max, self._buffer.bytes_max = bounds.buffer, bounds.buffer_bytes
        if bounds.limits is not None or self._pacing is not None:
            limits = bounds.limits or Limits()
            if self._pacing is None:
                self._pacing = Pacing(limits)
                for work in (*self._works.values(), *self._abandoned.values()):
                    if work.state in {"running", "cancelled", "abandoned"}:
                        self._pace(self._pacing, work, now_ms)
            else:
                self._pacing.change(limits)
            waiting = [partition for level in self._levels.values() for partition in level]
            self._levels = {}
            for partition in self._partitions.values():
                partition.level = self._level_of(partition.name)
            for partition in waiting:
                partition.level.append(partition)
            self._retry_full_topics()
            for lanes in self._keys.values():
                for entry in lanes:
                    self._queue_again(*entry, now_ms)
            self._keys.clear()
            self._key_turns.clear()
        self._look_if_stuck(now_ms)
        self._start(now_ms)

    def _level_of(self, name: NamedPartition) -> deque[AssignedPartition]:
        priority = 0 if self._pacing is None else self._pacing.priority(name)
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = deque()
            self._turns = [turns for _, turns in sorted(self._levels.items(), reverse=True)]
        return level

    def _waits(self, pacing: Pacing, now_ms: int) -> bool:
        """Whether no call may begin now."""
        due_ms = pacing.due_ms()
        if due_ms <= now_ms:
            return False
        self._paced_ms, self._stands = due_ms, True
        return True

    def _may(self, pacing: Pacing, partition: AssignedPartition, now_ms: int) -> bool:
        """Whether a call of the partition's topic may begin now."""
        topic = partition.name.topic
        if pacing.is_full(topic):
            return False
        due_ms = pacing.due_ms_of_topic(topic)
        if due_ms > now_ms:
            self._paced_ms = due_ms if self._paced_ms is None else min(self._paced_ms, due_ms)
        return due_ms <= now_ms

    def _set_aside(self, pacing: Pacing, partition: AssignedPartition, lane: Lane, now_ms: int) -> bool:
        """Whether a lane has to wait, because its next record's key has a limit; then it is queued again later."""
        key = partition.name.topic, lane.waiting[0].key
        due_ms = pacing.due_ms_of_key(*key)
        if due_ms > now_ms:
            lane.batch = next(self._ties)
            if key not in self._keys:
                self._keys[key] = deque()
                heapq.heappush(self._key_turns, (due_ms, lane.batch, key))
            self._keys[key].append((lane.batch, partition, lane))
        return due_ms > now_ms

    def _take_key_turn(self, pacing: Pacing, now_ms: int) -> None:
        """The limit of a key lets some calls begin: queue so many of its lanes."""
        _, _, key = heapq.heappop(self._key_turns)
        waiting = self._keys[key]
        count, due_ms = pacing.turn_of_key(*key, now_ms, most=len(waiting))
        while waiting and count:
            count -= self._queue_again(*waiting.popleft(), now_ms)
        if waiting:
            heapq.heappush(self._key_turns, (due_ms, next(self._ties), key))
        else:
            del self._keys[key]

    def _queue_again(self, tie: int, partition: AssignedPartition, lane: Lane, now_ms: int) -> bool:
        """Queue a lane that has waited; False if it does not wait any more."""
        waits = lane.batch == tie and len(lane.waiting) > 0 and self._partitions.get(partition.name) is partition
        if waits:
            self._queue(partition, lane, now_ms)
        return waits

    def _put_off(self, pacing: Pacing, work: Work, now_ms: int) -> bool:
        """Whether a retry that is due has to wait for a limit; then it comes back later."""
        topic = work.partition.topic
        if pacing.is_full(topic):
            self._full_topics.append(work)
            return True
        due_ms = max(pacing.due_ms_of_topic(topic), pacing.due_ms_of_key(topic, work.items[0].key))
        if due_ms > now_ms:
            heapq.heappush(self._retries, (due_ms, next(self._ties), work))
        return due_ms > now_ms

    def _pace(self, pacing: Pacing, work: Work, now_ms: int) -> None:
        """A call begins, which counts for the limits."""
        work.paced = True
        pacing.begins(work.partition.topic, work.items[0].key, now_ms)

    def _retry_full_topics(self) -> None:
        for work in self._full_topics:
            heapq.heappush(self._retries, (0, next(self._ties), work))
        self._full_topics.clear()

    # --- calls that run alone

    @property
    def _apart(self) -> bool:
        """Whether nothing starts but works that have to run alone."""
        return self._renewing or self._lone is not None or len(self._suspects) > 0

    def _start_alone(self, now_ms: int) -> None:
        """Let the next suspect run, once nothing else is in hand."""
        if self._renewing or self._lone is not None or not self._suspects:
            return
        if not self._occupied:
            work, pacing = self._suspects[0], self._pacing
            if pacing is not None:
                topic, key = work.partition.topic, work.items[0].key
                due_ms = max(pacing.due_ms(), pacing.due_ms_of_topic(topic), pacing.due_ms_of_key(topic, key))
                if due_ms > now_ms:
                    self._paced_ms = due_ms
                    return
            self._suspects.popleft()
            self._waiting_retry -= len(work.items)
            self._lone = work
            self._call(work, now_ms)
        elif self._occupied == len(self._abandoned) and any(
            work.pool == self._pool for work in self._abandoned.values()
        ):  # they may never end; those of earlier pools do
            self._renew()

    def _renew(self) -> None:
        self._renewing = True
        self._effects.append(Renew())

    def _fits(self, partition: AssignedPartition, lane: Lane) -> bool:
        """Whether the marks have room for what the next call of a lane would be."""
        waiting = lane.waiting
        if lane.busy or not waiting:
            return True
        count = 1 if lane.singles else min(self._bounds.batch, len(waiting))
        if partition.fits(waiting[0].offset, waiting[count - 1].offset, count, self._marks_room):
            return True
        self.commit_urgent = not self._asked
        return False

    def _look_at_limit(self) -> None:
        sure = self.metadata_limit.sure or _METADATA_BYTES_LEAST
        self._marks_room = body_bytes(sure) - _MARKS_HEAD_BYTES
        self._asked = self._asked or self.metadata_limit.asks is None

    @property
    def _held_up(self) -> bool:
        """Whether nothing starts before the transaction that is being written has ended."""
        return self.outbox is not None and self.outbox.full

    def _call(self, work: Work, now_ms: int) -> None:
        self._running += len(work.items)
        work.state, work.started_ms, work.pool = "running", now_ms, self._pool
        self._occupied += 1
        if self._bounds.timeout_ms is not None:
            self._timeouts[id(work)] = (now_ms + self._bounds.timeout_ms, work)
        if self._pacing is not None:
            self._pace(self._pacing, work, now_ms)
        self._effects.append(Start(work))

    # --- ends of calls

    def succeeded(self, work: Work, now_ms: int) -> bool:
        """The handler returned. Whether its records are done by that."""
        counts = self._ended(work)
        if counts:
            self._decide(work, now_ms)
        self._start(now_ms)
        return counts

    def produced(self, work: Work, now_ms: int) -> bool:
        """The handler returned, and what it has produced is sent: its slot is free, and its lane waits.

        `acknowledged` or `refused_output` follows.

        Returns:
            Whether its result counts.
        """
        counts = self._ended(work)
        if counts:
            work.state = "producing"
            self._waiting_output += len(work.items)
        self._start(now_ms)
        return counts

    def acknowledged(self, work: Work, now_ms: int) -> bool:
        """All that the handler has produced is acknowledged. Whether its records are done by that."""
        counts = id(work) in self._works
        if counts:
            self._waiting_output -= len(work.items)
            work.state = "ended"
            self._decide(work, now_ms)
        self._start(now_ms)
        return counts

    def refused_output(self, work: Work, error: BaseException) -> None:
        """What the handler has produced is not written: it has failed."""
        if id(work) in self._works:
            self._waiting_output -= len(work.items)
            work.state = "ended"
            self._waiting_dead_letter += len(work.items)
            self._effects.append(Failed(work, error))

    def failed(self, work: Work, error: BaseException, now_ms: int) -> None:
        """The handler raised. The shell decides: `retry`, `buried`, or stop."""
        if self._ended(work):
            work.state, work.alone = "ended", False
            self._waiting_dead_letter += len(work.items)
            self._effects.append(Failed(work, error))
        self._start(now_ms)

    def crashed(self, work: Work, error: BaseException | None, now_ms: int) -> None:
        """The pool of processes broke while it had this call in hand. It cannot be seen which of its calls did that.

        All of them run again, one at a time and with nothing else in hand. If the pool breaks then, too, that call has
        failed. The pool is made anew in any case.

        Args:
            error: its failure, if it ran alone; None if it had not begun.
        """
        killer = work is self._lone and work.state == "running" and error is not None
        if self._ended(work):
            partition = self._partitions[work.partition]
            if killer:
                assert error is not None
                work.state = "ended"
                self._waiting_dead_letter += len(work.items)
                self._effects.append(Failed(work, error))
            elif partition.draining or self.stopping:
                self._drop(partition, work, now_ms)  # the next owner begins with it
            else:
                work.state, work.alone = "waiting", True
                self._waiting_retry += len(work.items)
                self._suspects.append(work)
        if work.pool == self._pool and not (self._renewing or self.stopping):
            self._renew()
        self._start(now_ms)

    def renewed(self, now_ms: int) -> None:
        """There is a new pool, and it works."""
        self._renewing = False
        self._pool += 1
        self._start(now_ms)

    def ended(self, work: Work, now_ms: int) -> None:
        """A cancelled call has ended: its record is not done."""
        if self._ended(work):
            self._drop(self._partitions[work.partition], work, now_ms)
        self._start(now_ms)

    def retry(self, work: Work, now_ms: int, *, in_ms: int) -> None:
        """A failed call is made again after *in_ms*; its lane waits, others do not."""
        if id(work) not in self._works:
            return
        self._waiting_dead_letter -= len(work.items)
        partition = self._partitions[work.partition]
        if partition.draining or self.stopping:
            self._drop(partition, work, now_ms)  # the next owner begins with it
            return
        work.state = "waiting"
        work.attempt += 1
        self._waiting_retry += len(work.items)
        heapq.heappush(self._retries, (now_ms + in_ms, next(self._ties), work))

    def split(self, work: Work, now_ms: int) -> None:
        """The records of a failed batch are handled again, one by one."""
        if id(work) not in self._works:
            return
        self._waiting_dead_letter -= len(work.items)
        partition = self._partitions[work.partition]
        if partition.draining or self.stopping:
            self._drop(partition, work, now_ms)  # the next owner begins with it
            return
        lane: Lane = work.lane
        lane.waiting.extendleft(reversed(work.items))
        lane.singles += len(work.items)
        lane.busy = False
        self._startable_lanes += 1
        del self._works[id(work)]
        partition.busy.discard(id(work))
        partition.begun -= len(work.items)
        self._queue(partition, lane, now_ms)
        self._start(now_ms)

    def buried(self, work: Work, now_ms: int, *, skipped: bool = False, later: bool = False) -> None:
        """A failed record counts as done: its dead letter was acknowledged, it is in a retry topic, or is skipped."""
        if id(work) in self._works:
            self._waiting_dead_letter -= len(work.items)
            if skipped:
                self.skipped_total += len(work.items)
            elif later:
                self.retry_later_total += len(work.items)
            else:
                self.dead_letters_total += len(work.items)
            self._decide(work, now_ms)
        self._start(now_ms)

    def knows(self, work: Work) -> bool:
        """Whether the end of a work counts: its partition was not given away since, and nothing was decided."""
        return id(work) in self._works

    def give_up(self, work: Work, now_ms: int) -> None:
        """A failed record is not handled any more, and not done."""
        if id(work) in self._works:
            self._waiting_dead_letter -= len(work.items)
            self._drop(self._partitions[work.partition], work, now_ms)

    def _ended(self, work: Work) -> bool:
        """A call is over: free its slot. Whether its result counts."""
        if work.state not in {"running", "cancelled", "abandoned"}:
            return False
        self._occupied -= 1
        if work is self._lone:
            self._lone = None
        if work.paced:
            assert self._pacing is not None
            self._pacing.ended(work.partition.topic)
            work.paced = False
            self._retry_full_topics()
        key = id(work)
        counts = work.state != "abandoned" and key in self._works
        self._running -= len(work.items) if counts else 0
        self._timeouts.pop(key, None)
        self._graces.pop(key, None)
        if self._abandoned.pop(key, None) is not None and len(self._abandoned) < self._bounds.concurrency:
            self._stuck_since_ms = None
        work.state = "ended"
        return counts

    def _decide(self, work: Work, now_ms: int) -> None:
        """The records of a work are done."""
        partition = self._partitions[work.partition]
        for item in work.items:
            partition.progress.done(item.number)
        self.done_total += len(work.items)
        if self.outbox is not None:
            self.outbox.add(work, now_ms)
        self._drop(partition, work, now_ms)

    def _drop(self, partition: AssignedPartition, work: Work, now_ms: int) -> None:
        """A work is over, done or not: its lane goes on."""
        if work.state == "waiting":
            self._waiting_retry -= len(work.items)
        del self._works[id(work)]
        partition.busy.discard(id(work))
        partition.begun -= len(work.items)
        self._release(partition, work.items)
        lane: Lane = work.lane
        lane.busy = False
        if lane.waiting:
            self._startable_lanes += 1
            self._queue(partition, lane, now_ms)
        elif partition.lanes.get(lane.key) is lane:
            del partition.lanes[lane.key]

    def _release(self, partition: AssignedPartition, items: Sequence[Item]) -> None:
        for item in items:
            del partition.in_hand[item.number]
        size = sum([item.size for item in items])
        partition.held_bytes -= size
        self._buffer.held -= len(items)
        self._buffer.held_bytes -= size

    # --- time

    def tick(self, now_ms: int) -> None:
        """Do what is due: retries, time-outs, batches."""
        while (first := _first(self._timeouts)) is not None and first[0] <= now_ms:
            self._time_out(first[1], now_ms)
        while (first := _first(self._graces)) is not None and first[0] <= now_ms:
            self._abandon(first[1], now_ms)
        if self._stuck_since_ms is not None and now_ms >= self._stuck_since_ms + self._bounds.grace_ms:
            self._stuck_since_ms = None
            if not self._bounds.renewable:
                self._effects.append(Give(min(self._abandoned.values(), key=lambda each: each.started_ms)))
            elif not self._renewing:
                self._renew()
        while self._batches and self._batches[0][0] <= now_ms:
            self._queue_again(*heapq.heappop(self._batches)[1:], now_ms)
        while self._key_turns and self._key_turns[0][0] <= now_ms:
            assert self._pacing is not None
            self._take_key_turn(self._pacing, now_ms)
        self._start(now_ms)

    def next_due_ms(self) -> int | None:
        """When `tick` is due next; None if nothing waits for time."""
        full = self._occupied >= self._bounds.concurrency or self._held_up or self._apart or self._stands
        dues = [heap[0][0] for heap in (() if full else self._retries, self._batches, self._key_turns) if heap]
        dues += [first[0] for first in (_first(self._timeouts), _first(self._graces)) if first is not None]
        if self._stuck_since_ms is not None:
            dues.append(self._stuck_since_ms + self._bounds.grace_ms)
        if self._paced_ms is not None and not self._held_up:
            dues.append(self._paced_ms)
        return min(dues, default=None)

    def _time_out(self, work: Work, now_ms: int) -> None:
        if self._bounds.cancellable:
            self._cancel(work)
            work.timed_out = True
            self._graces[id(work)] = (now_ms + self._bounds.grace_ms, work)
            return
        self._abandon(work, now_ms)

    def _cancel(self, work: Work) -> None:
        if work.state == "running":
            work.state = "cancelled"
            self._timeouts.pop(id(work), None)
            self._effects.append(Cancel(work))

    def _abandon(self, work: Work, now_ms: int) -> None:
        """A call does not end: decide its record as timed out, and let its slot wait for the call."""
        work.state = "abandoned"
        self._timeouts.pop(id(work), None)
        self._graces.pop(id(work), None)
        if work is self._lone:
            self._lone = None
        self.abandoned_total += 1
        self._abandoned[id(work)] = work
        if id(work) in self._works:
            # The record goes on in a new work, as the abandoned one still has its slot.
            partition = self._partitions[work.partition]
            follower = Work(
                work.items,
                work.partition,
                work.generation,
                attempt=work.attempt,
                last_error=work.last_error,
                first_started_ms=work.first_started_ms,
                started_ms=work.started_ms,
                lane=work.lane,
                state="ended",
            )
            self._running -= len(work.items)
            del self._works[id(work)]
            partition.busy.discard(id(work))
            self._works[id(follower)] = follower
            partition.busy.add(id(follower))
            self._waiting_dead_letter += len(work.items)
            self._effects.append(Failed(follower, TimeoutError("the handler did not end in time")))
        self._look_if_stuck(now_ms)

    def _look_if_stuck(self, now_ms: int) -> None:
        if len(self._abandoned) < self._bounds.concurrency:
            self._stuck_since_ms = None
        elif self._stuck_since_ms is None:
            self._stuck_since_ms = now_ms

    # --- back-pressure

    def pauses(self) -> tuple[set[NamedPartition], set[NamedPartition]]:
        """Partitions to pause and to resume now; they count as paused and resumed from this call on."""
        priority = None if self._pacing is None or len(self._levels) == 1 else self._pacing.priority
        return self._buffer.pauses(self._partitions, starved=self._starved, priority=priority)

    @property
    def _starved(self) -> bool:
        """Whether more could start, if it were read."""
        return self._occupied < self._bounds.concurrency and not self._stands

    @property
    def may_read(self) -> bool:
        """Whether records should be read now."""
        return self._buffer.may_read(self._partitions, starved=self._starved)

    @property
    def room(self) -> int:
        """How many more records fit."""
        return self._buffer.room

    @property
    def room_bytes(self) -> int:
        """How many bytes of records may be read; what comes last may be more."""
        return self._buffer.room_bytes

    @property
    def empty(self) -> bool:
        """Whether no record is in hand."""
        return not self._buffer.held

    @property
    def paused(self) -> frozenset[NamedPartition]:
        """Partitions that `pauses` has paused."""
        return frozenset(self._buffer.paused)

    # --- commits

    def to_commit(
        self, names: Iterable[NamedPartition] | None = None, *, asks: bool = False
    ) -> dict[NamedPartition, OffsetAndMetadata]:
        """What to commit now: partitions with progress since the last commit that `committed` confirmed.

        Args:
            names: these only.
            asks: find out how much metadata the broker takes, if that is not known. One that is to be the last does not
                begin with that.
        """
        limit = self.metadata_limit
        size = limit.asks if asks or limit.narrowing else None
        urgent = self.commit_urgent or limit.narrowing
        offsets = {}
        for name in self._partitions if names is None else names:
            partition = self._partitions.get(name)
            if partition is None:
                continue
            low = partition.progress.low_mark
            if low < 0:
                continue
            marks = self._marks(partition)
            if (low, marks) == partition.committed and not (urgent and size is not None):
                continue
            if size is not None:
                marks = encode_marks(low, partition.progress.done_beyond, bytes_max=size, filled=True)[0]
                size, self._asked, self.commit_urgent = None, True, False
            partition.committing = (low, marks)
            offsets[name] = OffsetAndMetadata(low, metadata=marks)
        return offsets

    def _marks(self, partition: AssignedPartition) -> str:
        progress = partition.progress
        return encode_marks(progress.low_mark, progress.done_beyond, bytes_max=self.metadata_limit.sure)[0]

    def refused(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], now_ms: int) -> bool:
        """The broker refused a commit's metadata as too long. Whether a shorter one can be tried, which is at once."""
        size = max((len(at.metadata) for at in offsets.values()), default=0)
        if not size:
            return False
        self.metadata_limit.refused(size)
        self._look_at_limit()
        self._start(now_ms)
        return True

    def committed(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], now_ms: int) -> bool:
        """A commit of these was accepted. It counts if it was the last one that `to_commit` wanted.

        Returns:
            Whether another one should follow at once, to find out how much metadata the broker takes.
        """
        for name, at in offsets.items():
            partition = self._partitions.get(name)
            if partition is not None and partition.committing == (at.offset, at.metadata):
                partition.committed = partition.committing
        if self.metadata_limit.asks is not None:
            self.metadata_limit.accepted(max((len(at.metadata) for at in offsets.values()), default=0))
            self._look_at_limit()
            self._start(now_ms)
        return self.metadata_limit.narrowing

    def low_marks(self) -> dict[NamedPartition, int]:
        """The first offset of each partition that is not done, or whose result is in no transaction."""
        marks = {}
        for name, partition in self._partitions.items():
            low = partition.progress.low_mark
            if self.outbox is not None and self.outbox.holds(name):
                low = partition.began if partition.committed is None else partition.committed[0]
            if low >= 0:
                marks[name] = low
        return marks

    # --- transactions

    def slice_due_ms(self) -> int | None:
        """When the next transaction is due; None if nothing waits for one, or without transactions."""
        return None if self.outbox is None else self.outbox.due_ms

    def take_slice(self, now_ms: int) -> Slice | None:
        """What the next transaction is to hold; `slice_ended` must follow.

        None if there is nothing, or while another one is being written.
        """
        assert self.outbox is not None
        if self.outbox.writing:
            return None
        taken = self.outbox.take()
        works: list[Work] = []
        held_back: list[Work] = []
        offsets: dict[NamedPartition, OffsetAndMetadata] = {}
        asks = self.metadata_limit.asks
        for name, partition in self._partitions.items():
            if partition.progress.low_mark < 0:
                continue
            own = [work for work in taken if work.partition == name]
            at, late = cover(partition.progress, own, bytes_max=self.metadata_limit.sure)
            held_back += late
            works += [work for work in own if work not in late]
            if at is None:
                continue
            commit = (at.offset, at.metadata)
            if commit != partition.committed:
                if asks is not None:
                    done = decode_marks(at.offset, at.metadata) or ()
                    at = OffsetAndMetadata(
                        at.offset, metadata=encode_marks(at.offset, done, bytes_max=asks, filled=True)[0]
                    )
                    asks, self._asked, self.commit_urgent = None, True, False
                partition.committing = (at.offset, at.metadata)
                offsets[name] = at
        self.outbox.send(works, held_back=held_back)
        self._start(now_ms)
        if not works and not offsets:
            self.outbox.committed()
            return None
        return Slice(works, offsets)

    def slice_ended(self, slice_: Slice, now_ms: int, *, again_in_ms: int | None = None) -> None:
        """Its transaction was committed; or aborted, and is to be written again after *again_in_ms*."""
        assert self.outbox is not None
        if again_in_ms is None:
            self.committed(slice_.offsets, now_ms)
            self.outbox.committed()
        else:
            self.outbox.aborted(again_ms=now_ms + again_in_ms)
        self._start(now_ms)

    # --- the end

    def stop(self) -> None:
        """Start nothing more. Records that wait to be tried again are not done."""
        self.stopping = True
        self._retries.clear()
        self._suspects.clear()
        self._full_topics.clear()
        self._paced_ms = None
        for work in [work for work in self._works.values() if work.state == "waiting"]:
            self._drop(self._partitions[work.partition], work, 0)

    @property
    def occupied(self) -> bool:
        """Whether a call runs, also one that does not count any more."""
        return self._occupied > 0

    def running(self) -> Sequence[Work]:
        """Calls that run and count."""
        return [work for work in self._works.values() if work.state in {"running", "cancelled"}]

    def first_in_hand(self) -> Sequence[Item]:
        """Of each partition the first record in hand. From any thread, as `status`."""
        return [item for each in list(self._partitions.values()) if (item := each.first) is not None]

    def status(self, now_ms: int) -> ProcessingStatus:
        """What is in hand, and why it waits. From any thread. It looks at one record of each partition.

        Without the GIL ``list()`` of a dict's values is one step; ``tuple()`` is not.
        """
        waiting = self._buffer.held - self._running
        waiting -= self._waiting_retry + self._waiting_dead_letter + self._waiting_output
        oldest = min(self.first_in_hand(), key=lambda item: item.taken_ms, default=None)
        return ProcessingStatus(
            running=self._running,
            waiting_slot=self._startable_lanes,
            waiting_lane=max(0, waiting - self._startable_lanes),
            waiting_retry=self._waiting_retry,
            waiting_dead_letter=self._waiting_dead_letter,
            waiting_output=self._waiting_output,
            paused=len(self._buffer.paused),
            oldest=None if oldest is None else (*oldest.partition, oldest.offset),
            oldest_s=0.0 if oldest is None else (now_ms - oldest.taken_ms) / 1000,
            done=self.done_total,
            retries=self.retries_total,
            dead_letters=self.dead_letters_total,
            retry_later=self.retry_later_total,
            skipped=self.skipped_total,
            abandoned=self.abandoned_total,
        )


def _first(calls: OrderedDict[int, tuple[int, Work]]) -> tuple[int, Work] | None:
    return next(iter(calls.values())) if calls else None
