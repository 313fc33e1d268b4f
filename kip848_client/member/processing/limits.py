"""`Limits`: how fast ``process()`` may be. `Pacing` keeps the books: which call may begin when.

No call may begin that would be one too many of any period. Within a period they are spread: a tenth of them may begin
at once.

Does not own: what waits meanwhile (`processing.core`).

Source: own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ArgumentTypeError, ConfigError

_RATE_LEAST: Final = 1 / 86_400
_RATE_MOST: Final = 1_000_000
_PRIORITY_MOST: Final = 1_000
_KEYS_LEAST: Final = 1_000
"""With so few keys none is forgotten."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How fast ``process()`` may be, and which topics come first: ``process(handler, limits=Limits(...))``.

    A limit is of this process: three processes with 100 calls a second make 300. Calls that wait for a limit hold no
    slot, and are not counted against ``timeout_s``. With ``batch=`` a call has several records.

    Attributes:
        calls_per_second: how many calls of the handler, attempts included, begin in any second; 0.2 is one in any five
            seconds. None has no limit.
        calls_per_second_per_key: the same of each key. Records without a key have no limit. Other keys go on.
        topics: name of a topic -> what holds for its records, beside what holds for all.
        concurrency: of a topic: how many of its calls run at once.
        priority: of a topic, 0 if it has none: the records of topics with a higher one begin first, and while others
            wait, they fill at most half of the buffer.
    """

    calls_per_second: float | None = None
    calls_per_second_per_key: float | None = None
    topics: Mapping[str, Limits] = {}
    concurrency: int | None = None
    priority: int = 0

    @property
    def by_key(self) -> bool:
        """Whether any key is limited."""
        return any(each.calls_per_second_per_key is not None for each in (self, *self.topics.values()))

    @property
    def by_priority(self) -> bool:
        """Whether some topics come first."""
        return any(each.priority for each in self.topics.values())

    def check(self) -> None:
        """Check the values.

        Raises:
            ConfigError, ArgumentTypeError: one is wrong; the text names it.
        """
        self.check_rates("limits: ")
        if self.concurrency is not None or self.priority:
            raise ConfigError(
                "limits: concurrency and priority are for one topic: topics={'orders': Limits(concurrency=5)}; in all "
                "it is process(concurrency=)"
            )
        given: object = self.topics
        if not isinstance(given, Mapping):
            raise ArgumentTypeError(f"limits: topics={given!r}: give {{'orders': Limits(...)}}")
        for topic, limits in given.items():
            if not isinstance(topic, str) or not isinstance(limits, Limits):
                raise ArgumentTypeError(f"limits: topics has {topic!r}: {limits!r}; give {{'orders': Limits(...)}}")
            if limits.topics:
                raise ConfigError(f"limits: topic {topic!r} has topics= of its own")
            where = f"limits: topic {topic!r}: "
            limits.check_rates(where)
            _check_whole(limits.priority, f"{where}priority", -_PRIORITY_MOST, _PRIORITY_MOST)
            if limits.concurrency is not None:
                _check_whole(limits.concurrency, f"{where}concurrency", 1, 100_000)

    def check_rates(self, where: str) -> None:
        """Check what both all records and a topic may have.

        Raises:
            ConfigError, ArgumentTypeError: one is wrong; the text begins with *where*.
        """
        for name in ("calls_per_second", "calls_per_second_per_key"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentTypeError(f"{where}{name}={value!r} is not a number")
            if not _RATE_LEAST <= value <= _RATE_MOST:
                raise ConfigError(f"{where}{name}={value}: it is between one a day and {_RATE_MOST:,}")


def _check_whole(value: object, name: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name}={value!r} is not a whole number")
    if not least <= value <= most:
        raise ConfigError(f"{name}={value} is not between {least:,} and {most:,}")


class _Rate:
    """So many calls in any period."""

    def __init__(self, per_second: float) -> None:
        self._calls: Final = max(1, int(per_second))
        self.period_ms: Final = _up(1000 * self._calls / per_second)
        self._at_once: Final = _up(self._calls / 10)
        self._pause_ms: Final = self.period_ms // 10

    def due_ms(self, begun: list[int]) -> int:
        """When the next call may begin.

        Args:
            begun: when the last ones did.
        """
        due_ms = 0
        if len(begun) >= self._calls:
            due_ms = begun[-self._calls] + self.period_ms
        if len(begun) >= self._at_once:
            due_ms = max(due_ms, begun[-self._at_once] + self._pause_ms)
        return due_ms

    def begins(self, begun: list[int], now_ms: int) -> None:
        """Add a call to *begun*."""
        begun.append(now_ms)
        if len(begun) > 2 * self._calls:  # not each time: it moves all that stay
            del begun[: -self._calls]


class _Scope:
    """The limits of all records, or of those of a topic."""

    def __init__(self) -> None:
        self._begun: Final[list[int]] = []
        self._begun_of: dict[object, list[int]] = {}
        """The same by key."""
        self._forget_at = _KEYS_LEAST

    def set(self, limits: Limits) -> None:
        """These hold from now on."""
        total, by_key = limits.calls_per_second, limits.calls_per_second_per_key
        self.limits = limits
        self._rate = None if total is None else _Rate(total)
        self._rate_of_key = None if by_key is None else _Rate(by_key)

    @property
    def due_ms(self) -> int:
        """When the next call may begin, whatever its key."""
        return 0 if self._rate is None else self._rate.due_ms(self._begun)

    def due_ms_of(self, key: object) -> int:
        """When the next call of a key may begin, as to the key."""
        if self._rate_of_key is None or key is None:
            return 0
        begun = self._begun_of.get(key)
        return 0 if begun is None else self._rate_of_key.due_ms(begun)

    def begins(self, key: object, now_ms: int) -> None:
        """A call begins."""
        if self._rate is not None:
            self._rate.begins(self._begun, now_ms)
        rate = self._rate_of_key
        if rate is not None and key is not None:
            begun = self._begun_of.get(key)
            if begun is None:
                begun = self._begun_of[key] = []
                self._forget(now_ms - rate.period_ms)
            rate.begins(begun, now_ms)

    def rate_of_key(self, key: object) -> tuple[_Rate, list[int]] | None:
        """The limit of a key, with a copy of when its calls began; None without one."""
        return None if self._rate_of_key is None else (self._rate_of_key, self._begun_of.get(key, [])[:])

    def _forget(self, before_ms: int) -> None:
        """Keys that have no limit now, if there are many."""
        if len(self._begun_of) > self._forget_at:
            self._begun_of = {key: begun for key, begun in self._begun_of.items() if not begun or begun[-1] > before_ms}
            self._forget_at = max(_KEYS_LEAST, 2 * len(self._begun_of))


class Pacing:
    """When which call may begin."""

    def __init__(self, limits: Limits) -> None:
        self._all: Final = _Scope()
        self._topics: Final[dict[str, _Scope]] = {}
        self._running: Final[Counter[str]] = Counter()
        """Calls by topic."""
        self.change(limits)

    def change(self, limits: Limits) -> None:
        """These hold from now on. What has begun counts for them."""
        self._all.set(limits)
        for topic, scope in self._topics.items():
            scope.set(limits.topics.get(topic, _NONE))

    def _scope(self, topic: str) -> _Scope:
        scope = self._topics.get(topic)
        if scope is None:
            scope = self._topics[topic] = _Scope()
            scope.set(self._all.limits.topics.get(topic, _NONE))
        return scope

    def due_ms(self) -> int:
        """When the next call may begin, whatever its record."""
        return self._all.due_ms

    def is_full(self, topic: str) -> bool:
        """Whether a call of the topic has to end first."""
        most = self._scope(topic).limits.concurrency
        return most is not None and self._running[topic] >= most

    def due_ms_of_topic(self, topic: str) -> int:
        """When the next call of a topic may begin, as to its rate."""
        return self._scope(topic).due_ms

    def due_ms_of_key(self, topic: str, key: object) -> int:
        """When the next call of a key may begin, as to the key."""
        return max(self._all.due_ms_of(key), self._scope(topic).due_ms_of(key))

    def turn_of_key(self, topic: str, key: object, now_ms: int, *, most: int) -> tuple[int, int]:
        """How many calls of a limited key may begin now, up to *most*; and when may another one, if they do."""
        rates = [rate for rate in (self._all.rate_of_key(key), self._scope(topic).rate_of_key(key)) if rate is not None]
        assert rates
        count = 0
        while (due_ms := max(rate.due_ms(begun) for rate, begun in rates)) <= now_ms and count < most:
            count += 1
            for rate, begun in rates:
                rate.begins(begun, now_ms)
        return count, due_ms

    def priority(self, partition: NamedPartition) -> int:
        """Of the partition's topic."""
        return self._scope(partition.topic).limits.priority

    def begins(self, topic: str, key: object, now_ms: int) -> None:
        """A call begins."""
        self._all.begins(key, now_ms)
        self._scope(topic).begins(key, now_ms)
        self._running[topic] += 1

    def ended(self, topic: str) -> None:
        """A call has ended."""
        self._running[topic] -= 1


_NONE: Final = Limits()


def _up(value: float) -> int:
    return -int(-value // 1)
