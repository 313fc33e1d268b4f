"""The records in flight of one partition in one share group: who has which record, how often it was delivered. Pure.

Records are delivered from the share-partition start offset (SPSO) on. All before it are done with. The offsets from
there to the share-partition end offset (SPEO) were delivered at least once or are about to be; they are kept as
batches, in the order of their offsets. A batch is what one fetch acquired; it is split into runs when its records have
different states. A change is made in three steps: a method makes it and says what is to be kept, the caller
keeps it (`share_state`), and `SharePartition.settle` confirms it or takes it back.

Does not own: records, the time, what is kept of a partition, sessions.

Source:
    apache/kafka ``SharePartition``, ``InFlightBatch``, ``InFlightState``; KIP-932, KIP-1206, KIP-1222, KIP-1191.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kip848_client.common.acknowledge_type import GAP, AcknowledgeType
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.share_partitions.settings import ShareSettings

_NO_MEMBER: Final = ""
_REJECTED: Final = "Offset rejected by client."
_DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
"""Kafka's texts, which stand in the headers of dead letters."""
_UNTHROTTLED_LIMIT: Final = 2
"""With a limit of so few deliveries no record is delivered alone."""


class RecordState(enum.IntEnum):
    """The state of a record in flight, numbered as in ``__share_group_state``."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """On its way to the dead-letter topic."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class BatchOffsets(NamedTuple):
    """Offsets from first to last."""

    first: int
    last: int


class AcquiredRecords(NamedTuple):
    """Offsets that a fetch acquired, and which delivery this is; 1 is the first."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """What a member says about some offsets: one `AcknowledgeType` for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class StateBatch(NamedTuple):
    """Offsets and their state, as they are kept."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class DeadLetterBatch(NamedTuple):
    """Records for the dead-letter topic, and why they were given up."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str


class InFlightRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Some offsets in flight that have the same state.

    Attributes:
        owner: id of the member that has acquired them; empty if none has.
        lock_deadline_ms: when they become available again; None if they are not acquired.
    """

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    owner: str
    lock_deadline_ms: int | None


_Content: TypeAlias = tuple[RecordState, int, str, "int | None"]
"""State, delivery count, owner and end of the lock of a record."""


class Change(NamedTuple):
    """A change that was made: what is to be kept of it, and what takes it back."""

    batches: tuple[StateBatch, ...]
    dead_letters: tuple[DeadLetterBatch, ...]
    undo: tuple[tuple[BatchOffsets, _Content], ...]


class _Run:
    """Neighbouring offsets of one batch that have the same state."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member", "state")

    def __init__(
        self, first: int, last: int, state: RecordState, count: int, member: str, deadline_ms: int | None
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = member
        self.deadline_ms = deadline_ms

    @property
    def content(self) -> _Content:
        return self.state, self.count, self.member, self.deadline_ms

    def set(self, state: RecordState, count: int, member: str = _NO_MEMBER, deadline_ms: int | None = None) -> None:
        self.state, self.count, self.member, self.deadline_ms = state, count, member, deadline_ms


class _Batch:
    """Offsets that were acquired together. Until it is split, it is acquired and acknowledged as a whole."""

    __slots__ = ("first", "last", "runs", "size", "split")

    def __init__(self, runs: list[_Run], *, split: bool = False) -> None:
        self.first = runs[0].first
        self.last = runs[-1].last
        self.size = self.last - self.first + 1
        self.runs = runs
        self.split = split

    def cut(self, first: int, last: int, borders: Sequence[int] = ()) -> list[_Run]:
        """Split so that runs cover exactly the offsets *first* to *last*, and return these runs.

        Args:
            borders: offsets between them, ascending, at which a run begins as well.
        """
        self.split = True
        pieces: list[_Run] = []
        begins = (first, *borders, last + 1)
        # Only the runs that have one of the offsets: a member may speak of each record of a large batch by itself.
        begin = max(bisect_right(self.runs, first, key=_first_of_run) - 1, 0)
        end = bisect_right(self.runs, last, key=_first_of_run)
        for run in self.runs[begin:end]:
            for border in begins[bisect_right(begins, run.first) : bisect_right(begins, run.last)]:
                pieces.append(_Run(run.first, border - 1, *run.content))
                run.first = border
            pieces.append(run)
        self.runs[begin:end] = pieces
        return [run for run in pieces if first <= run.first and run.last <= last]

    def join(self) -> None:
        """Let neighbouring runs of the same content be one."""
        runs = self.runs[:1]
        for run in self.runs[1:]:
            if run.content == runs[-1].content:
                runs[-1].last = run.last
            else:
                runs.append(run)
        self.runs = runs


class SharePartition:
    """The records in flight of one partition in one share group.

    Args:
        start_offset: the SPSO.
        state_epoch: of the state that was kept.
        leader_epoch: of the node that leads the partition.
        batches: what was kept of the offsets from there on, ascending.
    """

    def __init__(
        self, *, start_offset: int, state_epoch: int = 0, leader_epoch: int = 0, batches: Iterable[StateBatch] = ()
    ) -> None:
        self.state_epoch: Final = state_epoch
        self.leader_epoch: Final = leader_epoch
        self._start = self._next = start_offset
        self._batches = [
            _Batch([_Run(first, last, state, count, _NO_MEMBER, None)]) for first, last, state, count in batches
        ]
        # Whether an offset below `_next` may be there to be acquired.
        self._may_have_available = bool(self._batches)
        if self._batches:
            self._next = self._batches[-1].last + 1
        self._advance()

    # --- what there is

    @property
    def start_offset(self) -> int:
        """The SPSO: every record before it is done with."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The SPEO: no record from it on was acquired yet."""
        return self._next

    @property
    def delivery_complete_count(self) -> int:
        """Records from the SPSO on that are done with (KIP-1226)."""
        return sum(run.last - run.first + 1 for run in self._runs() if run.state.is_terminal)

    def in_flight(self) -> tuple[InFlightRecords, ...]:
        """All offsets between SPSO and SPEO that have a state, ascending."""
        return tuple(
            InFlightRecords(
                first_offset=run.first,
                last_offset=run.last,
                state=run.state,
                delivery_count=run.count,
                owner=run.member,
                lock_deadline_ms=run.deadline_ms,
            )
            for run in self._runs()
        )

    def deadline_ms(self) -> int | None:
        """When the next lock ends; None if no record is acquired."""
        return min((run.deadline_ms for run in self._runs() if run.deadline_ms is not None), default=None)

    def archiving(self) -> tuple[DeadLetterBatch, ...]:
        """Records whose way to the dead-letter topic was interrupted, by a crash of the node."""
        return tuple(
            DeadLetterBatch(run.first, run.last, run.count, _DELIVERED_TOO_OFTEN)
            for run in self._runs()
            if run.state is RecordState.ARCHIVING
        )

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired, if there is a record."""
        if self._may_have_available:
            expected = self._start
            for batch in self._batches:
                if batch.first > expected:
                    return expected
                for run in batch.runs:
                    if run.state is RecordState.AVAILABLE:
                        return run.first
                expected = batch.last + 1
            self._may_have_available = False
        return self._next

    def can_acquire(self, settings: ShareSettings) -> bool:
        """Whether a member may get records: one became available again, or the limit of locks allows more."""
        return self.next_fetch_offset() != self._next or self._next - self._start < settings.partition_max_record_locks

    # --- acquire

    def acquire(
        self,
        member_id: str,
        fetched: Sequence[BatchOffsets],
        *,
        fetch_offset: int,
        max_records: int,
        batch_size: int,
        record_limit: bool,
        settings: ShareSettings,
        now_ms: int,
        aborted: Iterable[BatchOffsets] = (),
    ) -> list[AcquiredRecords]:
        """Give records to a member.

        Args:
            fetched: the batches of the log that were read, ascending.
            fetch_offset: what `next_fetch_offset` was.
            max_records: how many it wants; with *record_limit* it gets no more (KIP-1206).
            batch_size: of how many records a batch should be.
            aborted: batches of aborted transactions, which are archived and not delivered.
        """
        if max_records <= 0 or not fetched or fetched[-1].last < self._start:
            return []
        most, last = (
            min(max_records, settings.partition_max_record_locks - (self._next - self._start)),
            fetched[-1].last,
        )
        if most <= 0:
            if fetch_offset >= self._next:
                return []
            most, last = min(max_records, self._next - fetch_offset), min(last, self._next - 1)
        if fetch_offset < fetched[0].first:
            self._archive_missing(fetch_offset, fetched[0].first - 1)
        taking = _Taking(self, member_id, fetched, batch_size, record_limit, settings, now_ms)
        taking.take(most, last)
        acquired = taking.acquired
        for batch in aborted:
            acquired = self._archive_aborted(batch, acquired)
        self._advance()
        return acquired

    def _archive_missing(self, first: int, last: int) -> None:
        """The log has no such offsets any more: compaction or a log cut short took their batches away."""
        for expected, end in self._uncovered(max(first, self._start), last):
            self._insert(_Batch([_Run(expected, end, RecordState.ARCHIVED, 0, _NO_MEMBER, None)]))
        for batch in self._between(first, last):
            for run in batch.cut(max(first, batch.first), min(last, batch.last)):
                if run.state is RecordState.AVAILABLE:
                    run.set(RecordState.ARCHIVED, run.count)
            batch.join()

    def _archive_aborted(self, aborted: BatchOffsets, acquired: list[AcquiredRecords]) -> list[AcquiredRecords]:
        for batch in self._between(*aborted):
            for run in batch.cut(max(aborted.first, batch.first), min(aborted.last, batch.last)):
                if run.state is RecordState.ACQUIRED:
                    run.set(RecordState.ARCHIVED, run.count)
            batch.join()
        left = []
        for first, last, count in acquired:
            if first < aborted.first <= last:
                left.append(AcquiredRecords(first, aborted.first - 1, count))
            if last < aborted.first or first > aborted.last:
                left.append(AcquiredRecords(first, last, count))
            if first <= aborted.last < last:
                left.append(AcquiredRecords(aborted.last + 1, last, count))
        return left

    # --- what members and time do

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[AcknowledgementBatch], *, settings: ShareSettings, now_ms: int
    ) -> Change:
        """Accept, release, reject or renew records of a member: all that it says, or nothing.

        Raises:
            BrokerError: INVALID_RECORD_STATE: the member does not have a record (any more), or may not renew its lock;
                INVALID_REQUEST: an offset was never acquired. Nothing was changed.
        """
        changing = _Changing(settings)
        try:
            for said in acknowledgements:
                if said.last_offset >= self._start:
                    for batch in self._acknowledged(said):
                        self._acknowledge(member_id, said, batch, changing, now_ms)
        except BrokerError:
            self.settle(changing.change(), kept=False)
            raise
        return changing.change()

    def release(self, member_id: str, *, settings: ShareSettings) -> Change:
        """A member's session ended: the records that it has become available, or archived after the last delivery."""
        return self._free(lambda run: run.member == member_id, settings)

    def expire(self, *, now_ms: int, settings: ShareSettings) -> Change:
        """Free the records whose locks have ended, as `release`."""
        return self._free(lambda run: run.deadline_ms is not None and run.deadline_ms <= now_ms, settings)

    def expire_all(self, *, settings: ShareSettings) -> Change:
        """Free all acquired records now."""
        return self._free(lambda run: True, settings)

    def archived(self, dead: DeadLetterBatch) -> Change:
        """Records have reached the dead-letter topic, or never will."""
        changing = _Changing(ShareSettings())
        for batch in self._between(dead.first_offset, dead.last_offset):
            for run in batch.runs:
                if run.state is RecordState.ARCHIVING and dead.first_offset <= run.first <= dead.last_offset:
                    changing.move(run, RecordState.ARCHIVED)
        return changing.change()

    def settle(self, change: Change, *, kept: bool) -> None:
        """A change was kept, so the SPSO may move; or it was not, and everything is as before."""
        for changed, content in () if kept else reversed(change.undo):
            for batch in self._between(*changed):
                for run in batch.runs if len(batch.runs) == 1 else batch.cut(*changed):
                    run.set(*content)
        for batch in self._between(change.undo[0][0].first, change.undo[-1][0].last) if change.undo else ():
            batch.join()
        if not kept or any(batch.state is RecordState.AVAILABLE for batch in change.batches):
            self._may_have_available = True
        self._advance()

    def log_start_moved(self, log_start_offset: int) -> None:
        """The log begins at a later offset: what is before it is done with."""
        if log_start_offset <= self._start:
            return
        self._start = log_start_offset
        self._next = max(self._next, log_start_offset)
        self._drop_before(log_start_offset)
        self._advance()

    # --- internals

    def _acknowledged(self, said: AcknowledgementBatch) -> list[_Batch]:
        """The batches that a member talks about."""
        found = self._between(max(said.first_offset, self._start), said.last_offset)
        floor = self._floor(said.first_offset)
        if floor is None and not said.first_offset < self._start <= said.last_offset:
            raise BrokerError(
                f"the offsets {said.first_offset} to {said.last_offset} are not in flight",
                code=ErrorCode.INVALID_RECORD_STATE,
            )
        if not found or said.last_offset > found[-1].last:
            raise BrokerError(
                f"the offsets {said.first_offset} to {said.last_offset} end after those that were acquired",
                code=ErrorCode.INVALID_REQUEST,
            )
        return found

    def _acknowledge(
        self, member_id: str, said: AcknowledgementBatch, batch: _Batch, changing: _Changing, now_ms: int
    ) -> None:
        first, last = max(said.first_offset, batch.first), min(said.last_offset, batch.last)
        whole = not batch.split and first == batch.first and last == batch.last and len(said.types) == 1
        if not batch.split:
            _check_owner(batch.runs[0], member_id)
        if whole:
            changing.acknowledge(batch.runs[0], said.types[0], now_ms)
            return
        types, offset = said.types, said.first_offset
        borders = [
            at for at in range(first + 1, last + 1) if len(types) > 1 and types[at - offset] != types[at - 1 - offset]
        ]
        for run in batch.cut(first, last, borders):
            _check_owner(run, member_id)
            changing.acknowledge(run, types[run.first - offset] if len(types) > 1 else types[0], now_ms)

    def _free(self, is_freed: Callable[[_Run], bool], settings: ShareSettings) -> Change:
        changing = _Changing(settings)
        for run in self._runs():
            if run.state is RecordState.ACQUIRED and is_freed(run):
                changing.move(run, RecordState.AVAILABLE)
        return changing.change()

    def _advance(self) -> None:
        """Move the SPSO over all records that are done with."""
        for batch in self._batches:
            if batch.first > self._start:
                break
            first = next((run.first for run in batch.runs if not run.state.is_terminal), None)
            if first is not None:
                self._start = max(self._start, first)
                break
            self._start = batch.last + 1
        self._drop_before(self._start)

    def _drop_before(self, offset: int) -> None:
        del self._batches[: bisect_left(self._batches, offset, key=_last_of)]
        if self._batches and self._batches[0].first < offset:
            batch = self._batches[0]
            batch.runs = batch.cut(offset, batch.last)
            batch.first = offset

    def _runs(self) -> Iterator[_Run]:
        return (run for batch in self._batches for run in batch.runs)

    def _floor(self, offset: int) -> _Batch | None:
        """The last batch that begins at or before an offset."""
        index = bisect_right(self._batches, offset, key=_first_of)
        return self._batches[index - 1] if index else None

    def _between(self, first: int, last: int) -> list[_Batch]:
        """The batches that have one of these offsets."""
        begin = bisect_left(self._batches, first, key=_last_of)
        return self._batches[begin : bisect_right(self._batches, last, key=_first_of)]

    def _uncovered(self, first: int, last: int) -> list[tuple[int, int]]:
        """Which of these offsets are in no batch."""
        gaps, expected = [], first
        for batch in self._between(first, last):
            if expected < batch.first:
                gaps.append((expected, batch.first - 1))
            expected = batch.last + 1
        if expected <= last:
            gaps.append((expected, last))
        return gaps

    def _insert(self, batch: _Batch) -> None:
        self._batches.insert(bisect_left(self._batches, batch.first, key=_first_of), batch)
        self._next = max(self._next, batch.last + 1)


class _Changing:
    """Collects one change."""

    __slots__ = ("_batches", "_dead", "_settings", "_undo")

    def __init__(self, settings: ShareSettings) -> None:
        self._settings: Final = settings
        self._batches: Final[list[StateBatch]] = []
        self._dead: Final[list[DeadLetterBatch]] = []
        self._undo: Final[list[tuple[BatchOffsets, _Content]]] = []

    def acknowledge(self, run: _Run, kind: int, now_ms: int) -> None:
        if kind == AcknowledgeType.RENEW:
            if not self._settings.renew_acknowledge_enable:
                raise BrokerError(
                    "members of this group may not renew the lock of a record (share.renew.acknowledge.enable)",
                    code=ErrorCode.INVALID_RECORD_STATE,
                )
            self._undo.append((BatchOffsets(run.first, run.last), run.content))
            run.deadline_ms = now_ms + self._settings.record_lock_duration_ms
        elif kind == AcknowledgeType.REJECT and self._settings.dead_letter_topic:
            self.move(run, RecordState.ARCHIVING, cause=_REJECTED)
        else:
            self.move(run, _STATE_AFTER[kind])

    def move(self, run: _Run, state: RecordState, *, cause: str = _DELIVERED_TOO_OFTEN) -> None:
        if state is RecordState.AVAILABLE and run.count >= self._settings.delivery_count_limit:
            state = RecordState.ARCHIVING if self._settings.dead_letter_topic else RecordState.ARCHIVED
        self._undo.append((BatchOffsets(run.first, run.last), run.content))
        run.set(state, run.count)
        self._batches.append(StateBatch(run.first, run.last, state, run.count))
        if state is RecordState.ARCHIVING:
            self._dead.append(DeadLetterBatch(run.first, run.last, run.count, cause))

    def change(self) -> Change:
        return Change(tuple(self._batches), tuple(self._dead), tuple(self._undo))


_STATE_AFTER: Final[Mapping[int, RecordState]] = {
    GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class _Taking:
    """One member takes records: those that became available again, and new ones."""

    def __init__(
        self,
        partition: SharePartition,
        member_id: str,
        fetched: Sequence[BatchOffsets],
        batch_size: int,
        record_limit: bool,
        settings: ShareSettings,
        now_ms: int,
    ) -> None:
        self._partition: Final = partition
        self._member_id: Final = member_id
        self._fetched: Final = fetched
        self._batch_size: Final = batch_size
        self._record_limit: Final = record_limit
        self._limit: Final = settings.delivery_count_limit
        self._deadline_ms: Final = now_ms + settings.record_lock_duration_ms
        # From so many deliveries on, records are delivered in smaller and smaller batches, the last time alone: one
        # poison record must not take its neighbours with it.
        self._throttled_from: Final = max(_UNTHROTTLED_LIMIT, -(-self._limit // 2))
        self.acquired: Final[list[AcquiredRecords]] = []

    def take(self, most: int, last: int) -> None:
        """Take about *most* records, none after *last*."""
        first, taken = self._fetched[0].first, 0
        expected = max(first, self._partition.start_offset)
        for batch in self._partition._between(first, last):
            if taken >= most:
                return
            if expected < batch.first:
                taken += self._take_new(expected, batch.first - 1, most - taken)
                if taken >= most:
                    return
            expected = batch.last + 1
            throttled = self._is_throttled(batch, first, last)
            if throttled and taken:
                return
            taken += self._take_again(batch, first, last, most - taken, throttled=throttled)
            if throttled and taken:
                return
        if taken < most and expected <= last:
            self._take_new(expected, last, most - taken)

    def _take_again(self, batch: _Batch, first: int, last: int, left: int, *, throttled: bool) -> int:
        """Take what is available of a batch; returns how many records."""
        is_whole = first <= batch.first and batch.last <= last
        too_many = self._record_limit and batch.last - batch.first + 1 > left
        if not batch.split and batch.runs[0].state is not RecordState.AVAILABLE:
            return 0
        if is_whole and not batch.split and not too_many and not throttled:
            return self._acquire(batch.runs[0])
        taken, most = 0, left if self._record_limit else None
        mark = len(self.acquired)
        for run in batch.cut(max(first, batch.first), min(last, batch.last)):
            if run.state is not RecordState.AVAILABLE:
                continue
            is_last_time = self._limit > _UNTHROTTLED_LIMIT and run.count == self._limit - 1
            if is_last_time and taken:
                break
            if run.count >= self._throttled_from and throttled:
                throttled = False
                few = max(1, batch.size >> (run.count - self._throttled_from + 1))
                if few > taken and (most is None or few < most):
                    most = few
            count = run.last - run.first + 1
            if is_last_time:
                count = 1
            if most is not None:
                count = min(count, most - taken)
            taken += self._acquire(batch.cut(run.first, run.first + count - 1)[0], merge_from=mark)
            if is_last_time or taken == most:
                break
        batch.join()
        return taken

    def _take_new(self, first: int, last: int, most: int) -> int:
        """Take records that nobody had yet; returns how many. Whole batches of the log, unless there is a limit."""
        end = last if last - first < most else min(last, self._end_of_batch(first + most - 1))
        begin = first
        if not self._record_limit and end - first + 1 > self._batch_size:
            for fetched in self._fetched:
                if fetched.first <= end and fetched.first - begin >= max(1, self._batch_size):
                    self._insert(begin, fetched.first - 1)
                    begin = fetched.first
        if self._record_limit and end - first + 1 > most:
            self._insert(first, first + most - 1, rest_until=end)
            return most
        self._insert(begin, end)
        return end - first + 1

    def _insert(self, first: int, last: int, *, rest_until: int | None = None) -> None:
        runs = [_Run(first, last, RecordState.ACQUIRED, 1, self._member_id, self._deadline_ms)]
        if rest_until is not None:
            runs.append(_Run(last + 1, rest_until, RecordState.AVAILABLE, 0, _NO_MEMBER, None))
            self._partition._may_have_available = True
        self._partition._insert(_Batch(runs, split=rest_until is not None))
        self.acquired.append(AcquiredRecords(first, last, 1))

    def _acquire(self, run: _Run, *, merge_from: int | None = None) -> int:
        run.set(RecordState.ACQUIRED, run.count + 1, self._member_id, self._deadline_ms)
        before = self.acquired[-1] if merge_from is not None and len(self.acquired) > merge_from else None
        if before is not None and before.last_offset == run.first - 1 and before.delivery_count == run.count:
            self.acquired[-1] = before._replace(last_offset=run.last)
        else:
            self.acquired.append(AcquiredRecords(run.first, run.last, run.count))
        return run.last - run.first + 1

    def _is_throttled(self, batch: _Batch, first: int, last: int) -> bool:
        return any(
            run.state is RecordState.AVAILABLE and run.count >= self._throttled_from
            for run in batch.runs
            if run.last >= first and run.first <= last
        )

    def _end_of_batch(self, offset: int) -> int:
        """The end of the batch of the log that holds an offset."""
        index = bisect_right(self._fetched, offset, key=_first_of_range) - 1
        return max(offset, self._fetched[index].last) if index >= 0 else offset


def _check_owner(run: _Run, member_id: str) -> None:
    if run.state is not RecordState.ACQUIRED or run.member != member_id:
        whose = f"is {run.state.name.lower()}" if run.state is not RecordState.ACQUIRED else "belongs to another member"
        raise BrokerError(
            f"the record at offset {run.first} {whose}, so this member cannot acknowledge it",
            code=ErrorCode.INVALID_RECORD_STATE,
        )


def _first_of(batch: _Batch) -> int:
    return batch.first


def _last_of(batch: _Batch) -> int:
    return batch.last


def _first_of_run(run: _Run) -> int:
    return run.first


def _first_of_range(fetched: BatchOffsets) -> int:
    return fetched.first
