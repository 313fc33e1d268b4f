"""The arguments of ``process()``, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from kip848_client.errors import ArgumentTypeError, ConfigError
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.work import Order

if TYPE_CHECKING:
    from kip848_client.member.processing.core import Bounds

BUFFER_BYTES: Final = 64 * 2**20
GRACE_S: Final = 5.0
DRAIN_S: Final = 20.0
"""Kubernetes kills after 30: this leaves time for the last commit and for leaving."""
SLICE_RECORDS: Final = 500
SLICE_MS: Final = 200
LARGE_BUFFER: Final = 10_000
"""Most records in hand where some keys or topics wait, so that others can be read behind them."""
_CONCURRENCY_MAX: Final = 100_000
_ON_ERROR: Final = ("stop", "skip")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """See `Consumer.process` for the meaning of each."""

    concurrency: int
    order: Order
    retry: Any
    on_error: str
    dead_letter: Any
    timeout_s: float | None
    batch: Sequence[int] | None
    split: bool
    buffer: int | None
    buffer_bytes: int
    drain_s: float
    grace_s: float
    retry_later: Any = None
    on_failure: Any = None
    until: str | None = None
    outputs: Any = None
    transactional: Any = None
    slice_records: int = SLICE_RECORDS
    slice_ms: int = SLICE_MS
    limits: Limits | None = None

    @property
    def handler_arguments(self) -> tuple[str, ...]:
        """What a handler is called with, by names."""
        given = "record" if self.batch is None else "records"
        if self.outputs is not None:
            return (given, "outputs")
        return (given,) if self.transactional is None else (given, "transaction")

    def check(self) -> None:
        """Check the values.

        Raises:
            ConfigError: one is out of range, or two do not go together.
            ArgumentTypeError: one has a wrong type.
        """
        _whole(self.concurrency, "concurrency", 1, _CONCURRENCY_MAX)
        if self.order not in get_args(Order):
            raise ConfigError(f'order={self.order!r}: it is "key", "partition" or "none"')
        if self.on_error not in _ON_ERROR:
            raise ConfigError(f'on_error={self.on_error!r}: give "stop" or "skip"; a dead-letter topic is dead_letter=')
        if self.until not in {None, "end"}:
            raise ConfigError(f'until={self.until!r}: give "end", or leave it out')
        if self.dead_letter is not None and self.on_error != "stop":
            raise ConfigError("dead_letter= and on_error= are both given: a failed record goes to one place")
        if None not in (self.transactional, self.outputs):
            raise ConfigError("outputs= and transactional= are both given: what is produced goes into the transaction")
        if None not in (self.transactional, self.dead_letter) and self.dead_letter.producer is not self.transactional:
            raise ConfigError(
                "dead_letter= has another producer than transactional=: a letter would be there twice, or without the "
                "transaction of its record; give it the same producer"
            )
        if self.retry_later is not None:
            _check_producer_of(self)
        _whole(self.slice_records, "slice_records", 1, 1_000_000)
        _whole(self.slice_ms, "slice_ms", 0, 60_000)
        for name, value in (("timeout_s", self.timeout_s), ("drain_s", self.drain_s), ("grace_s", self.grace_s)):
            if value is None and name == "timeout_s":
                continue
            if not _is_number(value):
                raise ArgumentTypeError(f"{name}={value!r} is not a number of seconds")
            assert value is not None
            if not value >= 0 or (name == "timeout_s" and value == 0):
                raise ConfigError(f"{name}={value}: it is a positive number of seconds")
        if self.buffer is not None:
            _whole(self.buffer, "buffer", 1, 100 * _CONCURRENCY_MAX)
        _whole(self.buffer_bytes, "buffer_bytes", 1, 2**40)
        if not isinstance(self.split, bool):
            raise ArgumentTypeError(f"split={self.split!r} is not True or False")
        if self.split and self.batch is None:
            raise ConfigError("split=True is for batch=: a record cannot be split")
        if self.batch is not None:
            if not _is_pair(self.batch):
                raise ArgumentTypeError(f"batch={self.batch!r}: give (most records, milliseconds to wait for them)")
            _whole(self.batch[0], "batch: records", 1, 1_000_000)
            _whole(self.batch[1], "batch: milliseconds", 0, 3_600_000)
            if self.order == "none":
                raise ConfigError('batch= gathers records of one key or partition; give order="key" or "partition"')
        if self.limits is not None:
            given: object = self.limits
            if not isinstance(given, Limits):
                raise ArgumentTypeError(f"limits={given!r}: give Limits(calls_per_second=100)")
            self.limits.check()
            if self.limits.by_key and self.batch is not None and self.order != "key":
                raise ConfigError(
                    'limits= by key with batch= needs order="key": else one call has records of many keys'
                )

    def bounds(self, *, cancellable: bool, renewable: bool = False) -> Bounds:
        """The bounds for the core."""
        records, wait_ms = self.batch or (1, 0)
        apart = self.limits is not None and (self.limits.by_key or self.limits.by_priority or self.limits.topics)
        from kip848_client.member.processing.core import Bounds  # here: a consumer without process() does not need it

        return Bounds(
            concurrency=self.concurrency,
            buffer=self.buffer or max(2 * self.concurrency * records, LARGE_BUFFER if apart else 0),
            buffer_bytes=self.buffer_bytes,
            timeout_ms=None if self.timeout_s is None else int(self.timeout_s * 1000),
            grace_ms=int(self.grace_s * 1000),
            cancellable=cancellable,
            renewable=renewable,
            batch=records,
            batch_ms=wait_ms,
            slice_records=None if self.transactional is None else self.slice_records,
            slice_ms=self.slice_ms,
            limits=self.limits,
        )


def _check_producer_of(settings: ProcessSettings) -> None:
    given, transactional = settings.retry_later.producer, settings.transactional
    if transactional is not None and given is not None and given is not transactional:
        raise ConfigError(
            "retry_later= has another producer than transactional=: a record would be in a retry topic and still not "
            "done, or the other way round; leave its producer= out"
        )
    if given is None and transactional is None and settings.dead_letter is None:
        raise ConfigError("retry_later= has no producer: give RetryTopics(..., producer=), or dead_letter=")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pair(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2


def _whole(value: object, name: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name}={value!r} is not a whole number")
    if not least <= value <= most:
        raise ConfigError(f"{name}={value} is not between {least:,} and {most:,}")
