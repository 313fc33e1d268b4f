"""The history of a run, one line per event; its digest, equal for equal runs; and its translation to the event log.

Lines are kept as values and written as JSON only on reading, because most runs pass and are never read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from kip848_client.common.json_text import to_json
from kip848_client.journal import COORDINATOR_EVENTS, EVENTS, JournalEvent, JsonValue
from kip848_client.testing.coordinator.core.group_events import GroupEvent, to_journal


class Line(NamedTuple):
    """One event. `details` is a mapping, or a fact of the coordinator."""

    at_ms: int
    who: str
    what: str
    details: Mapping[str, Any] | GroupEvent


class History:
    """The lines of a run, and how many there are of each *what*.

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
    history._rendered = lines  # noqa: SLF001  pickle calls a function, and no method
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
"""Kinds of faults: name of a count -> its description."""

_INJECTED: Final = FAULTS.keys() - {
    "crashed",
    "coordinator_crashed",
    "topic_deleted",
    "assigned_raised",
    "revoked_raised",
    "lost_raised",
}
"""Kinds of history lines that become ``fault_injected`` with their name as the action."""

_RENAMED: Final[Mapping[str, str]] = {
    "started": "consumer_started",
    "closed": "consumer_closed",
    "crashed": "consumer_crashed",
    "healed": "faults_ended",
}
_CALLS: Final = ("assigned", "revoked", "lost")
_OF_NO_GROUP: Final = frozenset(
    {"topic_created", "topic_deleted", "partitions_added", "coordinator_crashed", "coordinator_loaded", "faults_ended"}
)


def to_event_log(lines: Iterable[str], *, group_id: str = "simulated") -> Iterator[JournalEvent]:
    """Translate a history.

    Times are milliseconds of the virtual clock, from 0. A consumer and its member share a name (``consumer-3``).
    Lines without a name in the event log are left out.

    Args:
        lines: as in ``Report.lines``.
        group_id: id of the group in the log.
    """
    calls: dict[str, tuple[int, list[JsonValue]]] = {}
    for line in lines:
        details = msgspec.json.decode(line)
        at_ms, who, what = details.pop("t"), details.pop("who").replace("member-", "consumer-"), details.pop("what")
        call, _, environment = what.partition("_")
        if call in _CALLS and environment in {"begins", "ended", "raised"}:
            if environment == "begins":
                calls[who] = (at_ms, details["partitions"])
                continue
            began_ms, partitions = calls.pop(who, (at_ms, []))
            fields: dict[str, JsonValue] = {"partitions": partitions, "duration_ms": at_ms - began_ms}
            if environment == "raised":
                yield _event("listener_failed", at_ms, who, group_id, fields | {"callback": f"on_partitions_{call}"})
            yield _event(f"partitions_{call}", at_ms, who, group_id, fields)
        elif what in _INJECTED:
            yield _event("fault_injected", at_ms, who, group_id, {"action": what, "api": "", **details})
        else:
            event = _RENAMED.get(what, what)
            if event in EVENTS:
                yield _event(event, at_ms, who, None if event in _OF_NO_GROUP else group_id, details)


def _event(event: str, at_ms: int, who: str, group_id: str | None, fields: Mapping[str, Any]) -> JournalEvent:
    rest = dict(fields)
    epoch = rest.pop("epoch", None)
    of_group = event in {"group_epoch_bumped", "group_state_changed", "target_assignment_computed"}
    person = who.startswith("consumer-")
    told_by_coordinator = event in COORDINATOR_EVENTS and event not in _OF_NO_GROUP and event != "fault_injected"
    return JournalEvent(
        ts_ms=at_ms,
        source="coordinator" if told_by_coordinator else "client" if person else "simulation",
        event=event,
        group_id=group_id,
        member_id=who if person else None,
        client_id=who if person else None,
        member_epoch=None if of_group else epoch,
        group_epoch=epoch if of_group else None,
        fields=rest,
    )
