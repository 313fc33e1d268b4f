"""Reads the cluster for the page: keeps a row for each group as it is now, and writes what changes to the history.

Three threads: one follows the records of the groups, one asks for the ends of topics, and one looks for what went wrong
in groups that have changed. Web handlers read rows and views while they hold `Board.lock`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, Kip848Error
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.follower import GroupsFollower, now_ms
from kip848_client.tools.groups.metrics import GroupTrack
from kip848_client.tools.groups.offsets_reader import PartitionEnd
from kip848_client.tools.page.analysis import OF_NOW, REST_MS, timeline_of, with_beginnings, within
from kip848_client.tools.page.history import HistoryError, HistoryFile, HistoryReader
from kip848_client.tools.page.situation import GroupStory, Level, Situation, situation_of
from kip848_client.tools.recorder import RawRecord
from kip848_client.tools.recorder.sampling import CommitSampler
from kip848_client.tools.report.findings import all_at_once, findings_of, how_it_ended
from kip848_client.tools.report.timeline.pauses import Pauses, PauseTracker

_AGAIN_S: Final = 3.0
_TURN_S: Final = 0.2
_WRITE_EVERY_S: Final = 0.5
_PRUNE_EVERY_S: Final = 30.0
_SNAPSHOT_AFTER: Final = 300
"""So many events of a group, and the next time it is at rest its state is written down."""
_SNAPSHOT_AFTER_ALL: Final = 5_000
"""... or in any state."""
_EVENTS_AT_ONCE: Final = 20_000
_QUIET_MS: Final = 4_000
_LOOK_AT_LEAST_MS: Final = 30_000
"""A group that changes all the time is looked at so often."""
_LOOK_AGAIN_MS: Final = (16_000, 90_000)
"""So long after a look it is looked at again: the commits of new owners tell when they began to read."""
_PAUSES_EVERY_S: Final = 15.0
_PAUSES_KEPT_MS: Final = 3_600_000
_GONE_KEPT: Final = 10_000
_ROWS_AT_ONCE: Final = 200
_LOOK_BACK_MS: Final = 3_600_000
_LOOK_BACK_FIRST_MS: Final = 24 * 3_600_000

Phase: TypeAlias = Literal["connecting", "reading", "live", "away"]


class Status(msgspec.Struct, frozen=True):
    """How the page is connected to the cluster.

    Args:
        phase: ``reading``: the groups' history; ``away``: the last known state is shown.
        since_ms: since when it is in that phase.
        text: why it is away; otherwise empty.
        lost: what is away.
        read, records: while it is reading: how many of how many, at most.
    """

    phase: Phase = "connecting"
    since_ms: int = 0
    text: str = ""
    read: int = 0
    records: int = 0
    cluster_id: str = ""
    listed: int = 0
    left_out: int = 0
    lost: Literal["cluster", "file", ""] = ""


class _Shown(NamedTuple):
    version: int
    row: Situation


class Board:
    """What all threads share: the rows of the page, the connection's status, and who waits for changes.

    Attributes:
        lock: held by those who read `follower`'s groups, or change rows.
        version: grows with every change; rows carry the version in which they changed.
    """

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.follower: PageFollower | None = None
        self.status: Status = Status(since_ms=now_ms())
        self.version: int = 1
        self.findings_version: int = 0
        self._rows: dict[str, _Shown] = {}
        self._gone: Final[deque[tuple[int, str]]] = deque(maxlen=_GONE_KEPT)
        self._told: Callable[[], None] = lambda: None

    def tell_changes_to(self, told: Callable[[], None]) -> None:
        """Call *told* after changes, on any thread."""
        self._told = told

    def say(self, status: Status) -> None:
        """Set the status."""
        if status != self.status:
            self.version += 1
            self.status = status
            self._told()

    def show(self, rows: Iterable[Situation], gone: Iterable[str]) -> None:
        """Change these rows."""
        version = self.version + 1
        changed = [row for row in rows if (shown := self._rows.get(row.group_id)) is None or shown.row != row]
        lost = [group_id for group_id in gone if self._rows.pop(group_id, None) is not None]
        if not changed and not lost:
            return
        for row in changed:
            self._rows[row.group_id] = _Shown(version, row)
        self._gone.extend((version, group_id) for group_id in lost)
        self.version = version
        self._told()

    def found(self) -> None:
        """Something was found to have gone wrong."""
        self.findings_version += 1
        self.version += 1
        self._told()

    def known(self) -> list[str]:
        """The groups that have a row."""
        return list(self._rows)

    def rows(self) -> list[Situation]:
        """All rows."""
        return [shown.row for shown in list(self._rows.values())]

    def row(self, group_id: str) -> Situation | None:
        """The row of one group."""
        shown = self._rows.get(group_id)
        return None if shown is None else shown.row

    def since(self, version: int) -> tuple[list[Situation], list[str]] | None:
        """Rows that changed after *version*, and groups that are gone; None if that is not known any more."""
        if len(self._gone) == _GONE_KEPT and self._gone[0][0] > version:
            return None
        rows = [shown.row for shown in list(self._rows.values()) if shown.version > version]
        return rows, [group_id for at, group_id in list(self._gone) if at > version and group_id not in self._rows]


class PageFollower(GroupsFollower):
    """All groups as they are, with a story of each, and their events in the history."""

    def __init__(
        self,
        conf: Mapping[str, str],
        board: Board,
        *,
        file: Path,
        size_max: int,
        keep_ms: int,
        groups: Sequence[str] = (),
        groups_max: int = 10_000,
        lag_every_s: float = 3.0,
        timeout_s: float = 10.0,
    ) -> None:
        super().__init__(conf, groups=groups, groups_max=groups_max, lag_every_s=lag_every_s, timeout_s=timeout_s)
        self.board: Final = board
        self.stories: Final[dict[str, GroupStory]] = {}
        self.sampler: Final = CommitSampler()
        self._keep_ms = keep_ms
        self._pauses: Final[dict[str, PauseTracker]] = {}
        self._dirty: Final[set[str]] = set()
        self._to_write: list[JournalEvent] = []
        self._last: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._snapshots_due: Final[dict[str, int]] = {}
        self.to_look_at: Final[dict[str, tuple[int, int]]] = {}
        """Group -> when it changed first and last since it was looked at."""
        self._write_due_s = self._prune_due_s = 0.0
        try:
            self.history: Final = HistoryFile(
                file, cluster_id=self.reader.cluster_id, groups=tuple(groups), size_max=size_max
            )
            self._stack.callback(self.history.close)
        except BaseException:
            self._stack.close()
            raise
        # A partition that ends before that has been made anew.
        self._stored: Final = {
            number: offset
            for number, offset in self.history.places.items()
            if offset <= self.reader.ends.get(number, 0)
        }
        self._is_old: Final = set(self._stored)

    def catch_up(self) -> None:
        """Read the groups' history."""
        records, listed = self.reader.history, sum(self.listed.values())
        begun_ms, told_s = now_ms(), 0.0
        for item in self.reader.read_to_end(patience_s=max(10.0, self._timeout_s)):
            self._take(item)
            if time.monotonic() >= told_s:
                told_s = time.monotonic() + 0.5
                self.board.say(
                    Status(
                        "reading", begun_ms, "", self.recorder.counts.records, records, self.reader.cluster_id, listed
                    )
                )
            if len(self._to_write) >= _EVENTS_AT_ONCE:
                self._write()
        with self.lock:
            self.metrics.begin(now_ms=self.reader.began_ms)
            for group_id, track in self.metrics.groups.items():
                if track.unread and (story := self.stories.get(group_id)) is not None:
                    story.unread_since_ms = story.changed_ms
        self._write()

    def ask_for_ends(self) -> bool:
        """Ask, and take the lags of all groups for their trends."""
        with self.lock:
            is_empty = not any(track.committed for track in self.metrics.groups.values())
        if is_empty:
            try:
                self._admin.list_groups(timeout_s=self._timeout_s)
            except Kip848Error:
                return False
            return True
        if not super().ask_for_ends():
            return False
        at_ms = now_ms()
        with self.lock:
            for group_id, track in self.metrics.groups.items():
                story = self.stories.get(group_id)
                if story is not None and track.committed:
                    lag = sum(
                        self.ends.lag(partition, committed.offset) or 0
                        for partition, committed in track.committed.items()
                    )
                    story.trend.add(lag, now_ms=at_ms)
                    row = self.board.row(group_id)
                    if lag or story.lag or (row is not None and row.rebalances):  # an hour ends, too
                        self._dirty.add(group_id)
                    story.lag = lag
        return True

    def turn(self) -> None:
        """Take the records that wait, show what changed, and write it down."""
        for item in self.reader.read(wait_s=_TURN_S):
            self._take(item)
        self.show()
        if time.monotonic() >= self._write_due_s:
            self._write_due_s = time.monotonic() + _WRITE_EVERY_S
            self._write()
        if time.monotonic() >= self._prune_due_s:
            self._prune_due_s = time.monotonic() + _PRUNE_EVERY_S
            self._prune()

    def show(self) -> None:
        """Make the rows of groups that changed, and of those that are in trouble, since that may be over."""
        at_ms = now_ms()
        in_trouble = {row.group_id for row in self.board.rows() if row.level > Level.ABANDONED}
        rows = []
        with self.lock:
            dirty = [*(self._dirty | in_trouble)]
            self._dirty.clear()
        for first in range(0, len(dirty), _ROWS_AT_ONCE):
            with self.lock:  # others want it, too
                for group_id in dirty[first : first + _ROWS_AT_ONCE]:
                    track, story = self.metrics.groups.get(group_id), self.stories.get(group_id)
                    if track is not None and story is not None:
                        rows.append(situation_of(track, story, self.ends, now_ms=at_ms))
        with self.lock:
            gone = [group_id for group_id in self.board.known() if group_id not in self.metrics.groups]
            for group_id in gone:
                self.stories.pop(group_id, None)
                self._pauses.pop(group_id, None)
                self._snapshots_due.pop(group_id, None)
        self.board.show(rows, gone)

    def all_changed(self) -> None:
        """Make every row anew."""
        with self.lock:
            self._dirty.update(self.metrics.groups)

    def pauses(self, *, since_ms: int) -> dict[str, Pauses]:
        """When groups committed nothing although records waited; what ended before *since_ms* is forgotten."""
        with self.lock:
            return {group_id: each.so_far(since_ms=since_ms) for group_id, each in self._pauses.items()}

    def untold(self, group_id: str) -> list[JournalEvent]:
        """The last commits of a group, which are not in the history yet; and what waits to be written."""
        with self.lock:
            waiting = [event for event in self._to_write if event.group_id == group_id]
            return [*waiting, *self.sampler.untold(group_id)]

    # --- internals

    def _take(self, item: RawRecord | PartitionEnd) -> None:
        recorder = self.recorder
        with self.lock:
            if isinstance(item, int):
                self._keep(recorder.end_of_partition(item), item)
                if item in self._last and item not in self._is_old:
                    self._next[item] = self._last[item] + 1
                return
            number = item.partition
            if number in self._is_old and item.offset >= self._stored[number]:
                self._keep(recorder.end_of_partition(number), number)
                self._is_old.discard(number)
            self._keep(recorder.add(item), number)
            self._last[number] = item.offset
            if number not in self._is_old:
                undecided = recorder.undecided(number)
                self._next[number] = item.offset + 1 if undecided is None else undecided

    def _keep(self, events: Iterator[JournalEvent], number: int) -> None:
        is_old = number in self._is_old
        for event in events:
            group_id = event.group_id
            if group_id is None:
                continue
            self.take(event)
            track = self.metrics.groups.get(group_id)
            kept = self.sampler.take(event)
            if is_old:
                for _ in kept:
                    pass  # it is in the file
            else:
                self._to_write.extend(kept)
            if track is None:
                continue
            self._dirty.add(group_id)
            if event.event == "offsets_committed":
                self._note_commit(group_id, event)
                continue
            story = self.stories.get(group_id)
            if story is None:
                story = self.stories[group_id] = GroupStory()
            story.take(event, track)
            if not is_old:
                self._snapshots_due[group_id] = self._snapshots_due.get(group_id, 0) + 1
                at_ms = now_ms()
                self.to_look_at[group_id] = self.to_look_at.get(group_id, (at_ms, at_ms))[0], at_ms

    def _note_commit(self, group_id: str, event: JournalEvent) -> None:
        story = self.stories.get(group_id)
        if story is None:
            story = self.stories[group_id] = GroupStory()
        story.committed(event.ts_ms)
        offsets = event.fields.get("offsets")
        if event.member_id and isinstance(offsets, dict):
            tracker = self._pauses.get(group_id)
            if tracker is None:
                tracker = self._pauses[group_id] = PauseTracker()
            tracker.committed(offsets, float(event.ts_ms))

    def _write(self) -> None:
        with self.lock:
            events, self._to_write = self._to_write, []
            places = dict(self._next)
            due = [
                (group_id, track)
                for group_id, count in self._snapshots_due.items()
                if count >= _SNAPSHOT_AFTER
                and (track := self.metrics.groups.get(group_id)) is not None
                and (self._is_at_rest(track) or count >= _SNAPSHOT_AFTER_ALL)
            ]
            snapshots = [(track.view.group_id, *self._snapshot(track)) for _, track in due]
            for group_id, _ in due:
                del self._snapshots_due[group_id]
        if events or places != self._written:
            self.history.write(events, places=places)
            self._written = places
        for group_id, ts_ms, lines in snapshots:
            self.history.write_snapshot(group_id, lines, ts_ms=ts_ms)

    _written: Mapping[int, int] = {}

    @staticmethod
    def _is_at_rest(track: GroupTrack) -> bool:
        return track.view.state == "Stable" and track.rebalancing_since_ms is None

    def _snapshot(self, track: GroupTrack) -> tuple[int, list[JournalEvent]]:
        """A group as all of its events lead to it; called with the lock held."""
        group_id = track.view.group_id
        story = self.stories.get(group_id)
        ts_ms = max(0 if story is None else story.changed_ms, 1)
        return ts_ms, [
            *self.recorder.snapshot(ts_ms=ts_ms, group_id=group_id),
            *(
                msgspec.structs.replace(event, fields={**event.fields, "sampled": True})
                for event in self._commits(track)
            ),
        ]

    def _commits(self, track: GroupTrack) -> Iterator[JournalEvent]:
        """Where a group is, as commits of the owners."""
        story = self.stories.get(track.view.group_id)
        for partition, (offset, at_ms) in track.committed.items():
            place = None if story is None else story.owners.get(partition)
            member = None if place is None else track.view.members.get(place.member_id)
            yield JournalEvent(
                ts_ms=at_ms,
                source="coordinator",
                event="offsets_committed",
                group_id=track.view.group_id,
                member_id=None if member is None else member.member_id,
                client_id=None if member is None else member.client_id,
                fields={"offsets": {str(partition): offset}},
            )

    def _prune(self) -> None:
        before_ms = now_ms() - self._keep_ms
        for group_id in self.history.old_groups(before_ms):
            with self.lock:
                track = self.metrics.groups.get(group_id)
                snapshot = None if track is None else self._snapshot(track)
            if snapshot is None:
                self.history.forget(group_id)
            else:
                self.history.write_snapshot(group_id, snapshot[1], ts_ms=snapshot[0], delete_before=True)
        while self.history.prune(before_ms=before_ms):
            pass
        while self.history.prune_to_size():
            pass


class Following:
    """The threads that read the cluster.

    Args:
        make: makes a follower; called again after a failure.
    """

    def __init__(self, board: Board, make: Callable[[], PageFollower]) -> None:
        self._board = board
        self._make = make
        self._stopping = threading.Event()
        self._looked_at: set[str] = set()
        self._again: dict[str, list[int]] = {}
        """When groups are looked at again."""
        self.refused: ConfigError | None = None
        """Why this cannot work at all; then `ended` was called."""
        self._ended: Callable[[], None] = lambda: None
        self._told: Callable[[str], None] = lambda _: None
        self._thread = daemon_thread(self._run, "kip848-page-groups")

    def start(self, *, ended: Callable[[], None] = lambda: None, told: Callable[[str], None] = lambda _: None) -> None:
        """Begin.

        Args:
            ended: called on another thread if it cannot go on.
            told: is told on other threads what an operator should know: that something is away, and is back.
        """
        self._ended, self._told = ended, told
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except ConfigError as error:
                self.refused = error
                self._ended()
                return
            except Kip848Error as error:
                self._away(error)
            finally:
                self._board.follower = None
            self._stopping.wait(_AGAIN_S)

    def _away(self, error: Kip848Error) -> None:
        status = self._board.status
        text = printable(str(error))
        if isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            text = "the cluster has no __consumer_offsets yet: no group was ever there"
        since_ms = status.since_ms if status.phase == "away" else now_ms()
        lost: Literal["cluster", "file"] = "file" if isinstance(error, HistoryError) else "cluster"
        if (status.phase, status.lost) != ("away", lost):
            self._told(f"{text}; trying again")
        self._board.say(msgspec.structs.replace(status, phase="away", since_ms=since_ms, text=text, lost=lost))

    def _follow(self) -> None:
        board = self._board
        with self._make() as follower:
            stop = threading.Event()
            helpers = []
            try:
                board.lock, board.follower = follower.lock, follower
                follower.catch_up()
                follower.ask_for_ends()
                follower.all_changed()
                follower.show()
                self._live(follower)
                helpers = [
                    daemon_thread(self._ask, "kip848-page-ends", follower, stop),
                    daemon_thread(self._look, "kip848-page-findings", follower, stop),
                ]
                for helper in helpers:
                    helper.start()
                while not self._stopping.is_set():
                    follower.turn()
            finally:
                stop.set()
                for helper in helpers:
                    helper.join()

    def _live(self, follower: PageFollower) -> None:
        status = self._board.status
        left_out = len(follower.metrics.left_out)
        if status.phase != "live" or status.left_out != left_out:
            since_ms = status.since_ms if status.phase == "live" else now_ms()
            cluster_id, listed = follower.reader.cluster_id, sum(follower.listed.values())
            if status.phase != "live":
                self._told(f"following {counted(listed, 'group')}")
            self._board.say(Status("live", since_ms, "", 0, 0, cluster_id, listed, left_out))

    def _ask(self, follower: PageFollower, stop: threading.Event) -> None:
        """Ask for the ends of topics over and over; brokers that do not answer are away."""
        while True:
            began_s = time.monotonic()
            if follower.ask_for_ends():
                self._live(follower)
            else:
                self._away(Kip848Error("no broker answers; the state is the last one that is known"))
            took_s = time.monotonic() - began_s
            if stop.wait(max(follower.lag_every_s - took_s, 2 * took_s, 0.05)):
                return

    def _look(self, follower: PageFollower, stop: threading.Event) -> None:
        """Look for what went wrong in groups that have changed."""
        reader = follower.history.reader()
        pauses_due_s = 0.0
        with contextlib.closing(reader):
            while not stop.wait(0.5):
                at_ms = now_ms()
                due = {group_id for group_id, times in self._again.items() if times[0] <= at_ms}
                with follower.lock:
                    changed = [
                        group_id
                        for group_id, (first_ms, last_ms) in follower.to_look_at.items()
                        if at_ms - last_ms >= _QUIET_MS or at_ms - first_ms >= _LOOK_AT_LEAST_MS
                    ]
                    for group_id in changed:
                        del follower.to_look_at[group_id]
                self._plan(follower, due, changed, at_ms=at_ms)
                due.update(changed)
                for group_id in due:
                    if stop.is_set():
                        return
                    self._look_at(follower, reader, group_id)
                if time.monotonic() >= pauses_due_s:
                    pauses_due_s = time.monotonic() + _PAUSES_EVERY_S
                    self._look_at_all(follower, at_ms)

    def _plan(self, follower: PageFollower, due: Iterable[str], changed: Iterable[str], *, at_ms: int) -> None:
        """Note when to look at groups again; at those that did not change lately once is enough."""
        for group_id in due:
            self._again[group_id].pop(0)
            if not self._again[group_id]:
                del self._again[group_id]
        for group_id in changed:
            story = follower.stories.get(group_id)
            if story is not None and at_ms - story.changed_ms < _LOOK_AGAIN_MS[-1]:
                self._again[group_id] = [at_ms + wait_ms for wait_ms in _LOOK_AGAIN_MS]

    def _look_at(self, follower: PageFollower, reader: HistoryReader, group_id: str) -> None:
        at_ms = now_ms()
        from_ms = at_ms - (_LOOK_BACK_MS if group_id in self._looked_at else _LOOK_BACK_FIRST_MS)
        if self._board.row(group_id) is not None:
            self._looked_at.add(group_id)
        else:
            self._looked_at.discard(group_id)  # it is gone
        timeline = timeline_of(reader, group_id, follower.untold(group_id), from_ms=from_ms, to_ms=at_ms, is_now=True)
        findings = [] if timeline is None else within(findings_of(timeline), from_ms=from_ms, to_ms=at_ms)
        earlier = reader.findings(from_ms=from_ms - REST_MS, to_ms=at_ms, group_id=group_id)
        lasting = list(with_beginnings((each for each in findings if each.kind not in OF_NOW), earlier))
        ended = None if timeline is None else how_it_ended(timeline)
        story = follower.stories.get(group_id)
        if ended is not None and story is not None:
            story.ended = ended[0], ended[1].text
        follower.history.write_findings(lasting, group_id=group_id, from_ms=from_ms, found_ms=at_ms)
        self._board.found()

    def _look_at_all(self, follower: PageFollower, at_ms: int) -> None:
        found = list(all_at_once(follower.pauses(since_ms=at_ms - _PAUSES_KEPT_MS)))
        if found:
            follower.history.add_findings(found, found_ms=at_ms)
            self._board.found()
