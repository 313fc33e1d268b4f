"""Builds lanes from events in order of time: spans of owning, reading and states, and marks between them.

`timeline` defines the spans. A `LaneBuilder` keeps no events. A caller that wants figures of a log larger than memory
calls `drain` now and then: what only pictures need is removed, and periods of ownership, epochs and counts stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol

from msgspec.structs import replace

from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.report.timeline.changes import ChangeTracker
from kip848_client.tools.report.timeline.lives import Arrival, LifeTracker, Rhythm
from kip848_client.tools.report.timeline.names import MemberNames
from kip848_client.tools.report.timeline.pauses import Pauses, PauseTracker, joined
from kip848_client.tools.report.timeline.timeline import (
    CommitEnd,
    CommitKey,
    Counts,
    Mark,
    MarkKind,
    MemberLane,
    PartitionLane,
    Span,
    Timeline,
)
from kip848_client.tools.report.timeline.unread import CommitTracker

AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})
"""States of a group that is at rest."""
BACKWARDS_MS: Final = 1_000.0
"""Brokers' clocks differ by less."""
_IN_ORDER: Final = frozenset({"offsets_committed", "group_epoch_bumped", "member_left"})
"""Events that are dated when their records were written."""
_CLASSIC_REBALANCE_BEGINS: Final = "PreparingRebalance"
JOINS_NOT_SEEN: Final = "classic_rebalance (its join phase is not in the log)"
"""Reason of a rebalance that began earlier than the log says."""
_RHYTHM: Final = ("commits", "interval_ms", "longest_ms")
_NOT_A_MEMBER: Final = frozenset({"UNJOINED", "FATAL"})
"""Public states of a consumer that is no member of the group."""


class Names(Protocol):
    """Names of members; `kip848_client.tools.report.timeline.names.MemberNames` reads the whole log for them."""

    def of(self, event: JournalEvent) -> str:
        """Name of the member or client that *event* is about."""
        ...

    def speaks_after(self, group_id: str | None, name: str, ts_ms: float) -> bool:
        """Whether that member's own log goes on after *ts_ms*."""
        ...

    def is_coordinated(self, group_id: str) -> bool:
        """Whether the log has the coordinator's side of a group."""
        ...


def build_timelines(events: Iterable[JournalEvent]) -> list[Timeline]:
    """Make one `Timeline` a group, in the order in which the log first names them.

    Events of several logs may be mixed: they are sorted by time. Events of no group (a broker's start, an
    injected fault) are shown with every group.
    """
    ordered = sorted(events, key=lambda event: event.ts_ms)
    if not ordered:
        return []
    groups = list(dict.fromkeys(event.group_id for event in ordered if event.group_id is not None))
    start_ms, end_ms = float(ordered[0].ts_ms), float(ordered[-1].ts_ms)
    names = MemberNames(ordered)
    builders = {group_id: LaneBuilder(group_id, names, start_ms=start_ms) for group_id in groups}
    for event in ordered:
        for builder in builders.values() if event.group_id is None else [builders[event.group_id]]:
            builder.add(event)
    return [builder.finish(end_ms=max(end_ms, start_ms + 1)) for builder in builders.values()]


class LogOrder:
    """Notices whether the times of one file run backwards within a group.

    The beginning of a classic generation is dated back on purpose.
    """

    def __init__(self) -> None:
        self.backwards_ms: Final[dict[str, float]] = {}
        """By group, where it is `BACKWARDS_MS` or more."""

    def watch(self, events: Iterable[JournalEvent]) -> Iterator[JournalEvent]:
        """Yield the events of a file."""
        latest: dict[str, int] = {}
        for event in events:
            group_id = event.group_id
            if group_id is not None and event.source == "coordinator":
                before_ms = latest.setdefault(group_id, event.ts_ms)
                if event.ts_ms >= before_ms:
                    latest[group_id] = event.ts_ms
                elif event.event in _IN_ORDER and before_ms - event.ts_ms >= BACKWARDS_MS:
                    most_ms = max(self.backwards_ms.get(group_id, 0.0), before_ms - event.ts_ms)
                    self.backwards_ms[group_id] = most_ms
            yield event

    def noted(self, timelines: Iterable[Timeline]) -> list[Timeline]:
        """The timelines of these files."""
        return [replace(each, backwards_ms=self.backwards_ms.get(each.group_id, 0.0)) for each in timelines]


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
        """Make a lane show *text*, and nothing else."""
        for old in self.texts_of(lane):
            if old != text:
                self.end(lane, old, at_ms)
        self.begin(lane, text, at_ms)

    def clear(self, lane: str, at_ms: float) -> None:
        for old in self.texts_of(lane):
            self.end(lane, old, at_ms)

    def spans(self, lane: str) -> list[Span]:
        return sorted(self.closed.get(lane, ()), key=lambda span: (span.start_ms, span.end_ms, span.text))


class LaneBuilder:
    """Builds the lanes of one group from its events, in order of time.

    Args:
        start_ms: when the log begins.
    """

    def __init__(self, group_id: str, names: Names, *, start_ms: float) -> None:
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
        self._changes = ChangeTracker()
        self._is_classic_rebalance = False
        self._inferred = None if names.is_coordinated(group_id) else _Inference()
        self._writers: set[str] = set()
        self._marks: list[Mark] = []
        self._partitions: set[str] = set()
        self._members: dict[str, float] = {}
        self._hosts: dict[str, str] = {}
        self._unread = CommitTracker()
        self._lives = LifeTracker()
        self._pauses = PauseTracker()
        self._summed: list[Pauses] = []
        self._is_classic = False
        self._generation_ms = 0.0
        self._revoking_since: dict[str, float] = {}
        self._counts = Counts()

    def add(self, event: JournalEvent) -> None:
        """Add the next event of this group, or one that belongs to no group."""
        who = self._names.of(event)
        if event.group_id is not None and (event.member_id or event.client_id):
            self._members.setdefault(who, float(event.ts_ms))
            self._note_epoch(event, who)
            if event.source == "client":
                self._writers.add(who)
        handler = HANDLERS.get(event.event)
        if handler is not None:
            handler(self, event, who, float(event.ts_ms))

    def drain(self) -> list[Mark]:
        """Return the marks so far; forget them, and the states, epochs and calls of members."""
        marks, self._marks = self._marks, []
        for unused in (self._own_states.closed, self._coordinator_states.closed, self._epochs, self._calls):
            unused.clear()
        return marks

    def _all_spans(self) -> tuple[_OpenSpans, ...]:
        return (self._held, self._read, self._own_states, self._coordinator_states, self._group_states)

    def _end_all(self, end_ms: float) -> None:
        for spans in self._all_spans():
            for lane, text in list(spans.open):
                spans.end(lane, text, end_ms)

    def finish(self, *, end_ms: float) -> Timeline:
        """The log ends: return all that is known of the group."""
        self._end_all(end_ms)
        for who, since_ms in self._revoking_since.items():
            self._lives.revoked(who, since_ms, end_ms, end="open")
        return Timeline(
            group_id=self._group_id,
            start_ms=self._start_ms,
            end_ms=end_ms,
            members=[self._member_lane(member) for member in self._in_order()],
            partitions=[
                PartitionLane(partition, self._held.spans(partition), self._read.spans(partition))
                for partition in sorted(self._partitions, key=natural)
            ],
            epochs=self._group_epochs,
            states=self._group_states.spans("group"),
            marks=self._marks,
            counts=self._counts,
            changes=list(self._changes.finish()),
            bounds=self._unread.bounds,
            lives=self._lives.finish(),
            pauses=joined([self._pauses.finish(), *self._summed]),
            writers=frozenset(self._writers),
            coordinated=self._inferred is None,
        )

    def _in_order(self) -> list[str]:
        """The members by time of joining, and those of one time by name."""
        return sorted(self._members, key=lambda member: (self._members[member], natural(member)))

    def _member_lane(self, member: str) -> MemberLane:
        own = self._own_states.spans(member)
        return MemberLane(
            member=member,
            states=own or self._coordinator_states.spans(member),
            epochs=self._epochs.get(member, []),
            calls=self._calls.get(member, []),
            host=self._hosts.get(member, ""),
            since_ms=self._members[member],
        )

    def _note_epoch(self, event: JournalEvent, who: str) -> None:
        epochs = self._epochs.setdefault(who, [])
        if event.member_epoch is not None and (not epochs or epochs[-1][1] != event.member_epoch):
            epochs.append((float(event.ts_ms), event.member_epoch))

    # --- events of the coordinator

    def _assignment_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        wanted = {*_flat(event.fields.get("assigned")), *_flat(event.fields.get("pending_revocation"))}
        self._partitions |= wanted
        for lane in self._held.lanes_with(who):
            if lane not in wanted:
                # The members of a classic group may have stopped when its rebalance began.
                self._given_up(lane, who, at_ms, seen=not self._is_classic)
        for lane in wanted:
            self._held.begin(lane, who, at_ms)
        state = str(event.fields.get("state"))
        self._coordinator_states.change(who, state, at_ms)
        if state == "UNREVOKED_PARTITIONS":
            self._revoking_since.setdefault(who, at_ms)
        else:
            self._has_revoked(who, at_ms)
        if state == "STABLE":
            self._changes.stable(who, _epoch_of(event), at_ms)

    def _given_up(self, lane: str, who: str, at_ms: float, *, seen: bool) -> None:
        self._unread.left(lane, at_ms, seen=seen, owned_ms=self._owned_ms(self._held.open[lane, who]))
        self._held.end(lane, who, at_ms)

    def _owned_ms(self, since_ms: float) -> float | None:
        """When an owner was counted first; None if that may be before the log."""
        return since_ms if since_ms > self._start_ms else None

    def _has_revoked(self, who: str, at_ms: float, *, end: Literal["done", "gone"] = "done") -> None:
        since_ms = self._revoking_since.pop(who, None)
        if since_ms is not None:
            self._lives.revoked(who, since_ms, at_ms, end=end)
            self._counts.revoked_ms[who].append(at_ms - since_ms)

    def _member_joined(self, event: JournalEvent, who: str, at_ms: float) -> None:
        host = str(event.fields.get("client_host") or "").removeprefix("/")
        if host:
            self._hosts[who] = host
        instance_id = event.fields.get("instance_id")
        client = f"{event.client_id or who} ({host})" if host else event.client_id or who
        instance_id = None if instance_id is None else str(instance_id)
        poll_ms, session_ms = (
            _number(event.fields.get(f"{name}_timeout_ms")) or None for name in ("rebalance", "session")
        )
        self._lives.joined(
            Arrival(
                *(at_ms, who, event.member_id or "", client, instance_id, poll_ms, session_ms),
                client_id=event.client_id or "",
            )
        )
        self._changes.joined(who, event.group_epoch or 0)

    def _member_left(self, event: JournalEvent, who: str, at_ms: float) -> None:
        reason = str(event.fields.get("reason"))
        held = self._held.lanes_with(who)
        self._lives.left(who, event.member_id or "", at_ms, reason=reason, partitions=len(held))
        if reason != "static_leave":
            for lane in held:
                self._given_up(lane, who, at_ms, seen=reason == "leave")
        self._coordinator_states.clear(who, at_ms)
        self._changes.left(who, at_ms)
        if not self._names.speaks_after(self._group_id, who, event.ts_ms):
            self._stop_reading(who, at_ms)
            self._own_states.clear(who, at_ms)
        kind: MarkKind = "failure" if reason.endswith("timeout") else "life"
        why = "left or removed" if reason == "removed" else reason.replace("_", " ")  # a record does not say which
        self._keep_mark(at_ms, who, kind, f"leaves the group: {why}")
        self._has_revoked(who, at_ms, end="gone")

    def _target_computed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        assignor, members = event.fields.get("assignor"), event.fields.get("members")
        self._lives.assigned_by(None if assignor is None else str(assignor), at_ms)
        if isinstance(members, dict):
            self._lives.targets(name for target in members.values() for name in _flat(target))

    def _converted(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        self._is_classic = event.fields.get("type") == "classic"
        self._lives.switched(f"the group became a {event.fields.get('type')} group", at_ms)

    def _coordinator_moved(self, event: JournalEvent, who: str, at_ms: float) -> None:
        self._lives.moved(at_ms)
        self._mark(event, who, at_ms)

    def _epoch_bumped(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        if event.group_epoch is not None:
            self._bump(at_ms, event.group_epoch, str(event.fields.get("reason") or ""))

    def _bump(self, at_ms: float, epoch: int, reason: str) -> None:
        self._group_epochs.append((at_ms, epoch, reason))
        self._changes.bumped(at_ms, epoch, reason)

    def _group_state_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        del who
        state = str(event.fields.get("new"))
        if state == _CLASSIC_REBALANCE_BEGINS:
            self._classic_rebalance((event.group_epoch or 0) + 1, at_ms)
        self._become(state, at_ms)

    def _become(self, state: str, at_ms: float) -> None:
        self._group_states.clear("group", at_ms)  # also of the same state: a rebalance began and ended at once
        self._group_states.begin("group", state, at_ms)
        if state in AT_REST:
            if self._is_classic_rebalance and self._is_classic:
                for (lane, _), since_ms in self._held.open.items():
                    if since_ms < self._generation_ms:
                        self._unread.kept(lane, at_ms, owned_ms=self._owned_ms(since_ms))
            self._is_classic_rebalance = False
            self._changes.at_rest(at_ms)

    def _generation_began(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """The join phase is complete. In a recorded log this is the first that is seen of a classic rebalance."""
        del who
        self._is_classic = True
        self._generation_ms = at_ms
        protocol = event.fields.get("protocol")
        self._lives.assigned_by(None if protocol is None else str(protocol), at_ms)
        self._classic_rebalance(event.group_epoch or 0, at_ms, reason=JOINS_NOT_SEEN)

    def _classic_rebalance(self, generation: int, at_ms: float, *, reason: str = "classic_rebalance") -> None:
        if not self._is_classic_rebalance:
            self._is_classic_rebalance = True
            self._bump(at_ms, generation, reason)

    # --- events of clients

    def _state_changed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        self._own_states.change(who, str(event.fields.get("new")), at_ms)
        self._infer(who, str(event.fields.get("new")), _epoch_of(event), at_ms)
        if event.fields.get("new") == "FATAL":
            self._stop_reading(who, at_ms)

    def _listener_returned(self, event: JournalEvent, who: str, at_ms: float) -> None:
        call = event.event.removeprefix("partitions_")
        partitions = _names_of(event.fields.get("partitions"))
        took_ms = _number(event.fields.get("duration_ms"))
        self._called(who, call, partitions, at_ms - took_ms, at_ms)

    def _listener_failed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        call = str(event.fields.get("callback")).removeprefix("on_partitions_")
        took_ms = _number(event.fields.get("duration_ms"))
        self._called(who, call, _names_of(event.fields.get("partitions")), at_ms - took_ms, at_ms)
        self._keep_mark(at_ms, who, "failure", f"on_partitions_{call} raised {event.fields.get('error')}")

    def _called(self, who: str, call: str, partitions: Sequence[str], start_ms: float, end_ms: float) -> None:
        self._partitions.update(partitions)
        for partition in partitions:
            if call == "assigned":
                self._read.begin(partition, who, end_ms)
            else:
                self._read.end(partition, who, start_ms)
        self._counts.called_ms[f"on_partitions_{call}"].append(end_ms - start_ms)
        text = f"on_partitions_{call}({', '.join(partitions) or 'nothing'})"
        self._calls.setdefault(who, []).append(Span(start_ms, end_ms, text))

    def _infer(self, who: str, state: str, epoch: int, at_ms: float) -> None:
        """Without the coordinator's side: the group is as far as its members with logs say."""
        if self._inferred is None:
            return
        if epoch > self._inferred.epoch:
            self._inferred.epoch = epoch
            self._bump(at_ms, epoch, "seen_by_members")
            self._become("Reconciling", at_ms)
        if state in _NOT_A_MEMBER:
            self._inferred.states.pop(who, None)
            self._changes.left(who, at_ms)
        else:
            self._inferred.states[who] = state
            self._changes.joined(who, epoch)
            if state == "STABLE":
                self._changes.stable(who, epoch, at_ms)
        if all(each == "STABLE" for each in self._inferred.states.values()):
            self._become("Stable" if self._inferred.states else "Empty", at_ms)
        else:
            self._become("Reconciling", at_ms)

    def _process_ended(self, event: JournalEvent, who: str, at_ms: float) -> None:
        self._stop_reading(who, at_ms)
        self._infer(who, "UNJOINED", 0, at_ms)
        self._own_states.clear(who, at_ms)
        self._mark(event, who, at_ms)

    def _stop_reading(self, who: str, at_ms: float) -> None:
        for lane in self._read.lanes_with(who):
            self._read.end(lane, who, at_ms)

    def _heartbeat_sent(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """Count a heartbeat and how late it was."""
        del at_ms
        _, late_ms = sent_and_late_ms(event)
        self._counts.heartbeats[who] += 1
        if late_ms is not None:
            self._counts.late_ms[who].append(late_ms)

    def _commit_ended(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """One side's word on a commit."""
        del at_ms
        end, error = COMMIT_ENDS[event.event], event.fields.get("error")
        self._counts.commits[CommitKey(who, end, str(error or ""))] += 1

    def _commit_accepted(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """Count the commit, unless it is counted elsewhere; members that commit read."""
        offsets = event.fields.get("offsets")
        if event.member_id and isinstance(offsets, dict):
            rhythm = _rhythm(event) if event.fields.get("sampled") else None
            self._unread.committed(offsets, at_ms, rhythm=rhythm, is_last=bool(event.fields.get("last")))
            self._lives.committed(who, at_ms, rhythm=rhythm)
            if rhythm is None:
                self._pauses.committed(offsets, at_ms)
        elif isinstance(offsets, dict):
            self._unread.reset(offsets)
        if not event.fields.get("sampled"):
            self._commit_ended(event, who, at_ms)

    def _commits_summed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """What is known of the commits that are not in the log."""
        del who, at_ms
        pauses = event.fields.get("pauses")
        spans = [
            (_number(each[0]), _number(each[1]))
            for each in (pauses if isinstance(pauses, list) else ())
            if isinstance(each, list) and len(each) == 2
        ]
        self._summed.append(Pauses(_number(event.fields.get("first_ms")), _number(event.fields.get("last_ms")), spans))

    def _commit_failed(self, event: JournalEvent, who: str, at_ms: float) -> None:
        """Count the commit and mark it."""
        self._commit_ended(event, who, at_ms)
        self._mark(event, who, at_ms)

    # --- events that are only marked

    def _mark(self, event: JournalEvent, who: str, at_ms: float) -> None:
        kind, text = MARKS[event.event]
        self._keep_mark(at_ms, who, kind, text.format_map(_Fields(event.fields)))

    def _keep_mark(self, at_ms: float, who: str, kind: MarkKind, text: str) -> None:
        self._marks.append(Mark(at_ms, who, kind, text))
        self._counts.marks[kind] += 1


class _Inference:
    """State of a group whose coordinator wrote no log: its members' states, and the highest epoch."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.epoch = 0


class _Fields(dict[str, JsonValue]):
    """Fields for a sentence; one that is missing is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


COMMIT_ENDS: Final[Mapping[str, CommitEnd]] = {
    "commit_done": "done",
    "commit_failed": "failed",
    "offsets_committed": "accepted",
    "commit_refused": "refused",
}
"""Event -> how a commit ended, and who says so."""

MARKS: Final[Mapping[str, tuple[MarkKind, str]]] = {
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
    "coordinator_loaded": ("life", "coordinator is back; records: {records}"),
    "topic_created": ("life", "topic {topic} is created"),
    "topic_deleted": ("life", "topic {topic} is deleted"),
    "partitions_added": ("life", "topic {topic} grows to {partitions}"),
    "coordinator_moved": ("life", "its coordinator moved, or began again"),
    "subscription_changed": ("life", "now wants {topics} {regex}"),
    "broker_started": ("life", "broker starts"),
    "broker_stopped": ("life", "broker stops"),
}

HANDLERS: Final[Mapping[str, Callable[[LaneBuilder, JournalEvent, str, float], None]]] = {
    **dict.fromkeys(MARKS, LaneBuilder._mark),
    "member_assignment_changed": LaneBuilder._assignment_changed,
    "member_left": LaneBuilder._member_left,
    "group_epoch_bumped": LaneBuilder._epoch_bumped,
    "group_state_changed": LaneBuilder._group_state_changed,
    "target_assignment_computed": LaneBuilder._target_computed,
    "group_converted": LaneBuilder._converted,
    "coordinator_moved": LaneBuilder._coordinator_moved,
    "classic_generation_began": LaneBuilder._generation_began,
    "member_joined": LaneBuilder._member_joined,
    "state_changed": LaneBuilder._state_changed,
    "partitions_assigned": LaneBuilder._listener_returned,
    "partitions_revoked": LaneBuilder._listener_returned,
    "partitions_lost": LaneBuilder._listener_returned,
    "listener_failed": LaneBuilder._listener_failed,
    "consumer_crashed": LaneBuilder._process_ended,
    "consumer_closed": LaneBuilder._process_ended,
    "left_group": LaneBuilder._process_ended,
    "heartbeat_sent": LaneBuilder._heartbeat_sent,
    "commit_done": LaneBuilder._commit_ended,
    "commit_failed": LaneBuilder._commit_failed,
    "offsets_committed": LaneBuilder._commit_accepted,
    "commit_refused": LaneBuilder._commit_failed,
    "commits_summed": LaneBuilder._commits_summed,
}
"""Event -> the function that draws it. Others say only that their member is there."""


def sent_and_late_ms(event: JournalEvent) -> tuple[float, float | None]:
    """When a heartbeat was sent, and how much later than expected: 0 for one that was early, None for a join."""
    sent_ms, due_ms = event.fields.get("sent_ms"), event.fields.get("due_ms")
    sent = float(sent_ms) if isinstance(sent_ms, int | float) else float(event.ts_ms)
    return sent, max(0.0, sent - due_ms) if isinstance(due_ms, int | float) else None


def _rhythm(event: JournalEvent) -> Rhythm:
    """What a commit says about those beside it that the log does not have."""
    commits, interval_ms, longest_ms = (_number(event.fields.get(name)) for name in _RHYTHM)
    return Rhythm(int(commits), interval_ms, longest_ms)


def _epoch_of(event: JournalEvent) -> int:
    """The member's epoch; -1 if it has none."""
    return -1 if event.member_epoch is None else event.member_epoch


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``orders-10`` behind ``orders-9``."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d{1,18})", name)]


def _flat(by_topic: JsonValue) -> list[str]:
    if not isinstance(by_topic, dict):
        return []
    return [  # -1 is a plain unit of workers, which has no number
        str(topic) if index == -1 else f"{topic}-{index}"
        for topic, indexes in by_topic.items()
        if isinstance(indexes, list)
        for index in indexes
    ]


def _names_of(listed: JsonValue) -> list[str]:
    return [str(name) for name in listed] if isinstance(listed, list) else []


def _number(number: JsonValue) -> float:
    return float(number) if isinstance(number, int | float) else 0.0
