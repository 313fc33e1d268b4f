"""What the core of ``process()`` is told, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError, ProcessingError

RETRY_LATER_S_MAX: Final = 10.0**9

Then: TypeAlias = Literal["retry", "split", "retry_later", "dead_letter", "skip", "stop"]
"""What follows a failed call of the handler."""
Order: TypeAlias = Literal["key", "partition", "none"]


class Item(msgspec.Struct, eq=False):
    """A delivered record.

    Attributes:
        lane: records of one partition with the same lane are handled one after the other; None has no order.
        size: in bytes, of key and value.
        record: opaque.
        original: key and value as they were fetched, if a deserializer has opened them.
        attempts: calls of the handler before it came here by way of retry topics.
        last_error: what the last of them has raised, in words.
    """

    partition: NamedPartition
    offset: int
    lane: object
    size: int
    record: Any
    number: int = -1
    """Of its `Progress`."""
    taken_ms: int = 0
    original: tuple[Any, Any] | None = None
    attempts: int = 0
    last_error: str | None = None
    key: Any = None
    """As it was fetched."""


class Work(msgspec.Struct, eq=False):
    """What one call of the handler gets: a record, or with ``batch`` several of one lane.

    Attributes:
        attempt: 1 for the first call since its records were read.
        generation: of its partition; a work of an earlier one is forgotten.
        state: ``cancelled``: it should end; ``abandoned``: its record is decided, and its slot waits for its end;
            ``producing``: what it has produced is not acknowledged.
    """

    items: Sequence[Item]
    partition: NamedPartition
    generation: int
    attempt: int = 1
    started_ms: int = 0
    first_started_ms: int = 0
    state: Literal["waiting", "running", "cancelled", "abandoned", "producing", "ended"] = "waiting"
    lane: Any = None
    timed_out: bool = False
    """It is cancelled because it took too long, which counts as a failure."""
    asks: bool = False
    """Its handler calls `processing_cancelled`."""
    outputs: Any = None
    """What its call has produced, for ``process(transactional=...)`` and ``process(outputs=...)``."""
    last_error: BaseException | None = None
    """What the call before this one has raised."""
    heeded: bool = False
    """Its handler was told to end, so that its result says nothing."""
    alone: bool = False
    """It may have ended a worker process, so that nothing else is in hand while it runs."""
    paced: bool = False
    """It counts for the limits of what runs at once."""
    pool: int = 0
    """Which pool of `Processing` it runs in, counted from 0."""

    @property
    def records(self) -> list[Any]:
        """What the handler is given."""
        return [item.record for item in self.items]

    @property
    def told(self) -> ProcessingAttempt:
        """What its handler is told: calls from before its records came here by way of retry topics count."""
        first = self.items[0]
        error = self.last_error
        if error is None and first.last_error is not None:
            error = ProcessingError(first.last_error)
        return ProcessingAttempt(first.attempts + self.attempt, error)


HANDLING: Final[ContextVar[tuple[object, Work] | None]] = ContextVar("kip848_handling", default=None)
"""Inside a handler: the processor that called it, and for what."""


def processing_cancelled() -> bool:
    """Inside a handler of ``process()``: whether it should end, because its result will not count.

    True once a task would be cancelled: ``timeout_s`` is over, or the partition goes to another member and ``drain_s``
    is over, or process() ends and ``grace_s`` is over, or the partition was lost. A handler in a thread cannot be
    cancelled, so a long one asks now and then, and returns or raises. Its records are then not done, whatever it
    returns: the next owner handles them, or after ``timeout_s`` they count as failed.

    Always False outside of handlers, and for handlers in other processes.
    """
    handling = HANDLING.get()
    if handling is None:
        return False
    work = handling[1]
    work.asks = True
    if work.state == "running":
        return False
    work.heeded = True
    return True


class ProcessingAttempt(msgspec.Struct, frozen=True):
    """Which call of the handler for a record this is.

    Attributes:
        number: 1 for the first one.
        last_error: what the call before has raised; None for the first one. For a record that comes from a retry topic
            it is a `ProcessingError` with the type and text of that.
    """

    number: int = 1
    last_error: BaseException | None = None


_FIRST_ATTEMPT: Final = ProcessingAttempt()
ATTEMPT: Final[ContextVar[ProcessingAttempt]] = ContextVar("kip848_attempt", default=_FIRST_ATTEMPT)
"""Inside a handler in another process."""


def processing_attempt() -> ProcessingAttempt:
    """Inside a handler of ``process()``: how often it was called for this record, and what it raised the last time.

    A new owner of the partition begins with 1 again. Retry topics keep the number and the error's text. Outside of
    handlers it is the first attempt, so that a test may call a handler.
    """
    handling = HANDLING.get()
    return ATTEMPT.get() if handling is None else handling[1].told


class RetryLater(Exception):
    """Raised by a handler of ``process()``: call it again for this record after some time, whatever ``retry`` says.

    Other keys go on meanwhile, and no slot is held. How often is for the handler to decide: see `processing_attempt`.
    ``raise RetryLater(30) from error`` keeps *error* for the next attempt and the log.

    Args:
        delay_s: seconds.

    Raises:
        ConfigError: *delay_s* is not a number of seconds.
    """

    def __init__(self, delay_s: float) -> None:
        given: object = delay_s
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if not (number and 0 <= delay_s <= RETRY_LATER_S_MAX):
            raise ConfigError(f"RetryLater({delay_s!r}): give the seconds until the next attempt")
        super().__init__(delay_s)
        self.delay_s: Final = float(delay_s)
        self._sent = False

    @property
    def reason(self) -> BaseException:
        """The error that it was raised from, else itself. From another process the first one does not come along."""
        return self if self._sent or self.__cause__ is None else self.__cause__

    def __reduce__(self) -> tuple[type[RetryLater], tuple[float], dict[str, bool]]:
        return RetryLater, (self.delay_s,), {"_sent": True}

    def __str__(self) -> str:
        return f"again in {self.delay_s:g} s"


class ProcessingFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the handler failed, and what follows: the argument of ``process(on_failure=...)``.

    Attributes:
        records: what the handler was given.
        attempt: 1 for the first call.
        error: what it raised; `TimeoutError` if it took too long.
        then: ``"retry"``: it is called again after *delay_s*; ``"split"``: for each record of the batch alone;
            ``"retry_later"``: the records wait in a retry topic for *delay_s*; ``"dead_letter"``, ``"skip"``,
            ``"stop"``: it failed for good.
        delay_s: seconds until the next attempt; None without one.
    """

    records: Sequence[Any]
    attempt: int
    error: BaseException
    then: Then
    delay_s: float | None = None


class Start(msgspec.Struct, frozen=True):
    """Call the handler."""

    work: Work


class Cancel(msgspec.Struct, frozen=True):
    """Let a running handler end; `Processing.ended` is awaited."""

    work: Work


class Failed(msgspec.Struct, frozen=True):
    """A call failed: it is to be made again, or its dead letter sent, or processing stops."""

    work: Work
    error: BaseException


class Give(msgspec.Struct, frozen=True):
    """All slots are taken by handlers that do not end: nothing can go on."""

    work: Work
    """The oldest one."""


class Renew(msgspec.Struct, frozen=True):
    """End what is left of the pool of processes, and make a new one; `Processing.renewed` is awaited."""


Effect: TypeAlias = Start | Cancel | Failed | Give | Renew


class ProcessingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What ``process()`` is at: ``consumer.processing_status()``.

    Attributes:
        running: handlers that run.
        waiting_slot: records that wait for a free slot, or for a limit.
        waiting_lane: records that wait for an earlier one of their key or partition.
        waiting_retry: records that wait to be tried again.
        waiting_dead_letter: records whose dead letter, or whose copy in a retry topic, is not acknowledged yet.
        waiting_output: records whose handler has returned, and what it produced with ``outputs=`` is not acknowledged.
        paused: partitions that are not fetched, because their records wait here.
        oldest: topic, partition and offset of the record in hand that was taken first; None without one.
        oldest_s: how long it has been in hand, in seconds.
        lag_s: age in seconds, by its timestamp, of the oldest record that is not done; 0 without one.
        done: records done since the start, with those in retry topics, in dead letters and skipped ones.
        retries: calls of the handler that followed a failed one.
        dead_letters: records in dead letters.
        retry_later: records that were sent to retry topics.
        held: partitions of retry topics that are paused because their first record is not due.
        skipped: failed records that ``on_error="skip"`` counted as done.
        abandoned: calls that did not end when they should have.
    """

    running: int
    waiting_slot: int
    waiting_lane: int
    waiting_retry: int
    waiting_dead_letter: int
    paused: int
    oldest: tuple[str, int, int] | None
    oldest_s: float
    done: int
    retries: int
    dead_letters: int
    skipped: int
    abandoned: int
    lag_s: float = 0.0
    retry_later: int = 0
    held: int = 0
    waiting_output: int = 0

    @property
    def in_hand(self) -> int:
        """Records that were taken and are not done."""
        waiting = self.waiting_slot + self.waiting_lane + self.waiting_retry
        return self.running + waiting + self.waiting_dead_letter + self.waiting_output
