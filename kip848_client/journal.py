"""The event log: one schema for client, coordinator and simulation, written as JSON lines.

Every line is an object with all of these keys::

    {"v": 1, "ts_ms": 1700000000000, "source": "coordinator", "event": "member_joined", "group_id": "orders",
     "member_id": "m1", "client_id": "c", "member_epoch": 1, "group_epoch": 1, "fields": {...}}

`EVENTS` lists every event name once, with the contents of its ``fields``. A reader may rely on the names: they do not
change within one ``v``. This module formats and keeps events; it does not decide when one is written.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TextIO, TypeAlias

import msgspec

from kip848_client.common.json_text import to_json
from kip848_client.errors import ProtocolError

__all__ = [
    "EVENTS",
    "Journal",
    "JournalEvent",
    "JsonLinesJournal",
    "MemoryJournal",
    "parse_line",
    "read_journal",
    "tee",
]

_log: Final = logging.getLogger("kip848_client.journal")

SCHEMA_VERSION: Final = 1

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_LEVELS_MAX: Final = 20
_NUMBER_MAX: Final = 2**63
_LEFT_TO_OTHERS_MAX: Final = 10_000
"""So many lines may wait for the thread that writes; beyond that others wait for it, so that memory is bounded."""

Source: TypeAlias = Literal["client", "coordinator", "simulation"]
if TYPE_CHECKING:
    JsonValue: TypeAlias = str | int | float | bool | list["JsonValue"] | dict[str, "JsonValue"] | None
else:
    JsonValue = Any  # msgspec, which reads the annotations, cannot decode a type that contains itself

COORDINATOR_EVENTS: Final[dict[str, str]] = {
    "broker_started": "bootstrap_servers, node_id, nodes (how many), topics: the embedded broker serves",
    "broker_stopped": "the embedded broker no longer serves",
    "node_killed": "node_id: one node of several ended as by a power failure",
    "node_stopped": "node_id: one node of several was shut down",
    "node_started": "node_id: a node serves again",
    "node_paused": "node_id: a node answers nothing",
    "node_resumed": "node_id: a paused node answers again",
    "topic_created": "topic, topic_id, partitions",
    "topic_deleted": "topic, topic_id",
    "topic_reconfigured": "topic, topic_id, configs",
    "partitions_added": "topic, topic_id, partitions (the new count)",
    "request_failed": "api, error: a handler raised; the client was told UNKNOWN_SERVER_ERROR",
    "authorization_denied": "principal, host, api, operation, resource_type, resource_name",
    "connection_refused": "reason: a connection was closed for what it sent, or because there are too many",
    "fault_injected": "api, action, groups, members: a fault rule took a request",
    "data_folder_repaired": "path, what, kept_in: damage found at the start; kept_in has what is no longer served",
    "storage_failed": "error: the data folder cannot be written; repeated every ten seconds",
    "storage_recovered": "the data folder can be written again",
    "member_joined": "topics, instance_id, client_host: a heartbeat of epoch 0, or a classic join",
    "member_left": "reason: leave | session_timeout | rebalance_timeout | replaced | static_leave | sync_timeout | "
    "group_too_large | removed (in a recorded log)",
    "member_fenced": "error, sent_epoch: a heartbeat was refused and changed nothing",
    "subscription_changed": "topics, regex",
    "group_epoch_bumped": "reason",
    "assignment_requested": "assignor, reason: group_epoch_bumped | timeout | member_left | member_fenced | "
    "assignor_changed; the member should compute the target",
    "assignment_refused": "error, reason: an Install was refused",
    "assignor_failed": "assignor, error: the target stays as it was",
    "target_assignment_computed": "assignor, members: member id -> {topic: [partitions]}",
    "member_assignment_changed": "state, assigned, pending_revocation: {topic: [partitions]}",
    "group_state_changed": "old, new; the same if a rebalance began and ended at once",
    "group_converted": "type: consumer | classic; members: those on the classic protocol",
    "classic_generation_began": "protocol, leader, members: a classic group's join phase is complete",
    "coordinator_moved": "leader_epoch: the first record that the group's new coordinator wrote (in a recorded log)",
    "offsets_committed": "offsets: {topic-partition: offset}; sampled: true if others beside it are only counted, and "
    "then perhaps commits (how many), interval_ms and longest_ms (usual and longest time between them), and last: true "
    "if there was no other one before the change that follows",
    "commit_refused": "error, offsets",
    "commits_summed": "first_ms, last_ms, pauses (pairs of times between which the group committed nothing, although "
    "records waited): in a log with samples, of all its commits",
}
CLIENT_EVENTS: Final[dict[str, str]] = {
    "state_changed": "old, new, trigger",
    "group_joined": "on the classic protocol: generation, protocol, leader (self, other; coordinator in a group with "
    "members of KIP-848), members (how many the leader was told of), duration_ms of the JoinGroup",
    "assignment_received": "partitions: the target of the last heartbeat, or the answer to SyncGroup",
    "partitions_assigned": "partitions, duration_ms: the listener returned",
    "partitions_revoked": "partitions, duration_ms: the listener returned",
    "partitions_lost": "partitions, duration_ms: the listener returned",
    "listener_failed": "callback, partitions, error",
    "fetching_started": "positions: {topic-partition: offset}",
    "data_plane_renewed": "topics: created again, so records are read with a new librdkafka consumer",
    "coordinator_found": "node_id, host, port",
    "coordinator_lost": "reason",
    "coordinator_not_found": "api, error: the first failure in a row",
    "heartbeat_sent": "due_ms, sent_ms: when it was due (null for a join or a leave), and when it was sent",
    "heartbeat_failed": "error: a code or a broken connection",
    "commit_done": "offsets: {topic-partition: offset}",
    "commit_failed": "offsets, error",
    "poll_interval_exceeded": "late_ms",
    "error_surfaced": "error: raised from poll()",
    "member_failed": "error: the member is FATAL",
    "local_assignor_ran": "assignor, group_epoch, members (how many), duration_ms: it computed a target",
    "local_assignor_failed": "error, partitions, members: a client-side assignor failed, or its result was refused",
    "assignors_unsupported": "missing: the server assigns, because the coordinator has no client-side assignment",
    "group_restless": "assignments: how many in which time, with the same members and topics, and why",
    "hand_over_failed": "reason: partitions were given up before the others were known to be ready",
    "standby_began": "slots: every one is held, and the member waits for one",
    "standby_took_over": "slot, from_member (who had released it), waited_ms",
    "left_group": "the leave heartbeat was written, or could not be",
}
SIMULATION_EVENTS: Final[dict[str, str]] = {
    "consumer_started": "instance_id: a process began",
    "consumer_closed": "close() returned",
    "consumer_crashed": "the process died without leaving",
    "coordinator_crashed": "the coordinator died; its log survives",
    "coordinator_loaded": "records: how many it read back",
    "faults_ended": "from here on the group must come to rest",
}
EVENTS: Final[Mapping[str, str]] = COORDINATOR_EVENTS | CLIENT_EVENTS | SIMULATION_EVENTS
"""Event name -> the contents of its fields."""


class JournalEvent(msgspec.Struct, frozen=True, tag_field="v", tag=SCHEMA_VERSION):
    """One line of the event log.

    Args:
        ts_ms: milliseconds since 1970 (of the virtual clock in a simulation).
        event: a name of `EVENTS`.
        member_epoch: epoch of the member, or None where it has no meaning.
        group_epoch: epoch of the group, or None where it is not known (a client never knows it).
        fields: what the event adds; JSON values only.
    """

    ts_ms: int
    source: Source
    event: str
    group_id: str | None = None
    member_id: str | None = None
    client_id: str | None = None
    member_epoch: int | None = None
    group_epoch: int | None = None
    fields: Mapping[str, JsonValue] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.event not in EVENTS:
            raise ValueError(f"event {self.event!r} is not listed in journal.EVENTS")

    def to_json(self) -> str:
        """Write the event as one line, without the newline. The order of the keys is fixed."""
        return to_json(self)


@functools.cache
def _decoder() -> msgspec.json.Decoder[JournalEvent]:
    return msgspec.json.Decoder(JournalEvent)


def parse_line(line: str | bytes) -> JournalEvent:
    """Read one line back.

    Raises:
        ProtocolError: not a JSON object of this schema, an event name that is not listed, or numbers and nesting that
            no writer of an event log makes.
    """
    try:
        event = _decoder().decode(line)
        _check_value([event.ts_ms, event.member_epoch, event.group_epoch, dict(event.fields)], levels=_LEVELS_MAX)
        return event
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            f"not a line of the event log: {line[:200]!r}: {error}; v={SCHEMA_VERSION} is read"
        ) from error


def _check_value(value: JsonValue, *, levels: int) -> None:
    """Refuse JSON values that no event holds, so that readers can convert and print fields without checks."""
    if isinstance(value, dict | list):
        if not levels:
            raise ValueError("nested too deeply")
        for item in value.values() if isinstance(value, dict) else value:
            _check_value(item, levels=levels - 1)
    elif isinstance(value, int | float) and not -_NUMBER_MAX < value < _NUMBER_MAX:
        raise ValueError(f"a number out of range: {value}")


def read_journal(path: str | os.PathLike[str]) -> Iterator[JournalEvent]:
    """Yield the events of a file, except a last line without a newline, which is still being written.

    Raises:
        ProtocolError: a line is not an event; the message names file and line.
        OSError: the file cannot be read.
    """
    from pathlib import Path  # here: only callers that write a file need it

    with Path(path).open("rb") as lines:
        for number in itertools.count(1):
            line = lines.readline(_LINE_BYTES_MAX)
            if not line.endswith(b"\n"):
                if len(line) == _LINE_BYTES_MAX:
                    raise ProtocolError(f"{path}, line {number}: not an event log: longer than {len(line):,} bytes")
                return
            try:
                yield parse_line(line.decode("utf-8", "backslashreplace"))
            except ProtocolError as error:
                raise ProtocolError(f"{path}, line {number}: {error}") from error


class Journal(Protocol):
    """Receives events. Several threads call `write`, which never raises for a full or broken sink."""

    def write(self, event: JournalEvent) -> None:
        """Keep one event."""
        ...


class NullJournal:
    """Keeps nothing; the default."""

    def write(self, event: JournalEvent) -> None:
        """Forget *event*."""


class MemoryJournal:
    """Keeps events in a list, for tests and the demo.

    Args:
        on_event: called with each event after it was kept, on the writer's thread.
    """

    def __init__(self, on_event: Callable[[JournalEvent], None] | None = None) -> None:
        self._events: list[JournalEvent] = []
        self._on_event = on_event

    @property
    def events(self) -> tuple[JournalEvent, ...]:
        """Everything kept so far, oldest first."""
        return tuple(self._events)

    def named(self, *names: str) -> tuple[JournalEvent, ...]:
        """The events with one of these names, oldest first."""
        return tuple(event for event in self._events if event.event in names)

    def write(self, event: JournalEvent) -> None:
        """Keep *event*."""
        self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)


class JsonLinesJournal:
    """Appends events to a text stream, one line each, flushed line by line.

    When the stream fails (a full disk, a closed pipe), a warning is logged and no more events are written: the consumer
    or broker must not fail because of its log. `failed` then says why.

    While another thread writes, `write` leaves its line to that thread, and does not wait. So a signal handler that
    interrupts a write may close a consumer whose other thread has events to write, and the journal as well.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: Final[deque[str]] = deque()
        self._turn: Final = threading.RLock()
        self._writing = False
        """Whether the thread that has its turn is at it, for a signal handler that interrupts it."""
        self._is_over = False
        self.failed: OSError | ValueError | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> JsonLinesJournal:
        """Append to the file at *path*, and create it if it is missing.

        Raises:
            OSError: the file cannot be opened, for example because its folder is missing.
        """
        from pathlib import Path  # here: only callers that write a file need it

        return cls(Path(path).open("a", encoding="utf-8"))

    def write(self, event: JournalEvent) -> None:
        """Append *event* as one line."""
        self._lines.append(event.to_json() + "\n")
        self._write_lines(wait=len(self._lines) > _LEFT_TO_OTHERS_MAX)

    def close(self) -> None:
        """Close the stream, after all that was written so far."""
        self._is_over = True
        self._write_lines(wait=True)

    def _write_lines(self, *, wait: bool) -> None:
        """Write what is there, and close the stream if it is over, unless another call is at it and sees to that."""
        while self._lines or (self._is_over and not self._stream.closed):
            if not self._turn.acquire(blocking=wait):
                return
            try:
                if self._writing:
                    return
                self._writing = True
                try:
                    while self._lines:
                        self._write_line(self._lines.popleft())
                    if self._is_over:
                        self._stream.close()
                finally:
                    self._writing = False
            finally:
                self._turn.release()

    def _write_line(self, line: str) -> None:
        if self.failed is not None:
            return
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.failed = error
            name = getattr(self._stream, "name", "a stream")
            _log.warning("journal.given_up file=%s error=%s; what follows is not written to it", name, error)


def tee(journals: Iterable[Journal]) -> Journal:
    """Write every event to each of *journals*."""
    return _Tee(tuple(journals))


class _Tee:
    def __init__(self, journals: tuple[Journal, ...]) -> None:
        self._journals = journals

    def write(self, event: JournalEvent) -> None:
        for journal in self._journals:
            journal.write(event)
