"""Retry topics of ``process()``, pure: where a failed record goes next, what its headers say, when its turn comes.

A *tier* is a topic whose records all wait equally long, so that its first record is due first. `Tiers` chooses and
encodes; `Turnstile` lets records of tiers pass once they are due, and says which partitions to pause until then, so
that what waits stays in Kafka.

Times are milliseconds since 1970, because the process that writes a due time is mostly not the one that reads it.

Does not own: producing, pausing and seeking (the shells), topics and their settings (`consumer.records.topic_check`).

Source: own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kip848_client.common.model import NamedPartition

TOPIC: Final = "kip848.topic"
PARTITION: Final = "kip848.partition"
OFFSET: Final = "kip848.offset"
TIMESTAMP: Final = "kip848.timestamp"
ERROR: Final = "kip848.error"
ATTEMPTS: Final = "kip848.attempts"
FAILED: Final = "kip848.failed"
GROUP: Final = "kip848.group"
DUE: Final = "kip848.due"
RETRIES: Final = "kip848.retries"
OWN_HEADERS: Final = frozenset({TOPIC, PARTITION, OFFSET, TIMESTAMP, ERROR, ATTEMPTS, FAILED, GROUP, DUE, RETRIES})
_ERROR_BYTES_MAX: Final = 8192
"""A record that the text of an error makes too large would be refused."""


class FailureHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What the headers of a record say that has failed: in a tier, or in the dead letters.

    Attributes:
        topic, partition, offset, timestamp_ms: where it was first, and from when; a timestamp of -1 is none.
        error: type and text of the last error.
        attempts: calls of the handler so far.
        failed_ms: when it failed last; None in letters of older versions.
        group: whose handler it was; None in letters of older versions and of share groups.
        due_ms: when it is to be handled again; None in dead letters.
        retries: the name of the retry topics of its group; None without any.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: str
    attempts: int
    failed_ms: int | None = None
    group: str | None = None
    due_ms: int | None = None
    retries: str | None = None

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers that say this."""
        found: list[tuple[str, bytes]] = [
            (TOPIC, self.topic.encode()),
            (PARTITION, b"%d" % self.partition),
            (OFFSET, b"%d" % self.offset),
            (TIMESTAMP, b"%d" % self.timestamp_ms),
            (ERROR, self.error.encode("utf-8", "replace")[:_ERROR_BYTES_MAX]),
            (ATTEMPTS, b"%d" % self.attempts),
        ]
        if self.failed_ms is not None:
            found.append((FAILED, b"%d" % self.failed_ms))
        if self.group is not None:
            found.append((GROUP, self.group.encode()))
        if self.due_ms is not None:
            found.append((DUE, b"%d" % self.due_ms))
        if self.retries is not None:
            found.append((RETRIES, self.retries.encode()))
        return found


def read_failed(headers: Any) -> FailureHeaders | None:
    """What the headers of a record say; None if it has not failed, or others wrote headers with these names.

    Args:
        headers: pairs of names and values; None without any.
    """
    own: dict[str, bytes] = {}
    for name, value in headers or ():
        if name in OWN_HEADERS:
            if not isinstance(value, bytes):
                return None
            own[name] = value
    try:
        return FailureHeaders(
            topic=own[TOPIC].decode(),
            partition=int(own[PARTITION]),
            offset=int(own[OFFSET]),
            timestamp_ms=int(own[TIMESTAMP]),
            error=own[ERROR].decode("utf-8", "replace"),
            attempts=int(own[ATTEMPTS]),
            failed_ms=int(own[FAILED]) if FAILED in own else None,
            group=own[GROUP].decode() if GROUP in own else None,
            due_ms=int(own[DUE]) if DUE in own else None,
            retries=own[RETRIES].decode() if RETRIES in own else None,
        )
    except (KeyError, ValueError):
        return None


def without_own(headers: Any) -> list[tuple[str, Any]]:
    """The headers that the record's producer has written."""
    return [(name, value) for name, value in headers or () if name not in OWN_HEADERS]


class Tiers(msgspec.Struct, frozen=True, kw_only=True):
    """The retry topics of one group.

    Attributes:
        name: what the names of the topics begin with.
        delays_ms: how long a record waits in each.
    """

    name: str
    delays_ms: Sequence[int]

    @property
    def topics(self) -> list[str]:
        """The topics, the first tier first."""
        return [f"{self.name}-{number}" for number in range(1, len(self.delays_ms) + 1)]

    def tier_of(self, topic: str) -> int | None:
        """Which tier a topic is, from 0; None if it is none."""
        topics = self.topics
        return topics.index(topic) if topic in topics else None

    def after(self, topic: str) -> int | None:
        """The tier of a record of *topic* that has failed; None if that was the last one."""
        tier = self.tier_of(topic)
        following = 0 if tier is None else tier + 1
        return following if following < len(self.delays_ms) else None


class _Wait(msgspec.Struct):
    offset: int
    due_ms: int


class Turnstile:
    """Lets the records of tiers pass once they are due. Every method that takes *now_ms* takes milliseconds since 1970.

    A partition whose first record is not due is to be paused at it: `holds` says so, and `releases` once it is due.
    """

    def __init__(self, tiers: Tiers, group_id: str) -> None:
        self._group_id: Final = group_id
        self._delays: Final[Mapping[str, int]] = dict(zip(tiers.topics, tiers.delays_ms, strict=True))
        self._waits: Final[dict[NamedPartition, _Wait]] = {}
        self._new: Final[dict[NamedPartition, int]] = {}

    def is_tier(self, topic: str | None) -> bool:
        """Whether records of *topic* have to pass here."""
        return topic in self._delays

    @property
    def waiting(self) -> Mapping[NamedPartition, int]:
        """Partitions that wait, and the offsets at which they go on."""
        return {name: wait.offset for name, wait in self._waits.items()}

    def waits(self, name: NamedPartition) -> bool:
        """Whether a partition is to stay paused."""
        return name in self._waits

    def passes(self, name: NamedPartition, offset: int, failed: FailureHeaders | None, now_ms: int) -> bool:
        """Whether a record that was read is to be handled now.

        One that is not comes again: it waits, or stands behind one that does. One of another group does not.

        Args:
            failed: what its headers say; a record without such headers is due at once.
        """
        if name in self._waits:
            return False
        if failed is None:
            return True
        if failed.group not in {None, self._group_id}:
            return False
        # A writer whose clock is wrong, or whose delay was longer, must not hold back the others for longer than that.
        due_ms = min(now_ms if failed.due_ms is None else failed.due_ms, now_ms + self._delays[name.topic])
        if due_ms <= now_ms:
            return True
        self._waits[name] = _Wait(offset, due_ms)
        self._new[name] = offset
        return False

    @property
    def news(self) -> bool:
        """Whether `holds` has something."""
        return bool(self._new)

    def holds(self) -> dict[NamedPartition, int]:
        """Partitions to pause now, and the offsets at which they are to go on; each is told once."""
        new = dict(self._new)
        self._new.clear()
        return new

    def releases(self, now_ms: int) -> dict[NamedPartition, int]:
        """Partitions whose first record is due, and its offsets: to be read from there on. Each is told once."""
        due = {name: wait.offset for name, wait in self._waits.items() if wait.due_ms <= now_ms}
        for name in due:
            del self._waits[name]
            self._new.pop(name, None)
        return due

    def next_due_ms(self) -> int | None:
        """When `releases` has something; None if nothing waits."""
        return min((wait.due_ms for wait in self._waits.values()), default=None)

    def up_to_here(self, positions: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
        """*positions* without what was read of partitions that wait: it was not handled, and must not be committed."""
        waits = self._waits
        return {name: min(at, waits[name].offset) if name in waits else at for name, at in positions.items()}

    def forget(self, names: Iterable[NamedPartition]) -> None:
        """The partitions belong to others, or begin anew."""
        for name in names:
            self._waits.pop(name, None)
            self._new.pop(name, None)
