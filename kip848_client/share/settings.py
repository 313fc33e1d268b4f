"""The arguments of ``process()`` of a share consumer, checked, and what it tells of itself."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kip848_client.consumer.processing.dead_letters import DeadLetters
from kip848_client.errors import ArgumentTypeError, ConfigError

GRACE_S: Final = 20.0
"""How long the end waits for handlers that run."""
MAX_DELIVERIES: Final = 5
"""Kafka's default of ``group.share.delivery.count.limit``."""


class Reject(Exception):
    """Raise this in a handler: the record cannot be handled, and must never be delivered again."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked arguments of ``process()``.

    Args:
        concurrency: handlers that run at once.
        retry: a ``tenacity.Retrying``: which exceptions are tried again within this delivery; None: none.
        reject: exceptions after which the record is rejected.
        timeout_s: how long one call may take.
        dead_letter: where a record goes that is rejected, or whose last delivery failed.
        max_deliveries: which delivery is the last one, for *dead_letter*.
        grace_s: how long the end waits for handlers.

    Raises:
        ConfigError: a value is wrong.
    """

    concurrency: int = 10
    retry: Any = None
    reject: tuple[type[BaseException], ...] = ()
    timeout_s: float | None = None
    dead_letter: DeadLetters | None = None
    max_deliveries: int = MAX_DELIVERIES
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 100_000:
            raise ConfigError(f"concurrency={self.concurrency!r}: give a number from 1 to 100,000")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(f"timeout_s={self.timeout_s!r}: give seconds above 0, or None")
        if self.max_deliveries < 1:
            raise ConfigError(f"max_deliveries={self.max_deliveries!r}: give a number above 0")
        if self.dead_letter is not None and not isinstance(self.dead_letter, DeadLetters):
            raise ArgumentTypeError(f"dead_letter={self.dead_letter!r}: give a DeadLetters")
        for kind in self.reject:
            given: object = kind
            if not (isinstance(given, type) and issubclass(given, BaseException)):
                raise ArgumentTypeError(f"reject= has {kind!r}, which is no exception class")


class QueueStatus(msgspec.Struct, frozen=True):
    """What ``process()`` has in hand.

    Args:
        running: handlers that run.
        waiting_retry: records that wait for their next attempt.
        accepted, released, rejected, renewed, lost: how often so far; *lost* are locks that ended while a handler ran.
    """

    running: int
    waiting_retry: int
    accepted: int
    released: int
    rejected: int
    renewed: int
    lost: int
