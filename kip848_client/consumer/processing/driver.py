"""`Driver`: what handlers as tasks and handlers in threads have in common. Not thread-safe; a shell sees to that."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kip848_client.common.callables import WrongHandlerError, check_finished, check_not_async, check_takes
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.processing.dead_letters import DeadLetters, describe, failed_now
from kip848_client.consumer.processing.handler_telemetry import HandlerTelemetry, age_s
from kip848_client.consumer.processing.outputs import HandlerOutputs
from kip848_client.consumer.processing.retries import Retry
from kip848_client.consumer.processing.retry_topics import RetryTopics, as_it_was
from kip848_client.consumer.processing.sender import Sender, check_producer
from kip848_client.consumer.processing.slices import (
    HandlerTransaction,
    OutputRefusedError,
    SliceWriter,
    metadata_too_large,
)
from kip848_client.consumer.records.data_plane import Message, TopicPartition
from kip848_client.errors import (
    ArgumentTypeError,
    BrokerError,
    ConfigError,
    GroupAuthorizationError,
    HandlerDiedError,
    MaxPollExceededError,
    ProcessingError,
    TopicAuthorizationError,
    TransactionAbortedError,
    TransactionFailedError,
)
from kip848_client.member.core.failures import POLL_ADVICE
from kip848_client.member.processing.core import METADATA_BYTES, Processing
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.marks import decode_marks
from kip848_client.member.processing.outbox import Slice
from kip848_client.member.processing.settings import ProcessSettings
from kip848_client.member.processing.tiers import FailureHeaders, Turnstile, read_failed
from kip848_client.member.processing.work import (
    Cancel,
    Failed,
    Give,
    Item,
    ProcessingFailure,
    ProcessingStatus,
    Renew,
    RetryLater,
    Start,
    Then,
    Work,
)

_READ_RECORDS: Final = 500
"""Most records that are read at once."""

DRAIN_SLICE_S: Final = 0.01
"""How often the other partitions are read while a revocation waits for handlers."""
CANCELLED_GRACE_S: Final = 1.0
"""How long a handler that was cancelled for a revocation may take to end."""


LAST_TRANSACTIONS: Final = 3
"""How often what is done is tried to be written before partitions are given away."""

_HEARD_MS: Final = 2_000
"""After so long the ends of retry topics that are known have what was written before."""
_ABORTS_MAX: Final = 10
_ABORT_PAUSE_MS: Final = 50
"""Before a transaction is written again; then twice as long, and so on."""


def now_ms() -> int:
    """The time of handlers, retries and time-outs."""
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    """The time in headers: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Driver(ABC):
    """Feeds the core, and carries out its effects.

    Args:
        group_id, client_id: for log events and telemetry.
        cancellable: whether a running handler can be cancelled.
        renewable: whether handlers run in processes, of which a new pool can be made.
    """

    def __init__(
        self, settings: ProcessSettings, *, group_id: str, client_id: str, cancellable: bool, renewable: bool = False
    ) -> None:
        if not isinstance(settings.dead_letter, DeadLetters | None):
            raise ArgumentTypeError(f"dead_letter={settings.dead_letter!r}: give DeadLetters(producer, topic)")
        if not isinstance(settings.retry_later, RetryTopics | None):
            raise ArgumentTypeError(f'retry_later={settings.retry_later!r}: give RetryTopics("orders-retry", delays)')
        settings.check()
        if settings.outputs is not None:
            check_producer(settings.outputs, name="outputs")
        if settings.on_failure is not None:
            if not callable(settings.on_failure):
                raise ArgumentTypeError(f"on_failure={settings.on_failure!r}: give a function")
            check_not_async(settings.on_failure, name="on_failure", instead="give a function that is not asynchronous")
            check_takes(settings.on_failure, "failure", name="on_failure")
        self.telemetry: Final = HandlerTelemetry(client_id=client_id, group_id=group_id)
        self.settings: ProcessSettings = settings
        self._cancellable: Final = cancellable
        self._renewable: Final = renewable
        self.core: Final = Processing(settings.bounds(cancellable=cancellable, renewable=renewable))
        self.error: BaseException | None = None
        """Why processing ends."""
        self.originals: Final[dict[int, tuple[Any, Any]]] = {}
        """Of records that a deserializer has opened: key and value as they were, by id() of the record."""
        self.user_paused: Final[set[NamedPartition]] = set()
        self.runs_in: int | None = None
        """The thread that reads for it; None for tasks of an event loop."""
        self._group_id: Final = group_id
        self._letters: Final[DeadLetters | None] = settings.dead_letter
        self._retry: Final = Retry(settings.retry) if settings.retry is not None else None
        self._later: Final[RetryTopics | None] = settings.retry_later
        self._sent_later_ms = 0
        """When a record was written to a retry topic last."""
        self._turnstile: Final = None if self._later is None else Turnstile(self._later.tiers, group_id)
        self._senders: Final[dict[int, Sender]] = {}
        """By id() of their producers."""
        self.writer: Final = None if settings.transactional is None else SliceWriter(settings.transactional)
        self._aborts = 0
        self._limit_told: int | None = None
        self._uncommitted: dict[NamedPartition, Exception] = {}
        """Partitions whose last commit failed, and why."""
        self._no_more_slices = False
        """What waits must not be written: one of its records is not done after all, or the producer has failed."""

    # --- what a shell does

    @abstractmethod
    def _call(self, work: Work) -> None:
        """Call the handler; `finished` is told how it ended."""

    @abstractmethod
    def _cancel(self, work: Work) -> None:
        """Let a running handler end."""

    def _renew(self) -> None:
        """End what is left of the pool of processes, and make a new one. Not called without *renewable*."""
        raise AssertionError("it has no processes")

    @abstractmethod
    def _stopped(self) -> None:
        """`error` was set: leave the reading loop."""

    @abstractmethod
    def _tell_from_thread(self, function: Callable[[], None]) -> None:
        """Call *function* soon where the driver may be used, and do what follows; from a thread of a `Sender`.

        What it raises ends processing.

        Raises:
            RuntimeError: the event loop has ended.
        """

    # --- events

    def feed(self, messages: Iterable[Message]) -> None:
        """Records were read."""
        # What has an error is the end of a partition.
        whole = [each for each in messages if each.error() is None]
        if self._turnstile is None:
            items = [self._item(each, None) for each in whole]
        else:
            items = [item for each in whole if (item := self._passing(self._turnstile, each)) is not None]
        self.core.arrived(items, now_ms())
        self.perform()

    def feed_unreadable(self, message: Message, error: BaseException) -> None:
        """A record was read that a deserializer refused: it fails as if its handler had raised."""
        item = self._item(message, None) if self._turnstile is None else self._passing(self._turnstile, message)
        if item is not None:
            self.core.arrived_failed(item, error, now_ms())
            self.perform()

    @property
    def ends_here(self) -> bool:
        """Whether it is over if no records come."""
        if self.settings.until is None or not self.core.empty:
            return False
        # What was sent to a retry topic a moment ago is not among the ends that are known.
        return self._turnstile is None or now_ms() - self._sent_later_ms >= _HEARD_MS

    def _wanted(self) -> int:
        """How many records to read now."""
        core = self.core
        return max(1, min(_READ_RECORDS, core.room)) if core.may_read and not core.stopping else 0

    def _passing(self, turnstile: Turnstile, message: Message) -> Item | None:
        """A record that was read; None if it is in a retry topic and not due, or another group's."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if not turnstile.is_tier(topic):
            return self._item(message, None)
        assert topic is not None
        assert partition is not None
        assert offset is not None
        failed = read_failed(message.headers())
        if turnstile.passes(NamedPartition(topic, partition), offset, failed, _wall_ms()):
            return self._item(message, failed)
        self.originals.pop(id(message), None)
        return None

    def _item(self, message: Message, failed: FailureHeaders | None) -> Item:
        original = self.originals.pop(id(message), None)
        key: Any = message.key() if original is None else original[0]
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        lane: object = None
        if self.settings.order == "key":
            lane = key
        elif self.settings.order == "partition":
            lane = True
        size = len(key or b"") + len((message if original is None else original[1]) or b"")
        item = Item(NamedPartition(topic, partition), offset, lane, size, message, original=original, key=key)
        if failed is not None:
            item.record, item.attempts, item.last_error = as_it_was(message, failed), failed.attempts, failed.error
        return item

    def finished(self, work: Work, error: BaseException | None, *, cancelled: bool = False) -> None:
        """A handler has ended."""
        now = now_ms()
        given_up = cancelled or work.heeded or (work.state == "cancelled" and error is not None)
        if isinstance(work.outputs, HandlerOutputs):
            produced = work.outputs.end()
            work.outputs = produced if error is None and not given_up else None
        if isinstance(error, WrongHandlerError):
            self.end_without(work, ConfigError(str(error)))
        elif error is not None and not isinstance(error, Exception):
            self.end_without(work, error)  # SystemExit and the like, as out of a loop
        elif given_up and not work.timed_out:
            self.core.ended(work, now)
        elif error is None and not given_up:
            if work.outputs and self.writer is None:
                self._send_outputs(work)
            elif self.core.succeeded(work, now):
                self.telemetry.done(work)
        else:
            self.core.failed(work, error or TimeoutError("the handler did not end within timeout_s"), now)
        self.perform()

    def _send_outputs(self, work: Work) -> None:
        """The handler returned: its records are done once all that it has produced is acknowledged."""
        records, work.outputs = work.outputs, None
        if not self.core.produced(work, now_ms()):
            return

        def ended(failure: Exception | None) -> None:
            if failure is not None:
                self.core.refused_output(work, failure)
            elif self.core.acknowledged(work, now_ms()):
                self.telemetry.done(work)
            self.perform()

        self._sender_of(self.settings.outputs).send(records, ended)

    def _sender_of(self, producer: Any) -> Sender:
        sender = self._senders.get(id(producer))
        if sender is None:
            sender = self._senders[id(producer)] = Sender(producer, self._tell_from_thread)
        return sender

    def close_senders(self) -> None:
        """Processing has ended: what is acknowledged later counts for nothing."""
        for sender in self._senders.values():
            sender.close()

    def tick(self) -> None:
        """Do what is due."""
        self.telemetry.look()
        self.core.tick(now_ms())
        self.perform()

    def wait_s(self, longest_s: float) -> float:
        """How long nothing is due."""
        due_ms = self.core.next_due_ms()
        return longest_s if due_ms is None else max(0.0, min(longest_s, (due_ms - now_ms()) / 1000))

    def assigned(self, committed: Iterable[TopicPartition]) -> None:
        """Partitions were assigned: what their commits say is done beyond is not handled again."""
        for at in committed:
            name, offset = NamedPartition(at.topic, at.partition), at.offset
            known = offset >= 0
            done = decode_marks(offset, at.metadata or "") if known else None
            if known and at.metadata and done is None:
                log_event(
                    logging.INFO, LogEvent.MARKS_IGNORED, group_id=self._group_id, partition=str(name), offset=offset
                )
            self.core.assigned(name, offset if known else -1, done or ())

    def commit_ended(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Exception | None) -> bool:
        """A commit of `Processing.to_commit` has ended. Whether another one should be made at once."""
        if error is None:
            again = self.core.committed(offsets, now_ms())
            self._limit_moved()
            # A failure that has passed is none of the end any more; a missing right does not pass.
            self._uncommitted = {
                name: why for name, why in self._uncommitted.items() if name not in offsets and _lasts(why)
            }
            return again
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.OFFSET_METADATA_TOO_LARGE and self.core.refused(offsets, now_ms()):
            self._limit_moved()
            return True
        log_event(
            logging.WARNING,
            LogEvent.PROCESSING_COMMIT_FAILED,
            group_id=self._group_id,
            offsets=len(offsets),
            error=repr(error),
        )
        self._uncommitted.update(dict.fromkeys(offsets, error))
        return False

    def _limit_moved(self) -> None:
        """A commit has told how much metadata the broker takes: let start what may, and say if it is little."""
        self.perform()
        limit = self.core.metadata_limit
        if limit.asks is None and limit.sure < METADATA_BYTES and limit.sure != self._limit_told:
            self._limit_told = limit.sure
            log_event(logging.WARNING, LogEvent.PROCESSING_METADATA_LIMITED, group_id=self._group_id, bytes=limit.sure)

    @property
    def outcome(self) -> BaseException | None:
        """What process() raises at its end: why it ends, or else why its last commits failed."""
        return self.error if self.error is not None else next(iter(self._uncommitted.values()), None)

    @abstractmethod
    def change(self, *, concurrency: int | None, limits: Limits | None) -> None:
        """Other bounds hold from now on; None leaves one as it is. From any thread.

        Raises:
            ConfigError, ArgumentTypeError: one is wrong.
        """

    def changed(self, *, concurrency: int | None, limits: Limits | None) -> ProcessSettings:
        """See `change`: the settings, checked."""
        settings = self.settings
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        if limits is not None:
            settings = replace(settings, limits=limits)
        settings.check()
        return settings

    def apply(self, settings: ProcessSettings) -> None:
        """These hold from now on."""
        self.settings = settings
        self.core.change(settings.bounds(cancellable=self._cancellable, renewable=self._renewable), now_ms())
        self.perform()

    def lost(self, names: Collection[NamedPartition]) -> None:
        """The partitions belong to others, without a commit."""
        for name in names:
            self._uncommitted.pop(name, None)
        self.forget(names)

    def forget(self, names: Collection[NamedPartition]) -> None:
        """The partitions were given away, or lost."""
        if self._turnstile is not None:  # it would have them read again from here once they come back
            self._turnstile.forget(names)
        self.core.forget(names, now_ms())
        self.perform()

    def status(self) -> ProcessingStatus:
        """What is in hand."""
        ages = (age_s(item) for item in self.core.first_in_hand())
        return replace(
            self.core.status(now_ms()),
            lag_s=max((age for age in ages if age is not None), default=0.0),
            held=0 if self._turnstile is None else len(self._turnstile.waiting),
        )

    def perform(self) -> None:
        """Carry out the effects of the core."""
        while effects := self.core.take_effects():
            for effect in effects:
                match effect:
                    case Start(work):
                        if self._retry is not None and not self._begins(self._retry, work):
                            continue
                        if self.writer is not None:
                            work.outputs = HandlerTransaction()
                        elif self.settings.outputs is not None:
                            work.outputs = HandlerOutputs()
                        self._call(work)
                    case Cancel(work):
                        self._cancel(work)
                    case Failed(work, error):
                        self._decide(work, error)
                    case Give(work):
                        self.stop(
                            ProcessingError(
                                f"all {self.settings.concurrency} slots are taken by handlers that do not end; the "
                                f"oldest has {_place(work)}",
                                records=tuple(work.records),
                                attempt=work.attempt,
                            )
                        )
                    case Renew():
                        self._renew()

    def process_died(self, work: Work, error: BaseException | None, how: str) -> None:
        """The pool of processes broke while it had *work* in hand: a process ended *how*."""
        if self.core.knows(work):
            log_event(
                logging.WARNING,
                LogEvent.HANDLER_PROCESS_DIED,
                group_id=self._group_id,
                records=_place(work),
                alone=work.alone,
                how=how,
            )
        failure = HandlerDiedError(
            f"the process that ran the handler for {_place(work)} ended {how}; it had nothing else in hand",
            records=tuple(work.records),
        )
        failure.__cause__ = error
        self.core.crashed(work, failure, now_ms())
        self.perform()

    def no_pool(self, error: BaseException) -> None:
        """A new pool could not be made, or cannot even run an empty call: no record is to blame."""
        failure = ProcessingError(
            f"the processes that run handlers have died, and the executor that was made in their place cannot run "
            f"anything ({describe(error)}): look at the function that executor= was given, and at the initializer"
        )
        failure.__cause__ = error
        self.stop(failure)
        self.perform()

    def cannot_run(self, work: Work, error: BaseException) -> None:
        """The executor is broken or shut down: no handler has failed, and no other can run."""
        failure = ProcessingError(
            f"the executor cannot run handlers ({describe(error)}); what it had in hand is not committed, for example "
            f"{_place(work)}. If one of these records ends its process, executor=lambda: ProcessPoolExecutor(...) lets "
            "process() make a new pool, find that record, and go on",
            records=tuple(work.records),
            attempt=work.attempt,
        )
        failure.__cause__ = error
        self.end_without(work, failure)

    def end_without(self, work: Work, error: BaseException) -> None:
        """End because of *error*; the records of *work* are not done."""
        self.stop(error)
        self.core.ended(work, now_ms())
        self.perform()

    def late(self, error: MaxPollExceededError) -> None:
        """The membership was lost; the next read joins again."""
        # Without the advice, which is to use process().
        text = str(error).removesuffix(f"; {POLL_ADVICE}")
        log_event(logging.WARNING, LogEvent.PROCESSING_LATE, group_id=self._group_id, error=text)

    def log_handlers_that_do_not_end(self, count: int, oldest: Work, *, at: str) -> None:
        """So many were cancelled, and process() waits for them. The one that runs longest stands *at* this place."""
        log_event(
            logging.WARNING,
            LogEvent.HANDLERS_DO_NOT_END,
            group_id=self._group_id,
            handlers=count,
            oldest=_place(oldest),
            at=at,
            seconds=(now_ms() - oldest.started_ms) // 1000,
        )

    def stop(self, error: BaseException | None) -> None:
        """End: nothing more starts."""
        if self.error is None:
            self.error = error
        self.core.stop()
        self._stopped()

    # --- failures

    def _decide(self, work: Work, error: BaseException) -> None:
        now = now_ms()
        if not self.core.knows(work):
            return
        work.last_error = error.reason if isinstance(error, RetryLater) else error
        try:
            then, delay_s = self._then(work, error)
            self._tell_failure(work, then, delay_s)
        except Exception as wrong:  # noqa: BLE001  the user's condition, wait or callback
            self._fail(work, wrong, what=f" with {describe(work.last_error)}, and retry= or on_failure= raised")
            return
        match then:
            case "retry":
                assert delay_s is not None
                self.core.retry(work, now, in_ms=int(delay_s * 1000))
            case "split":
                self.core.split(work, now)
            case "retry_later" | "dead_letter":
                self._send_away(work, error)
            case "skip":
                self._log_skipped(work, error)
                self.telemetry.done(work)
                self.core.buried(work, now, skipped=True)
            case _:
                self._fail(work, error)

    def _then(self, work: Work, error: BaseException) -> tuple[Then, float | None]:
        """What follows a failed call, and after how many seconds if it is made again."""
        wait_s = self._wait_s(work, error)
        if wait_s is not None:
            return "retry", wait_s
        if self.settings.split and len(work.items) > 1:
            return "split", None
        if (tier := self._tier_after(work, error)) is not None:
            assert self._later is not None
            return "retry_later", self._later.delays_s[tier]
        if self._letters is not None:
            return "dead_letter", None
        return ("skip" if self.settings.on_error == "skip" else "stop"), None

    def _tier_after(self, work: Work, error: BaseException) -> int | None:
        """The retry topic that a work goes to, from 0; None if it has failed for good."""
        later = self._later
        return None if later is None or not later.takes(error) else later.tiers.after(work.partition.topic)

    def _wait_s(self, work: Work, error: BaseException) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if isinstance(error, RetryLater):
            return error.delay_s
        if self._retry is None:
            return None
        elapsed_ms = now_ms() - work.first_started_ms
        return self._retry.wait_s(self._given(work), error, attempt=work.attempt, elapsed_ms=elapsed_ms)

    def _given(self, work: Work) -> Any:
        """What the handler is called with."""
        return work.items[0].record if self.settings.batch is None else work.records

    def _tell_failure(self, work: Work, then: Then, delay_s: float | None) -> None:
        error = work.last_error
        assert error is not None
        log_event(
            logging.INFO,
            LogEvent.HANDLER_FAILED,
            exc_info=error if then in {"dead_letter", "skip"} else None,  # nothing else shows where it failed
            group_id=self._group_id,
            records=_place(work),
            attempt=work.told.number,
            error=describe(error),
            then=then,
            delay_s=delay_s,
        )
        if self.settings.on_failure is not None:
            failure = ProcessingFailure(
                records=tuple(work.records), attempt=work.told.number, error=error, then=then, delay_s=delay_s
            )
            check_finished(
                self.settings.on_failure(failure), instead="give a function that is not a coroutine function"
            )

    def _begins(self, retry: Retry, work: Work) -> bool:
        """Tell *retry* that a call begins; whether it may."""
        try:
            retry.begins(self._given(work), attempt=work.attempt, elapsed_ms=now_ms() - work.first_started_ms)
        except Exception as wrong:  # noqa: BLE001  the user's callback
            self._stop_at(work, wrong, f"retry='s before= failed for {_place(work)}")
            self.core.ended(work, now_ms())
            return False
        return True

    def _fail(self, work: Work, error: BaseException, *, what: str = "") -> None:
        """End because of *error*.

        Args:
            what: has failed after the handler, if that is not the cause.
        """
        number = work.told.number
        attempts = "" if number == 1 else f" after {number} attempts"
        if not self.core.knows(work):
            return  # its partition belongs to another member, which begins with it
        self._stop_at(work, error, f"the handler failed for {_place(work)}{attempts}{what}")
        self.core.give_up(work, now_ms())

    def _stop_at(self, work: Work, error: BaseException, what: str) -> None:
        failure = ProcessingError(
            f"{what}: {describe(error)}; it is not committed, and the next start begins with it",
            records=tuple(work.records),
            attempt=work.attempt,
        )
        failure.__cause__ = error
        self.stop(failure)

    def _send_away(self, work: Work, error: BaseException) -> None:
        """Send records to a retry topic or the dead letters; they are done when all are acknowledged.

        If one is refused, processing stops.
        """
        tier = self._tier_after(work, error)
        later, records = tier is not None, self._sent_away(work, error, tier)
        if self.writer is not None:
            work.outputs = _WrittenLetters(records)
            self.telemetry.done(work)
            self.core.buried(work, now_ms(), later=later)
            return

        def ended(failure: Exception | None) -> None:
            if failure is not None:
                what = f"its {'record' if later else 'dead letter'} was not written to {records[0]['topic']}"
                self._fail(work, failure, what=f" with {describe(error)}, and {what}")
            elif self.core.knows(work):
                self._sent_later_ms = now_ms() if later else self._sent_later_ms
                self.telemetry.done(work)
                self.core.buried(work, now_ms(), later=later)
            self.perform()

        self._sender_of(self._producer_of(later=later)).send(records, ended)

    def _sent_away(self, work: Work, error: BaseException, tier: int | None) -> Sequence[dict[str, Any]]:
        """What takes the place of the failed records of a work, in a retry topic or the dead letters."""
        retries = None if self._later is None else self._later.name
        records = []
        for item in work.items:
            attempts = item.attempts + work.attempt
            if tier is None:
                assert self._letters is not None
                letter = self._letters.letter(
                    item.record, error, original=item.original, attempts=attempts, group=self._group_id, retries=retries
                )
                records.append(letter)
            else:
                assert self._later is not None
                failed = failed_now(item.record, error, attempts=attempts, group=self._group_id)
                records.append(self._later.record(item.record, failed, tier=tier, original=item.original))
        return records

    def _producer_of(self, *, later: bool) -> Any:
        """What writes to the retry topics, or the dead letters."""
        if later and self._later is not None and self._later.producer is not None:
            return self._later.producer
        assert self._letters is not None
        return self._letters.producer

    # --- transactions

    def slice_wait_s(self, longest_s: float) -> float:
        """How long no transaction is due."""
        due_ms = None if self._no_more_slices else self.core.slice_due_ms()
        return longest_s if due_ms is None else max(0.0, min(longest_s, (due_ms - now_ms()) / 1000))

    def begin_slice(self) -> Slice | None:
        """What the next transaction holds, if anything; `slice_ended` must follow."""
        if self._no_more_slices:
            return None
        slice_ = self.core.take_slice(now_ms())
        self.perform()
        return slice_

    def write_no_more(self) -> None:
        """The outcome of a transaction is not known: none may follow."""
        self._no_more_slices = True

    def write(
        self, slice_: Slice, group_metadata: Callable[[], bytes], *, ending: Callable[[], bool]
    ) -> Exception | None:
        """Write a transaction, on the consumer's thread. Returns why it was not committed.

        Args:
            ending: whether the consumer is to leave soon.
        """
        assert self.writer is not None
        calls = self.writer.calls

        def end_in_time() -> None:
            """A consumer that is to leave cannot, while a transaction waits for brokers."""
            if ending() and calls.give_up_s == math.inf:
                calls.give_up_s = time.monotonic() + self.settings.grace_s

        calls.before_repeating = end_in_time
        try:
            self.writer.write(slice_, group_metadata())
        except Exception as error:  # noqa: BLE001  `slice_ended` tells them apart
            return error
        return None

    def slice_ended(self, slice_: Slice, error: Exception | None) -> None:
        """A transaction was committed, or not because of *error*."""
        now = now_ms()
        if error is None:
            self._aborts, self._sent_later_ms = 0, now
            self.core.slice_ended(slice_, now)
            self._limit_moved()
        elif (
            isinstance(error, TransactionAbortedError)
            and metadata_too_large(error)
            and self.core.refused(slice_.offsets, now)
        ):
            self.core.slice_ended(slice_, now, again_in_ms=0)
            self._limit_moved()
        elif isinstance(error, TransactionAbortedError) and self._aborts < _ABORTS_MAX:
            log_event(
                logging.WARNING, LogEvent.TRANSACTION_ABORTED, group_id=self._group_id, error=repr(error.__cause__)
            )
            self.core.slice_ended(slice_, now, again_in_ms=_ABORT_PAUSE_MS << self._aborts)
            self._aborts += 1
        else:
            self.core.slice_ended(slice_, now, again_in_ms=0)
            if isinstance(error, OutputRefusedError):
                self._refused(error.work, error.__cause__ or error)
            else:
                self._no_more_slices = True
                if isinstance(error, TransactionAbortedError):
                    failure = TransactionFailedError(f"{_ABORTS_MAX + 1} transactions in a row were aborted: {error}")
                    failure.__cause__, error = error, failure
                self.stop(error)
        self.perform()

    def _refused(self, work: Work, error: BaseException) -> None:
        """What a handler produced cannot be written: its record failed for good."""
        if self._letters is not None and not isinstance(work.outputs, _WrittenLetters):
            work.outputs = _WrittenLetters(self._sent_away(work, error, None))
        elif self.settings.on_error == "skip":
            self._log_skipped(work, error)
            work.outputs = None
        else:
            self._no_more_slices = True
            self._stop_at(work, error, f"a record that the handler produced for {_place(work)} cannot be written")

    # --- retry topics

    @property
    def left_paused(self) -> Collection[NamedPartition]:
        """At the end: partitions that are paused, and not by the application."""
        waiting = () if self._turnstile is None else self._turnstile.waiting
        return {*self.core.paused, *waiting} - self.user_paused

    @property
    def pauses_move(self) -> bool:
        """Whether partitions may have to be paused or resumed now."""
        stile = self._turnstile
        return bool(self.core.paused) or (stile is not None and (stile.news or self.release_wait_s(1.0) <= 0))

    def take_turns(self) -> tuple[dict[NamedPartition, int], dict[NamedPartition, int]]:
        """Partitions of retry topics to pause now, and to read again; with the offsets at which they go on."""
        if self._turnstile is None:
            return {}, {}
        released = self._turnstile.releases(_wall_ms())
        return self._turnstile.holds(), released

    def release_wait_s(self, longest_s: float) -> float:
        """How long no partition of a retry topic is to be read again."""
        due_ms = None if self._turnstile is None else self._turnstile.next_due_ms()
        return longest_s if due_ms is None else max(0.0, min(longest_s, (due_ms - _wall_ms()) / 1000))

    def stays_paused(self, name: NamedPartition) -> bool:
        """Whether a partition is paused for other reasons than that the application has asked for it."""
        return name in self.core.paused or (self._turnstile is not None and self._turnstile.waits(name))

    def up_to_here(self, positions: Mapping[NamedPartition, int]) -> Mapping[NamedPartition, int]:
        """*positions* without records that were read and are to be read again."""
        return positions if self._turnstile is None else self._turnstile.up_to_here(positions)

    def unread_retries(self, committed: Iterable[TopicPartition]) -> list[NamedPartition]:
        """Partitions of retry topics of which nothing was committed: they begin with their first record."""
        return [
            NamedPartition(at.topic, at.partition)
            for at in committed
            if at.offset < 0 and self._turnstile is not None and self._turnstile.is_tier(at.topic)
        ]

    def _log_skipped(self, work: Work, error: BaseException) -> None:
        log_event(
            logging.WARNING,
            LogEvent.RECORD_SKIPPED_BY_HANDLER,
            group_id=self._group_id,
            records=_place(work),
            attempts=work.attempt,
            error=describe(error),
        )


def _lasts(error: Exception) -> bool:
    return isinstance(error, TopicAuthorizationError | GroupAuthorizationError)


class _WrittenLetters(list[dict[str, Any]]):
    """Dead letters in place of what a handler produced."""


def _place(work: Work) -> str:
    items: Sequence[Item] = work.items
    first = f"{items[0].partition} at offset {items[0].offset}"
    return first if len(items) == 1 else f"{first} and {len(items) - 1} more"
