"""The application of one simulated consumer that calls process(): the production core, with handlers that take time.

Handlers succeed, fail, hang and swallow their cancellation. Records that failed are tried again, or go to dead letters
that are acknowledged late or refused. What ends process() closes the consumer.

Does not own: what is decided (`processing.core`), polling and listeners (`application`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, assert_never

import msgspec

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    RequestTimeoutError,
    RetriableCommitFailedError,
)
from kip848_client.member.core.events import (
    AssignPartitions,
    CommitDone,
    CommitKind,
    CommitRequested,
    FetchOffsetsRequested,
    LosePartitions,
    OffsetsFetched,
    RevokePartitions,
)
from kip848_client.member.processing.core import Bounds, Processing
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.work import Cancel, Failed, Give, Item, Renew, Start, Work
from kip848_client.testing.simulation.actors.application import ApplicationLoop
from kip848_client.testing.simulation.observer import ListenerCall, Surroundings
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Timer
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

_KEYS: Final = 5
_ATTEMPTS: Final = 3
_TIMEOUT_MS: Final = 600
_GRACE_MS: Final = 100
_RETRY_MS: Final = (0, 400)
_LETTER_MS: Final = (1, 200)
_REFUSED_LETTERS: Final = 0.02
_REFUSED_OUTPUTS: Final = 0.05
_AGAIN_MS: Final = 50
_ABORTED: Final = 0.1
"""Part of the transactions that are aborted."""
_UNKNOWN: Final = (RequestTimeoutError, ConnectionLostError, RetriableCommitFailedError)
_CALL_MS: Final = 2_000
"""How long a commit or a question inside a listener may take."""


def _limits(scenario: Scenario) -> Limits | None:
    rate = scenario.handlers_per_second
    if not rate:
        return None
    own = Limits(concurrency=2, priority=1)
    return Limits(calls_per_second=rate, calls_per_second_per_key=rate / 5, topics={min(scenario.topics): own})


class _Call(msgspec.Struct, eq=False):
    """A call of the handler."""

    work: Work
    hangs: bool
    over: bool = False


class ProcessingLoop(ApplicationLoop):
    """The application's thread, inside process(); the arguments are those of `ApplicationLoop`."""

    def __init__(self, consumer: ClientProcess, surroundings: Surroundings, user_code: Any) -> None:
        super().__init__(consumer, surroundings, user_code)
        scenario = surroundings.scenario
        self._slots: Final = scenario.handlers
        self._outputs: Final = scenario.outputs
        self._limits: Final = _limits(scenario)
        self._commit_ms: Final = scenario.auto_commit_ms
        self._cancellable: Final = consumer.chance(0.5)
        """Its handlers are tasks; else they are threads."""
        self._core: Final = Processing(
            Bounds(
                concurrency=self._slots,
                buffer=2 * self._slots,
                buffer_bytes=1 << 20,
                timeout_ms=_TIMEOUT_MS,
                grace_ms=_GRACE_MS,
                cancellable=self._cancellable,
                # little, so that it is full now and then
                metadata_known=True,
                metadata_bytes=consumer.draw(18, 30) if scenario.slice_records else consumer.draw(20, 60),
                slice_records=scenario.slice_records or None,
                limits=self._limits,
            )
        )
        self._begun: Final[defaultdict[object, deque[int]]] = defaultdict(deque)
        """When calls have begun in the last second: all of them under "all", and by key."""
        self._running: Final[dict[int, _Call]] = {}
        """Calls that were not cancelled, by id() of their work."""
        self._taken = 0
        """Slots: calls that have not ended."""
        self._tick: Timer | None = None
        self._tick_ms = 0
        self._drain: Callable[[], None] | None = None
        self._awaited: Final[dict[int, Callable[[Any], None]]] = {}
        """Commits and questions -> what follows their answer."""
        self._open_commits = 0
        self._last_commit: Callable[[], None] | None = None
        """The commit of a revocation; earlier ones end before it is sent."""
        self._writing: Mapping[NamedPartition, OffsetAndMetadata] = {}
        """The offsets of the transaction that is being written."""
        self._ended = False
        self._losses = 0

    def start(self) -> None:
        """Begin to poll, and to commit."""
        super().start()
        self._consumer.later(self._commit_ms, self._commit_again)

    @property
    def busy(self) -> bool:
        """Whether a listener runs, or records are in hand or to be read, maybe once more."""
        ends = self._topics.end_offsets
        return (
            super().busy
            or self._core.status(self._now_ms).in_hand > 0
            or any(fetched.offset < ends.get(partition, 0) for partition, fetched in self._fetched.items())
        )

    @property
    def _now_ms(self) -> int:
        return self._scheduler.now_ms

    # --- records

    def _room(self) -> int:
        self._core.pauses()
        return max(1, self._core.room) if self._core.may_read and not self._core.stopping else 0

    def _wants(self, partition: NamedPartition) -> bool:
        return partition not in self._core.paused

    def _took(self, tip: TopicIdPartition, offsets: range) -> None:
        partition = tip.topic_partition
        keys = [(offset, offset % _KEYS or None) for offset in offsets]
        items = [Item(partition, offset, key, 100, tip, key=key) for offset, key in keys]
        self._core.arrived(items, self._now_ms)
        self._perform()

    # --- handlers

    def _perform(self) -> None:
        core = self._core
        while effects := core.take_effects():
            for effect in effects:
                match effect:
                    case Start(work):
                        self._handle(work)
                    case Cancel(work):
                        self._cancel(work)
                    case Failed(work, _):
                        self._failed(work)
                    case Give(_):
                        self._end()
                    case Renew():
                        raise AssertionError("it has no processes")
                    case _:
                        assert_never(effect)
        due_ms = core.next_due_ms()
        if due_ms is not None and (self._tick is None or due_ms < self._tick_ms):
            if self._tick is not None:
                self._tick.cancel()
            self._tick_ms = due_ms
            self._tick = self._consumer.later(max(0, due_ms - self._now_ms), self._ticked)
        if self._drain is not None:
            self._drain()
        self.pump()

    def _ticked(self) -> None:
        self._tick = None
        if not self._consumer.closed:
            self._core.tick(self._now_ms)
            self._perform()

    def _handle(self, work: Work) -> None:
        consumer, behaviour = self._consumer, self._consumer.behaviour
        self._taken += 1
        if self._taken > self._slots:
            fail("P4", f"{consumer.name} runs {self._taken} handlers in {self._slots} slots")
        if self._limits is not None:
            self._check_limits(self._limits, work)
        for item in work.items:
            self._observer.handler_begins(consumer, item.record, item.offset)
        call = _Call(work, consumer.chance(behaviour.handler_hangs))
        self._running[id(work)] = call
        takes_ms = consumer.draw(*behaviour.handler_ms) + (consumer.draw(1, 3 * _TIMEOUT_MS) if call.hangs else 0)
        fails = consumer.chance(behaviour.handler_fails)
        consumer.later(takes_ms, lambda: self._handled(call, fails=fails))

    def _check_limits(self, limits: Limits, work: Work) -> None:
        """P8: no second has too many calls, in all and of a key, and no topic has too many at once."""
        for key, most in (("all", limits.calls_per_second), (work.items[0].key, limits.calls_per_second_per_key)):
            begun = self._begun[key]
            begun.append(self._now_ms)
            while begun[0] <= self._now_ms - 1_000:
                begun.popleft()
            if key is not None and most is not None and len(begun) > most:
                fail("P8", f"{self._consumer.name} begins {len(begun)} calls of key {key} in a second, may {most}")
        topic = work.partition.topic
        own = limits.topics.get(topic)
        running = sum(call.work.partition.topic == topic for call in self._running.values())
        if own is not None and own.concurrency is not None and running >= own.concurrency:
            fail("P8", f"{self._consumer.name} runs {running + 1} calls of {topic}, may {own.concurrency}")

    def _handled(self, call: _Call, *, fails: bool = False, cancelled: bool = False) -> None:
        if self._consumer.closed or call.over:
            return
        call.over = True
        self._taken -= 1
        work, core, now_ms = call.work, self._core, self._now_ms
        self._running.pop(id(work), None)
        if cancelled and not work.timed_out:
            core.ended(work, now_ms)
        elif cancelled or fails:
            core.failed(work, TimeoutError() if cancelled else ValueError(), now_ms)
        elif self._outputs and self._consumer.chance(self._outputs):
            self._produced(work)
        else:
            self._done(work)
            core.succeeded(work, now_ms)
        self._perform()

    def _produced(self, work: Work) -> None:
        """The handler has produced something: its records are done once that is acknowledged."""
        consumer = self._consumer
        refused = consumer.behaviour.handler_fails > 0 and consumer.chance(_REFUSED_OUTPUTS)
        if self._core.produced(work, self._now_ms):
            consumer.later(consumer.draw(*_LETTER_MS), lambda: self._output_ended(work, refused=refused))

    def _output_ended(self, work: Work, *, refused: bool) -> None:
        if self._consumer.closed:
            return
        if refused:
            self._core.refused_output(work, ConnectionLostError("refused"))
        else:
            self._done(work)
            self._core.acknowledged(work, self._now_ms)
        self._perform()

    def _done(self, work: Work) -> None:
        for item in work.items:
            self._observer.record_done(self._consumer, item.record, item.offset, item.lane)

    def _cancel(self, work: Work) -> None:
        call = self._running.get(id(work))
        if call is not None and self._cancellable and not (call.hangs and self._consumer.chance(0.5)):
            self._consumer.later(self._consumer.draw(0, 5), lambda: self._handled(call, cancelled=True))

    def _failed(self, work: Work) -> None:
        consumer, core = self._consumer, self._core
        if work.attempt < _ATTEMPTS and consumer.chance(0.8):
            core.retry(work, self._now_ms, in_ms=consumer.draw(*_RETRY_MS))
            return
        refused = consumer.behaviour.handler_fails > 0 and consumer.chance(_REFUSED_LETTERS)
        consumer.later(consumer.draw(*_LETTER_MS), lambda: self._letter_ended(work, refused=refused))

    def _letter_ended(self, work: Work, *, refused: bool) -> None:
        if self._consumer.closed:
            return
        if refused:
            self._core.give_up(work, self._now_ms)
            self._end()
        else:
            self._done(work)
            self._core.buried(work, self._now_ms)
        self._perform()

    def _end(self) -> None:
        """process() raises, and the consumer is closed."""
        if not self._ended:
            self._ended = True
            self._core.stop()
            self._consumer.note("processing_ended")
            self._consumer.later(0, self._consumer.close)

    # --- commits

    def commit(self) -> None:
        """Commit what is done, and do not wait."""
        self._commit(None, lambda: None)

    def _commit_again(self) -> None:
        consumer = self._consumer
        if not consumer.closed and consumer.leave_id is None:
            if not self._open_commits:
                self.commit()
            consumer.later(self._commit_ms, self._commit_again)

    def _commit(self, names: Iterable[NamedPartition] | None, then: Callable[[], None]) -> None:
        if self._open_commits and names is not None:
            self._last_commit = lambda: self._commit(names, then)
            return
        if self._core.outbox is not None:
            self._transact(then, revoking=names is not None)
            return
        offsets = self._core.to_commit(names, asks=names is None)
        if not offsets:
            then()
            return
        consumer = self._consumer
        commit_id = consumer.next_call()
        consumer.commits_asked[commit_id] = self._now_ms

        def ended(error: object) -> None:
            self._open_commits -= 1
            if error is None:
                self._core.committed(offsets, self._now_ms)
            then()
            self._commit_last()

        self._open_commits += 1
        self._awaited[commit_id] = ended
        deadline_ms = None if names is None else consumer.now_ms + _CALL_MS
        kind = CommitKind.ASYNC if names is None else CommitKind.SYNC
        consumer.step(CommitRequested(commit_id, offsets, kind, deadline_ms, names is not None))

    def _commit_last(self) -> None:
        if self._last_commit is not None and not self._open_commits:
            last, self._last_commit = self._last_commit, None
            last()

    def _transact(self, then: Callable[[], None], *, revoking: bool) -> None:
        """Write a transaction. It stands as a commit here: its records are written when the commit is accepted."""
        consumer, core = self._consumer, self._core
        slice_ = core.take_slice(self._now_ms)
        if slice_ is None:
            then()
            self._perform()
            return
        if consumer.chance(_ABORTED):
            core.slice_ended(slice_, self._now_ms, again_in_ms=_AGAIN_MS)
            then()
            self._perform()
            return
        records = [(item.record, item.offset) for work in slice_.works for item in work.items]
        self._observer.slice_begins(consumer, records)
        self._open_commits += 1
        self._writing = slice_.offsets
        losses = self._losses
        doubtful = False

        def write() -> None:
            commit_id = consumer.next_call()
            consumer.commits_asked[commit_id] = self._now_ms
            self._awaited[commit_id] = ended
            deadline_ms = consumer.now_ms + _CALL_MS if revoking else None
            kind = CommitKind.SYNC if revoking else CommitKind.ASYNC
            consumer.step(CommitRequested(commit_id, slice_.offsets, kind, deadline_ms, revoking))

        def again() -> None:
            if losses == self._losses and consumer.view.member_epoch > 0:
                write()
            else:  # the member has another epoch since, or none: it would be refused
                ended(IllegalStateError("lost"))

        def ended(error: object) -> None:
            if consumer.closed:
                return
            nonlocal doubtful
            # Its outcome is not known: it is repeated until it is. A refusal of the repetition does not tell it.
            doubtful = doubtful or isinstance(error, _UNKNOWN)
            if doubtful and isinstance(error, (*_UNKNOWN, BrokerError)) and losses == self._losses:
                consumer.later(_AGAIN_MS, again)
                return
            self._open_commits -= 1
            self._writing = {}
            core.slice_ended(slice_, self._now_ms, again_in_ms=None if error is None else _AGAIN_MS)
            then()
            self._commit_last()
            self._perform()

        write()
        self._perform()

    def writes(self, request: OffsetCommitRequest) -> bool:
        """See `ApplicationLoop`."""
        return self._core.outbox is None or all(
            self._writing.get(NamedPartition(topic.name or self._topics.names[topic.topic_id], each.partition_index))
            == OffsetAndMetadata(each.committed_offset, each.committed_leader_epoch, each.committed_metadata or "")
            for topic in request.topics
            for each in topic.partitions
        )

    def commit_ended(self, commit: CommitDone) -> None:
        """See `ApplicationLoop`."""
        if (then := self._awaited.pop(commit.commit_id, None)) is not None:
            then(commit.error)

    # --- rebalances

    def _before_listener(self, call: ListenerCall, go_on: Callable[[], None]) -> None:
        names = sorted(tip.topic_partition for tip in call.partitions)
        match call:
            case AssignPartitions():
                self._ask_committed(names, go_on)
            case RevokePartitions():
                self._revoke(names, go_on)
            case LosePartitions():
                self._losses += 1
                self._core.forget(names, self._now_ms)
                self._perform()
                go_on()

    def _ask_committed(self, names: list[NamedPartition], go_on: Callable[[], None]) -> None:
        if not names:
            go_on()
            return
        consumer = self._consumer
        fetch_id = consumer.next_call()

        def ask_again() -> None:
            if not consumer.closed:
                self._ask_committed(names, go_on)

        def answered(committed: Mapping[NamedPartition, OffsetAndMetadata] | None) -> None:
            if committed is None and self._core.outbox is not None and not consumer.failed:
                consumer.later(_AGAIN_MS, ask_again)
                return
            committed = committed or {}
            for name in names:
                at = committed.get(name)
                if at is None:
                    self._core.assigned(name, -1)
                else:
                    self._core.assigned(name, at.offset, decode_marks(at.offset, at.metadata or "") or ())
            go_on()

        self._awaited[fetch_id] = answered
        consumer.step(FetchOffsetsRequested(fetch_id, frozenset(names), consumer.now_ms + _CALL_MS))

    def offsets_fetched(self, fetched: OffsetsFetched) -> None:
        """See `ApplicationLoop`."""
        if (then := self._awaited.pop(fetched.fetch_id, None)) is not None:
            then(None if fetched.error is not None else fetched.offsets)

    def _revoke(self, names: list[NamedPartition], go_on: Callable[[], None]) -> None:
        """Let what runs end until a deadline, commit, and forget."""
        core, consumer = self._core, self._consumer
        core.revoke(names, self._now_ms)
        end_ms = self._now_ms + consumer.config.rebalance_timeout_ms // 3

        def look() -> None:
            if consumer.closed or self._drain is not look:
                return
            if core.busy(names) and self._now_ms < end_ms:
                return
            self._drain = None
            self._commit(names, forget)

        def forget() -> None:
            core.forget(names, self._now_ms)
            self._perform()
            go_on()

        self._drain = look
        consumer.later(end_ms - self._now_ms, look)
        self._perform()
