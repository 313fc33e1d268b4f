"""The history of a run, one line per event; its digest, equal for equal runs; and which counts are faults.

Lines are kept as values and written as JSON only on reading, because most runs pass and are never read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from kip848_client.coordinator.events import GroupEvent, to_journal
from kip848_client.json_text import to_json


class Line(NamedTuple):
    """One event. `details` is a mapping, or a fact of the coordinator."""

    at_ms: int
    who: str
    what: str
    details: Mapping[str, Any] | GroupEvent


class History:
    """Append-only. Every line is also counted by what it is about.

    Args:
        keep: False counts only.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.keeps: Final = keep
        self._lines: list[Line] = []
        self.counts: Final[dict[str, int]] = {}
        self._rendered: tuple[str, ...] | None = None
        self.topic_names: Mapping[UUID, str] = {}
        """Topic id -> name, for readable lines."""

    def add(self, at_ms: int, who: str, what: str, **details: Any) -> None:
        """Note event *what* (a short name, counted) of *who* at virtual time *at_ms*."""
        self.counts[what] = self.counts.get(what, 0) + 1
        if self.keeps:
            self._lines.append(Line(at_ms, who, what, details))

    def count(self, what: str) -> None:
        """Count *what*, without a line of its own."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def add_fact(self, at_ms: int, fact: GroupEvent) -> None:
        """Note a fact of the coordinator."""
        what = fact.event
        self.counts[what] = self.counts.get(what, 0) + 1
        if self.keeps:
            self._lines.append(Line(at_ms, fact.member_id or "coordinator", what, fact))

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines (JSON), oldest first."""
        if self._rendered is not None:
            return self._rendered
        return tuple(self._render(line) for line in self._lines)

    @property
    def entries(self) -> tuple[Line, ...]:
        """All lines as they were noted, oldest first. Empty where the history was sent to another process."""
        return tuple(self._lines)

    @property
    def digest(self) -> str:
        """Hex digest of all lines. The same seed gives the same digest, in any process."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the lines as text."""
        return _restored, (self.lines, self.counts)

    def _render(self, line: Line) -> str:
        details = line.details
        if isinstance(details, GroupEvent):
            fact = to_journal(details, ts_ms=0, topic_name=self.topic_names.get, source="simulation")
            details = {"epoch": fact.group_epoch, **fact.fields}
        values = {name: _plain(value) for name, value in details.items()}
        return to_json({"t": line.at_ms, "who": line.who, "what": line.what, **values})


def _restored(lines: tuple[str, ...], counts: dict[str, int]) -> History:
    history = History()
    history._rendered = lines
    history.counts.update(counts)
    return history


def _plain(value: Any) -> Any:
    """*value* as JSON has it; sets become sorted."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, BaseException):
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, frozenset | set):
        return [str(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


FAULTS: Final[Mapping[str, str]] = {
    "request_lost": "requests lost",
    "answer_lost": "answers lost",
    "request_duplicated": "requests doubled",
    "connection_broken": "connections broken",
    "message_stuck": "messages stuck",
    "cut_off": "clients cut off",
    "crashed": "consumers crashed",
    "frozen": "processes frozen",
    "listener_hangs": "listeners that hang",
    "stop_hangs": "stops of units that hang",
    "application_stalls": "applications that stall",
    "assigned_raised": "on_partitions_assigned raised",
    "revoked_raised": "on_partitions_revoked raised",
    "lost_raised": "on_partitions_lost raised",
    "double_start": "instance ids started twice",
    "coordinator_crashed": "coordinator crashes",
    "coordinator_moved": "failovers",
    "log_truncated": "logs truncated",
    "two_coordinators": "two coordinators at once",
    "rule_acted": "requests refused or changed",
    "topic_deleted": "topics deleted",
    "wall_clock_jumped": "wall clocks set",
    "group_config_changed": "group settings changed",
}
"""For each class of faults: name of a count -> its description."""


def median(counts: Mapping[int, int]) -> int:
    """The median of a distribution.

    Args:
        counts: value -> how often; 0 if it is empty.
    """
    left = (sum(counts.values()) + 1) // 2
    for value in sorted(counts):
        left -= counts[value]
        if left <= 0:
            return value
    return 0
