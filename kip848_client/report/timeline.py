"""From events to lanes: per partition who held and who read it, per member its states, and what went wrong when.

Two views of one partition are kept apart, because their difference is what a rebalance protocol is about:

* **held**: what the coordinator counts as a member's own, pending revocations included;
* **read**: what a client lets its application read, from the return of ``on_partitions_assigned`` to the beginning of
  ``on_partitions_revoked`` or ``on_partitions_lost``.

A log may have one of them only: a broker writes the first, a consumer the second, a simulation both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.report.names import MemberNames
from kip848_client.values import value

MarkKind: TypeAlias = Literal["fault", "refusal", "failure", "life"]


@value
class Span:
    """Something that lasted, in milliseconds of the log's clock; `text` is an owner, a state or a call."""

    start_ms: float
    end_ms: float
    text: str


@value
class PartitionLane:
    """One partition, ``topic-index``. Spans of one view are in order of their start; several at once are a finding."""

    partition: str
    held: Sequence[Span]
    read: Sequence[Span]


@value
class MemberLane:
    """One member: its public states (its states at the coordinator, if it wrote no log of its own), its epochs as
    (time, epoch), and its listener calls.
    """

    member: str
    states: Sequence[Span]
    epochs: Sequence[tuple[float, int]]
    calls: Sequence[Span]


@value
class Mark:
    """Something that happened at one moment, and to whom (a member, ``coordinator``, ...)."""

    ts_ms: float
    who: str
    kind: MarkKind
    text: str


@value
class Timeline:
    """All that is known of one group."""

    group_id: str
    start_ms: float
    end_ms: float
    members: Sequence[MemberLane]
    partitions: Sequence[PartitionLane]
    epochs: Sequence[tuple[float, int, str]]
    states: Sequence[Span]
    marks: Sequence[Mark]


def build_timelines(events: Iterable[JournalEvent]) -> list[Timeline]:
    """Make one `Timeline` a group, in the order in which the log first names them.

    Events of several logs may be mixed: they are sorted by time. What belongs to no group (a broker's start, an
    injected fault) is shown with every group.
    """
    ordered = sorted(events, key=lambda event: event.ts_ms)
    if not ordered:
        return []
    groups = list(dict.fromkeys(event.group_id for event in ordered if event.group_id is not None))
    start_ms, end_ms = float(ordered[0].ts_ms), float(ordered[-1].ts_ms)
    names = MemberNames(ordered)
    made = []
    for group_id in groups:
        builder = _Builder(group_id, names, start_ms=start_ms)
        for event in ordered:
            if event.group_id in {None, group_id}:
                builder.add(event)
        made.append(builder.finish(end_ms=max(end_ms, start_ms + 1)))
    return made


class _OpenSpans:
    """Spans that began and have not ended, by key."""

    def __init__(self) -> None:
        self.open: Final[dict[tuple[str, str], float]] = {}
        self.closed: Final[dict[str, list[Span]]] = {}

    def begin(self, lane: str, text: str, at_ms: float) -> None:
        self.open.setdefault((lane, text), at_ms)

    def end(self, lane: str, text: str, at_ms: float) -> None:
        start_ms = self.open.pop((lane, text), None)
        if start_ms is not None:
            self.closed.setdefault(lane, []).append(Span(start_ms, max(at_ms, start_ms), text))

    def texts_of(self, lane: str) -> list[str]:
        return [text for open_lane, text in self.open if open_lane == lane]

    def lanes_with(self, text: str) -> list[str]:
        return [lane for lane, open_text in self.open if open_text == text]

    def change(self, lane: str, text: str, at_ms: float) -> None:
        """What a lane shows becomes *text*, and nothing else."""
        for old in self.texts_of(lane):
            if old != text:
                self.end(lane, old, at_ms)
        self.begin(lane, text, at_ms)

    def clear(self, lane: str, at_ms: float) -> None:
        for old in self.texts_of(lane):
            self.end(lane, old, at_ms)

    def spans(self, lane: str) -> list[Span]:
        return sorted(self.closed.get(lane, ()), key=lambda span: (span.start_ms, span.end_ms, span.text))


class _Builder:
    def __init__(self, group_id: str, names: MemberNames, *, start_ms: float) -> None:
        self._group_id = group_id
        self._names = names
        self._start_ms = start_ms
        self._held = _OpenSpans()
        self._read = _OpenSpans()
        self._own_states = _OpenSpans()
        self._coordinator_states = _OpenSpans()
        self._group_states = _OpenSpans()
        self._epochs: dict[str, list[tuple[float, int]]] = {}
        self._calls: dict[str, list[Span]] = {}
        self._group_epochs: list[tuple[float, int, str]] = []
        self._marks: list[Mark] = []
        self._partitions: set[str] = set()
        self._members: dict[str, None] = {}

    def add(self, event: JournalEvent) -> None:
        who = self._names.of(event)
        if event.group_id is not None and (event.member_id or event.client_id):
            self._members.setdefault(who)
            self._note_epoch(event, who)
        handler = _HANDLERS.get(event.event)
        if handler is not None:
            handler(self, event, who, float(event.ts_ms))

    def finish(self, *, end_ms: float) -> Timeline:
        for spans in (self._held, self._read, self._own_states, self._coordinator_states, self._group_states):
            for lane, text in list(spans.open):
                spans.end(lane, text, end_ms)
        return Timeline(
            group_id=self._group_id,
            start_ms=self._start_ms,
            end_ms=end_ms,
            members=[self._member_lane(member) for member in sorted(self._members, key=natural)],
            partitions=[
                PartitionLane(partition, self._held.spans(partition), self._read.spans(partition))
                for partition in sorted(self._partitions, key=natural)
            ],
            epochs=self._group_epochs,
            states=self._group_states.spans("group"),
            marks=self._marks,
        )

    def _member_lane(self, member: str) -> MemberLane:
        own = self._own_states.spans(member)
        return MemberLane(
            member=member,
            states=own or self._coordinator_states.spans(member),
            epochs=self._epochs.get(member, []),
            calls=self._calls.get(member, []),
        )

    def _note_epoch(self, event: JournalEvent, who: str) -> None:
        epochs = self._epochs.setdefault(who, [])
        if event.member_epoch is not None and (not epochs or epochs[-1][1] != event.member_epoch):
            epochs.append((float(event.ts_ms), event.member_epoch))

    # What the coordinator says.

    def assignment_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        wanted = {*_flat(event.fields.get("assigned")), *_flat(event.fields.get("pending_revocation"))}
        self._partitions |= wanted
        for lane in self._held.lanes_with(who):
            if lane not in wanted:
                self._held.end(lane, who, at_ms)
        for lane in wanted:
            self._held.begin(lane, who, at_ms)
        self._coordinator_states.change(who, str(event.fields.get("state")), at_ms)

    def member_left(self, event: JournalEvent, who: str, at_ms: float) -> None:
        reason = str(event.fields.get("reason"))
        if reason != "static_leave":
            for lane in self._held.lanes_with(who):
                self._held.end(lane, who, at_ms)
        self._coordinator_states.clear(who, at_ms)
        if not self._names.speaks_after(who, event.ts_ms):
            self._stop_reading(who, at_ms)
            self._own_states.clear(who, at_ms)
        kind: MarkKind = "failure" if reason.endswith("timeout") else "life"
        self._marks.append(Mark(at_ms, who, kind, f"leaves the group: {reason.replace('_', ' ')}"))

    def epoch_bumped(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        if event.group_epoch is not None:
            self._group_epochs.append((at_ms, event.group_epoch, str(event.fields.get("reason") or "")))

    def group_state_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        self._group_states.change("group", str(event.fields.get("new")), at_ms)

    # What clients say.

    def state_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        self._own_states.change(who, str(event.fields.get("new")), at_ms)
        if event.fields.get("new") == "FATAL":
            self._stop_reading(who, at_ms)

    def listener_returned(self, event: JournalEvent, who: str, at_ms: float) -> None:
        call = event.event.removeprefix("partitions_")
        partitions = _names_of(event.fields.get("partitions"))
        took_ms = _number(event.fields.get("duration_ms"))
        self._called(who, call, partitions, at_ms - took_ms, at_ms)

    def listener_failed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        call = str(event.fields.get("callback")).removeprefix("on_partitions_")
        took_ms = _number(event.fields.get("duration_ms"))
        self._called(who, call, _names_of(event.fields.get("partitions")), at_ms - took_ms, at_ms)
        self._marks.append(Mark(at_ms, who, "failure", f"on_partitions_{call} raised {event.fields.get('error')}"))

    def _called(self, who: str, call: str, partitions: Sequence[str], start_ms: float, end_ms: float) -> None:
        self._partitions.update(partitions)
        for partition in partitions:
            if call == "assigned":
                self._read.begin(partition, who, end_ms)
            else:
                self._read.end(partition, who, start_ms)
        text = f"on_partitions_{call}({', '.join(partitions) or 'nothing'})"
        self._calls.setdefault(who, []).append(Span(start_ms, end_ms, text))

    def process_ended(self, event: JournalEvent, who: str, at_ms: float) -> None:
        self._stop_reading(who, at_ms)
        self._own_states.clear(who, at_ms)
        self.mark(event, who, at_ms)

    def _stop_reading(self, who: str, at_ms: float) -> None:
        for lane in self._read.lanes_with(who):
            self._read.end(lane, who, at_ms)

    # What is only marked.

    def mark(self, event: JournalEvent, who: str, at_ms: float) -> None:
        kind, text = _MARKS[event.event]
        self._marks.append(Mark(at_ms, who, kind, text.format_map(_Fields(event.fields))))


class _Fields(dict[str, JsonValue]):
    """Fields for a sentence; one that is missing is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


_MARKS: Final[Mapping[str, tuple[MarkKind, str]]] = {
    "fault_injected": ("fault", "{action} {api}"),
    "faults_ended": ("life", "all faults end"),
    "member_fenced": ("refusal", "refused: {error}, it sent epoch {sent_epoch}"),
    "commit_refused": ("refusal", "commit refused: {error}"),
    "assignment_refused": ("refusal", "assignment refused: {error} {reason}"),
    "assignor_failed": ("failure", "assignor {assignor} failed: {error}"),
    "commit_failed": ("failure", "commit failed: {error}"),
    "heartbeat_failed": ("failure", "heartbeat failed: {error}"),
    "poll_interval_exceeded": ("failure", "poll() is late by {late_ms} ms"),
    "member_failed": ("failure", "fails for good: {error}"),
    "error_surfaced": ("failure", "poll() raises {error}"),
    "coordinator_lost": ("failure", "loses the coordinator: {reason}"),
    "coordinator_not_found": ("failure", "finds no coordinator: {error}"),
    "request_failed": ("failure", "{api} failed: {error}"),
    "left_group": ("life", "left"),
    "consumer_started": ("life", "starts"),
    "consumer_closed": ("life", "is closed"),
    "consumer_crashed": ("fault", "CRASHES"),
    "coordinator_crashed": ("fault", "coordinator CRASHES"),
    "coordinator_loaded": ("life", "coordinator is back, with {records} records"),
    "topic_created": ("life", "topic {topic} is created"),
    "topic_deleted": ("life", "topic {topic} is deleted"),
    "partitions_added": ("life", "topic {topic} grows to {partitions}"),
    "subscription_changed": ("life", "now wants {topics} {regex}"),
    "broker_started": ("life", "broker starts"),
    "broker_stopped": ("life", "broker stops"),
}

_HANDLERS: Final[Mapping[str, Callable[[_Builder, JournalEvent, str, float], None]]] = {
    **dict.fromkeys(_MARKS, _Builder.mark),
    "member_assignment_changed": _Builder.assignment_changed,
    "member_left": _Builder.member_left,
    "group_epoch_bumped": _Builder.epoch_bumped,
    "group_state_changed": _Builder.group_state_changed,
    "state_changed": _Builder.state_changed,
    "partitions_assigned": _Builder.listener_returned,
    "partitions_revoked": _Builder.listener_returned,
    "partitions_lost": _Builder.listener_returned,
    "listener_failed": _Builder.listener_failed,
    "consumer_crashed": _Builder.process_ended,
    "consumer_closed": _Builder.process_ended,
    "left_group": _Builder.process_ended,
}


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``orders-10`` behind ``orders-9``."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def _flat(by_topic: JsonValue) -> list[str]:
    if not isinstance(by_topic, dict):
        return []
    return [f"{topic}-{index}" for topic, indexes in by_topic.items() for index in cast("list[int]", indexes)]


def _names_of(listed: JsonValue) -> list[str]:
    return [str(name) for name in listed] if isinstance(listed, list) else []


def _number(number: JsonValue) -> float:
    return float(number) if isinstance(number, int | float) else 0.0
